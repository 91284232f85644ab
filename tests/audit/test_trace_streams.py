"""Streams of operations: written by threads, forks and processes, read back, and compared."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from backendcfg.audit.trace import reading, streams
from backendcfg.audit.trace.reading import Followed, Parting, partings, read
from backendcfg.audit.trace.streams import Recorder, Wanted, want


def written(folder, operations, **wanted):
    """What a process computes, as it is read back."""
    folder.mkdir()
    want(str(folder), Wanted(**wanted))
    recorder = Recorder(str(folder))
    for name, digest in operations:
        stream = recorder.stream()
        if stream.is_in_window():
            stream.detail({"name": name, "place": f"at {stream.count}", "outputs": []})
        stream.add(name, digest)
    recorder.flush()
    return read(str(folder))


def test_operations_are_read_back_as_they_were_written(tmp_path):
    operations = [("mm", 2**64 - 1), ("add", 0), ("mm", 7)]
    (found,) = written(tmp_path / "a", operations, windows={"0-0": (1, 2)})
    assert found.key == "0-0"
    assert found.about["process"] == os.getpid()
    names = [found.names[number] for number in found.records["name"]]
    assert list(zip(names, found.records["digest"].tolist(), strict=True)) == operations
    assert {index: each["place"] for index, each in found.details.items()} == {
        1: "at 1",
        2: "at 2",
    }
    assert found.capped is None


def test_what_is_beyond_the_capacity_is_counted_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "_KEPT_BYTES", 24)
    (found,) = written(tmp_path / "a", [("mm", i) for i in range(100)], capacity=60)
    assert found.capped == 6
    assert found.records["digest"].tolist() == list(range(6))


def test_what_is_sampled_is_read_back_and_compared_until_operations_differ(tmp_path):
    def sampled(name, *operations):
        (tmp_path / name).mkdir()
        want(str(tmp_path / name), Wanted(windows={"0-0": (1, 1)}, follow=4))
        recorder = Recorder(str(tmp_path / name))
        for operation, numbers in operations:
            stream = recorder.stream()
            if stream.is_followed():
                stream.sample(np.array(numbers).tobytes())
            stream.add(operation, 0)
        recorder.flush()
        (found,) = read(str(tmp_path / name))
        return found

    one = sampled("a", *[("mm", [1.0, 4.0])] * 4, ("exp", [1.0]), ("mm", [1.0]))
    other = sampled(
        "b",
        ("mm", [9.0]),
        ("mm", [1.0, 4.0]),
        ("mm", [2.0, 4.0]),
        ("mm", [np.nan, 4.0]),
        ("log", [2.0]),
    )
    assert sorted(one.samples) == [1, 2, 3, 4]
    assert reading.followed(one, other) == [
        Followed(1, "mm", 0.0),
        Followed(2, "mm", 0.25),
        Followed(3, "mm", None),
    ]
    assert [each.apart for each in reading.followed(one, one)] == [0.0] * 4


def test_a_sample_that_was_cut_is_left_out(tmp_path):
    (one,) = written(tmp_path / "a", [("mm", 1)])
    path = tmp_path / "a" / f"{one.key}{streams.SAMPLES}"
    path.write_bytes(streams.SAMPLE.pack(0, 1) + bytes(8) + streams.SAMPLE.pack(1, 2) + bytes(8))
    (found,) = read(str(tmp_path / "a"))
    assert list(found.samples) == [0]


A = [("mm", 1), ("add", 2), ("mm", 3)]
PARTED = {
    "another digest": ([("mm", 1), ("add", 9), ("mm", 3)], Parting("0-0", 1, "add", "add")),
    "another operation": ([("mm", 1), ("sub", 2), ("mm", 3)], Parting("0-0", 1, "add", "sub")),
    "an end": ([("mm", 1)], Parting("0-0", 1, "add", "")),
    "more": ([*A, ("exp", 4)], Parting("0-0", 3, "", "exp")),
    "nothing": ([], Parting("0-0", 0, "mm", "")),
}


@pytest.mark.parametrize("kind", PARTED)
def test_the_first_operation_that_differs_is_found(kind, tmp_path):
    b, expected = PARTED[kind]
    assert partings(written(tmp_path / "a", A), written(tmp_path / "b", b)) == [expected]


def test_equal_runs_do_not_part_even_where_names_have_other_numbers(tmp_path):
    a, (b,) = written(tmp_path / "a", A), written(tmp_path / "b", A)
    assert partings(a, [b]) == []
    records = b.records.copy()
    records["name"] = len(b.names) - 1 - records["name"]
    assert partings(a, [replace(b, records=records, names=b.names[::-1])]) == []


def test_a_stream_that_only_one_run_has_parts_at_its_start(tmp_path):
    a, b = written(tmp_path / "a", A), written(tmp_path / "b", A)
    assert partings(a, []) == [Parting("0-0", 0, "mm", "")]
    assert partings([], b) == [Parting("0-0", 0, "", "mm")]


@pytest.mark.parametrize("kept", range(0, 400, 7))
def test_a_stream_that_ends_anywhere_is_read_as_far_as_it_goes(kept, tmp_path):
    """A process may be killed while it writes."""
    (whole,) = written(tmp_path / "a", A)
    for suffix in (streams.LINES, streams.RECORDS):
        path = tmp_path / "a" / f"0-0{suffix}"
        path.write_bytes(path.read_bytes()[:kept])
    (found,) = read(str(tmp_path / "a"))
    assert found.records.tolist() == whole.records.tolist()[: len(found.records)]
    assert found.names == whole.names[: len(found.names)]


PROGRAM = """
import os, sys, threading
from backendcfg.audit.trace import streams

recorder = streams.begin(sys.argv[1])
recorder.stream().add("main", 1)
order = [threading.Thread(target=lambda n=n: recorder.stream().add("thread", n)) for n in (1, 2)]
for each in order:
    each.start()
for each in reversed(order):
    each.join()
for number in (1, 2):
    if (child := os.fork()) == 0:
        recorder.stream().add("child", number)
        recorder.flush()
        os._exit(0)
    os.waitpid(child, 0)
recorder.stream().add("main", 2)
"""


def test_threads_and_forked_processes_have_streams_that_are_called_the_same_in_each_run(
    python, tmp_path
):
    found = []
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        want(str(tmp_path / run), Wanted())
        python(PROGRAM, str(tmp_path / run))
        found.append(read(str(tmp_path / run)))
    digests = {one.key: one.records["digest"].tolist() for one in found[0]}
    assert digests == {"0-0": [1, 2], "0-1": [1], "0-2": [2], "0.1-0": [1], "0.2-0": [2]}
    assert partings(*found) == []


def test_processes_that_were_not_forked_are_numbered_as_they_begin(tmp_path):
    want(str(tmp_path), Wanted())
    assert [Recorder(str(tmp_path)).key for _ in range(3)] == ["0", "1", "2"]


def test_a_program_goes_on_when_its_operations_cannot_be_written(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    want(str(folder), Wanted())
    recorder = Recorder(str(folder))
    recorder.stream().add("mm", 1)
    for path in folder.iterdir():
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()
    recorder.flush()
    recorder.stream().add("mm", 2)
    recorder.flush()
    assert recorder.stream().count == 2


@pytest.mark.parametrize("wanted", [None, "", "[]", '{"more": 1}'])
def test_a_program_is_not_recorded_where_what_is_wanted_cannot_be_read(wanted, python, tmp_path):
    folder = tmp_path / "trace"
    if wanted is not None:
        folder.mkdir()
        (folder / streams.WANTED).write_text(wanted)
    program = "import backendcfg, numpy as np; print(np.ones(2).sum())"
    assert python(program, BACKENDCFG_TRACE=str(folder)) == "2.0\n"
    assert not folder.exists() or os.listdir(folder) == [streams.WANTED]


def test_what_is_wanted_is_written_as_json(tmp_path):
    want(str(tmp_path), Wanted(keep={"0-0": 3}))
    text = (tmp_path / streams.WANTED).read_text()
    assert json.loads(text)["keep"] == {"0-0": 3}
    assert Recorder(str(tmp_path)).wanted == Wanted(keep={"0-0": 3})
    assert reading.RECORD.itemsize == 12
