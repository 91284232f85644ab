"""What a program writes: the files of a folder before and after, compared by what they hold."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backendcfg.audit.evidence import formats
from backendcfg.audit.evidence.foreign import Reader
from backendcfg.audit.evidence.outputs import Deviation, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from io import BufferedIOBase

    from backendcfg.audit.evidence.formats import Part

MOST_FILES = 100_000
"""Below a folder with more nothing is compared."""

TEXTS = (".csv", ".ipynb", ".json", ".jsonl", ".log", ".tsv", ".txt")
"""How the names of files end that are compared as what a program prints."""

MOST_TEXT = 1 << 20
"""Bytes of a text whose numbers are compared; a longer one is compared by its bytes."""

MOST_TEXTS = 32 << 20
"""Characters of texts that are kept of a run, so that their numbers can be compared."""

MOST_NAMED = 5
"""Parts of a file that are named."""

ONLY_FIRST = "only the first run wrote it"
"""What is said of a file that later runs found."""

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Content:
    """What a file holds.

    Attributes:
        whole: digest of all of it, but for the time in the head of a gzip file.
        parts: digest of each part of it, for formats that are known.
        text: of a table or a document whose numbers are compared; None for what is none.
    """

    whole: str
    parts: Mapping[Part, str]
    text: str | None = None


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


def written(
    folder: str, before: Mapping[str, Stamp], first: Mapping[str, Content] | None = None
) -> dict[str, Content]:
    """The files that are new or changed since, and what they hold.

    Args:
        folder: where they are.
        before: what was there.
        first: what the first run wrote; a file that is the same is not looked into again.
    """
    now = stamps(folder) or {}
    changed = [path for path, of in now.items() if before.get(path) != of]
    found, left = {}, MOST_TEXTS
    with Reader() as reader:
        for path in sorted(changed):
            like = first.get(path) if first else None
            held = content(os.path.join(folder, path), reader.parts, like)
            if held.text is not None and (left := left - len(held.text)) < 0:
                held = replace(held, text=None)
            found[path] = held
    return found


def content(
    path: str,
    parts: Callable[[str], dict[Part, str]] = formats.parts,
    like: Content | None = None,
) -> Content:
    """What a file holds; one that cannot be read holds why.

    Args:
        path: the file.
        parts: reads its parts.
        like: what it may hold, too; then it is not read twice.
    """
    try:
        whole = _digest(path)
        if like is not None and like.whole == whole:
            return like
        return Content(whole, parts(path), _text(path))
    except OSError as error:
        return Content(str(error), {})


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if is_gzip else open(path, "rb") as file:
            return _digest_of(file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        with open(path, "rb") as file:
            return f"a damaged gzip file, {_digest_of(file)}"


def _digest_of(file: BufferedIOBase) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _text(path: str) -> str | None:
    """The text of a table, a document or a log of which numbers are compared."""
    if not path.lower().endswith(TEXTS) or os.path.getsize(path) > MOST_TEXT:
        return None
    with open(path, "rb") as file:
        try:
            return file.read(MOST_TEXT).decode()
        except UnicodeDecodeError:
            return None


def differing(a: Mapping[str, Content], b: Mapping[str, Content]) -> list[Deviation]:
    """The files that a run wrote otherwise than the first run.

    Args:
        a: what the first run wrote.
        b: what the run wrote.
    """
    found = []
    for path in sorted({*a, *b}):
        one, other = a.get(path), b.get(path)
        if one is None or other is None:
            who = "the first run did not write it" if one is None else ONLY_FIRST
            found.append(Deviation(path, f"{path}: {who}"))
        elif one.whole != other.whole and (how := _apart(one, other)):
            found.append(Deviation(path, f"{path}: {how}"))
    return found


def _apart(one: Content, other: Content) -> str:
    """What differs in a file with other bytes; "" for what does not count."""
    if one.parts and other.parts:
        both = {**one.parts, **other.parts}
        return _named([part for part in both if one.parts.get(part) != other.parts.get(part)])
    if one.text is None or other.text is None:
        return "other bytes"
    return "; ".join(distance([one.text], [other.text]).words())


def _named(parts: Sequence[Part]) -> str:
    """Parts in words, those of one kind together: "tensor `a`, `b`, column `c`"."""
    kinds: dict[str, list[str]] = {}
    for kind, name in parts[:MOST_NAMED]:
        kinds.setdefault(kind, []).append(f"`{name}`" if name else "")
    words = [
        f"{kind} {', '.join(names)}" if any(names) else f"another {kind}"
        for kind, names in kinds.items()
    ]
    more = len(parts) - MOST_NAMED
    return ", ".join([*words, f"and {more} more"] if more > 0 else words)
