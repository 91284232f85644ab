"""What a program writes: files compared by what they hold, each format by its parts."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import sys
import types
import zipfile
import zlib

import numpy as np
import pytest

from backendcfg.audit.evidence import files, formats

EARLY, LATE = (1990, 1, 1, 0, 0, 0), (2000, 1, 1, 0, 0, 0)


def differing(*sides):
    """The files that two runs did not write alike, in words."""
    return [one.words for one in files.differing(*sides)]


def numbers(change=0):
    """Four numbers, with the last bit of the third changed or not."""
    found = np.arange(4.0)
    found.view(np.uint64)[2] ^= change
    return found


def npy(path, change, _late):
    np.save(path, numbers(change))


def npz(path, change, late):
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in {"a": np.ones(3), "b": numbers(change)}.items():
            held = io.BytesIO()
            np.save(held, array)
            archive.writestr(
                zipfile.ZipInfo(f"{name}.npy", LATE if late else EARLY), held.getvalue()
            )


def gz(path, change, late):
    held = io.BytesIO()
    with gzip.GzipFile(fileobj=held, mode="wb", mtime=late + 5) as file:
        file.write(numbers(change).tobytes())
    path.write_bytes(held.getvalue())


def raw(path, change, _late):
    path.write_bytes(numbers(change).tobytes())


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(path, change, late):
    """An image of 2 x 2 pixels; a late one has a time, another text, and is compressed otherwise."""
    rows = bytes([0, 1, 2, 0, 3, 4 ^ change])
    pixels = zlib.compress(rows, 0 if late else 9)
    chunks = [chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))]
    if late:
        chunks += [chunk(b"tIME", bytes(7)), chunk(b"tEXt", b"Software\0late")]
        chunks += [chunk(b"IDAT", pixels[:3]), chunk(b"IDAT", pixels[3:])]
    else:
        chunks += [chunk(b"tEXt", b"Software\0early"), chunk(b"IDAT", pixels)]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND", b""))


def csv(path, change, late):
    hour = "11:30:05" if late else "10:29:04"
    path.write_text(f"at,loss\n{hour},1.0\n{hour},{float(numbers(change)[2])!r}\n")


def document(path, change, late):
    path.write_text(f'{{"date": "{2000 + late}-01-02",\n "loss": {float(numbers(change)[2])!r}}}\n')


def safetensors(path, change, late):
    tensors = {"layer.0": numbers(change), "layer.1": np.ones(2)}
    header, held = {"__metadata__": {"saved": str(late)}}, b""
    for name in sorted(tensors, reverse=bool(late)):
        begin, held = len(held), held + tensors[name].tobytes()
        offsets = [begin, len(held)]
        header[name] = {"dtype": "F64", "shape": [tensors[name].size], "data_offsets": offsets}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + held)


def pt(path, change, late):
    members = {
        "data.pkl": b"objects",
        "data/0": np.ones(2).tobytes(),
        "data/1": numbers(change).tobytes(),
        ".data/serialization_id": bytes([change, late]),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, held in members.items():
            top = "late" if late else "archive"
            archive.writestr(zipfile.ZipInfo(f"{top}/{name}", LATE if late else EARLY), held)


class Named(dict):
    """A file of HDF5's, or a group or a dataset in one, as h5py shows it."""

    def __init__(self, value=None, attrs=()):
        super().__init__()
        self.value, self.attrs = value, dict(attrs)
        self.nbytes = 0 if value is None else value.nbytes

    def __getitem__(self, key):
        return self.value

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass


@pytest.fixture(name="h5py")
def _h5py(monkeypatch):
    """A small module in the place of h5py, whose files are archives of NumPy's."""
    fake = types.ModuleType("h5py")

    class Dataset(Named):
        pass

    class Group(Named):
        pass

    class HardLink:
        pass

    class SoftLink:
        def __init__(self, path):
            self.path = path

    class File(Group):
        def __init__(self, path, mode):
            assert mode == "r"
            with open(path, "rb") as file, np.load(file, allow_pickle=True) as held:
                super().__init__(attrs={"unit": str(held["unit"])})
                self.objects = {
                    "group": Group(),
                    "group/x": Dataset(held["x"], {"scale": np.float64(held["scale"])}),
                    "names": Dataset(held["names"]),
                }
            self.links = dict.fromkeys(self.objects, HardLink()) | {"soft": SoftLink("/group/x")}

        def visititems(self, visit):
            for named in self.objects.items():
                visit(*named)

        def visititems_links(self, visit):
            for named in self.links.items():
                visit(*named)

    for one in (Dataset, Group, HardLink, SoftLink, File):
        setattr(fake, one.__name__, one)
    monkeypatch.setitem(sys.modules, "h5py", fake)
    return fake


def h5(path, change, late, **others):
    held = {"x": numbers(change), "unit": "m", "scale": 1.0, "names": np.array(["a", b"b"], object)}
    held |= others
    with open(path, "wb") as file:
        (np.savez_compressed if late else np.savez)(file, **held)


class Column:
    """An array of Arrow's: numbers of 64 bits, of which some are absent, or words."""

    def __init__(self, values):
        self.values = values
        self.type = types.SimpleNamespace(bit_width=values.dtype.itemsize * 8, of=values.dtype)

    def is_null(self):
        return Column(self.values == 3)

    def view(self, kind):
        return Column(self.values.view(kind))

    def fill_null(self, value):
        return Column(np.where(self.values.view("f8") == 3, value, self.values))

    def to_numpy(self, *, zero_copy_only):
        assert not zero_copy_only
        return self.values

    def to_pylist(self):
        return self.values.tolist()


@pytest.fixture(name="pyarrow")
def _pyarrow(monkeypatch):
    """A small module in the place of pyarrow, whose files are archives of NumPy's."""
    fake = types.ModuleType("pyarrow")
    fake.parquet = types.ModuleType("pyarrow.parquet")
    fake.types = types.SimpleNamespace(is_primitive=lambda kind: kind.of.kind == "f")

    class ParquetFile:
        def __init__(self, path):
            with open(path, "rb") as file, np.load(file) as held:
                self.columns = {name: held[name] for name in held.files}
            self.late = "late" in self.columns
            self.columns.pop("late", None)
            group = types.SimpleNamespace(total_byte_size=100)
            self.metadata = types.SimpleNamespace(
                num_rows=4, num_row_groups=1, row_group=lambda _: group
            )
            kinds = [str(array.dtype) for array in self.columns.values()]
            self.schema_arrow = types.SimpleNamespace(names=[*self.columns], types=kinds)

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            pass

        def iter_batches(self):
            for rows in (slice(0, 1), slice(1, 4)) if self.late else (slice(0, 4),):
                columns = [Column(array[rows]) for array in self.columns.values()]
                yield types.SimpleNamespace(columns=columns)

    fake.parquet.ParquetFile = ParquetFile
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake.parquet)
    return fake


def parquet(path, change, late):
    columns = {"x": numbers(change), "word": np.array(["a", "b", "c", "d"])}
    if late:
        columns = {"late": np.ones(1), **dict(reversed(columns.items()))}
    with open(path, "wb") as file:
        np.savez(file, **columns)


def written(write, path, *args, **others):
    write(path, *args, **others)
    return {path.name: files.content(str(path))}


NEXT = "2.0000000000000004"
KINDS = {
    "x.npy": (npy, "another array"),
    "x.npz": (npz, "array `b`"),
    "x.gz": (gz, "other bytes"),
    "x.bin": (raw, "other bytes"),
    "x.png": (png, "chunk `IDAT`"),
    "x.csv": (csv, f"line 3 has {NEXT}, not 2.0; 1 of 4 numbers differ, apart by 2.2e-16 at most"),
    "x.json": (
        document,
        f"line 2 has {NEXT}, not 2.0; 1 of 2 numbers differ, apart by 2.2e-16 at most",
    ),
    "weights.safetensors": (safetensors, "tensor `layer.0`"),
    "x.pt": (pt, "storage `data/1`"),
    "x.pth": (pt, "storage `data/1`"),
    "x.h5": (h5, "dataset `group/x`"),
    "x.HDF5": (h5, "dataset `group/x`"),
    "x.parquet": (parquet, "column `x`"),
}


@pytest.mark.usefixtures("h5py", "pyarrow")
@pytest.mark.parametrize("name", KINDS)
def test_a_single_bit_of_a_file_is_found(name, tmp_path):
    write, words = KINDS[name]
    one, same, other = (written(write, tmp_path / name, change, 0) for change in (0, 0, 1))
    assert differing(one, same) == []
    assert differing(one, other) == [f"{name}: {words}"]


@pytest.mark.usefixtures("h5py", "pyarrow")
@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("x.npy", "x.bin")])
def test_what_is_no_part_is_no_difference(name, tmp_path):
    """Times, metadata, the order of parts, and how they are compressed."""
    write, words = KINDS[name]
    early, late, other = (
        written(write, tmp_path / name, *args) for args in ((0, 0), (0, 1), (1, 1))
    )
    assert name.endswith(".gz") or early[name].whole != late[name].whole
    assert differing(early, late) == []
    first, _, rest = words.partition(" of ")  # times are no numbers that were compared
    assert differing(early, other)[0].startswith(f"{name}: {first}")
    assert bool(rest) == name.endswith((".csv", ".json"))


DAMAGE = {
    "its end is missing": lambda held: held[:-5],
    "a bit of it is another": lambda held: held[:-25] + bytes([held[-25] ^ 1]) + held[-24:],
    "something follows": lambda held: held + b"\0" * 70_000,
}


@pytest.mark.usefixtures("h5py", "pyarrow")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_compared_byte_by_byte(name, damage, tmp_path):
    write, _ = KINDS[name]
    path = tmp_path / name
    found = written(write, path, 0, 0)
    path.write_bytes(damage(path.read_bytes()))
    bad = {name: files.content(str(path))}
    assert differing(bad, bad) == []
    assert differing(found, bad) or bad[name].parts == found[name].parts
    path.write_bytes(b"?" + path.read_bytes())
    worse = {name: files.content(str(path))}
    assert worse[name].parts == {}
    words = "another text from line 1 on: " if worse[name].text else "other bytes"
    (told,) = differing(bad, worse)
    assert told.startswith(f"{name}: {words}")


def test_two_gzip_files_that_are_damaged_otherwise_differ(tmp_path):
    path = tmp_path / "cut.gz"
    held = [
        written(lambda path, end: path.write_bytes(gzip.compress(b"x" * 99)[:end]), path, end)
        for end in (20, 19)
    ]
    assert differing(*held) == ["cut.gz: other bytes"]


def test_of_safetensors_every_byte_belongs_to_one_tensor(tmp_path):
    path = tmp_path / "x.safetensors"
    tensor = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}

    def parts(header, held):
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + held)
        return formats.parts(str(path))

    whole = json.dumps({"a": tensor})
    assert list(parts(whole, b"12")) == [("tensor", "a")]
    assert parts(whole, b"123") == {}
    assert parts(f'{whole[:-1]}, "a": {json.dumps(tensor)}}}', b"12") == {}
    assert parts(json.dumps({"a": tensor, "b": tensor}), b"12") == {}
    path.write_bytes(struct.pack("<Q", 1 << 40))
    assert formats.parts(str(path)) == {}


@pytest.mark.torch
def test_an_archive_of_pytorch_is_compared_with_what_pytorch_writes(python, tmp_path):
    python("""
        import torch
        for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
            torch.save({"w": torch.tensor([0.0, value]), "step": 3}, f"{name}.pt")
    """)
    held = [{"x.pt": files.content(str(tmp_path / f"{name}.pt"))} for name in "abc"]
    assert held[0]["x.pt"].whole != held[1]["x.pt"].whole
    assert differing(held[0], held[1]) == []
    assert differing(held[0], held[2]) == ["x.pt: storage `data/0`"]


OTHERS = {
    "an attribute": ({"scale": 2.0}, "attribute `scale of group/x`"),
    "an attribute of the file": ({"unit": "s"}, "attribute `unit of /`"),
    "a text": ({"names": np.array(["a", b"c"], object)}, "dataset `names`"),
}


@pytest.mark.usefixtures("h5py")
@pytest.mark.parametrize(("other", "words"), OTHERS.values(), ids=OTHERS)
def test_attributes_and_texts_of_hdf5_are_compared(other, words, tmp_path):
    path = tmp_path / "x.h5"
    held = [written(h5, path, 0, 0, **each) for each in ({}, other)]
    assert differing(*held) == [f"x.h5: {words}"]


@pytest.mark.usefixtures("h5py")
def test_what_hdf5_tells_by_no_value_is_compared_byte_by_byte(tmp_path):
    odd = np.array(["a", None], object)
    held = [written(h5, tmp_path / "x.h5", 0, late, names=odd) for late in (0, 1)]
    assert differing(*held) == ["x.h5: other bytes"]


def test_links_of_hdf5_are_compared_and_second_names_are_not_followed(h5py, tmp_path, monkeypatch):
    path = tmp_path / "x.h5"
    held = [written(h5, path, 0, 0)]
    begin = h5py.File.__init__

    def with_link(self, *args):
        begin(self, *args)
        self.links["soft"] = h5py.SoftLink("/names")

    def with_second_name(self, *args):
        begin(self, *args)
        self.links["second"] = h5py.HardLink()

    monkeypatch.setattr(h5py.File, "__init__", with_link)
    assert set(held[0]["x.h5"].parts.items()) ^ set(formats.parts(str(path)).items()) == {
        (("link", "soft"), "SoftLink {'path': '/group/x'}"),
        (("link", "soft"), "SoftLink {'path': '/names'}"),
    }
    monkeypatch.setattr(h5py.File, "__init__", with_second_name)
    assert formats.parts(str(path)) == {}


@pytest.mark.parametrize(("name", "library"), [("x.h5", "h5py"), ("x.parquet", "pyarrow")])
def test_without_its_library_a_file_is_compared_byte_by_byte(name, library, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    held = [written(KINDS[name][0], tmp_path / name, 0, late) for late in (0, 1)]
    assert held[0][name].parts == {}
    assert differing(*held) == [f"{name}: other bytes"]


@pytest.mark.usefixtures("h5py", "pyarrow")
@pytest.mark.parametrize("name", ["x.h5", "x.parquet"])
def test_what_a_library_must_read_whole_and_is_too_large_is_compared_by_bytes(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(formats, "MOST_BYTES", 50)
    assert written(KINDS[name][0], tmp_path / name, 0, 0)[name].parts == {}


def test_a_table_with_other_words_differs_and_one_that_is_too_long_does_by_bytes(
    tmp_path, monkeypatch
):
    path = tmp_path / "x.csv"

    def both(*texts):
        sides = []
        for text in texts:
            path.write_bytes(text)
            (tmp_path / "y.csv").write_bytes(text)
            sides.append(files.written(str(tmp_path), {}))
        return differing(*sides)

    words = 'another text from line 2 on: "1,y", not "1,x"'
    assert both(b"a\n1,x\n", b"a\n1,y\n") == [f"x.csv: {words}", f"y.csv: {words}"]
    assert both(b"\xff1", b"\xff2") == ["x.csv: other bytes", "y.csv: other bytes"]
    monkeypatch.setattr(files, "MOST_TEXTS", 8)
    assert both(b"a\n1,x\n", b"a\n1,y\n") == [f"x.csv: {words}", "y.csv: other bytes"]
    monkeypatch.setattr(files, "MOST_TEXT", 5)
    assert both(b"a\n1,x\n", b"a\n1,y\n") == ["x.csv: other bytes", "y.csv: other bytes"]


def test_of_a_notebook_or_a_log_times_do_not_count_and_results_do(tmp_path):
    path = tmp_path / "run.ipynb"

    def run(second, result):
        cell = {
            "metadata": {"execution": {"iopub.execute_input": f"2026-11-29T02:18:{second}.5Z"}},
            "outputs": [{"text": [f"loss {result}\n"]}],
        }
        path.write_text(json.dumps({"cells": [cell]}, indent=1))
        (tmp_path / "run.LOG").write_text(f"2026-11-29 02:18:{second} loss {result}\n")
        return files.written(str(tmp_path), {})

    assert differing(run(39, 0.25), run(41, 0.25)) == []
    both = differing(run(39, 0.25), run(41, 0.5))
    assert both == [
        "run.LOG: line 1 has 0.5, not 0.25; 1 of 1 numbers differ, apart by 5.0e-01 at most",
        "run.ipynb: line 12 has 0.5, not 0.25; 1 of 1 numbers differ, apart by 5.0e-01 at most",
    ]


def test_of_many_parts_some_are_named(tmp_path):
    path = tmp_path / "x.npz"
    held = [
        written(np.savez, path, **{f"a{i}": np.full(2, value) for i in range(7)})
        for value in (0, 1)
    ]
    assert differing(*held) == ["x.npz: array `a0`, `a1`, `a2`, `a3`, `a4`, and 2 more"]


def test_a_file_of_one_run_only_and_damaged_ones_are_told(tmp_path):
    for name, content in {
        "cut.gz": gzip.compress(b"x" * 99)[:20],
        "cut.npz": b"PK",
        "x.npy": b"?",
    }.items():
        (tmp_path / name).write_bytes(content)
    found = files.written(str(tmp_path), {})
    assert sorted(found) == ["cut.gz", "cut.npz", "x.npy"]
    assert found["cut.gz"].whole.startswith("a damaged gzip file, ")
    assert all(one.parts == {} for one in found.values())
    assert differing(found, {}) == [
        f"{name}: only the first run wrote it" for name in ("cut.gz", "cut.npz", "x.npy")
    ]


def test_what_is_no_regular_file_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for hidden in (".git", "__pycache__"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "x").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x").write_text("")
    assert list(files.stamps(str(tmp_path))) == [os.path.join("sub", "x")]
