"""Attention of arrays on CUDA devices by cuDNN: the graph of a call, its engine, and its runs.

    prepared = prepare(given, held, call, ...)     # once for each kind of call; or why not
    run(given, held, prepared, ...)                # puts it on the stream of query

Which calls come here is said by the table in `dispatch/attention.py`, and the graph by
`dispatch/cudnn_attention.py`. The engine is the first that cuDNN names and that takes the call;
where results must repeat, the first without cuDNN's note that they may not.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, NamedTuple

from backendcfg import _native
from backendcfg.dispatch import cudnn_attention
from backendcfg.dispatch.cudnn_attention import ALIGNMENT, NONDETERMINISTIC, Array, Problem
from backendcfg.dispatch.device_opening import require_device
from backendcfg.ops.attention_call import KEPT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.dispatch.device_kernels import Driver
    from backendcfg.ops.device_arrays import Arguments, Held

    Four = tuple[Held, Held, Held, Held | None]

_UNSUPPORTED = 3  # the thousands of cuDNN's statuses for what an engine does not take


class Prepared(NamedTuple):
    """A call of a kind, ready to run.

    Attributes:
        library: address of cuDNN.
        driver: address of the driver.
        number: of the problem, by which cuDNN's plans are kept.
        descriptors: its graph.
        place: of the engine among those that cuDNN names.
        workspace: bytes.
        tensors: the numbers of the tensors that a run is given.
        hidden: what a hidden score is set to.
    """

    library: int
    driver: int
    number: int
    descriptors: tuple[cudnn_attention.Descriptor, ...]
    place: int
    workspace: int
    tensors: tuple[int, ...]
    hidden: float


_numbers: dict[Problem, int] = {}
_count = itertools.count(1)


def is_aligned(held: Four) -> bool:
    """Whether all arrays begin where cuDNN copies whole vectors from."""
    return not any(each.address % ALIGNMENT for each in held if each is not None)


def repeats(values: Mapping[str, Any]) -> bool:
    """Whether the flags ask for the same bits from run to run."""
    if values["determinism.algorithms"] == "deterministic":
        return True
    return bool(values["determinism.tier"] != "none")


def prepare(  # noqa: PLR0917 - a call and what holds for it
    given: Arguments,
    held: Four,
    shapes: Shapes,
    options: tuple[bool, bool],
    driver: Driver,
    values: Mapping[str, Any],
) -> Prepared | str:
    """Choose cuDNN's engine for the calls of a kind, and let it be compiled.

    Args:
        given: the arguments.
        held: query, key, value and the mask or None, which the table lets cuDNN serve.
        shapes: the sizes of the call.
        options: whether it is causal, and whether the logarithms are wanted.
        driver: of the device.
        values: the flags in force.

    Returns:
        What a run needs; or why no engine takes the call.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    library = require_device("cudnn")
    major, minor, patch = library.version
    problem = _problem(held, shapes, *options)
    descriptors = cudnn_attention.graph(problem)
    number = _number(problem)
    work = given.work(library.handle, driver.handle, *held)
    engines = _native.device_engines(work, (number, descriptors))
    name = f"cuDNN {major}.{minor}.{patch}"
    if isinstance(engines, tuple):
        return _unless_unsupported(given, name, engines)
    if repeats(values):
        allowed = [
            place
            for place, (_, notes, _, _) in enumerate(engines)
            if not notes >> NONDETERMINISTIC & 1
        ]
        if engines and not allowed:
            return f"{name} has no engine for it whose results repeat from run to run."
    else:
        allowed = list(range(len(engines)))
    why = f"{name} has no engine for it."
    for place in allowed:
        workspace = _native.device_prepare(work, (number, descriptors), place)
        if isinstance(workspace, tuple):
            why = _unless_unsupported(given, name, workspace)
            continue
        tensors = cudnn_attention.numbers(problem)
        hidden = cudnn_attention.hidden_score(major * 10000 + minor * 100 + patch)
        return Prepared(
            *(library.handle, driver.handle, number, descriptors),
            *(place, workspace, tensors, hidden),
        )
    return why


def run(
    given: Arguments,
    held: Four,
    prepared: Prepared,
    scale: float,
    results: tuple[Held, Held | None],
) -> None:
    """Put a call on the stream of query; it is in order with the streams of all arrays.

    Args:
        given: the arguments.
        held: query, key, value and the mask or None.
        prepared: what `prepare` found for the kind.
        scale: of the scores.
        results: the result, and the logarithms or None.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    query, key, value, mask = held
    out, total = results
    # cuDNN reads both while it is called, and not later.
    scalars = (ctypes.c_float * 2)(scale, prepared.hidden)
    address = ctypes.addressof(scalars)
    addresses = {
        cudnn_attention.QUERY: query.address,
        cudnn_attention.KEY: key.address,
        cudnn_attention.VALUE: value.address,
        cudnn_attention.OUT: out.address,
        cudnn_attention.SCALE: address,
        cudnn_attention.BIAS: 0 if mask is None else mask.address,
        cudnn_attention.HIDDEN: address + ctypes.sizeof(ctypes.c_float),
        cudnn_attention.LOGSUMEXP: 0 if total is None else total.address,
    }
    pointers = tuple([addresses[tensor] for tensor in prepared.tensors])
    room, space = None, None
    if prepared.workspace:
        room, space = given.make((prepared.workspace,), "uint8")
    work = given.work(prepared.library, prepared.driver, *held, out, total, space)
    address = 0 if space is None else space.address
    # Plans belong to a stream, and the oldest go: this stream may have none, or none any longer.
    while (
        answer := _native.device_run(
            work, prepared.number, prepared.place, prepared.tensors, pointers, address
        )
    ) is False:
        graph = (prepared.number, prepared.descriptors)
        again = _native.device_prepare(work, graph, prepared.place)
        if isinstance(again, tuple):
            _failed(given, again)
    del room  # until here the memory was in use
    if answer is not None:
        _failed(given, answer)


def _problem(held: Four, shapes: Shapes, is_causal: bool, with_logsumexp: bool) -> Problem:
    query, key, value, mask = held
    batch, heads = shapes.lead
    out = (batch, heads, shapes.queries, shapes.value_width)
    return Problem(
        _array(query),
        _array(key),
        _array(value),
        Array(query.element, out, cudnn_attention.dense(out)),
        None if mask is None else _array(mask),
        is_causal,
        with_logsumexp,
    )


def _array(held: Held) -> Array:
    """An array of four dimensions. A dimension of one number has the stride of a dense one."""
    missing = 4 - len(held.shape)
    shape = (1,) * missing + held.shape
    found = (0,) * missing + held.strides
    steps: list[int] = []
    reach = 1
    for length, step in zip(reversed(shape), reversed(found), strict=True):
        steps.insert(0, reach if length == 1 else step)
        reach = max(reach, length * steps[0])
    a, b, c, d = shape
    return Array(held.element, (a, b, c, d), (steps[0], steps[1], steps[2], steps[3]))


def _number(problem: Problem) -> int:
    """The number of a problem, the same whenever it comes again soon."""
    known = _numbers.get(problem)
    if known is None:
        if len(_numbers) >= KEPT:
            _numbers.clear()
        known = _numbers[problem] = next(_count)
    return known


def _unless_unsupported(given: Arguments, name: str, fault: tuple[str, int, str, str]) -> str:
    function, status, _, said = fault
    if not function or status // 1000 != _UNSUPPORTED:
        _failed(given, fault)
    return f"{name} has no engine for it: {said}." if said else f"{name} has no engine for it."


def _failed(given: Arguments, fault: tuple[str, int, str, str]) -> None:
    function, status, name, said = fault
    given.failed("cuDNN", (function, status, name), *([f"cuDNN says: {said}"] if said else []))
