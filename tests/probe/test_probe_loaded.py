"""Numeric libraries of this process, found without opening any."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from backendcfg.probe import loaded
from backendcfg.probe.loaded import LoadedLibrary


def in_a_process(program):
    """What a fresh interpreter prints as JSON; libraries stay loaded, so each test needs one."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_a_bare_process_has_no_numeric_library():
    assert (
        in_a_process(
            "import json; from backendcfg.probe.loaded import libraries_in_process\n"
            "print(json.dumps(len(libraries_in_process())))"
        )
        == 0
    )


def test_numpys_openblas_is_described():
    (found,) = in_a_process(
        "import json, numpy; from dataclasses import asdict\n"
        "from backendcfg.probe.loaded import libraries_in_process\n"
        "print(json.dumps([asdict(one) for one in libraries_in_process()\n"
        "                  if one.owner == 'numpy']))"
    )
    path = found.pop("path")
    assert "/numpy.libs/libscipy_openblas64_-" in path
    assert LoadedLibrary(**found, path=path) == LoadedLibrary(
        kind="openblas",
        provider="openblas",
        owner="numpy",
        path=path,
        prefix="scipy_",
        suffix="64_",
        interface="ilp64",
    )


def test_every_kind_is_told_by_its_symbols(compiled):
    paths = [
        compiled("site-packages/scipy.libs/libscipy_openblas-1.so", "OPENBLAS", PREFIX="scipy_"),
        compiled("a/libblis64.so.4", "BLIS", INTEGER="int64_t"),
        compiled("b/libmkl_rt.so.2", "MKL"),
        compiled("c/libgomp.so.1", "OPENMP"),
        compiled("d/libblas.so.3", "OPENBLAS"),
        compiled("e/libopenblas.so", "REFERENCE"),
        compiled("f/libsomething.so", "OPENBLAS"),
    ]
    found = in_a_process(
        "import ctypes, json; from backendcfg.probe.loaded import libraries_in_process\n"
        f"kept = [ctypes.CDLL(path) for path in {paths!r}]\n"
        "print(json.dumps({one.path: [one.kind, one.provider, one.owner, one.prefix,\n"
        "      one.suffix, one.interface] for one in libraries_in_process()}))"
    )
    assert {path: found[path] for path in paths if path in found} == {
        paths[0]: ["openblas", "scipy-openblas", "scipy", "scipy_", "", "lp64"],
        paths[1]: ["blis", "blis", "system", "", "", "ilp64"],
        paths[2]: ["mkl", "mkl", "system", "", "", "both"],
        paths[3]: ["openmp", "", "system", "", "", ""],
        paths[4]: ["openblas", "openblas", "system", "", "", "lp64"],
    }


def test_a_file_deleted_since_it_was_loaded_is_left_out(compiled):
    path = compiled("libopenblas.so", "OPENBLAS")
    assert (
        in_a_process(
            "import ctypes, json, os; from backendcfg.probe.loaded import libraries_in_process\n"
            f"kept = ctypes.CDLL({path!r}); os.unlink({path!r})\n"
            "print(json.dumps(len(libraries_in_process())))"
        )
        == 0
    )


def test_a_handle_is_given_only_for_what_is_loaded(compiled):
    path = compiled("libopenblas.so", "OPENBLAS")
    assert loaded.handle_of(path) is None
    kept = ctypes.CDLL(path)
    assert loaded.handle_of(path).openblas_get_num_threads() == 7
    assert kept.openblas_get_num_threads() == 7


def test_paths_with_spaces_are_whole(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 fe:00 123   /opt/my libs/libopenblas.so\n"
        "7f01-7f02 r-xp 00001000 fe:00 123   /opt/my libs/libopenblas.so\n"
        "7f02-7f03 rw-p 00000000 00:00 0     [heap]\n"
        "7f03-7f04 rw-p 00000000 00:00 0 \n"
    )
    assert loaded.mapped_files(str(maps)) == ["/opt/my libs/libopenblas.so"]


def test_a_system_without_proc_has_nothing_mapped(tmp_path):
    assert loaded.mapped_files(str(tmp_path / "none")) == []


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_a_library_in_a_folder_of_any_name_is_found_in_every_locale(python, tmp_path, utf8):
    library = tmp_path / "Kö" / "libopenblas.so"
    library.parent.mkdir()
    library.touch()
    (tmp_path / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 7 {library}\n")
    program = """
    import os, sys
    from backendcfg.probe.loaded import mapped_files
    print([os.path.exists(path) for path in mapped_files(sys.argv[1])])
    """
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": utf8}
    assert python(program, str(tmp_path / "maps"), **locale) == "[True]\n"


def test_looking_imports_nothing_heavy():
    heavy = ("pydantic", "numpy", "click", "packaging", "archspec", "platformdirs", "subprocess")
    assert (
        in_a_process(
            "import json, sys; import backendcfg.probe.loaded, backendcfg.probe.stamp\n"
            "backendcfg.probe.loaded.libraries_in_process()\n"
            "backendcfg.probe.stamp.holds(backendcfg.probe.stamp.stamp([]))\n"
            f"print(json.dumps([name for name in {heavy!r} if name in sys.modules]))"
        )
        == []
    )
