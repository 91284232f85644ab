"""Thread variables that contradict the cores, and libraries to preload."""

from __future__ import annotations

import pytest

from backendcfg.launch import launcher


@pytest.mark.parametrize(
    ("preset", "changes", "notes"),
    [
        ({}, {"OMP_NUM_THREADS": "4"}, []),
        ({"OMP_NUM_THREADS": "4"}, {}, []),
        (
            {"OMP_NUM_THREADS": "7"},
            {"OMP_NUM_THREADS": "4"},
            ["OMP_NUM_THREADS=7 contradicts 4 bound cores; instances get 4"],
        ),
        (
            {"OMP_NUM_THREADS": "many"},
            {"OMP_NUM_THREADS": "4"},
            ["OMP_NUM_THREADS=many contradicts 4 bound cores; instances get 4"],
        ),
        (
            {"OMP_NUM_THREADS": "1"},
            {},
            ["OMP_NUM_THREADS=1 is set, so 3 of 4 cores will idle"],
        ),
        (
            {"OMP_NUM_THREADS": "3,2"},
            {},
            ["OMP_NUM_THREADS=3,2 is set, so 1 of 4 cores will idle"],
        ),
        (
            {"MKL_NUM_THREADS": "16", "OPENBLAS_NUM_THREADS": "4"},
            {"MKL_NUM_THREADS": "4", "OMP_NUM_THREADS": "4"},
            ["MKL_NUM_THREADS=16 contradicts 4 bound cores; instances get 4"],
        ),
    ],
)
def test_a_preset_that_contradicts_the_cores_is_told_and_not_obeyed(preset, changes, notes):
    assert launcher.threads(preset, 4) == (changes, notes)


def test_what_a_profile_sets_stays_and_is_told_when_there_are_fewer_cores():
    environment = {"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "2"}
    assert launcher.threads(environment, 4, decided=environment) == (
        {},
        ["the profile sets OMP_NUM_THREADS=8, on 4 bound cores"],
    )


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("GOMP_CPU_AFFINITY", "0-3", True),
        ("OMP_PLACES", "{0},{1}", True),
        ("OMP_PLACES", "cores", False),
        ("KMP_AFFINITY", "explicit,proclist=[0,1]", True),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0", False),
    ],
)
def test_variables_that_name_processors_are_told(name, text, told):
    _, notes = launcher.threads({name: text, "OMP_NUM_THREADS": "4"}, 4)
    expected = f"{name}={text} is set, which may send threads to cores of other instances"
    assert notes == ([expected] if told else [])


@pytest.fixture(name="system")
def _system(tmp_path, monkeypatch):
    """`system("usr/lib/libjemalloc.so")` is a system that has these files; gives its root."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def system(*paths):
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("")
        return {"root": str(tmp_path), "prefix": str(tmp_path / "env")}

    return system


def test_a_library_that_is_installed_is_preloaded_with_its_settings(system, tmp_path):
    places = system("usr/lib/libjemalloc.so.2", "usr/local/lib/libiomp5.so")
    found, notes = launcher.preload(["jemalloc", "iomp5"], {"LD_PRELOAD": "/x/mine.so"}, **places)
    assert found == {
        "LD_PRELOAD": (
            f"{tmp_path}/usr/local/lib/libiomp5.so:{tmp_path}/usr/lib/libjemalloc.so.2:/x/mine.so"
        ),
        "MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "KMP_BLOCKTIME": "1",
    }
    assert notes == []


def test_a_library_that_is_not_installed_is_told_and_changes_nothing(system):
    assert launcher.preload(["tcmalloc", "iomp5"], {}, **system()) == (
        {},
        [
            (
                "libtcmalloc.so is not installed, so it is not preloaded;"
                " it comes with gperftools, or the package libtcmalloc-minimal4"
            ),
            "libiomp5.so is not installed, so it is not preloaded; it comes with intel-openmp",
        ],
    )


def test_what_is_preloaded_already_is_not_preloaded_twice(system):
    places = system("usr/lib/libtcmalloc.so")
    present = {"LD_PRELOAD": "/opt/libtcmalloc.so.4 /x/mine.so"}
    assert launcher.preload(["tcmalloc"], present, **places) == ({}, [])


def test_settings_that_are_there_are_kept_and_told(system):
    places = system("usr/lib/libiomp5.so")
    found, notes = launcher.preload(
        ["iomp5"], {"KMP_BLOCKTIME": "200"}, leave=["KMP_AFFINITY"], **places
    )
    assert sorted(found) == ["LD_PRELOAD"]
    assert notes == ["KMP_BLOCKTIME=200 is set already and kept, not 1"]


def test_the_environment_is_searched_before_the_system(system, tmp_path):
    places = system(
        "usr/lib/libtcmalloc.so", "env/lib/libtcmalloc.so", "conda/lib/libtcmalloc_minimal.so.4"
    )
    conda = {"CONDA_PREFIX": str(tmp_path / "conda")}
    assert launcher.find("tcmalloc", conda, **places) == (
        f"{tmp_path}/conda/lib/libtcmalloc_minimal.so.4"
    )
    assert launcher.find("tcmalloc", {}, **places) == f"{tmp_path}/env/lib/libtcmalloc.so"


def test_the_loader_s_list_is_asked_last(system, monkeypatch):
    monkeypatch.setattr(
        "backendcfg.probe.installed.loader_cache",
        lambda root: {"libjemalloc.so.2": "/multiarch/libjemalloc.so.2"},
    )
    assert launcher.find("jemalloc", {}, **system()) == "/multiarch/libjemalloc.so.2"
