"""Attention of arrays on CUDA devices by cuDNN: the graphs of a call and its gradients, and runs.

    prepared = prepare(given, held, problem, ...)       # once for each kind of call; or why not
    run(given, held, prepared, ...)                     # puts it on the stream of query
    gradients = prepare_gradients(given, held, problem, ...)
    grad_query, grad_key, grad_value = run_gradients(given, held, gradients, ...)

    scores = query keyᵀ · scale + bias             a product, and operations on each number
    scores = scores where row >= column            under `is_causal`
    logsumexp = max + log(sum(exp(scores - max)))
    out = (exp(scores - max) / sum) value

    weights = exp(query keyᵀ · scale + bias - logsumexp)         0 where hidden
    grad_value = weightsᵀ grad_out
    delta = sum(grad_out · out)                                  of each row
    slopes = weights · (grad_out valueᵀ - delta) · scale
    grad_key = slopesᵀ query
    grad_query = slopes key

These graphs of operations are the composite forms that NVIDIA's frontend has built since cuDNN 9.0,
and PyTorch with it; cuDNN recognises attention in them and fuses it into one kernel. From 9.13 on
there is one operation for all of it, `CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR`, which takes a
causal or an added mask only from 9.21 on: it is not used. cuDNN matches the operations as they are:
9.28 finds no engine for a graph without the logarithm and its sum, so they are in it even where
nobody wants `logsumexp`. A run of the gradients is given memory for delta, and where the engine may
vary from run to run also for the float32 sums of grad_query.

The engine is the first that cuDNN names and that takes the call; where results must repeat, the
first without cuDNN's note that they may not. Which calls cuDNN may serve is said by `rules.py`. The
engine of the gradients is chosen, and compiled, before the call itself is made: when a call that
cuDNN has computed turns out to have no gradients, it is too late for another kernel. A gradient of
the result that does not lie in memory as the result does, a transposed one, say, has a plan of its
own.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.gpu import own_library
from backendcfg.gpu.cudnn import Tensors, search
from backendcfg.gpu.cudnn.graph import ALIGNMENT, Maker, dense, turned
from backendcfg.gpu.cudnn.search import NoEngineError, Search
from backendcfg.gpu.libraries.opening import require_device
from backendcfg.records import record, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.attention_facts import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Four
    from backendcfg.gpu.cudnn.graph import Description, Engine
    from backendcfg.gpu.cudnn.search import CudnnPlan
    from backendcfg.gpu.kernels.loading import Driver
    from backendcfg.gpu.libraries.calling import OpenLibrary

# How many ways in which gradients of results lie have plans, for the calls of a kind; one that lies
# otherwise is made dense, which costs less than compiling.
_KEPT = 16

QUERY, KEY, VALUE, OUT, SCALE, BIAS, HIDDEN, LOGSUMEXP = range(1, 9)
GRAD_OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE, DELTA, SUMS, ONE = range(9, 16)
"""The numbers of the tensors that a run is given the memory of.

`SCALE`, `HIDDEN` and `ONE` are passed by value: one float32 of the host each. `DELTA` and `SUMS`
are memory to work in, of float32 and dense: (batch, heads, queries, 1), and of the shape of query.
"""

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

    query: ArrayFacts
    key: ArrayFacts
    value: ArrayFacts
    out: ArrayFacts
    bias: ArrayFacts | None = None
    is_causal: bool = False
    with_logsumexp: bool = False


@record(frozen=True)
class BackwardProblem:
    """What a graph is made for.

    Attributes:
        forward: the call that it is the gradients of, with its logarithms.
        grad_out: of the shape of its result.
        is_summed: whether blocks add to the gradient of query, in float32 and in any order; else
            it is one product, of slopes that cuDNN keeps in its workspace.
    """

    forward: Problem
    grad_out: ArrayFacts
    is_summed: bool = True


def numbers(problem: Problem) -> tuple[int, ...]:
    """The tensors whose memory a run needs, in the order in which it is given."""
    wanted = [QUERY, KEY, VALUE, OUT, SCALE]
    wanted += [BIAS] if problem.bias is not None else []
    wanted += [HIDDEN] if problem.is_causal else []
    return (*wanted, *([LOGSUMEXP] if problem.with_logsumexp else []))


def numbers_backward(problem: BackwardProblem) -> tuple[int, ...]:
    """The tensors whose memory a run of the gradients needs, in the order in which it is given."""
    wanted = (*numbers(problem.forward), GRAD_OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE)
    return (*wanted, DELTA, ONE, *([SUMS] if problem.is_summed else []))


def hidden_score(version: int) -> float:
    """What a hidden score is set to by a version of cuDNN, as it writes it: 91500 is 9.15.0."""
    return float("-inf") if version >= INFINITY_SINCE else -3.4028234663852886e38


def graph(problem: Problem) -> Description:
    """The description of a call, with a number of its own."""
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


def graph_backward(problem: BackwardProblem) -> Description:
    """The description of the gradients of a call, with a number of its own."""
    made, of = Maker(), problem.forward
    batch, heads, queries, _ = of.query.shape
    keys = of.key.shape[2]
    element = of.query.element
    scores, rows = (batch, heads, queries, keys), (batch, heads, queries, 1)
    upright = (batch, heads, keys, queries), (heads * queries * keys, queries * keys, 1, keys)
    query, out = made.array(QUERY, of.query), made.array(OUT, of.out)
    key, value = made.array(KEY, turned(of.key)), made.array(VALUE, turned(of.value))
    grad_out = made.array(GRAD_OUT, problem.grad_out)
    scale = made.scalar(SCALE)

    delta = made.reduction("ADD", rows, made.pointwise("MUL", of.out.shape, grad_out, out))
    delta = made.pointwise("MUL", rows, delta, made.scalar(ONE), number=DELTA)

    score = made.virtual(scores)
    made.matmul(query, key, score)
    score = made.pointwise("MUL", scores, score, scale)
    if of.bias is not None:
        score = made.pointwise("ADD", scores, score, made.array(BIAS, of.bias))
    total = made.array(LOGSUMEXP, dense(rows, "float32"))
    score = made.pointwise("SUB", scores, score, total)
    if of.is_causal:
        score = made.causal(scores, score, made.scalar(HIDDEN))
    weights = made.pointwise("EXP", scores, score)

    tall = made.virtual(upright[0], element, upright[1])
    made.reshape(weights, tall)
    _product(made, tall, grad_out, GRAD_VALUE, like=of.value, heads=heads)

    slope = made.virtual(scores)
    made.matmul(grad_out, value, slope)
    slope = made.pointwise("SUB", scores, slope, delta)
    slope = made.pointwise("MUL", scores, slope, weights)
    slope = made.pointwise("MUL", scores, slope, scale)
    tall = made.virtual(upright[0], element, upright[1])
    made.reshape(slope, tall)
    _product(made, tall, query, GRAD_KEY, like=of.key, heads=heads)

    plain = made.virtual(of.key.shape, element, of.key.strides)
    made.reshape(key, plain)
    shape = of.query.shape
    into = made.array(GRAD_QUERY, dense(shape, element))
    if problem.is_summed:
        sums = made.array(SUMS, dense(shape, "float32"))
        made.matmul(slope, plain, sums)
        made.pointwise("IDENTITY", shape, sums, into=into)
    else:
        made.matmul(slope, plain, into)
    return made.done()


def _product(
    made: Maker, left: int, right: int, number: int, *, like: ArrayFacts, heads: int
) -> None:
    """A gradient of key or value: a product, summed over the heads that share one."""
    shape = like.shape
    out = made.array(number, dense(shape, like.element))
    if heads == shape[1]:
        made.matmul(left, right, out)
        return
    each = made.virtual((shape[0], heads, *shape[2:]), like.element)
    made.matmul(left, right, each)
    made.reduction("ADD", shape, each, into=out)


class Prepared(NamedTuple):
    """A call of a kind, or its gradients, ready to run.

    Attributes:
        library: cuDNN.
        driver: address of the driver.
        plan: the graph and its engine.
        tensors: the numbers of the tensors that a run is given.
        hidden: what a hidden score is set to.
    """

    library: OpenLibrary
    driver: int
    plan: CudnnPlan
    tensors: tuple[int, ...]
    hidden: float

    def run(self, given: Arguments, arrays: Mapping[int, DeviceView | None], scale: float) -> None:
        """Put it on the stream of the first array, in order with those of the others.

        Args:
            given: the arguments.
            arrays: by the numbers of their tensors; None where there is none.
            scale: of the scores.

        Raises:
            DeviceFailedError: cuDNN or the driver failed.
        """
        # cuDNN reads them while it is called, and not later.
        scalars = (ctypes.c_float * 3)(scale, self.hidden, 1.0)
        start, size = ctypes.addressof(scalars), ctypes.sizeof(ctypes.c_float)
        addresses = {SCALE: start, HIDDEN: start + size, ONE: start + 2 * size}
        for number, each in arrays.items():
            if each is not None:
                addresses[number] = each.address
        pointers = tuple([addresses[number] for number in self.tensors])
        work = given.work(self.library, self.driver, *arrays.values())
        search.run(given, work, self.plan, Tensors(self.tensors, pointers))


def is_aligned(held: Four) -> bool:
    """Whether all arrays begin where cuDNN copies whole vectors from."""
    return not any(each.address % ALIGNMENT for each in held if each is not None)


def must_repeat(values: Mapping[str, Any]) -> bool:
    """Whether the flags ask for the same bits from run to run."""
    is_deterministic: bool = values["determinism.algorithms"] == "deterministic"
    return is_deterministic or values["determinism.tier"] != "none"


def prepare(
    given: Arguments,
    held: Four,
    problem: Problem | BackwardProblem,
    driver: Driver,
    values: Mapping[str, Any],
) -> Prepared | str:
    """Choose cuDNN's engine for the calls of a kind or their gradients, and let it be compiled.

    Args:
        given: the arguments.
        held: query, key, value and the mask or None.
        problem: what the graph is made for.
        driver: of the device.
        values: the flags in force.

    Returns:
        What a run needs; or why no engine takes the call.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    if isinstance(problem, Problem):
        description, tensors, what = graph(problem), numbers(problem), "it"
    else:
        description, tensors = graph_backward(problem), numbers_backward(problem)
        what = "its gradients"
    repeats = must_repeat(values)

    def unmet(engine: Engine) -> str:
        varies = repeats and "NONDETERMINISTIC" in engine.notes
        return "its results may differ from run to run" if varies else ""

    library = require_device("cudnn")
    major, minor, patch = library.version
    work = given.work(library, driver.handle, *held)
    found = Search(given, work, description, Tensors((), ()))
    try:
        plan = found.ready(found.engines(), unmet)
    except NoEngineError as error:
        none = f"cuDNN {major}.{minor}.{patch} has no engine for {what}"
        return ": ".join((none, "; ".join(error.reasons))) if error.reasons else f"{none}."
    hidden = hidden_score(major * 10000 + minor * 100 + patch)
    return Prepared(library, driver.handle, plan, tensors, hidden)


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
    order = (QUERY, KEY, VALUE, BIAS, OUT, LOGSUMEXP)
    prepared.run(given, dict(zip(order, (*held, *results), strict=True)), scale)


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
        dense(out, query.element),
        None if mask is None else array(mask),
        is_causal,
        with_logsumexp,
    )


def array(held: DeviceView) -> ArrayFacts:
    """An array of four dimensions. A dimension of one number has the stride of a dense one."""
    missing = 4 - len(held.shape)
    shape = (1,) * missing + held.shape
    found = (0,) * missing + held.strides
    strides: list[int] = []
    reach = 1
    for length, stride in zip(reversed(shape), reversed(found), strict=True):
        strides.insert(0, reach if length == 1 else stride)
        reach = max(reach, length * strides[0])
    return ArrayFacts(shape, tuple(strides), held.element)


class GradientPlans(NamedTuple):
    """What gives the gradients of the calls of a kind.

    Attributes:
        problem: what the graph is made for, with a dense gradient of the result.
        driver: of the device.
        values: the flags that were in force.
        plans: what runs it, by how the arrays lie; or why nothing does.
    """

    problem: BackwardProblem
    driver: Driver
    values: Mapping[str, Any]
    plans: dict[BackwardProblem, Prepared | str]


def prepare_gradients(
    given: Arguments, held: Four, problem: Problem, driver: Driver, values: Mapping[str, Any]
) -> GradientPlans | str:
    """As `prepare`, for the gradients of the calls of a kind, wherever theirs of results lie."""
    whole = BackwardProblem(problem, problem.out, is_summed=not must_repeat(values))
    gradients = GradientPlans(whole, driver, values, {})
    found = _prepared(gradients, given, held, whole)
    return found if isinstance(found, str) else gradients


def run_gradients(
    given: Arguments,
    held: Four,
    gradients: GradientPlans,
    shapes: Shapes,
    scale: float | None,
) -> tuple[Any, Any, Any]:
    """Make the gradients of query, key and value of a call that is checked, and launch.

    Args:
        given: query, key, value and the mask, the gradient of the result, the result, and
            logsumexp.
        held: the first four, as C describes them.
        gradients: what `prepare_gradients` found for the kind.
        shapes: the sizes of the call.
        scale: of the scores, or None.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    # What is made here must live until the kernels are on the stream.
    kept, held, forward = _as_before(gradients.problem.forward, given, held)
    query, key, value, mask = held
    kept_out, out = _copied(given, "out")
    kept_total, total = _copied(given, "logsumexp")
    kept_grad, grad_out, prepared = _laid(gradients, given, held, forward)
    grad_query, grad_query_held = given.make(query.shape, query.element)
    grad_key, grad_key_held = given.make(key.shape, query.element)
    grad_value, grad_value_held = given.make(value.shape, query.element)
    kept_delta, delta = given.make(shapes.out[:-1], "float32")
    kept_sums, sums = None, None
    if gradients.problem.is_summed:
        kept_sums, sums = given.make(query.shape, "float32")
    arrays = {
        QUERY: query,
        KEY: key,
        VALUE: value,
        BIAS: mask,
        OUT: out,
        LOGSUMEXP: total,
        GRAD_OUT: grad_out,
        GRAD_QUERY: grad_query_held,
        GRAD_KEY: grad_key_held,
        GRAD_VALUE: grad_value_held,
        DELTA: delta,
        SUMS: sums,
    }
    prepared.run(given, arrays, shapes.width**-0.5 if scale is None else float(scale))
    del kept, kept_out, kept_total, kept_grad, kept_delta, kept_sums
    return grad_query, grad_key, grad_value


def _prepared(
    gradients: GradientPlans, given: Arguments, held: Four, problem: BackwardProblem
) -> Prepared | str:
    """What gives the gradients of arrays that lie in some way; or why nothing does."""
    found = gradients.plans.get(problem)
    if found is None:
        found = prepare(given, held, problem, gradients.driver, gradients.values)
        gradients.plans[problem] = found
    return found


def _as_before(forward: Problem, given: Arguments, held: Four) -> tuple[list[Any], Four, Problem]:
    """Query, key, value and the mask where they lie as they did, or dense.

    Hooks of what PyTorch's autograd saves may give them back lying otherwise.

    Returns:
        What keeps copies, the four, and the call that they are now.
    """
    lay = forward.query, forward.key, forward.value, forward.bias
    moved = {
        name: _copied(given, name)
        for name, each, before in zip(given.given, held, lay, strict=False)
        if each is not None and (each.address % ALIGNMENT or array(each) != before)
    }
    if not moved:
        return [], held, forward
    query, key, value, mask = (
        moved[name][1] if name in moved else each
        for name, each in zip(given.given, held, strict=False)
    )
    assert query and key and value  # noqa: PT018, S101 - only a mask may be missing
    four = query, key, value, mask
    now = array
    problem = replace(
        forward,
        query=now(query),
        key=now(key),
        value=now(value),
        bias=None if mask is None else now(mask),
    )
    return [copy for copy, _ in moved.values()], four, problem


def _laid(
    gradients: GradientPlans, given: Arguments, held: Four, forward: Problem
) -> tuple[Any, DeviceView, Prepared]:
    """The gradient of the result: itself, or dense where cuDNN does not take it so."""
    grad_out, problem = given.take("grad_out"), gradients.problem
    if forward is not problem.forward:
        problem = replace(problem, forward=forward)
    steps = zip(grad_out.shape[:-1], grad_out.strides[:-1], strict=True)
    is_even = all(step > 0 and step % 8 == 0 for length, step in steps if length > 1)
    if is_even and grad_out.strides[-1] == 1 and not grad_out.address % ALIGNMENT:
        lies = replace(problem, grad_out=array(grad_out))
        if lies in gradients.plans or len(gradients.plans) < _KEPT:
            found = _prepared(gradients, given, held, lies)
            if not isinstance(found, str):
                return given.given["grad_out"], grad_out, found
    found = _prepared(gradients, given, held, problem)
    if isinstance(found, str):  # the call was made because there is one, for arrays as they lay
        given.refuse(f"its arrays lie otherwise than in the forward pass, and {found}")
    return *_copied(given, "grad_out"), found


def _copied(given: Arguments, name: str) -> tuple[Any, DeviceView]:
    """An argument that lies as cuDNN copies whole vectors from: itself, or a copy."""
    value, held = given.dense(name, given.given[name])
    if not held.address % ALIGNMENT:
        return value, held
    made, target = given.make(held.shape, held.element)
    own_library.copy(given.operation, made, value)
    return made, target
