"""Read a file as UTF-8 text, or say plainly why it cannot be.

What is read was written by anybody: it may be huge, binary, a directory or a pipe that never
ends. Each is refused before it can do harm; so is a text with more keys and values than
tomllib and Pydantic read in reasonable time and memory.
"""

from __future__ import annotations

import errno
import hashlib
import os

from backendcfg import startup
from backendcfg.errors import Span, UnreadableFileError, shown_path
from backendcfg.records import record

LONGEST_KEY = 100
"""Parts that a key may have."""

MOST_KEYS = 10_000
"""Keys, values and tables that a text may have; its signs `=`, `,` and `[` are counted."""


def has_too_many_keys(text: str) -> bool:
    """Whether a text has more keys, values and tables than `MOST_KEYS`."""
    return sum(map(text.count, "=,[")) > MOST_KEYS


def has_long_key(text: str) -> bool:
    """Whether a key of a text has more parts than `LONGEST_KEY`."""
    return any(
        line.count(".") > LONGEST_KEY and _dots(line) > LONGEST_KEY for line in text.split("\n")
    )


def _dots(line: str) -> int:
    """The dots after a part of a key, outside the strings of a line and before its comment."""
    count = 0
    quote = before = ""
    for character in line:
        if quote:
            if character == quote and before != "\\":
                quote = ""
        elif character in "\"'":
            quote = character
        elif character == "#":
            break
        elif character == ".":
            count += before not in ("", ".")
        before = character
    return count


LARGEST_RESULTS = 64 << 20
"""Bytes that a file may have to which one of our verbs wrote results."""

MARKS = {
    b"\xef\xbb\xbf": "UTF-8 with a byte order mark",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@record(frozen=True)
class Text:
    """A file's content and what identifies it.

    Attributes:
        path: absolute.
        text: lines end in a newline alone, as tomllib counts them.
        stamp: modification time in nanoseconds, and size in bytes.
        digest: SHA-256 of the bytes, in hexadecimal.
    """

    path: str
    text: str
    stamp: tuple[int, int]
    digest: str


def read_text(path: str | os.PathLike[str]) -> Text:
    """The text of a file.

    Raises:
        UnreadableFileError: missing, a directory, not a plain file, forbidden, larger than
            `startup.LARGEST`, not UTF-8, or with a byte order mark.
    """
    path = os.path.abspath(path)
    data, found = read_bytes(path)
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            raise UnreadableFileError(
                f"{shown_path(path)} is {encoding}; TOML is plain UTF-8",
                spans=[Span(path, 1, 1, label="the byte order mark is here")],
                helps=["save it as UTF-8 without a byte order mark"],
            )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, data, error) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UnreadableFileError(
            f"{shown_path(path)} is binary: it has a zero byte",
            spans=[Span(path, line, 1, label="here")],
            helps=["give a TOML file"],
        )
    return Text(
        path=path,
        text=text.replace("\r\n", "\n"),
        stamp=(found.st_mtime_ns, found.st_size),
        digest=hashlib.sha256(data).hexdigest(),
    )


def read_bytes(path: str, largest: int = startup.LARGEST) -> tuple[bytes, os.stat_result]:
    """What a plain file of at most so many bytes holds, and what the system says of the file.

    Raises:
        UnreadableFileError: it cannot be read.
    """
    try:
        return startup.take(path, largest=largest)
    except OSError as error:
        closed = isinstance(error, PermissionError) and startup.is_within(
            path, startup.system_directory()
        )
        raise UnreadableFileError(
            f"cannot read {shown_path(path)}: {_reason(error, path)}",
            helps=[f"root can open it: `chmod a+rX {os.path.dirname(path)} {path}`"] * closed,
        ) from None
    except ValueError:
        raise UnreadableFileError(f"{path!r} cannot be the name of a file") from None


def _reason(error: OSError, path: str) -> str:
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"it is a link to {os.readlink(path)}, which does not exist"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied"
    return (error.strerror or type(error).__name__).lower()


def _not_utf8(path: str, data: bytes, error: UnicodeDecodeError) -> UnreadableFileError:
    start = data.rfind(b"\n", 0, error.start) + 1
    line = data.count(b"\n", 0, error.start) + 1
    before = data[start : error.start].decode("utf-8")
    after = data[error.start : error.start + 60].split(b"\n", 1)[0].decode("latin-1")
    return UnreadableFileError(
        f"{shown_path(path)} is not UTF-8 text: byte 0x{data[error.start]:02x} at line {line}",
        spans=[
            Span(path, line, len(before) + 1, source=before + after, label="not UTF-8 from here")
        ],
        helps=["save it as UTF-8, or give a TOML file"],
    )
