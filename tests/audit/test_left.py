"""What a program leaves for us is read whatever it left: plain files, up to a size, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backendcfg.audit.evidence import recorded
from backendcfg.audit.evidence.record import head
from backendcfg.audit.trace import reading
from backendcfg.audit.trace.again import Exactness

STREAM = json.dumps({"stream": "0-0", "python": "python"}).encode() + b"\n"
LINES = STREAM + b'{"name": "mm"}\n'
OPERATION = bytes(4) + b"12345678"
RECORD = (
    head("")
    + b'{"name": "x", "dtype": "uint8", "shape": [], "digest": 1, "kept": true, "bytes": 1}\n7'
)


def to_pipe(path, _):
    os.mkfifo(path)


def to_folder(path, _):
    path.mkdir()


def to_device(path, _):
    path.symlink_to("/dev/zero")


def to_link(path, outside):
    path.symlink_to(outside)


ODD = [to_pipe, to_folder, to_device, to_link]


@pytest.fixture(name="folder")
def _folder(tmp_path):
    (tmp_path / "left").mkdir()
    return tmp_path / "left"


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["0-0.lines", "0-0.records", "0-0.samples"])
def test_of_a_stream_only_plain_files_are_read(name, make, folder):
    contents = {
        "0-0.lines": LINES,
        "0-0.records": OPERATION,
        "0-0.samples": bytes(4) + b"\1\0\0\0" + bytes(8),
    }
    for each, content in contents.items():
        (folder / each).write_bytes(content)
    (folder / name).rename(folder.parent / "outside")
    make(folder / name, folder.parent / "outside")
    (found,) = reading.read(str(folder))
    there = {"0-0.lines": found.names, "0-0.records": found.records, "0-0.samples": found.samples}
    assert len(there[name]) == 0
    assert (folder.parent / "outside").read_bytes() == contents[name]


@pytest.mark.parametrize("make", ODD)
def test_of_what_was_recorded_only_plain_files_are_read(make, folder):
    (folder.parent / "outside").write_bytes(RECORD)
    make(folder / "0.records", folder.parent / "outside")
    (folder / "1.records").write_bytes(RECORD)
    first, second = recorded.read(str(folder))
    assert (len(first.records), second.records["x"][0].values) == (0, b"7")


@pytest.mark.parametrize(
    "name",
    ["x", "-", "0", "0-", "\u0663-0", "1_0-0", " 1-0", "0--1", f"{'9' * 5000}-0"[:200], "0.-1"],
)
def test_files_of_other_names_are_passed_over(name, folder):
    for suffix in (".lines", ".records"):
        (folder / (name + suffix)).write_bytes(b"")
    assert reading.read(str(folder)) == []
    assert recorded.read(str(folder)) == () or name == "0"


WRONG = {
    "nested deeply": b"[" * 100_000,
    "nothing but zero bytes": bytes(100),
    "no object": b"[1]",
    "a name that is no text": b'{"name": []}',
    "a name for the second time": b'{"name": "mm"}',
    "a count beyond measure": b'{"capped": 1' + b"0" * 5000 + b"}",
    "a count that is none": b'{"capped": 1, "repeated": null}',
}


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_of_damaged_lines_of_a_stream_those_before_are_read(line, folder):
    (folder / "0-0.lines").write_bytes(LINES + line + b'\n{"name": "add"}\n')
    (found,) = reading.read(str(folder))
    assert (found.names, found.capped, found.repeated) == (["mm"], None, 0)


def test_what_is_said_of_exactness_is_read_where_all_of_it_is_there(folder):
    whole = {"exact": "mm", "calls": [1] + [0] * 53, "place": "x.py:1", "failed": 2}
    damaged = [
        {"exact": "a"},
        whole | {"exact": 1},
        whole | {"exact": "b", "calls": [1]},
        whole | {"exact": "c", "calls": ["1"] * 54},
        whole | {"exact": "d", "place": None},
        whole | {"exact": "e", "failed": -1},
        whole | {"exact": "f", "more": 1},
    ]
    lines = "".join(json.dumps(one) + "\n" for one in [*damaged, whole])
    (folder / "0-0.lines").write_bytes(LINES + lines.encode())
    (found,) = reading.read(str(folder))
    assert found.exactness == {"mm": Exactness(whole["calls"], "x.py:1", 2)}


DETAIL = {"index": 0, "name": "mm", "place": "x.py:1", "outputs": ["float32[2]"]}
DETAILS = {
    "an index that is a list": {"index": [0]},
    "an index that is negative": {"index": -1},
    "no text for the place": {"place": None},
    "outputs that are numbers": {"outputs": [1]},
    "inputs without a digest": {"inputs": [{"what": "float32[2]"}]},
    "settings that are none": {"settings": []},
    "arguments in a file elsewhere": {"kept": {"path": "/etc/passwd", "obstacle": ""}},
    "arguments beside the folder": {"kept": {"path": "../x.kept", "obstacle": ""}},
}


@pytest.mark.parametrize("wrong", DETAILS.values(), ids=DETAILS)
def test_details_that_are_damaged_or_name_other_files_are_passed_over(wrong, folder):
    rows = [DETAIL, {**DETAIL, "index": 1, **wrong}, {"name": "add"}]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    (folder / "0-0.lines").write_bytes(LINES + lines)
    (found,) = reading.read(str(folder))
    assert found.details == {0: {"inputs": [], **DETAIL}}
    assert found.names == ["mm", "add"]


ABOUT = {"name": "x", "dtype": "float64", "shape": [1], "digest": 2, "kept": True, "bytes": 8}
RECORDS = {
    "fewer bytes than none": {"bytes": -1},
    "bytes beyond measure": {"bytes": 10**30},
    "more bytes than are kept": {"bytes": 2 << 20},
    "a shape that is none": {"shape": 1},
    "a shape of texts": {"shape": ["1"]},
    "too many dimensions": {"shape": [1] * 65},
    "a name that is none": {"name": {}},
    "a digest that is none": {"digest": None},
}


@pytest.mark.parametrize("wrong", RECORDS.values(), ids=RECORDS)
def test_of_damaged_records_those_before_are_read(wrong, folder):
    line = json.dumps({**ABOUT, **wrong}).encode() + b"\n"
    (folder / "0.records").write_bytes(RECORD + line + bytes(3 << 20))
    (found,) = recorded.read(str(folder))
    assert recorded.number_of([found]) == 1


ODD_VALUES = {
    "a type that nobody knows": {"dtype": "float8"},
    "a type that is no text of a type": {"dtype": "f4,\ud800("},
    "objects": {"dtype": "object"},
    "another number of elements": {"shape": [10**30]},
    "no elements": {"shape": [0], "bytes": 0},
}


@pytest.mark.parametrize("odd", ODD_VALUES.values(), ids=ODD_VALUES)
def test_records_whose_values_tell_nothing_differ_by_their_digests(odd, folder):
    about = {**ABOUT, **odd}
    for number in range(2):
        line = json.dumps({**about, "digest": number}).encode() + b"\n"
        (folder / f"{number}.records").write_bytes(head("") + line + bytes(about["bytes"]))
    first, second = recorded.read(str(folder))
    (found,) = recorded.differing([first], [second])
    assert "record `x` has " in found.words


HUGE = """
import resource, sys, time
from backendcfg.audit.evidence import recorded
from backendcfg.audit.trace import reading
from backendcfg.audit.trace.again import Exactness
with open("/proc/self/statm") as file:
    mapped = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 30),) * 2)
for one in reading.read(sys.argv[1]):
    print(one.key, len(one.names), len(one.samples))
for one in recorded.read(sys.argv[1]):
    print(one.number, recorded.number_of([one]))
"""


@pytest.mark.slow
def test_huge_files_are_read_in_bounded_memory(python, folder):
    beginnings = {
        "0-0.lines": LINES,
        "0-0.records": OPERATION,
        "0-0.samples": b"",
        "0-1.lines": b"",
        "0.records": RECORD,
        "1.records": b"",
    }
    for name, content in beginnings.items():
        (folder / name).write_bytes(content)
        os.truncate(folder / name, 1 << 40)
    assert python(HUGE, str(folder)).splitlines() == ["0-0 1 1", "0-1 0 0", "1 1", "2 0"]
    assert sum(path.stat().st_blocks for path in Path(folder).iterdir()) < 1000
