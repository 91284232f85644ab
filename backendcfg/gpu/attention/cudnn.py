"""Attention of arrays on CUDA devices by cuDNN: the graph of a call, its engine, and its runs.

    prepared = prepare(given, held, ...)           # once for each kind of call; or why not
    run(given, held, prepared, ...)                # puts it on the stream of query

Which calls come here is said by the table in `dispatch/attention.py`, and the graph by
`dispatch/cudnn_graph.py`. The engine is the first that cuDNN names and that takes the call;
where results must repeat, the first without cuDNN's note that they may not.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from backendcfg.gpu.attention import cudnn_graph
from backendcfg.gpu.attention.cudnn_graph import Problem
from backendcfg.gpu.cudnn import search as device_graphs
from backendcfg.gpu.cudnn.operations import ALIGNMENT, Array, dense
from backendcfg.gpu.cudnn.search import NoEngineError, Search, Tensors
from backendcfg.gpu.libraries.opening import require_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.cudnn_backward import Gradients
    from backendcfg.gpu.cudnn.graph import Description, Engine
    from backendcfg.gpu.cudnn.search import Plan
    from backendcfg.gpu.kernels.loading import Driver

    Four = tuple[DeviceView, DeviceView, DeviceView, DeviceView | None]


class Prepared(NamedTuple):
    """A call of a kind, ready to run.

    Attributes:
        library: address of cuDNN.
        driver: address of the driver.
        plan: the graph and its engine.
        tensors: the numbers of the tensors that a run is given.
        hidden: what a hidden score is set to.
        gradients: what gives the gradients of the call; None where nothing needs one.
    """

    library: int
    driver: int
    plan: Plan
    tensors: tuple[int, ...]
    hidden: float
    gradients: Gradients | None = None


def is_aligned(held: Four) -> bool:
    """Whether all arrays begin where cuDNN copies whole vectors from."""
    return not any(each.address % ALIGNMENT for each in held if each is not None)


def must_repeat(values: Mapping[str, Any]) -> bool:
    """Whether the flags promise the same bits from run to run."""
    is_deterministic: bool = values["determinism.algorithms"] == "deterministic"
    return is_deterministic or values["determinism.tier"] != "none"


def unmet(values: Mapping[str, Any]) -> Callable[[Engine], str]:
    """Why an engine may not serve under the flags, as a function of it."""
    repeats = must_repeat(values)

    def why(engine: Engine) -> str:
        varies = repeats and "NONDETERMINISTIC" in engine.notes
        return "its results may differ from run to run" if varies else ""

    return why


def prepare(
    given: Arguments,
    held: Four,
    problem: Problem,
    driver: Driver,
    values: Mapping[str, Any],
) -> Prepared | str:
    """Choose cuDNN's engine for the calls of a kind, and let it be compiled.

    Args:
        given: the arguments.
        held: query, key, value and the mask or None.
        problem: what they are a call of.
        driver: of the device.
        values: the flags in force.

    Returns:
        What a run needs; or why no engine takes the call.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    described = cudnn_graph.graph(problem), cudnn_graph.numbers(problem)
    return ready(given, held, described, driver, values)


def ready(
    given: Arguments,
    held: Sequence[DeviceView | None],
    described: tuple[Description, tuple[int, ...]],
    driver: Driver,
    values: Mapping[str, Any],
    *,
    what: str = "it",
) -> Prepared | str:
    """As `prepare`, for a graph and the numbers of the tensors that a run is given."""
    graph, numbers = described
    library = require_device("cudnn")
    major, minor, patch = library.version
    work = given.work(library.handle, driver.handle, *held)
    search = Search(given, work, graph, Tensors((), ()))
    try:
        plan = search.ready(search.engines(), unmet(values))
    except NoEngineError as error:
        none = f"cuDNN {major}.{minor}.{patch} has no engine for {what}"
        return ": ".join((none, "; ".join(error.reasons))) if error.reasons else f"{none}."
    hidden = cudnn_graph.hidden_score(major * 10000 + minor * 100 + patch)
    return Prepared(library.handle, driver.handle, plan, numbers, hidden)


def run(
    given: Arguments,
    held: Four,
    prepared: Prepared,
    scale: float,
    results: tuple[DeviceView, DeviceView | None],
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
    start = ctypes.addressof(scalars)
    addresses = {
        cudnn_graph.QUERY: query.address,
        cudnn_graph.KEY: key.address,
        cudnn_graph.VALUE: value.address,
        cudnn_graph.OUT: out.address,
        cudnn_graph.SCALE: start,
        cudnn_graph.BIAS: 0 if mask is None else mask.address,
        cudnn_graph.HIDDEN: start + ctypes.sizeof(ctypes.c_float),
        cudnn_graph.LOGSUMEXP: 0 if total is None else total.address,
    }
    pointers = tuple([addresses[tensor] for tensor in prepared.tensors])
    work = given.work(prepared.library, prepared.driver, *held, out, total)
    device_graphs.run(given, work, prepared.plan, Tensors(prepared.tensors, pointers))


def problem_of(held: Four, shapes: Shapes, *, is_causal: bool, with_logsumexp: bool) -> Problem:
    """What a call is to cuDNN, which the table has let it serve.

    Args:
        held: query, key, value and the mask or None.
        shapes: the sizes of the call.
        is_causal: whether query i sees keys 0 to i alone.
        with_logsumexp: whether the logarithms are wanted.
    """
    query, key, value, mask = held
    batch, heads = shapes.lead
    out = (batch, heads, shapes.queries, shapes.value_width)
    return Problem(
        array(query),
        array(key),
        array(value),
        Array(query.element, out, dense(out)),
        None if mask is None else array(mask),
        is_causal,
        with_logsumexp,
    )


def array(held: DeviceView) -> Array:
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
