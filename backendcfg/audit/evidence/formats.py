"""What files of known formats hold, part by part: arrays, tensors, images, tables.

What is no part does not count: times, comments, the order in an archive, how far it is compressed.
A file that is damaged, or that holds what cannot be told by its value, has no parts.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import struct
import zipfile
import zlib
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_BYTES = 256 << 20
"""Of what a library must read as a whole; what takes more has no parts."""

MOST_HEADER = 16 << 20
"""Bytes of a header in JSON, which names tensors."""

_PIECE = 1 << 20

Part = tuple[str, str]
"""What it is, and its name: "array", "weights". "" for what stands alone."""


def parts(path: str) -> dict[Part, str]:
    """Digests of what a file holds; none for a format that is not known and for a damaged file."""
    read = _READERS.get(os.path.splitext(path)[1].lower())
    if read is None:
        return {}
    try:
        found = [*read(path)]
    except Exception:  # each library has its own kinds for damage, or cannot be imported
        return {}
    named = dict(found)
    return named if len(named) == len(found) else {}  # of two by one name, one would hide


def _of_numpy(path: str) -> Iterator[tuple[Part, str]]:
    with open(path, "rb") as file:  # NumPy leaves a damaged archive open
        read: Any = np.load(file, allow_pickle=False)
        if isinstance(read, np.ndarray):
            yield ("array", ""), _of_array(read)
            return
        for name in read.files:
            yield ("array", name), _of_array(read[name])


def _of_array(array: np.ndarray[Any, Any]) -> str:
    about = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(about + np.ascontiguousarray(array).tobytes()).hexdigest()


_PNG = b"\x89PNG\r\n\x1a\n"
_UNSEEN = frozenset({b"tEXt", b"zTXt", b"iTXt", b"tIME"})
"""Chunks with texts and the time, which do not change an image."""


def _of_png(path: str) -> Iterator[tuple[Part, str]]:
    """By kind of chunk; pixels as they are before compression.

    https://www.w3.org/TR/png-3/#5DataRep
    """
    found: dict[str, Any] = {}
    pixels = zlib.decompressobj()
    with open(path, "rb") as file:
        _check(file.read(len(_PNG)) == _PNG)
        kind = b""
        while kind != b"IEND":
            length, kind = struct.unpack(">I4s", file.read(8))
            if kind not in _UNSEEN:
                digest = found.setdefault(kind.decode("ascii"), hashlib.sha256())
                if kind != b"IDAT":
                    digest.update(struct.pack(">I", length))
            check = zlib.crc32(kind)
            for piece in _pieces(file, length):
                check = zlib.crc32(piece, check)
                if kind == b"IDAT":
                    for plain in _decompressed(pixels, piece):
                        digest.update(plain)
                elif kind not in _UNSEEN:
                    digest.update(piece)
            _check(struct.unpack(">I", file.read(4)) == (check,))
        _check(pixels.eof and not pixels.unused_data and not file.read(1))
    yield from ((("chunk", name), digest.hexdigest()) for name, digest in found.items())


def _decompressed(stream: Any, piece: bytes) -> Iterator[bytes]:
    """Never more at once than a piece, however well it is compressed."""
    while plain := stream.decompress(piece, _PIECE):
        yield plain
        piece = stream.unconsumed_tail


def _of_safetensors(path: str) -> Iterator[tuple[Part, str]]:
    """Tensors by name, without the metadata.

    https://huggingface.co/docs/safetensors/index#format
    """
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        _check(length <= MOST_HEADER)
        header = json.loads(file.read(length), object_pairs_hook=_once)
        header.pop("__metadata__", None)
        tensors = sorted(header.items(), key=lambda named: named[1]["data_offsets"])
        ends = [0, *(about["data_offsets"][1] for _, about in tensors)]
        # Bytes that belong to no tensor would not be compared.
        begin = [about["data_offsets"][0] for _, about in tensors]
        _check(begin == ends[:-1])
        _check(8 + length + ends[-1] == os.fstat(file.fileno()).st_size)
        for name, about in tensors:
            first, end = about["data_offsets"]
            kind = f"{about['dtype']}{about['shape']}".encode()
            yield ("tensor", name), _digest(itertools.chain([kind], _pieces(file, end - first)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    _check(len(found) == len(pairs))
    return found


def _of_torch(path: str) -> Iterator[tuple[Part, str]]:
    """Members of PyTorch's archive; those of its top folder without that, which has any name."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        pickles = [one.filename for one in members if one.filename.endswith("/data.pkl")]
        top = min(pickles, key=len).removesuffix("data.pkl")
        for member in members:
            name = member.filename.removeprefix(top)
            if name == ".data/serialization_id":
                continue  # a digest of the others
            with archive.open(member) as file:
                found = _digest(iter(partial(file.read, _PIECE), b""))
            if name == "data.pkl":
                yield ("pickle", name), found
            else:
                yield ("storage" if name.startswith("data/") else "member", name), found


def _of_hdf5(path: str) -> Iterator[tuple[Part, str]]:
    """Datasets, groups, links and attributes by name; without the times of objects."""
    import h5py

    _check(os.path.getsize(path) <= MOST_BYTES)
    named: list[tuple[str, Any]] = []
    links: list[tuple[str, Any]] = []
    with h5py.File(path, "r") as file:
        named.append(("/", file))

        def keep(name: str, found: Any) -> None:  # any answer would end the visit
            named.append((name, found))

        def keep_link(name: str, link: Any) -> None:
            links.append((name, link))

        file.visititems(keep)
        file.visititems_links(keep_link)
        left = MOST_BYTES
        for name, found in named:
            if isinstance(found, h5py.Dataset):
                left -= found.nbytes
                _check(left >= 0)
                yield ("dataset", name), _digest(_of_value(found[()]))
            elif isinstance(found, h5py.Group):
                yield ("group", name), ""
            else:
                yield ("type", name), str(found.dtype)
            for attribute, value in found.attrs.items():
                yield ("attribute", f"{attribute} of {name}"), _digest(_of_value(value))
        seen = {name for name, _ in named}
        for name, link in links:
            if isinstance(link, h5py.HardLink):
                _check(name in seen)  # an object by a second name is visited only once
            else:
                yield ("link", name), f"{type(link).__name__} {vars(link)}"


def _of_value(value: Any) -> Iterator[bytes]:
    """What a value of HDF5 consists of; references and the like are told by no value."""
    if not isinstance(value, np.ndarray | np.generic):
        _check(isinstance(value, str | bytes | int | float))
        yield f"{type(value).__name__} {value!r};".encode()
        return
    array = np.asarray(value)
    yield f"{array.dtype.str}{array.dtype.descr}{array.shape};".encode()
    if not array.dtype.hasobject:
        yield np.ascontiguousarray(array).tobytes()
        return
    _check(array.dtype == object)
    for one in array.flat:
        yield from _of_value(one)


def _of_parquet(path: str) -> Iterator[tuple[Part, str]]:
    """Columns by name, however the rows are grouped."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        about, schema = file.metadata, file.schema_arrow
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        _check(sum(group.total_byte_size for group in groups) <= MOST_BYTES)
        digests = [(hashlib.sha256(), hashlib.sha256()) for _ in schema.names]
        for batch in file.iter_batches():
            for column, (values, absent) in zip(batch.columns, digests, strict=True):
                absent.update(column.is_null().to_numpy(zero_copy_only=False).tobytes())
                if not pa.types.is_primitive(column.type):
                    for one in column.to_pylist():
                        values.update(f"{one!r},".encode())
                    continue
                width = column.type.bit_width
                # By their bits: no times of Python's are precise enough, and a NaN has others.
                bits = column.cast("uint8") if width == 1 else column.view(f"uint{width}")
                values.update(bits.fill_null(0).to_numpy(zero_copy_only=False).tobytes())
        for name, kind, found in zip(schema.names, schema.types, digests, strict=True):
            both = " ".join(digest.hexdigest() for digest in found)
            yield ("column", name), f"{kind} {about.num_rows} {both}"


def _pieces(file: IO[bytes], length: int) -> Iterator[bytes]:
    """The next bytes of a file, in pieces.

    Raises:
        ValueError: there are fewer.
    """
    while length:
        piece = file.read(min(length, _PIECE))
        _check(bool(piece))
        yield piece
        length -= len(piece)


def _digest(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _check(holds: bool) -> None:
    """Raise ValueError for a file that is not what its name says."""
    if not holds:
        raise ValueError


_READERS: dict[str, Callable[[str], Iterator[tuple[Part, str]]]] = {
    ".npy": _of_numpy,
    ".npz": _of_numpy,
    ".png": _of_png,
    ".safetensors": _of_safetensors,
    ".pt": _of_torch,
    ".pth": _of_torch,
    ".h5": _of_hdf5,
    ".hdf5": _of_hdf5,
    ".parquet": _of_parquet,
}
