"""Attention of arrays on CUDA devices by cuDNN: the graph of a call, its engine, and its runs.

    prepared = prepare(given, held, problem, ...)  # once for each kind of call; or why not
    run(given, held, prepared, ...)                # puts it on the stream of query

    scores = query keyᵀ · scale + bias             a product, and operations on each number
    scores = scores where row >= column            under `is_causal`
    logsumexp = max + log(sum(exp(scores - max)))
    out = (exp(scores - max) / sum) value

This graph of operations is the composite form that NVIDIA's frontend has built since cuDNN 9.0, and
PyTorch with it; cuDNN recognises attention in it and fuses it into one kernel. From 9.13 on there
is one operation for all of it, `CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR`, which takes a causal
or an added mask only from 9.21 on: it is not used. cuDNN matches the operations as they are: 9.28
finds no engine for a graph without the logarithm and its sum, so they are in it even where nobody
wants `logsumexp`.

The engine is the first that cuDNN names and that takes the call; where results must repeat, the
first without cuDNN's note that they may not. Which calls cuDNN may serve is said by `rules.py`.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from backendcfg.gpu.cudnn import search
from backendcfg.gpu.cudnn.operations import ALIGNMENT, Array, Maker, dense, turned
from backendcfg.gpu.cudnn.search import NoEngineError, Search, Tensors
from backendcfg.gpu.libraries.opening import require_device
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Four
    from backendcfg.gpu.cudnn.graph import Description, Engine
    from backendcfg.gpu.cudnn.search import CudnnPlan
    from backendcfg.gpu.kernels.loading import Driver

QUERY, KEY, VALUE, OUT, SCALE, BIAS, HIDDEN, LOGSUMEXP = range(1, 9)
"""The numbers of the tensors that a run is given the memory of."""

INFINITY_SINCE = 91000
"""The first version to which a hidden score is minus infinity, and not the least float32."""


@record(frozen=True)
class Problem:
    """What a graph is made for; equal problems have equal graphs.

    Attributes:
        query: (batch, heads, queries, width).
        key: (batch, key heads, keys, width).
        value: (batch, value heads, keys, value width).
        out: (batch, heads, queries, value width), of the element of query.
        bias: what is added to the scores: (batch or 1, heads or 1, queries or 1, keys or 1).
        is_causal: query i sees keys 0 to i.
        with_logsumexp: whether the logarithms are written: (batch, heads, queries, 1), dense.
    """

    query: Array
    key: Array
    value: Array
    out: Array
    bias: Array | None = None
    is_causal: bool = False
    with_logsumexp: bool = False


def numbers(problem: Problem) -> tuple[int, ...]:
    """The tensors whose memory a run needs, in the order in which it is given.

    `SCALE` and `HIDDEN` are passed by value: one float32 of the host each.
    """
    wanted = [QUERY, KEY, VALUE, OUT, SCALE]
    wanted += [BIAS] if problem.bias is not None else []
    wanted += [HIDDEN] if problem.is_causal else []
    return (*wanted, *([LOGSUMEXP] if problem.with_logsumexp else []))


def hidden_score(version: int) -> float:
    """What a hidden score is set to by a version of cuDNN, as it writes it: 91500 is 9.15.0."""
    return float("-inf") if version >= INFINITY_SINCE else -3.4028234663852886e38


def graph(problem: Problem) -> Description:
    """The description of a problem, with a number of its own."""
    made = Maker()
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    scores, rows = (batch, heads, queries, key.shape[2]), (batch, heads, queries, 1)

    product = made.virtual(scores)
    made.matmul(made.array(QUERY, query), made.array(KEY, turned(key)), product)
    score = made.pointwise("MUL", scores, product, made.scalar(SCALE))
    if problem.bias is not None:
        score = made.pointwise("ADD", scores, score, made.array(BIAS, problem.bias))
    if problem.is_causal:
        score = made.causal(scores, score, made.scalar(HIDDEN))

    greatest = made.reduction("MAX", rows, score)
    power = made.pointwise("EXP", scores, made.pointwise("SUB", scores, score, greatest))
    total = made.reduction("ADD", rows, power)
    logarithm = made.pointwise("LOG", rows, total)
    number = LOGSUMEXP if problem.with_logsumexp else 0
    made.pointwise("ADD", rows, greatest, logarithm, number=number)
    weights = made.virtual(scores, query.element)
    made.pointwise("DIV", scores, power, total, into=weights)
    made.matmul(weights, made.array(VALUE, value), made.array(OUT, problem.out))
    return made.done()


class Prepared(NamedTuple):
    """A call of a kind, ready to run.

    Attributes:
        library: address of cuDNN.
        driver: address of the driver.
        plan: the graph and its engine.
        tensors: the numbers of the tensors that a run is given.
        hidden: what a hidden score is set to.
    """

    library: int
    driver: int
    plan: CudnnPlan
    tensors: tuple[int, ...]
    hidden: float


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
    return ready(given, held, (graph(problem), numbers(problem)), driver, values)


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
    description, tensors = described
    library = require_device("cudnn")
    major, minor, patch = library.version
    work = given.work(library.handle, driver.handle, *held)
    found = Search(given, work, description, Tensors((), ()))
    try:
        plan = found.ready(found.engines(), unmet(values))
    except NoEngineError as error:
        none = f"cuDNN {major}.{minor}.{patch} has no engine for {what}"
        return ": ".join((none, "; ".join(error.reasons))) if error.reasons else f"{none}."
    hidden = hidden_score(major * 10000 + minor * 100 + patch)
    return Prepared(library.handle, driver.handle, plan, tensors, hidden)


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
        QUERY: query.address,
        KEY: key.address,
        VALUE: value.address,
        OUT: out.address,
        SCALE: start,
        BIAS: 0 if mask is None else mask.address,
        HIDDEN: start + ctypes.sizeof(ctypes.c_float),
        LOGSUMEXP: 0 if total is None else total.address,
    }
    pointers = tuple([addresses[tensor] for tensor in prepared.tensors])
    work = given.work(prepared.library, prepared.driver, *held, out, total)
    search.run(given, work, prepared.plan, Tensors(prepared.tensors, pointers))


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
    strides: list[int] = []
    reach = 1
    for length, stride in zip(reversed(shape), reversed(found), strict=True):
        strides.insert(0, reach if length == 1 else stride)
        reach = max(reach, length * strides[0])
    a, b, c, d = shape
    return Array(held.element, (a, b, c, d), (strides[0], strides[1], strides[2], strides[3]))
