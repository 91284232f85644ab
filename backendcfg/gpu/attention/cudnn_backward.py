"""The gradients of attention on CUDA devices by cuDNN: their graph, its engine, and its runs.

    gradients = prepare(given, held, problem, ...)      # with the plan of the call; or why not
    grad_query, grad_key, grad_value = run(given, held, gradients, ...)

    weights = exp(query keyᵀ · scale + bias - logsumexp)         0 where hidden
    grad_value = weightsᵀ grad_out
    delta = sum(grad_out · out)                                  of each row
    slopes = weights · (grad_out valueᵀ - delta) · scale
    grad_key = slopesᵀ query
    grad_query = slopes key

As for attention itself, this is the composite form of NVIDIA's frontend. A run is given memory for
delta, and where the engine may vary from run to run also for the float32 sums of grad_query.

The engine is chosen, and compiled, before the call itself is made: when a call that cuDNN has
computed turns out to have no gradients, it is too late for another kernel. A gradient of the result
that does not lie in memory as the result does, a transposed one, say, has a plan of its own.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu import own_library
from backendcfg.gpu.attention import cudnn
from backendcfg.gpu.attention.cudnn import BIAS, HIDDEN, KEY, LOGSUMEXP, OUT, QUERY, SCALE, VALUE
from backendcfg.gpu.cudnn import search
from backendcfg.gpu.cudnn.operations import ALIGNMENT, Array, Maker, dense, turned
from backendcfg.gpu.cudnn.search import Tensors
from backendcfg.records import record, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Four
    from backendcfg.gpu.attention.cudnn import Prepared, Problem
    from backendcfg.gpu.cudnn.graph import Description
    from backendcfg.gpu.kernels.loading import Driver

# How many ways in which gradients of results lie have plans, for the calls of a kind; one that lies
# otherwise is made dense, which costs less than compiling.
_KEPT = 16

GRAD_OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE, DELTA, SUMS, ONE = range(9, 16)
"""The numbers of the tensors that a run is given the memory of, after those of attention."""


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
    grad_out: Array
    is_summed: bool = True


def numbers(problem: BackwardProblem) -> tuple[int, ...]:
    """The tensors whose memory a run needs, in the order in which it is given.

    `ONE` is passed by value too. `DELTA` and `SUMS` are memory to work in, of float32: (batch,
    heads, queries, 1), and of the shape of query, both dense.
    """
    wanted = (*cudnn.numbers(problem.forward), GRAD_OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE)
    return (*wanted, DELTA, ONE, *([SUMS] if problem.is_summed else []))


def graph(problem: BackwardProblem) -> Description:
    """The description of a problem, with a number of its own."""
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
    total = made.array(LOGSUMEXP, Array("float32", rows, dense(rows)))
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
    into = made.array(GRAD_QUERY, Array(element, shape, dense(shape)))
    if problem.is_summed:
        sums = made.array(SUMS, Array("float32", shape, dense(shape)))
        made.matmul(slope, plain, sums)
        made.pointwise("IDENTITY", shape, sums, into=into)
    else:
        made.matmul(slope, plain, into)
    return made.done()


def _product(made: Maker, left: int, right: int, number: int, *, like: Array, heads: int) -> None:
    """A gradient of key or value: a product, summed over the heads that share one."""
    shape = like.shape
    out = made.array(number, Array(like.element, shape, dense(shape)))
    if heads == shape[1]:
        made.matmul(left, right, out)
        return
    each = made.virtual((shape[0], heads, *shape[2:]), like.element)
    made.matmul(left, right, each)
    made.reduction("ADD", shape, each, into=out)


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


def prepare(
    given: Arguments,
    held: Four,
    problem: Problem,
    *,
    driver: Driver,
    values: Mapping[str, Any],
) -> GradientPlans | str:
    """Choose cuDNN's engine for the gradients of the calls of a kind, and let it be compiled.

    Args:
        given: the arguments.
        held: query, key, value and the mask or None.
        problem: what they are a call of.
        driver: of the device.
        values: the flags in force.

    Returns:
        What gives the gradients; or why no engine does.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    is_summed = not cudnn.must_repeat(values)
    whole = BackwardProblem(problem, problem.out, is_summed)
    gradients = GradientPlans(whole, driver, values, {})
    found = _prepared(gradients, given, held, whole)
    return found if isinstance(found, str) else gradients


def run(
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
        gradients: what `prepare` found for the kind.
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
    # cuDNN reads them while it is called, and not later.
    factor = shapes.width**-0.5 if scale is None else float(scale)
    scalars = (ctypes.c_float * 3)(factor, prepared.hidden, 1.0)
    start, size = ctypes.addressof(scalars), ctypes.sizeof(ctypes.c_float)
    addresses = {
        SCALE: start,
        HIDDEN: start + size,
        ONE: start + 2 * size,
    }
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
    addresses |= {number: each.address for number, each in arrays.items() if each is not None}
    pointers = tuple([addresses[tensor] for tensor in prepared.tensors])
    work = given.work(prepared.library, prepared.driver, *arrays.values())
    search.run(given, work, prepared.plan, Tensors(prepared.tensors, pointers))
    del kept, kept_out, kept_total, kept_grad, kept_delta, kept_sums
    return grad_query, grad_key, grad_value


def _prepared(
    gradients: GradientPlans, given: Arguments, held: Four, problem: BackwardProblem
) -> Prepared | str:
    """What gives the gradients of arrays that lie in some way; or why nothing does."""
    found = gradients.plans.get(problem)
    if found is None:
        described = graph(problem), numbers(problem)
        found = cudnn.ready(
            *(given, held, described, gradients.driver, gradients.values), what="its gradients"
        )
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
        if each is not None and (each.address % ALIGNMENT or cudnn.array(each) != before)
    }
    if not moved:
        return [], held, forward
    query, key, value, mask = (
        moved[name][1] if name in moved else each
        for name, each in zip(given.given, held, strict=False)
    )
    assert query and key and value  # noqa: PT018, S101 - only a mask may be missing
    four = query, key, value, mask
    now = cudnn.array
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
        lies = replace(problem, grad_out=cudnn.array(grad_out))
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
