"""`backendcfg.record(name, value)`: what a program wants compared beside what it prints and writes.

Nothing happens but in a program that `backendcfg prove` or `backendcfg compare` runs. There each
process has a file of its own in the folder that BACKENDCFG_RECORDS names, called `NUMBER.records`
by the order in which they began to record, and those of rank 3 `rank3.NUMBER.records`. It begins
with a line of fixed length: why recording ended early, or "". Each record follows as a line of JSON
and the bytes of its values, as far as they are kept: `recorded.py` reads them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.bridges import lineage
from backendcfg.catalogue.frameworks import JAX, TORCH
from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing import IO

    import numpy as np

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SUFFIX = ".records"
HEAD = 128
"""Bytes of the first line."""

LARGEST_KEPT = 1 << 20
"""Bytes of a record whose values are kept; of a larger one there is only its digest."""

MOST_KEPT = 256 << 20
"""Bytes of values that are kept of one process."""

MOST_RECORDS = 1_000_000
"""Records that one process may have; later ones are not compared."""


_FOLDER = environ.RECORDS.read()
"""Read once: this module is imported when a program asks for `record`, which is to cost nothing."""


def record(name: str, value: Any) -> None:
    """Have a value compared by `backendcfg prove` and `backendcfg compare`.

    In any other process this does nothing, and costs nothing worth telling.

    Args:
        name: what it is called. A name may come again and again, as the loss of each step does:
            records of one name are compared in their order.
        value: a number, a list of numbers, or an array of NumPy, PyTorch or JAX. From a device it
            is copied, and so waited for.

    Raises:
        InvalidArgumentError: the name is no text, or the value is none of these.
    """
    if _FOLDER is None:
        return
    if not isinstance(name, str):
        raise _wrong(
            f"the name of a record is a text, not {_kind(name)}",
            'write `backendcfg.record("loss", loss)`',
        )
    dtype, shape, content = _read(name, value)
    _Here.get(_FOLDER).add(name, dtype, shape, content)


class _File:
    """The file of this process.

    Args:
        folder: where it is written.
    """

    def __init__(self, folder: str) -> None:
        self.size = HEAD
        self.count = self.kept = 0
        self.ended = False
        self.path = ""
        self._lock = threading.Lock()
        try:
            self.path = _free(folder)
        except OSError:
            self.ended = True  # the command that asked for it has ended, or its disk is full

    def add(self, name: str, dtype: str, shape: tuple[int, ...], content: Bytes) -> None:
        """Write a record; where the disk is full, no other follows."""
        from backendcfg import _native

        digest = _native.digest(content.ctypes.data, content.nbytes) if content.nbytes else 0
        with self._lock:
            if self.ended:
                return
            if self.count == MOST_RECORDS:
                self._end(f"it recorded more than {MOST_RECORDS:,} values")
                return
            keeps = content.nbytes <= LARGEST_KEPT and self.kept + content.nbytes <= MOST_KEPT
            about = {"name": name, "dtype": dtype, "shape": shape, "digest": digest, "kept": keeps}
            if task := lineage.task():
                about["task"] = task
            line = json.dumps({**about, "bytes": content.nbytes}).encode() + b"\n"
            values = content.tobytes() if keeps else b""
            try:
                # Opened for each record: a program may close files that it did not open.
                with _opened(self.path) as file:
                    file.seek(self.size)
                    file.write(line + values)
            except OSError as error:
                self._end(error.strerror or "it cannot be written")
                return
            self.count += 1
            self.kept += len(values)
            self.size += len(line) + len(values)

    def _end(self, why: str) -> None:
        """Say that nothing more comes, in bytes that the file has already."""
        self.ended = True
        with suppress(OSError), _opened(self.path) as file:
            file.truncate(self.size)
            file.write(head(why))


class _Here:
    """The file of this process; a forked child has its own."""

    lock = threading.Lock()
    file: _File | None = None

    @classmethod
    def get(cls, folder: str) -> _File:
        """The file, from the first record on."""
        with cls.lock:
            if cls.file is None:
                cls.file = _File(folder)
            return cls.file

    @classmethod
    def forget(cls) -> None:
        """In a forked child, whose parent may have held the lock in another thread."""
        cls.lock, cls.file = threading.Lock(), None


os.register_at_fork(after_in_child=_Here.forget)


def _free(folder: str) -> str:
    """A new file, under the first number that no other process has taken."""
    from backendcfg.probe.launchers import prefix

    of_rank = prefix()
    for number in itertools.count():
        path = os.path.join(folder, f"{of_rank}{number}{SUFFIX}")
        try:
            with open(path, "xb") as file:
                file.write(head(""))
        except FileExistsError:
            continue
        return path
    raise AssertionError


def _opened(path: str) -> IO[bytes]:
    """A file to write into, as it is."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb")


def head(why: str) -> bytes:
    """The first line of a file, which says why recording ended early."""
    plain = why.encode("ascii", "replace").decode()[:60]
    return json.dumps(plain).encode().ljust(HEAD - 1) + b"\n"


def _read(name: str, value: Any) -> tuple[str, tuple[int, ...], Bytes]:
    """Type, shape and bytes of a value, one element after the other."""
    torch, jax = (sys.modules.get(one.name) for one in (TORCH, JAX))
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            return _of_tensor(name, torch, value)
        return _of_array(name, value, is_jax=jax is not None and isinstance(value, jax.Array))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        what = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _wrong(
            f"record `{name}`: {_kind(value)} has no values that can be read: {what}",
            "record it where it is computed: outside of what is traced, and dense",
        ) from error


def _of_tensor(name: str, torch: Any, tensor: Any) -> tuple[str, tuple[int, ...], Bytes]:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise _wrong(
            f"record `{name}`: a tensor must be dense, and this one is not",
            "record `tensor.to_dense()`, or `tensor.int_repr()` of a quantized one",
        )
    with torch.no_grad():
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        content: Bytes = plain.view(torch.uint8).numpy()
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), content


def _of_array(name: str, value: Any, *, is_jax: bool) -> tuple[str, tuple[int, ...], Bytes]:
    import numpy as np

    taken = (bool, int, float, complex, list, tuple, np.ndarray, np.generic)
    if not (is_jax or isinstance(value, taken)):
        raise _not_numbers(name, value)
    array = np.asarray(value)
    # What ml_dtypes adds (bfloat16 and shorter) is void to some releases of NumPy.
    is_added = array.dtype.kind == "V" and array.dtype.type is not np.void
    if array.dtype.kind not in "biufcmM" and not is_added:
        raise _not_numbers(name, value)
    plain = np.ascontiguousarray(array).reshape(-1)
    native = plain if plain.dtype.isnative else plain.astype(plain.dtype.newbyteorder("="))
    return array.dtype.name, array.shape, native.view(np.uint8)


def _not_numbers(name: str, value: Any) -> InvalidArgumentError:
    return _wrong(
        f"record `{name}`: {_kind(value)} is no number, list of numbers or array of numbers",
        "record numbers, or arrays of NumPy, PyTorch or JAX; print what is text",
    )


def _kind(value: Any) -> str:
    return f"an object of type `{type(value).__name__}`"


def _wrong(what: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(what, state="nothing was recorded", helps=[remedy])
