"""The gradients of attention on CUDA devices: for PyTorch's autograd, and for direct callers.

The backward pass computes them from the result and the logarithms of the forward pass, on the
stream that is current at that time, by the kernels of what served the forward pass: those of
`flash`, of `efficient`, which serve `math` too, or cuDNN's.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import Arguments, needs_gradient, refuse_tangents
from backendcfg.gpu.attention import cudnn, efficient, flash, forward
from backendcfg.gpu.attention.call import (
    NAMES,
    Gradients,
    described,
    matrix,
    options_of,
    put,
    summed_in,
    taken,
)
from backendcfg.ops import serving
from backendcfg.ops.attention.calls import OPERATION

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import DeviceView
    from backendcfg.gpu.attention.call import AttentionPlan, Four, Options

BACKWARD = f"{OPERATION}_backward"
RESULTS = ("grad_out", "out", "logsumexp")
ALL_NAMES = (*NAMES, *RESULTS)
_ALL = (True, True, True, False)


def attend(
    arrays: tuple[Any, Any, Any, Any],
    given_options: tuple[Any, ...],
    *,
    logsumexp: bool,
) -> Any:
    """The operation for arrays of which query is on a device; see `scaled_dot_product_attention`.

    Args:
        arrays: query, key, value and the mask or None.
        given_options: `dropout_p`, `is_causal`, `scale`, `enable_gqa` and `seed`, checked.
        logsumexp: give (result, logsumexp) back; the latter has no gradient.

    Raises:
        InvalidArgumentError: an argument does not fit or carries a tangent, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    refuse_tangents(OPERATION, NAMES, arrays)
    options = options_of(*given_options)
    trains = tuple(needs_gradient(each) for each in arrays)
    if not any(trains):
        return forward.attend(arrays, options, logsumexp=logsumexp)
    given = Arguments(OPERATION, dict(zip(NAMES, arrays, strict=True)))
    plan = forward.plan_of(given, taken(given), trains, options)
    torch = sys.modules.get("torch")
    tensors = [each for each in arrays if each is not None]
    if torch is None or not all(isinstance(each, torch.Tensor) for each in tensors):
        given.refuse("gradients are recorded where all arrays are PyTorch's alone")
    shapes = plan.shapes
    lead = (1,) * (2 - len(shapes.lead)) + shapes.lead
    heads = [each.shape[-3] if options.enable_gqa else lead[1] for each in arrays[1:3]]
    # Autograd then sums the gradients of what was broadcast.
    query = arrays[0].expand(*lead, shapes.queries, shapes.width)
    key = arrays[1].expand(lead[0], heads[0], shapes.keys, shapes.width)
    value = arrays[2].expand(lead[0], heads[1], shapes.keys, shapes.value_width)
    out, total = _function(torch).apply(query, key, value, arrays[3], options, plan)
    return (out, total) if logsumexp else out


@functools.cache
def _function(torch: Any) -> Any:
    """What autograd calls, of PyTorch's own kind."""

    class Attention(torch.autograd.Function):  # type: ignore[misc]
        """Attention by our own kernels."""

        @staticmethod
        def forward(  # noqa: PLR0917 - as it is applied
            context: Any,
            query: Any,
            key: Any,
            value: Any,
            mask: Any,
            options: Options,
            plan: AttentionPlan,
        ) -> tuple[Any, Any]:
            out, total = _forward((query, key, value, mask), options, plan)
            context.save_for_backward(query, key, value, mask, out, total)
            context.called = options, plan
            context.mark_non_differentiable(total)
            context.set_materialize_grads(False)
            return out, total

        @staticmethod
        def backward(context: Any, grad_out: Any, _: Any) -> tuple[Any, ...]:
            if grad_out is None:  # nothing depends on the result
                return (None,) * 6
            if grad_out.stride(-1) != 1:  # the gradient of a sum is one number, expanded
                grad_out = grad_out.contiguous()
            *arrays, out, total = context.saved_tensors
            if context.called[1].kernel == "flash":  # hooks may return them with other strides
                arrays[:3] = (
                    each if each.stride(-1) == 1 else each.contiguous() for each in arrays[:3]
                )
            wanted = context.needs_input_grad[:4]
            found = OfAttention.apply(
                grad_out, *arrays, out.detach(), total, *context.called, wanted
            )
            gradients = (
                each if needed else None for each, needed in zip(found, wanted, strict=True)
            )
            return *gradients, None, None

    class OfAttention(torch.autograd.Function):  # type: ignore[misc]
        """Its gradients. Their own are not supported; autograd would take them for 0."""

        @staticmethod
        def forward(  # noqa: PLR0917 - as it is applied
            _context: Any,
            grad_out: Any,
            query: Any,
            key: Any,
            value: Any,
            mask: Any,
            out: Any,
            total: Any,
            options: Options,
            plan: AttentionPlan,
            wanted: tuple[bool, ...],
        ) -> tuple[Any, ...]:
            arrays, results = (query, key, value, mask), (grad_out, out, total)
            # The plan keeps the flags of the forward pass, whatever is in force now.
            return computed(arrays, results, options, plan, wanted=wanted)

        @staticmethod
        def backward(_context: Any, *_: Any) -> NoReturn:
            raise InvalidArgumentError(
                f"{BACKWARD}: on a device it has no gradients of its own",
                state="nothing was computed",
                helps=["let PyTorch attend where gradients need gradients, by `SDPBackend.MATH`"],
            )

    return Attention


def _forward(arrays: tuple[Any, Any, Any, Any], options: Options, plan: AttentionPlan) -> Any:
    """The result and its logarithms, in the forward pass that autograd records."""
    given = Arguments(OPERATION, dict(zip(NAMES, arrays, strict=True)))
    held = taken(given)
    return forward.computed(given, held, plan, options, logsumexp=True)


def backward(
    results: tuple[Any, Any, Any],
    arrays: tuple[Any, Any, Any, Any],
    given_options: tuple[Any, ...],
) -> tuple[Any, Any, Any]:
    """The operation for arrays on a device; see `scaled_dot_product_attention_backward`.

    Args:
        results: the gradient of the result, the result, and logsumexp.
        arrays: query, key, value and the mask or None.
        given_options: as of `attend`.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    options = options_of(*given_options)
    refuse_tangents(BACKWARD, ALL_NAMES, (*arrays, *results))
    given = _arguments(arrays, results)
    held = taken(given)
    # Planned as if they needed gradients, so that no kernel is chosen that gives none.
    plan = forward.plan_of(given, held, _ALL, options)
    for name, each in zip(NAMES[1:3], held[1:3], strict=True):
        shared = -3 if options.enable_gqa else -2
        if each is not None and each.shape[:shared] != held[0].shape[:shared]:
            given.refuse(
                f"`{name}` must have the leading dimensions of `query`",
                helps=["expand it, and sum its gradient over what it was expanded by"],
            )
    if held[0].shape[:-1] != plan.shapes.out[:-1]:
        given.refuse("`query` must have the leading dimensions of the result")
    for name in RESULTS:
        found = given.take(name)
        element = summed_in(held[0].element) if name == "logsumexp" else held[0].element
        shape = plan.shapes.out[:-1] if name == "logsumexp" else plan.shapes.out
        if found.element != element:
            given.refuse(f"`{name}` must hold {element}")
        if found.shape != shape:
            given.refuse(f"`{name}` must have the shape {shape}")
    first, second, third, _ = computed(arrays, results, options, plan, wanted=_ALL)
    return first, second, third


def computed(
    arrays: tuple[Any, Any, Any, Any],
    results: tuple[Any, Any, Any],
    options: Options,
    plan: AttentionPlan,
    *,
    wanted: tuple[bool, ...],
) -> tuple[Any, Any, Any, Any]:
    """The gradients of query, key, value and the mask, for a call that is checked.

    Args:
        arrays: query, key, value and the mask or None.
        results: the gradient of the result, the result, and logsumexp.
        options: the others.
        plan: of the call.
        wanted: which of them; None stands for the others, as far as they are not made beside one.

    Raises:
        DeviceFailedError: the device failed.
    """
    given = _arguments(arrays, results)
    held = taken(given)
    found: tuple[Any, Any, Any, Any]
    if plan.gradients is not None:
        found = *cudnn.run_gradients(given, held, plan.gradients, plan.shapes, options.scale), None
    else:
        made = _launched(given, held, options, plan, wanted)
        found = made.get("query"), made.get("key"), made.get("value"), made.get("mask")
    if plan.is_checked:
        for each in found:
            if each is not None:
                own_library.check_finite(BACKWARD, each)
    serving.served(BACKWARD, plan.kernel, plan.because, plan.sizes, held[0].element)
    return found


def _launched(
    given: Arguments,
    held: Four,
    options: Options,
    plan: AttentionPlan,
    wanted: tuple[bool, ...],
) -> dict[str, Any]:
    """The gradients that our own kernels were launched to make, by name, and `delta`.

    Raises:
        DeviceFailedError: the device failed.
        MemoryError: the device is full.
    """
    is_flash = plan.kernel == "flash"
    if is_flash:  # one kernel gives that of query, and another one those of key and value
        both = wanted[1] or wanted[2]
        wanted = (True, both, both, False)
    # What is made here must live until all kernels are on the stream: memory that was given back
    # before would be given out again for what is made next.
    kept_grad, grad_out = _rows(given, "grad_out", side_by_side=is_flash)
    kept_out, out = _rows(given, "out", side_by_side=is_flash)
    kept_total, total = given.dense("logsumexp", given.given["logsumexp"])
    call = described(held, plan.shapes, options, (out, total))
    arrays, memory = {}, {}
    likes = {name: each for name, each, one in zip(efficient.OF, held, wanted, strict=True) if one}
    if likes.keys() & efficient.NEEDS_DELTA:
        likes = {"delta": total, **likes}
    for name, like in likes.items():
        if like is not None:  # what is not there needs no gradient
            arrays[name], memory[name] = given.make(like.shape, like.element)
    sizes = held[3].shape if held[3] is not None else ()
    gradients = Gradients(
        matrix(grad_out, call.sizes["out"]),
        memory["delta"].address if "delta" in memory else 0,
        {name: matrix(each, call.sizes[name]) for name, each in memory.items() if name != "delta"},
        (1,) * (4 - len(sizes)) + sizes,
    )
    touched = (*held, grad_out, out, total, *memory.values())
    if is_flash:
        starts = flash.launches_backward(call, gradients, plan.memories)
    else:
        starts = efficient.launches_backward(call, gradients)
    for start in starts:
        put(given, touched, plan, start)
    del kept_grad, kept_out, kept_total
    return arrays


def _rows(given: Arguments, name: str, *, side_by_side: bool) -> tuple[Any, DeviceView]:
    """An argument, or a dense copy where the numbers of a row must lie side by side and do not."""
    held = given.take(name)
    if not side_by_side or held.strides[-1] == 1 or 0 in held.shape:
        return given.given[name], held
    return given.dense(name, given.given[name])


def _arguments(arrays: tuple[Any, ...], results: tuple[Any, ...]) -> Arguments:
    return Arguments(BACKWARD, dict(zip(ALL_NAMES, (*arrays, *results), strict=True)))
