"""Detection as a whole: complete, harmless, and quick when it was asked before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib import metadata

import pytest

from backendcfg import environ
from backendcfg.probe import environment, installed, stamp
from backendcfg.probe import host as module
from backendcfg.probe.host import detect
from backendcfg.schema.host import Broken, Host

HARMLESS = """
import json, os, sys, threading
from backendcfg.probe.host import detect
def state():
    maps = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
    return {path for path in maps if ".so" in path}, dict(os.environ), threading.active_count()
before = state()
detect()
after = state()
frameworks = ("numpy", "scipy", "torch", "jax", "sklearn", "threadpoolctl")
numeric = ("blas", "blis", "mkl", "omp.", "gomp", "torch", "nvidia-ml", "lapack")
print(json.dumps({
    "imported": [name for name in frameworks if name in sys.modules],
    "variables": before[1] != after[1],
    "opened": [path for path in sorted(after[0] - before[0])
               if any(word in os.path.basename(path) for word in numeric)],
    "threads": after[2] - before[2],
}))
"""


def test_detection_imports_no_framework_sets_no_variable_and_opens_no_library():
    done = subprocess.run(
        [sys.executable, "-c", HARMLESS], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "imported": [],
        "variables": False,
        "opened": [],
        "threads": 0,
    }


def test_a_host_survives_json():
    host = detect()
    assert Host.model_validate_json(host.model_dump_json(by_alias=True)) == host


def test_every_subject_answers():
    host = detect()
    answered = {probe.probe for probe in host.probes}
    assert answered >= {
        "cpu",
        "nvidia",
        "amd",
        "apple",
        "openblas",
        "mkl",
        "blis",
        "reference-blas",
        "lapack",
        "openmp",
    }
    assert host.cpu.usable >= 1
    assert host.memory.total > 1 << 28
    assert host.packages["numpy"] == metadata.version("numpy")
    assert host.python.version == sys.version.split()[0]


def test_a_probe_that_fails_unforeseen_is_broken_and_the_others_go_on(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of luck")

    for name in ("describe_cpu", "probe_nvidia", "probe_libraries", "versions"):
        monkeypatch.setattr(module, name, fail)
    host = detect()
    broken = [probe for probe in host.probes if isinstance(probe, Broken)]
    assert {(probe.probe, probe.reason) for probe in broken} == {
        (name, "RuntimeError: out of luck") for name in ("cpu", "nvidia", "libraries", "packages")
    }
    assert (host.cpu.name, host.libraries, host.packages) == ("unknown", (), {})
    assert host.memory.total > 0


def test_where_no_thread_can_be_started_libraries_are_asked_in_this_one(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    libraries = detect().libraries
    monkeypatch.setattr("threading.Thread.start", refuse)
    assert detect().libraries == libraries


def test_ranks_that_share_the_memory_are_counted(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert detect().memory.ranks == 4


def test_variables_that_matter_are_recorded(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("UNRELATED", "1")
    found = detect().environment
    assert found["OPENBLAS_CORETYPE"] == "Haswell"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert "OMP_NUM_THREADS" not in found
    assert "UNRELATED" not in found


def test_the_core_type_in_force_is_that_of_the_variable():
    if detect().cpu.architecture != "x86_64":
        pytest.skip("Haswell is an x86-64 core type; this hardware is another")
    # In a process of its own, since NumPy may be loaded here and has chosen.
    program = (
        "from backendcfg.probe.host import detect\n"
        "print(next(one.core_type for one in detect().libraries if one.owner == 'numpy'))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "Haswell\n"


def test_families_of_variables_are_recorded_whole():
    found = environment.relevant({"MKL_SOMETHING_NEW": "1", "OMPI_RANK": "0", "HOME": "/"})
    assert found == {"MKL_SOMETHING_NEW": "1"}


@pytest.fixture(name="passing")
def _passing(monkeypatch):
    """A variable that another thread takes away once it is listed, or once it is read."""
    name, (to_name, to_text) = "OPENBLAS_PASSING", (os.environ.decodekey, os.environ.decodevalue)

    def taken_away(found: str) -> str:
        if found in (name, f"the text of {name}"):
            with suppress(KeyError):
                del os.environ[name]
        return found

    monkeypatch.setenv(name, f"the text of {name}")
    monkeypatch.setattr(os.environ, "decodekey", lambda key: taken_away(to_name(key)))
    monkeypatch.setattr(os.environ, "decodevalue", lambda text: taken_away(to_text(text)))
    return name


@pytest.mark.parametrize(
    "read",
    [environ.copy, environment.relevant, environment.watched, stamp.relevant_environment],
)
def test_a_variable_that_is_taken_away_while_they_are_listed_is_left_out(read, passing):
    assert passing not in read()
    assert passing not in os.environ


def test_a_variable_that_is_taken_away_while_it_is_read_is_as_it_was(passing):
    assert environ.foreign([passing]) == {passing: f"the text of {passing}"}
    assert environ.foreign([passing]) == {}


def test_no_variable_is_in_both_tables():
    assert set(environment.OTHERS) & set(environment.variables.names()) == set()


def test_a_half_removed_distribution_has_no_version(tmp_path, monkeypatch):
    (tmp_path / "numexpr-2.10.0.dist-info").mkdir()
    whole = tmp_path / "numba-0.60.0.dist-info"
    whole.mkdir()
    (whole / "METADATA").write_text("Metadata-Version: 2.1\nName: numba\nVersion: 0.60.0\n\nx\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed.versions() == {"numba": "0.60.0"}
