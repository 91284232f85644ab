"""Tables on disk: written whole, read where they were made, and refused with the reason elsewhere."""

import json
import os

import pytest

from backendcfg.dispatch import calibration
from backendcfg.dispatch.calibration import Measurable, Measured, Table
from backendcfg.errors import StateUnwritableError

TIMES = {"dgemm": {6: {"openblas": 2e-7, "blis": 1e-7}}}


@pytest.fixture(name="files")
def _files(tmp_path):
    for name in ("openblas", "blis"):
        (tmp_path / f"lib{name}.so").write_text(name)
    return {name: str(tmp_path / f"lib{name}.so") for name in ("openblas", "blis")}


def test_what_is_written_is_what_is_read(stored, files):
    table = stored(files, TIMES)
    read = calibration.read(1)
    assert read == table
    assert read.times["dgemm"][6]["blis"] == Measured(1e-7, 0.01, 7)
    assert read.libraries["blis"].version == "1.0"
    assert read.day == "2027-01-15"


def test_without_a_table_it_says_how_to_make_one(stored):
    assert calibration.read(1) == "there is none: `backendcfg tune` makes one"


def test_a_table_for_other_threads_is_named(stored, files):
    stored(files, TIMES, threads=2)
    stored(files, TIMES, threads=8)
    assert calibration.read(1) == "there is none for 1 thread, only for 2, 8"


def test_tables_of_other_machines_are_passed_over(stored, files):
    stored(files, TIMES)
    file = calibration.path(1)
    os.rename(file, os.path.join(os.path.dirname(file), "0123456789abcdef-1.json"))
    assert calibration.read(1) == "there are only those of other machines"


def test_a_table_of_the_version_before_is_one_without_linear_algebra(stored, files):
    data = stored(files, TIMES).to_dict()
    assert data["version"] == 2
    with open(calibration.path(1), "w") as stream:
        json.dump(data | {"version": 1}, stream)
    read = calibration.read(1)
    assert isinstance(read, Table)
    assert read.times.keys() == {"dgemm"}


def test_a_table_is_read_once_for_all_profiles_and_again_when_it_changed(stored, files):
    stored(files, TIMES)
    first = calibration.read(1)
    assert calibration.read(1) is first
    stored(files, {"dgemm": {6: {"openblas": 3e-7}}})
    assert calibration.read(1).times["dgemm"][6]["openblas"].seconds == 3e-7


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": 0}', '{"version": 1}', '{"version": 3}']
)
def test_a_damaged_table_is_no_table(stored, files, text):
    stored(files, TIMES)
    file = calibration.path(1)
    with open(file, "w") as stream:
        stream.write(text)
    assert calibration.read(1) == f"{file} cannot be read: `backendcfg tune` makes it anew"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"release": "0.0.9"}, "it was made by release 0.0.9"),
        (
            {"machine": "0" * 64, "processor": "Pentium"},
            "it was made on another machine: Pentium",
        ),
        ({"threads": 4}, "it was made with 4 threads, and 1 are in force"),
    ],
)
def test_a_table_that_was_copied_here_is_refused(stored, files, change, reason):
    table = stored(files, TIMES)
    data = table.to_dict() | change
    with open(calibration.path(1), "w") as stream:
        json.dump(data, stream)
    assert calibration.read(1) == reason


def test_a_variable_that_chooses_kernels_makes_it_another_machine(stored, files, monkeypatch):
    stored(files, TIMES)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert calibration.read(1) == (
        "OPENBLAS_CORETYPE was not set when it was made, and is Haswell now"
    )
    stored(files, TIMES)
    assert isinstance(calibration.read(1), Table)
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    assert calibration.read(1) == (
        "OPENBLAS_CORETYPE was Haswell when it was made, and is not set now"
    )


def test_a_library_that_was_replaced_or_moved_is_noticed(stored, files, tmp_path):
    table = stored(files, TIMES)
    assert calibration.replaced(table, "blis", files["blis"]) == ""
    assert calibration.replaced(table, "mkl", "/anywhere") == ""
    (tmp_path / "libblis.so").write_text("a newer one")
    assert calibration.replaced(table, "blis", files["blis"]) == (
        "`blis` was replaced since it was made"
    )
    other = str(tmp_path / "libother.so")
    assert calibration.replaced(table, "blis", other) == (
        f"`blis` was {files['blis']} when it was made, and is {other} now"
    )


def test_a_link_to_the_measured_file_is_that_file(stored, files, tmp_path):
    table = stored(files, TIMES)
    (tmp_path / "link.so").symlink_to(files["blis"])
    assert calibration.replaced(table, "blis", str(tmp_path / "link.so")) == ""


def test_a_table_that_cannot_be_written_leaves_the_old_one(stored, files, monkeypatch):
    from backendcfg.transact import disk

    old = stored(files, TIMES)

    def full(handle, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "write", full)
    with pytest.raises(StateUnwritableError) as caught:
        calibration.write(Table(old.machine, old.processor, 1, 0.0))
    monkeypatch.undo()
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", os.path.dirname(os.path.dirname(_path(caught))))
    assert caught.value.state == "the calibration is as it was before"
    assert calibration.read(1) == old


def _path(caught):
    return caught.value.message.removeprefix("cannot write ").partition(":")[0]


@pytest.mark.parametrize(
    ("asked", "variables", "threads"),
    [
        (("threads.count",), {}, 3),
        (("threads.count",), {"OPENBLAS_NUM_THREADS": "7"}, 3),
        ((), {"OPENBLAS_NUM_THREADS": "7", "OMP_NUM_THREADS": "5"}, 7),
        ((), {"OMP_NUM_THREADS": "5"}, 5),
    ],
)
def test_threads_are_those_asked_for_else_those_of_the_variables(
    monkeypatch, asked, variables, threads
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert calibration.threads({"threads.count": 3}, asked) == threads


def test_nobody_asking_means_every_usable_processor(monkeypatch):
    from backendcfg.probe.limits import read_limits

    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")
    assert calibration.threads({}) == read_limits().usable


def test_a_file_that_is_gone_has_no_identity(tmp_path):
    assert calibration.identity(str(tmp_path / "gone")) == ()
    assert Measurable("") == Measurable("", "", (), "")
