"""What a program writes: the files of a folder before and after, compared by what they hold."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_FILES = 100_000
"""Below a folder with more nothing is compared."""

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Content:
    """What a file holds.

    Attributes:
        whole: digest of all of it, but for the time in the head of a gzip file.
        parts: digest of each array, of what NumPy reads; by its name, "" for the only one.
    """

    whole: str
    parts: Mapping[str, str]


def stamps(folder: str) -> dict[str, Stamp] | None:
    """Size, time and inode of each regular file below a folder, by its path from there.

    Hidden folders, and those of compiled Python, are passed over. None for more than MOST_FILES.
    """
    found: dict[str, Stamp] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in names:
            path = os.path.join(root, name)
            try:
                about = os.lstat(path)
            except OSError:
                continue  # it went meanwhile
            if stat.S_ISREG(about.st_mode):
                of = about.st_size, about.st_mtime_ns, about.st_ino
                found[os.path.relpath(path, folder)] = of
        if len(found) > MOST_FILES:
            return None
    return found


def written(folder: str, before: Mapping[str, Stamp]) -> dict[str, Content]:
    """The files that are new or changed since, and what they hold."""
    now = stamps(folder) or {}
    changed = [path for path, of in now.items() if before.get(path) != of]
    return {path: content(os.path.join(folder, path)) for path in sorted(changed)}


def content(path: str) -> Content:
    """What a file holds; one that cannot be read holds why."""
    try:
        return Content(_digest(path), _arrays(path))
    except OSError as error:
        return Content(str(error), {})


def _digest(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if is_gzip else open(path, "rb") as file:
            while piece := file.read(1 << 20):
                found.update(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return "a damaged gzip file"
    return found.hexdigest()


def _arrays(path: str) -> dict[str, str]:
    """The arrays in a file of NumPy's; none of any other."""
    if not path.endswith((".npy", ".npz")):
        return {}
    try:
        read: Any = np.load(path, allow_pickle=False)
        if isinstance(read, np.ndarray):
            return {"": _of_array(read)}
        with read:
            return {name: _of_array(read[name]) for name in read.files}
    except Exception:  # a damaged file, of which NumPy and zipfile raise many kinds
        return {}


def _of_array(array: np.ndarray[Any, Any]) -> str:
    about = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(about + np.ascontiguousarray(array).tobytes()).hexdigest()


def differing(a: Mapping[str, Content], b: Mapping[str, Content]) -> list[str]:
    """The files that two runs did not write alike, in words."""
    words = []
    for path in sorted({*a, *b}):
        one, other = a.get(path), b.get(path)
        if one is None or other is None:
            words.append(f"{path}: only one of them wrote it")
        elif one.parts and other.parts:
            # Archives hold times of their members.
            names = [
                n for n in {**one.parts, **other.parts} if one.parts.get(n) != other.parts.get(n)
            ]
            if names:
                arrays = ", ".join(f"`{name}`" for name in names if name)
                words.append(f"{path}: {f'array {arrays}' if arrays else 'another array'}")
        elif one.whole != other.whole:
            words.append(f"{path}: other bytes")
    return words
