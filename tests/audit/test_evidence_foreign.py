"""Files that a library of somebody else reads are read in a child, which such a file may end."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest

from backendcfg.audit.evidence import files, foreign
from backendcfg.audit.evidence.prove import prove
from backendcfg.audit.evidence.runs import Side

FAKE = """
import os, signal

class Dataset:
    pass

class Group:
    pass

class HardLink:
    pass

class File(Group):
    def __init__(self, path, mode):
        with open(path) as file:
            text = file.read()
        with open(os.environ["READ"], "a") as file:
            print(os.path.basename(path), os.getpid(), file=file)
        print("a library talks")
        if "crash" in text:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in text:
            signal.pause()
        self.attrs = {"text": text}

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def visititems(self, visit):
        pass

    visititems_links = visititems
"""


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    """A folder for files, and on the path of every process an h5py that some of them end."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "h5py.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path / "path")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("READ", str(tmp_path / "read"))
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.h5").write_text(text)


def have_parts(found):
    return [name.removesuffix(".h5") for name, one in found.items() if one.parts]


def were_read(folder):
    """The files that were read, and the process of each, and forget them."""
    read = folder.parent / "read"
    rows = [row.split() for row in read.read_text().splitlines()]
    read.unlink()
    return [name.removesuffix(".h5") for name, _ in rows], [process for _, process in rows]


def test_a_file_that_ends_the_library_is_compared_by_bytes_and_the_others_by_what_they_hold(folder):
    write(folder, a="one", b="crash", c="two", d="three")
    first = files.written(str(folder), {})
    assert have_parts(first) == ["a", "c", "d"]
    names, processes = were_read(folder)
    assert names == ["a", "b", "c", "d"]
    assert processes[0] == processes[1] != processes[2] == processes[3]
    assert str(os.getpid()) not in processes
    write(folder, a="other", b="crash again")
    second = files.written(str(folder), {}, first)
    assert were_read(folder)[0] == ["a", "b"]
    assert [one.words for one in files.differing(first, second)] == [
        "a.h5: attribute `text of /`",
        "b.h5: other bytes",
    ]


def test_a_file_that_holds_the_library_up_is_compared_by_bytes(folder, monkeypatch):
    monkeypatch.setattr(foreign, "LIMIT_SECONDS", 0.1)
    write(folder, a="hang")
    assert have_parts(files.written(str(folder), {})) == []


def test_after_three_files_that_end_the_library_none_is_read(folder):
    write(folder, a="one", b="crash", c="crash", d="crash", e="two")
    assert have_parts(files.written(str(folder), {})) == ["a"]
    assert were_read(folder)[0] == ["a", "b", "c", "d"]


def test_no_child_starts_where_its_library_is_missing_or_nothing_needs_one(folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (folder / "a.csv").write_text("1")
    write(folder, a="one")
    assert have_parts(files.written(str(folder), {})) == []
    monkeypatch.setitem(foreign.LIBRARIES, ".h5", "nobody_has_this_library")
    assert have_parts(files.written(str(folder), {})) == []


def test_a_program_whose_file_ends_the_library_is_proven(folder):
    program = f"open({str(folder / 'x.h5')!r}, 'w').write('crash')"
    found = prove(
        [sys.executable, "-c", program], Side("here", os.environ), {}, runs=3, folder=str(folder)
    )
    assert (found.equal, found.files) == (True, 1)
    assert were_read(folder)[0] == ["x"]


REAL = """
import sys
import h5py, numpy as np, pyarrow as pa, pyarrow.parquet as pq
value, level = float(sys.argv[1]), int(sys.argv[2])
with h5py.File("x.h5", "w") as file:
    made = file.create_dataset("a/b", data=np.full(1000, value), compression="gzip", compression_opts=level)
    made.attrs["unit"] = "m"
    file["word"] = "text"
columns = {"x": [1.0, value, None], "when": pa.array([1, 2, 3], pa.timestamp("ns")), "word": ["a", None, "c"]}
pq.write_table(pa.table(columns), "x.parquet", row_group_size=level)
"""


@pytest.mark.skipif(
    find_spec("h5py") is None or find_spec("pyarrow") is None, reason="needs h5py and pyarrow"
)
def test_files_of_the_real_libraries_are_compared_by_what_they_hold(python, tmp_path):
    def written(value, level, first=None):
        python(REAL, value, level)
        return files.written(str(tmp_path), {}, first)

    first = written("1.5", "1")
    assert sorted(kind for kind, _ in first["x.h5"].parts) == [
        "attribute",
        "dataset",
        "dataset",
        "group",
        "group",
    ]
    assert list(first["x.parquet"].parts) == [
        ("column", "x"),
        ("column", "when"),
        ("column", "word"),
    ]
    same, other = written("1.5", "2", first), written("2.5", "2", first)
    assert first["x.h5"].whole != same["x.h5"].whole
    assert first["x.parquet"].whole != same["x.parquet"].whole
    assert files.differing(first, same) == []
    assert [one.words for one in files.differing(first, other)] == [
        "x.h5: dataset `a/b`",
        "x.parquet: column `x`",
    ]
