"""The gradients of attention on CUDA devices: for PyTorch's autograd, and for who asks for them.

The forward pass keeps its result and the logarithms; two kernels go back from them, on the stream
that is current then. See backendcfg/dispatch/device_backward.py.
"""

from __future__ import annotations

import functools
import operator
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg import _native
from backendcfg.dispatch.device_attention import Arguments as ForwardBlock
from backendcfg.dispatch.device_backward import BackwardArguments, Gradients, launch, variants
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import device_attention, device_cudnn_gradients, device_products, serving
from backendcfg.ops.attention_call import OPERATION
from backendcfg.ops.device_arrays import Arguments, needs_gradient
from backendcfg.ops.device_launch import put

if TYPE_CHECKING:
    from backendcfg.ops.device_arrays import Held
    from backendcfg.ops.device_attention import Options, Plan

BACKWARD = f"{OPERATION}_backward"
RESULTS = ("grad_out", "out", "logsumexp")
ALL_NAMES = (*device_attention.NAMES, *RESULTS)
RECORDED = "recorded"

# Where the addresses of the arrays, of the results and the seed are in the argument block, in which
# the block of the forward pass comes first.
_FORWARD = device_attention.places_in(ForwardBlock, "query", "key", "value", "mask")
_PLACES = (
    (
        *_FORWARD,
        BackwardArguments.grad_out.offset,
        *device_attention.places_in(ForwardBlock, "out", "logsumexp"),
    ),
    device_attention.places_in(BackwardArguments, "grad_query", "delta", "grad_key", "grad_value"),
    device_attention.places_in(ForwardBlock, "seed"),
)


def attend(arrays: tuple[Any, Any, Any, Any], options: Options, *, logsumexp: bool) -> Any:
    """The operation for arrays of which query is on a device; see `scaled_dot_product_attention`.

    Args:
        arrays: query, key, value and the mask or None.
        options: the others.
        logsumexp: give (result, logsumexp) back; the latter has no gradient.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    trains = tuple(needs_gradient(each) for each in arrays)
    if not any(trains):
        return device_attention.attend(arrays, options, logsumexp=logsumexp)
    given = Arguments(OPERATION, dict(zip(device_attention.NAMES, arrays, strict=True)))
    plan = device_attention.known(given, device_attention.taken(given), trains, options)
    torch = sys.modules.get("torch")
    tensors = [each for each in arrays if each is not None]
    if torch is None or not all(isinstance(each, torch.Tensor) for each in tensors):
        given.refuse("gradients are recorded where all arrays are PyTorch's alone")
    shapes = plan.shapes
    lead = (1,) * (2 - len(shapes.lead)) + shapes.lead
    # Autograd then sums the gradients of what was broadcast.
    query = arrays[0].expand(*lead, shapes.queries, shapes.width)
    key, value = (
        each.expand(lead[0], each.shape[-3] if options.enable_gqa else lead[1], -1, -1)
        for each in arrays[1:3]
    )
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
            plan: Plan,
        ) -> tuple[Any, Any]:
            out, total = _forward((query, key, value, mask), options, plan)
            context.save_for_backward(query, key, value, mask, out, total)
            context.called = options, plan
            context.mark_non_differentiable(total)
            context.set_materialize_grads(False)
            return out, total

        @staticmethod
        def backward(context: Any, grad_out: Any, _: Any) -> tuple[Any, ...]:
            if grad_out is None:  # nobody asked
                return (None,) * 6
            if grad_out.stride(-1) != 1:  # of a sum: one number, expanded
                grad_out = grad_out.contiguous()
            *arrays, out, total = context.saved_tensors
            wanted = context.needs_input_grad
            found = OfAttention.apply(
                grad_out, *arrays, out.detach(), total, *context.called, wanted[1] or wanted[2]
            )
            gradients = (
                each if needed else None for each, needed in zip(found, wanted[:3], strict=True)
            )
            return *gradients, None, None, None

    class OfAttention(torch.autograd.Function):  # type: ignore[misc]
        """Its gradients, which have none: autograd would else take them for constants."""

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
            plan: Plan,
            of_keys: bool,
        ) -> tuple[Any, Any, Any]:
            arrays, results = (query, key, value, mask), (grad_out, out, total)
            # Flags are those of the forward pass, wherever autograd calls this.
            kind = RECORDED, plan.because, *options[:4], of_keys
            found = None
            if not plan.is_checked:
                found = _recalled((*arrays, *results), kind, options, is_recorded=True)
            if found is None:
                return computed(
                    arrays, results, options, plan, kind=kind, of_keys=of_keys, is_recorded=True
                )
            return found[0], *(found[2:] if of_keys else (None, None))

        @staticmethod
        def backward(_context: Any, *_: Any) -> NoReturn:
            raise InvalidArgumentError(
                f"{BACKWARD}: on a device it has no gradients of its own",
                state="nothing was computed",
                helps=["let PyTorch attend where gradients need gradients, by `SDPBackend.MATH`"],
            )

    return Attention


def _forward(arrays: tuple[Any, Any, Any, Any], options: Options, plan: Plan) -> Any:
    """The result and its logarithms, in the forward pass that autograd records."""
    kind = RECORDED, plan.because, *options[:4]
    names, found = device_attention.NAMES, None
    if not plan.is_checked:
        found = device_attention.recalled(
            OPERATION, names, arrays, kind, options.seed, is_recorded=True
        )
    if found is not None:
        return found
    given = Arguments(OPERATION, dict(zip(names, arrays, strict=True)))
    held = device_attention.taken(given)
    return device_attention.computed(
        given, held, plan, options, logsumexp=True, kind=kind, is_recorded=True
    )


def _recalled(
    arrays: tuple[Any, ...], kind: tuple[Any, ...], options: Options, *, is_recorded: bool
) -> tuple[Any, ...] | None:
    """The gradient of query, the numbers that the second kernel needs, and the other gradients."""
    return device_attention.recalled(
        BACKWARD, ALL_NAMES, arrays, kind, options.seed, is_recorded=is_recorded
    )


def backward(
    results: tuple[Any, Any, Any], arrays: tuple[Any, Any, Any, Any], options: Options
) -> tuple[Any, Any, Any]:
    """The operation for arrays on a device; see `scaled_dot_product_attention_backward`.

    Args:
        results: the gradient of the result, the result, and logsumexp.
        arrays: query, key, value and the mask or None.
        options: the others.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    kind = BACKWARD, *options[:4]
    found = _recalled((*arrays, *results), kind, options, is_recorded=False)
    if found is not None:
        return found[0], found[2], found[3]
    given = _arguments(arrays, results)
    held = device_attention.taken(given)
    # As if they needed them: so no kernel is chosen that gives none.
    plan = device_attention.known(given, held, (True, True, True, False), options)
    for name, each in zip(device_attention.NAMES[1:3], held[1:3], strict=True):
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
        element = "float32" if name == "logsumexp" else held[0].element
        shape = plan.shapes.out[:-1] if name == "logsumexp" else plan.shapes.out
        if found.element != element:
            given.refuse(f"`{name}` must hold {element}")
        if found.shape != shape:
            given.refuse(f"`{name}` must have the shape {shape}")
    return computed(arrays, results, options, plan, kind=kind)


def computed(
    arrays: tuple[Any, Any, Any, Any],
    results: tuple[Any, Any, Any],
    options: Options,
    plan: Plan,
    *,
    kind: tuple[Any, ...],
    of_keys: bool = True,
    is_recorded: bool = False,
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value, for a call that is checked.

    Args:
        arrays: query, key, value and the mask or None.
        results: the gradient of the result, the result, and logsumexp.
        options: the others.
        plan: of the call.
        kind: what else than arrays the next call is known by, which C makes alone.
        of_keys: whether those of key and value are wanted; else None stands for them.
        is_recorded: autograd itself calls.

    Raises:
        DeviceFailedError: the device failed.
    """
    given = _arguments(arrays, results)
    held = device_attention.taken(given)
    shapes = plan.shapes
    if plan.by_cudnn is not None:
        return device_cudnn_gradients.computed(given, held, plan, options.scale)
    about = BACKWARD, "flash", plan.because, (*shapes.scores, shapes.width), held[0].element
    # What is made here must live until both kernels are on the stream: memory that was given back
    # before would be given out again for what is made next.
    rows = [_rows(given, name) for name in RESULTS[:2]]
    (_, grad_out), (_, out) = rows
    kept_total, total = given.dense("logsumexp", results[2])
    grad_query, query = given.make(held[0].shape, held[0].element)
    grad_key, key = given.make(held[1].shape, held[0].element) if of_keys else (None, None)
    grad_value, value = given.make(held[2].shape, held[0].element) if of_keys else (None, None)
    kept_delta, delta = given.make(shapes.out[:-1], "float32")
    call = device_attention.described(held, shapes, options, (out, total))
    lead, keyed = (call.batch, call.heads), (call.batch, call.key_heads)
    of_query, of_key = (call.queries, call.width), (call.keys, call.width)
    gradients = Gradients(
        device_attention.matrix(grad_out, lead, of_query),
        device_attention.matrix(query, lead, of_query),
        device_attention.matrix(key or held[1], keyed, of_key),
        device_attention.matrix(value or held[2], keyed, of_key),
        delta.address,
    )
    touched = (*held, grad_out, out, total, query, key, value, delta)
    launches = []
    for chosen in variants(call, gradients, plan.memories[0]):
        start = launch(call, gradients, chosen, plan.memories[1])
        if start is not None and (of_keys or not chosen.of_keys):
            kernel = put(given, touched, plan, chosen, start)
            launches.append((kernel, start.grid, start.threads, start.arguments, *_PLACES))
    passed = [each for each, _ in rows] + [kept_total]
    if not plan.is_checked and all(map(operator.is_, passed, results)):
        shaped = [each.shape for each in (query, delta, key, value) if each is not None]
        elements = held[0].element, "float32", held[0].element, held[0].element
        made_of = tuple(zip(elements, shaped, strict=False))
        _native.device_remember(
            (*arrays, *results), kind, is_recorded, tuple(launches), made_of, about
        )
    del rows, kept_total, kept_delta
    made = grad_query, grad_key, grad_value
    if plan.is_checked:
        for each in made:
            if each is not None:
                device_products.finite(BACKWARD, each)
    serving.served(*about)
    return made


def _arguments(arrays: tuple[Any, ...], results: tuple[Any, ...]) -> Arguments:
    return Arguments(BACKWARD, dict(zip(ALL_NAMES, (*arrays, *results), strict=True)))


def _rows(given: Arguments, name: str) -> tuple[Any, Held]:
    """An argument of which the numbers of a row lie side by side: itself, or a dense copy."""
    held = given.take(name)
    if held.strides[-1] == 1 or 0 in held.shape:
        return given.given[name], held
    return given.dense(name, given.given[name])
