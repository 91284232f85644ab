"""The gradients of attention on CUDA devices by cuDNN: prepared with the call, and run.

    prepared = prepare(forward, given, held, problem, ...)      # with its gradients; or why not
    grad_query, grad_key, grad_value = computed(given, held, plan, options)

Their engine is chosen, and compiled, before the call itself is made: a call that cuDNN computes and
has no gradients for would be too late for another kernel. The graph is that of
`dispatch/cudnn_backward_graph.py`. A gradient of the result that lies in memory otherwise than
the result, as a transposed one does, has a plan of its own.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu import own_library
from backendcfg.gpu.attention import cudnn, cudnn_backward_graph, cudnn_graph
from backendcfg.gpu.attention.cudnn_backward_graph import Backward
from backendcfg.gpu.cudnn import search
from backendcfg.gpu.cudnn.operations import ALIGNMENT
from backendcfg.gpu.cudnn.search import Tensors
from backendcfg.ops import serving
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.cudnn import Four, Prepared
    from backendcfg.gpu.attention.cudnn_graph import Problem
    from backendcfg.gpu.attention.forward import Plan
    from backendcfg.gpu.kernels.loading import Driver


# How many ways in which gradients of results lie have plans, for the calls of a kind; one that lies
# otherwise is made dense, which costs less than compiling.
_KEPT = 16


class Gradients(NamedTuple):
    """What gives the gradients of the calls of a kind.

    Attributes:
        problem: what the graph is made for, with a dense gradient of the result.
        driver: of the device.
        values: the flags that were in force.
        plans: what runs it, by how the arrays lie; or why nothing does.
    """

    problem: Backward
    driver: Driver
    values: Mapping[str, Any]
    plans: dict[Backward, Prepared | str]


def prepare(
    forward: Prepared,
    given: Arguments,
    held: Four,
    problem: Problem,
    *,
    driver: Driver,
    values: Mapping[str, Any],
) -> Prepared | str:
    """Choose cuDNN's engine for the gradients of the calls of a kind, and let it be compiled.

    Args:
        forward: what `cudnn.prepare` found for the kind.
        given: the arguments.
        held: query, key, value and the mask or None.
        problem: what they are a call of.
        driver: of the device.
        values: the flags in force.

    Returns:
        `forward` with its gradients; or why no engine gives them.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    is_summed = not cudnn.must_repeat(values)
    gradients = Gradients(Backward(problem, problem.out, is_summed), driver, values, {})
    found = _prepared(gradients, given, held, gradients.problem)
    return found if isinstance(found, str) else forward._replace(gradients=gradients)


def computed(given: Arguments, held: Four, plan: Plan, scale: float | None) -> tuple[Any, Any, Any]:
    """Make the gradients of query, key and value of a call that is checked, and launch.

    Args:
        given: query, key, value and the mask, the gradient of the result, the result, and
            logsumexp.
        held: the first four, as C describes them.
        plan: of the call.
        scale: of the scores, or None.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
    """
    gradients, shapes = _of(plan), plan.shapes
    # What is made here must live until the kernels are on the stream.
    kept, held, forward = _as_before(gradients.problem.forward, given, held)
    query, key, value, mask = held
    kept_out, out = _dense(given, "out")
    kept_total, total = _dense(given, "logsumexp")
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
        cudnn_graph.SCALE: start,
        cudnn_graph.HIDDEN: start + size,
        cudnn_backward_graph.ONE: start + 2 * size,
    }
    arrays = {
        cudnn_graph.QUERY: query,
        cudnn_graph.KEY: key,
        cudnn_graph.VALUE: value,
        cudnn_graph.BIAS: mask,
        cudnn_graph.OUT: out,
        cudnn_graph.LOGSUMEXP: total,
        cudnn_backward_graph.GRAD_OUT: grad_out,
        cudnn_backward_graph.GRAD_QUERY: grad_query_held,
        cudnn_backward_graph.GRAD_KEY: grad_key_held,
        cudnn_backward_graph.GRAD_VALUE: grad_value_held,
        cudnn_backward_graph.DELTA: delta,
        cudnn_backward_graph.SUMS: sums,
    }
    addresses |= {number: each.address for number, each in arrays.items() if each is not None}
    pointers = tuple([addresses[tensor] for tensor in prepared.tensors])
    work = given.work(prepared.library, prepared.driver, *arrays.values())
    search.run(given, work, prepared.plan, Tensors(prepared.tensors, pointers))
    del kept, kept_out, kept_total, kept_grad, kept_delta, kept_sums
    made = grad_query, grad_key, grad_value
    if plan.is_checked:
        for each in made:
            own_library.check_finite(given.operation, each)
    shape = *shapes.scores, shapes.width
    serving.served(given.operation, plan.kernel, plan.because, shape, query.element)
    return made


def _of(plan: Plan) -> Gradients:
    """The gradients of a plan: a call that has none is let by none."""
    assert plan.by_cudnn is not None  # noqa: S101 - cuDNN serves it
    assert plan.by_cudnn.gradients is not None  # noqa: S101 - its arrays need gradients
    return plan.by_cudnn.gradients


def _prepared(
    gradients: Gradients, given: Arguments, held: Four, problem: Backward
) -> Prepared | str:
    """What gives the gradients of arrays that lie in some way; or why nothing does."""
    found = gradients.plans.get(problem)
    if found is None:
        graph = cudnn_backward_graph.graph(problem)
        numbers = cudnn_backward_graph.numbers(problem)
        found = cudnn.ready(
            *(given, held, (graph, numbers), gradients.driver, gradients.values),
            what="its gradients",
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
        name: _dense(given, name)
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
    gradients: Gradients, given: Arguments, held: Four, forward: Problem
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
    return *_dense(given, "grad_out"), found


def _dense(given: Arguments, name: str) -> tuple[Any, DeviceView]:
    """An argument that lies as cuDNN copies whole vectors from: itself, or a copy."""
    value, held = given.dense(name, given.given[name])
    if not held.address % ALIGNMENT:
        return value, held
    made, target = given.make(held.shape, held.element)
    own_library.copy(given.operation, made, value)
    return made, target
