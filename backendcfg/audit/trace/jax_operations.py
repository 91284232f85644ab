"""The operations of JAX: calls of what it compiled, under the names of what was given to `jit`.

An operation outside `jit` is compiled by itself, and seen as well. What is within a compiled
function is not: XLA makes its own kernels of it. JAX calls these past Python from the second call
on; while it is recorded it does not.

This looks into JAX where it offers nothing else, as release 0.10 is written. Of a release that is
written otherwise nothing is recorded.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.audit import places
from backendcfg.audit.trace import numpy_operations as arrays
from backendcfg.audit.trace.streams import MOST_SAMPLED, PROGRAM
from backendcfg.catalogue.frameworks import JAX, JAXLIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.audit.trace.streams import Recorder, Stream

OURS = (JAX.name, JAXLIB.name, "backendcfg", "contextlib", "threading", "functools")
"""Packages whose lines are not the program's."""

OBSTACLE = "what JAX compiled is not kept"
"""Why no operation is run by itself."""


def watch(recorder: Recorder) -> None:
    """Record JAX, which has been imported, in every thread."""
    pjit: Any = sys.modules.get("jax._src.pjit")
    pxla: Any = sys.modules.get("jax._src.interpreters.pxla")
    executed = getattr(pxla, "ExecuteReplicated", None)
    if executed is None or not hasattr(pjit, "_get_fastpath_data"):
        return
    # Without them each call comes through Python.
    pjit._get_fastpath_data = lambda *ignored, **named: None
    call = executed.__call__

    def recorded(self: Any, *args: Any) -> Any:
        stream = recorder.stream()
        wanted = stream.is_in_window()
        facts = {"place": places.place(OURS), "inputs": _inputs(self, args)} if wanted else {}
        out = call(self, *args)
        _add(stream, str(self.name), facts, list(_readable(out)))
        return out

    executed.__call__ = recorded


def _add(stream: Stream, name: str, facts: dict[str, Any], found: Sequence[Any]) -> None:
    value = 0
    for one in found:
        value = arrays.digest(one, value)
    name = f"{name} {found[0].dtype}" if found else name
    if stream.is_followed():
        stream.sample(b"".join(arrays.sample(one, MOST_SAMPLED // len(found)) for one in found))
    if facts:
        shapes = [arrays.shape(one) for one in found]
        kept = {"path": "", "obstacle": OBSTACLE}
        stream.detail({"name": name, **facts, "outputs": shapes, "kept": kept})
    stream.add(name, value)


def _inputs(executed: Any, args: Sequence[Any]) -> list[dict[str, Any]]:
    found = [{"what": arrays.shape(one), "digest": arrays.digest(one)} for one in _readable(args)]
    texts = [module.to_string() for module in executed.xla_executable.hlo_modules()]
    return [*found, {"what": PROGRAM, "digest": zlib.crc32("".join(texts).encode())}]


def _readable(values: Sequence[Any]) -> Iterator[Any]:
    """The elements of arrays, as NumPy's; not of those that are spread over processes."""
    for one in values:
        array = getattr(one, "_base_array", one)  # that of keys of generators
        if getattr(array, "is_fully_addressable", True) and not hasattr(array, "_refs"):
            yield np.asarray(array)
