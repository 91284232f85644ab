"""Read a file as UTF-8 text, or say plainly why it cannot be.

What is read was written by anybody: it may be huge, binary, a directory or a pipe that never
ends. Each is refused before it can do harm.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass

from backendcfg.errors import Span, UnreadableFileError, shown_path

LARGEST = 1 << 20
"""Bytes that a file may have; a real one has a few thousand."""

MARKS = {
    b"\xef\xbb\xbf": "UTF-8 with a byte order mark",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True)
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
            `LARGEST`, not UTF-8, or with a byte order mark.
    """
    path = os.path.abspath(path)
    data, found = _read_bytes(path)
    if len(data) > LARGEST:
        raise _unreadable(path, _too_large(len(data)))
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


def _read_bytes(path: str) -> tuple[bytes, os.stat_result]:
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(path, _reason(error, path)) from None
    except ValueError:
        raise UnreadableFileError(f"{path!r} cannot be the name of a file") from None
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise _unreadable(path, "it is a directory")
        if not stat.S_ISREG(found.st_mode):
            raise _unreadable(path, "it is not a plain file")
        if found.st_size > LARGEST:
            raise _unreadable(path, _too_large(found.st_size))
        data = bytearray()
        # The file may grow meanwhile: one byte more than allowed is enough to know.
        while chunk := os.read(descriptor, LARGEST + 1 - len(data)):
            data += chunk
    except OSError as error:
        raise _unreadable(path, _reason(error, path)) from None
    finally:
        os.close(descriptor)
    return bytes(data), found


def _unreadable(path: str, reason: str) -> UnreadableFileError:
    return UnreadableFileError(f"cannot read {shown_path(path)}: {reason}")


def _too_large(size: int) -> str:
    return f"it has {size:,} bytes, and a profile may have {LARGEST:,}"


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
