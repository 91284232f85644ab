"""Which numeric libraries are here, from real files and small ones."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from backendcfg import environ
from backendcfg.catalogue.cpu import kind_of, provider_of
from backendcfg.probe import inspection, installed, kept, loaded
from backendcfg.probe.libraries import implied_threads, probe_libraries
from backendcfg.probe.loaded import owner_of
from backendcfg.schema.host import Absent, Broken, Found


def candidates(*paths):
    found = installed.Candidates()
    for path in paths:
        found.add(path)
    return found


def only(path):
    """What is said of one file; other tests may have loaded NumPy's library into this process."""
    libraries, _ = probe_libraries(affinity=8, candidates=candidates(path))
    (library,) = (one for one in libraries if one.path == path)
    return library


@pytest.mark.parametrize(
    ("path", "kind", "owner"),
    [
        (
            "/v/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so",
            "openblas",
            "numpy",
        ),
        ("/v/site-packages/scipy.libs/libscipy_openblas-6cdc3b4a.so", "openblas", "scipy"),
        ("/v/site-packages/scipy/.dylibs/libopenblas.0.dylib", "openblas", "scipy"),
        (
            "/v/site-packages/scipy_openblas64/lib/libscipy_openblas64_.so",
            "openblas",
            "scipy-openblas64",
        ),
        ("/v/site-packages/torch/lib/libtorch_cpu.so", "mkl", "torch"),
        ("/v/site-packages/torch/lib/libgomp-24e2ab19.so.1", "openmp", "torch"),
        ("/v/site-packages/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0", "openmp", "scikit-learn"),
        ("/v/site-packages/sklearn/.dylibs/libomp.dylib", "openmp", "scikit-learn"),
        ("/v/site-packages/blis/cy.cpython-312-x86_64-linux-gnu.so", "blis", "blis"),
        ("/v/lib/libmkl_rt.so.2", "mkl", "mkl"),
        ("/v/lib/libiomp5.so", "openmp", "intel-openmp"),
        (
            "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so",
            "openblas",
            "system",
        ),
        ("/usr/lib/x86_64-linux-gnu/openblas64-pthread/libopenblas64.so.0", "openblas", "system"),
        ("/usr/lib/x86_64-linux-gnu/blis-openmp/libblis.so.4.0.0", "blis", "system"),
        ("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0", "reference-blas", "system"),
        ("/usr/lib64/libcblas.so.3", "reference-blas", "system"),
        ("/usr/lib/x86_64-linux-gnu/liblapack.so.3", "lapack", "system"),
        ("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0", "openmp", "system"),
        ("/usr/lib/llvm-17/lib/libomp.so.5", "openmp", "system"),
        ("/usr/lib/x86_64-linux-gnu/libblas.a", "", "system"),
        ("/usr/lib/libompi.so", "", "system"),
        ("/usr/lib/libcublas.so.12", "", "system"),
        ("/usr/lib/libopenblas.so.conf", "openblas", "system"),
        ("/v/site-packages/cmake/libopenblas.cmake", "", "cmake"),
    ],
)
def test_a_name_says_the_kind_and_the_place_the_owner(path, kind, owner):
    assert (kind_of(path), owner_of(path, "/v")) == (kind, owner)
    assert loaded.may_be_numeric(path) or not kind


def test_a_library_of_a_conda_environment_is_condas(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    assert owner_of(str(tmp_path / "lib" / "libopenblas.so.0"), str(tmp_path)) == "conda"


@pytest.mark.parametrize(
    ("kind", "owner", "serves", "provider"),
    [
        ("openblas", "numpy", True, "openblas"),
        ("openblas", "system", True, "openblas"),
        ("openblas", "scipy", True, "scipy-openblas"),
        ("openblas", "scipy-openblas32", True, "scipy-openblas"),
        ("mkl", "mkl", True, "mkl"),
        ("mkl", "torch", False, ""),
        ("blis", "blis", False, ""),
        ("openmp", "torch", True, ""),
    ],
)
def test_what_serves_is_a_provider(kind, owner, serves, provider):
    assert provider_of(kind, owner, serves=serves) == provider


def test_numpys_own_openblas_is_found_with_its_names():
    libraries, _ = probe_libraries(affinity=8)
    numpys = next(library for library in libraries if library.owner == "numpy")
    assert (numpys.kind, numpys.provider) == ("openblas", "openblas")
    assert (numpys.prefix, numpys.suffix, numpys.interface) == ("scipy_", "64_", "ilp64")
    assert numpys.version.startswith("0.3.")
    assert numpys.core_type
    assert numpys.threading == "pthreads"
    assert os.path.isfile(numpys.path)


def test_numpys_library_comes_first_and_no_file_twice():
    libraries, _ = probe_libraries(affinity=8)
    assert libraries[0].owner == "numpy"
    paths = [library.path for library in libraries]
    assert paths == list(dict.fromkeys(paths))


@pytest.mark.mkl
def test_the_mkl_wheel_is_found_outside_its_package():
    version = metadata.version("mkl") if _has("mkl") else pytest.skip("no mkl wheel here")
    libraries, _ = probe_libraries(affinity=8)
    found = next(library for library in libraries if library.owner == "mkl")
    assert (found.provider, found.interface) == ("mkl", "both")
    assert version.startswith(found.version)


@pytest.mark.torch
def test_the_mkl_inside_torch_is_found_and_serves_nobody_else():
    libraries, _ = probe_libraries(affinity=8)
    found = [one for one in libraries if one.owner == "torch" and one.kind == "mkl"]
    if not _has("torch"):
        pytest.skip("no torch here")
    assert [(one.provider, one.interface) for one in found] == [("", "lp64")]
    assert found[0].version


def _has(name):
    return any(True for _ in metadata.distributions(name=name))


def test_a_broken_file_is_reported_and_hides_nothing(compiled, tmp_path):
    good = compiled("good/libopenblas.so", "OPENBLAS")
    empty = compiled("empty/libopenblas.so")
    text = tmp_path / "text" / "libmkl_rt.so.2"
    text.parent.mkdir()
    text.write_text("not a library")
    crash = compiled("crash/libblis.so.4", "ON_LOAD_SEGFAULT")
    found = candidates(empty, str(text), crash, good)
    libraries, probes = probe_libraries(affinity=8, candidates=found)
    assert good in [library.path for library in libraries]
    assert [probe for probe in probes if isinstance(probe, Broken)] == [
        Broken(probe="openblas", path=empty, reason="no symbol openblas_get_config"),
        Broken(probe="mkl", path=str(text), reason="file too short"),
        Broken(probe="blis", path=crash, reason="killed the process that opened it (SIGSEGV)"),
    ]
    openblas = [probe for probe in probes if isinstance(probe, Found) and probe.probe == "openblas"]
    assert "system 0.3.99" in openblas[0].detail


def test_a_kind_that_is_nowhere_is_absent_and_a_broken_one_is_not(compiled):
    crash = compiled("crash/libblis.so.4", "ON_LOAD_SEGFAULT")
    _, probes = probe_libraries(affinity=8, candidates=candidates(crash))
    outcomes = {probe.probe: probe.outcome for probe in probes}
    assert (outcomes["blis"], outcomes["lapack"]) == ("broken", "absent")
    assert (
        Absent(
            probe="lapack",
            reason="no LAPACK in this process, this environment or on the loader path",
        )
        in probes
    )


@pytest.mark.parametrize(
    ("facts", "environment", "threads"),
    [
        ({"kind": "openblas", "max_threads": 64}, {}, 8),
        ({"kind": "openblas", "max_threads": 4}, {}, 4),
        ({"kind": "openblas", "max_threads": 64}, {"OMP_NUM_THREADS": "3"}, 3),
        (
            {"kind": "openblas", "max_threads": 64},
            {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "5"},
            5,
        ),
        (
            {"kind": "openblas", "max_threads": 64, "threading": "openmp"},
            {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "5"},
            3,
        ),
        ({"kind": "openblas", "max_threads": 64}, {"OPENBLAS_NUM_THREADS": "many"}, 8),
        ({"kind": "openblas", "threading": "sequential"}, {}, 1),
        ({"kind": "openmp"}, {"OMP_NUM_THREADS": "6,2"}, 6),
        ({"kind": "mkl"}, {"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "4"}, 2),
        ({"kind": "mkl"}, {}, 0),
        ({"kind": "blis"}, {}, 0),
        ({"kind": "lapack"}, {"OMP_NUM_THREADS": "4"}, 0),
    ],
)
def test_threads_are_what_the_environment_implies(facts, environment, threads):
    assert implied_threads(facts, 8, environment) == threads


def test_answers_are_remembered_and_no_child_is_started_again(compiled, monkeypatch):
    path = compiled("libopenblas.so", "OPENBLAS")
    first = only(path)
    monkeypatch.setattr(inspection, "ask", lambda *_, **__: pytest.fail("asked again"))
    assert only(path) == first


def test_a_file_that_changed_is_asked_again(compiled):
    path = compiled("libopenblas.so", "OPENBLAS")
    assert only(path).version == "0.3.99"
    compiled("libopenblas.so", "OPENBLAS", CONFIG='"OpenBLAS 0.4.0 MAX_THREADS=2"')
    assert only(path).version == "0.4.0"


def test_another_core_type_is_asked_for_again(compiled, monkeypatch):
    path = compiled("libopenblas.so", "OPENBLAS")
    assert only(path).core_type == "Haswell"
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")
    assert only(path).core_type == "Zen"


def test_another_processor_is_asked_for_again(compiled, monkeypatch):
    path = compiled("libopenblas.so", "OPENBLAS")
    probe_libraries("EPYC 1", candidates=candidates(path))
    asked = []
    ask = inspection.ask
    monkeypatch.setattr(inspection, "ask", lambda *a, **k: asked.append(1) or ask(*a, **k))
    probe_libraries("EPYC 2", candidates=candidates(path))
    assert asked == [1]


def test_a_hung_file_is_left_alone_for_a_while(compiled, monkeypatch):
    path = compiled("libopenblas.so", "ON_LOAD_HANG")
    _, first = probe_libraries(candidates=candidates(path), timeout=0.5)
    monkeypatch.setattr(inspection, "ask", lambda *_, **__: pytest.fail("asked again"))
    _, again = probe_libraries(candidates=candidates(path), timeout=0.5)
    assert first == again
    now = kept.time.time()
    monkeypatch.setattr(kept.time, "time", lambda: now + 601)
    with pytest.raises(pytest.fail.Exception, match="asked again"):
        probe_libraries(candidates=candidates(path), timeout=0.5)


def test_a_crash_is_asked_again_each_time(compiled, monkeypatch):
    path = compiled("libopenblas.so", "ON_LOAD_SEGFAULT")
    probe_libraries(candidates=candidates(path))
    monkeypatch.setattr(inspection, "ask", lambda *_, **__: pytest.fail("asked again"))
    with pytest.raises(pytest.fail.Exception, match="asked again"):
        probe_libraries(candidates=candidates(path))


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"k": 1}', "\0"])
def test_a_corrupt_store_is_ignored_and_replaced(compiled, text):
    path = compiled("libopenblas.so", "OPENBLAS")
    store = Path(environ.cache_directory()) / "libraries.json"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(text)
    assert only(path).version == "0.3.99"
    kept = json.loads(store.read_text()).values()
    versions = [entry["facts"].get("version") for entry in kept if isinstance(entry, dict)]
    assert "0.3.99" in versions


def test_a_store_that_cannot_be_written_changes_nothing(compiled, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(blocked / "below"))
    assert only(compiled("libopenblas.so", "OPENBLAS")).version == "0.3.99"


def test_a_library_named_by_a_link_is_found_once(compiled, tmp_path):
    real = compiled("openblas-pthread/libopenblasp-r0.3.99.so", "OPENBLAS")
    link = tmp_path / "libblas.so.3"
    link.symlink_to(real)
    assert candidates(str(link), real).kinds == {real: "openblas"}


def test_a_dangling_link_is_no_candidate(tmp_path):
    link = tmp_path / "libopenblas.so.0"
    link.symlink_to(tmp_path / "gone")
    assert candidates(str(link)).kinds == {}


def test_directories_of_the_loader_variable_are_searched(compiled, monkeypatch, tmp_path):
    path = compiled("mine/libopenblas.so.0", "OPENBLAS")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":relative:{tmp_path / 'mine'}")
    assert installed.find(root=str(tmp_path / "nothing")).kinds[path] == "openblas"


def loader_cache(*entries, magic=b"glibc-ld.so.cache1.1"):
    """The bytes of an /etc/ld.so.cache with these names and paths."""
    table, strings = b"", b""
    start = 48 + 24 * len(entries)
    for name, path in entries:
        key = start + len(strings)
        strings += name.encode() + b"\0"
        value = start + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("=iIIIQ", 0x0303, key, value, 0, 0)
    return struct.pack("=20sII", magic, len(entries), len(strings)) + bytes(20) + table + strings


def test_the_loaders_list_is_read(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ld.so.cache").write_bytes(
        loader_cache(
            ("libblas.so.3", "/usr/lib/x86_64-linux-gnu/libblas.so.3"),
            ("libblas.so.3", "/usr/lib/libblas.so.3"),
            ("libm.so.6", "/usr/lib/i386-linux-gnu/libm.so.6"),
        )
    )
    assert installed.loader_cache(str(tmp_path)) == {
        "libblas.so.3": f"{tmp_path}/usr/lib/x86_64-linux-gnu/libblas.so.3"
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "/etc/ld.so.cache does not hold the glibc 2.2 format"),
        (b"x" * 200, "/etc/ld.so.cache does not hold the glibc 2.2 format"),
        (
            loader_cache(("liba.so", "/a"), ("libb.so", "/b"))[:60],
            "/etc/ld.so.cache ends too early",
        ),
    ],
)
def test_a_broken_list_of_the_loader_is_reported(tmp_path, data, reason):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ld.so.cache").write_bytes(data)
    found = installed.find(root=str(tmp_path))
    assert found.broken == [Broken(probe="libraries", path="/etc/ld.so.cache", reason=reason)]


def test_this_systems_list_agrees_with_ldconfig():
    try:
        said = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no ldconfig here")
    names = {line.split()[0] for line in said.splitlines()[1:] if "=>" in line}
    assert set(installed.loader_cache()) == names


def test_a_loaded_file_without_its_symbols_hides_nothing(compiled):
    program = f"""
import ctypes, json
from backendcfg.probe import installed
from backendcfg.probe.libraries import probe_libraries
kept = [ctypes.CDLL(path) for path in {[compiled("a/libomp.so"), compiled("b/libopenblas.so")]!r}]
good = installed.Candidates()
good.add({compiled("good/libopenblas.so", "OPENBLAS")!r})
libraries, probes = probe_libraries(candidates=good, affinity=1)
print(json.dumps([[one.version for one in libraries if one.kind == "openblas"],
                  sorted(one.reason for one in probes if one.outcome == "broken")]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [
        ["0.3.99"],
        ["no symbol omp_get_max_threads", "no symbol openblas_get_config"],
    ]


def test_libraries_of_this_process_are_asked_here_and_others_are_not_opened(compiled):
    program = f"""
import ctypes, json, sys
from backendcfg.probe import installed
from backendcfg.probe.libraries import probe_libraries
loaded = ctypes.CDLL({compiled("loaded/libopenblas.so", "OPENBLAS")!r})
found = installed.Candidates()
found.add({compiled("other/libopenblas.so", "OPENBLAS", SUFFIX="64_")!r})
before = open("/proc/self/maps").read().count("libopenblas")
libraries, _ = probe_libraries(candidates=found, affinity=1)
after = open("/proc/self/maps").read().count("libopenblas")
print(json.dumps([before == after] + sorted(
    [one.loaded, one.threads, one.suffix] for one in libraries if one.kind == "openblas")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # Loaded: the library's own count; not loaded: what the environment implies.
    assert json.loads(done.stdout) == [True, [False, 1, "64_"], [True, 7, ""]]
