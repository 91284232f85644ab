"""Attention, with the arguments of `torch.nn.functional`.

    out = ops.scaled_dot_product_attention(query, key, value, is_causal=True)

Three kernels of our own serve it on the CPU: `flash`, `efficient` and `math`. The flags and the
order of `[cuda]` choose among them, as `torch.nn.attention.sdpa_kernel` means them. Arrays on a
CUDA device are served by what is in `backendcfg/gpu/attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native
from backendcfg._native import broadcast, current
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import devices, serving
from backendcfg.ops.arrays import give, round_to, take, widen
from backendcfg.ops.attention import calls, products
from backendcfg.ops.attention.calls import OPERATION, refuse
from backendcfg.ops.attention.products import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import TypeVar

    from numpy.typing import NDArray

    from backendcfg.ops.attention.calls import Arrays, Route

    Array = NDArray[Any]
    Found = TypeVar("Found", bound=Sequence[Array])

BACKWARD = f"{OPERATION}_backward"


def scaled_dot_product_attention(  # noqa: PLR0917 - PyTorch's
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    seed: int | None = None,
    return_logsumexp: bool = False,
) -> Any:
    """softmax(query keyᵀ · scale + mask) value, without the scores in memory where a kernel can.

    Args:
        query: (..., heads, queries, width); float32, float64, bfloat16 or float16. NumPy arrays,
            PyTorch or JAX arrays on the CPU, or what `__array_interface__` or `__dlpack__`
            describes; or all of these on a CUDA device. Leading dimensions broadcast.
        key: (..., heads, keys, width), of the dtype of query.
        value: (..., heads, keys, value width), of the dtype of query.
        attn_mask: broadcasts to (..., heads, queries, keys). bool: whether a query sees a key;
            as query, or float32 beside 16 bits: what is added to the score. A query that sees
            nothing gives 0.
        dropout_p: the probability that a weight is dropped.
        is_causal: query i sees keys 0 to i alone; not together with a mask.
        scale: of the scores; 1 / sqrt(width) if None.
        enable_gqa: several heads of query share one of key and value.
        seed: of dropout, from 0 to 2**64 - 1. The same seed drops the same weights, whichever
            kernel serves, on any number of threads.
        return_logsumexp: give (result, logsumexp) back; the latter is (..., heads, queries),
            float32, or float64 for float64: what the backward pass needs.

    Returns:
        (..., heads, queries, value width), of the kind and dtype of query.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel that is allowed can serve.
    """
    if not (
        scale is seed is None
        and is_causal.__class__ is enable_gqa.__class__ is return_logsumexp.__class__ is bool
        and dropout_p.__class__ is float
        and dropout_p == 0
    ):
        options = {"enable_gqa": enable_gqa, "return_logsumexp": return_logsumexp}
        calls.check_options(OPERATION, dropout_p, scale, seed, {"is_causal": is_causal, **options})
    given = query, key, value, attn_mask
    kind: Hashable = None
    if type(query) is np.ndarray is type(key) is type(value) and (
        attn_mask is None or type(attn_mask) is np.ndarray
    ):
        masked = None if attn_mask is None else (attn_mask.shape, attn_mask.dtype)
        shapes = query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype
        kind = (*shapes, masked, is_causal, enable_gqa)
        route = calls.routes.get((current(), kind))
        if route is not None:  # such a route is stored only if nothing is to be arranged
            if attn_mask is not None:
                attn_mask = broadcast(attn_mask, route.shapes.scores)
            found = _native.attention(
                *(route.kernel, query, key, value, attn_mask, is_causal),
                *(route.scale if scale is None else scale, dropout_p, seed or 0),
                *(route.element, 0),
            )
            serving.served(OPERATION, route.kernel, route.because, route.sizes, route.element)
            return found if return_logsumexp else found[0]
    elif type(query) is not np.ndarray and _native.device_holds(query):
        return devices.gpu().attend(
            given, (dropout_p, is_causal, scale, enable_gqa, seed), logsumexp=return_logsumexp
        )
    in_force = current()
    arrays = _taken(OPERATION, *given)
    route = _route(OPERATION, arrays, (dropout_p, is_causal, enable_gqa))
    if kind is not None and in_force is current() and _is_plain(route, arrays, given):
        calls.routes.put((in_force, kind), route)
    passed = _options(route, scale, dropout_p, is_causal, seed)
    found = _finite(OPERATION, route, arrays, lambda: _forward(arrays, route, passed), 1)
    serving.served(OPERATION, route.kernel, route.because, route.sizes, route.element)
    result = give(found[0], arrays[0])
    return (result, give(found[1], arrays[0])) if return_logsumexp else result


def _is_plain(route: Route, arrays: Arrays, given: tuple[Any, ...]) -> bool:
    """Whether a kernel takes the arrays as they are, and its result is what is wanted."""
    return (
        route.kernel != "math"
        and route.four
        and not (route.empty or route.checked)
        and all(each is None or each.array is own for each, own in zip(arrays, given, strict=True))
    )


def scaled_dot_product_attention_backward(  # noqa: PLR0917 - as forward
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    seed: int | None = None,
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value.

    Args:
        grad_out: the gradient of the result, of its shape and dtype.
        query: as the forward pass had it, and so are all that follow.
        key: as the forward pass had it.
        value: as the forward pass had it.
        out: what the forward pass gave.
        logsumexp: what it gave with `return_logsumexp=True`.
        attn_mask: as the forward pass had it; it gets no gradient.
        dropout_p: as the forward pass had it.
        is_causal: as the forward pass had it.
        scale: as the forward pass had it.
        enable_gqa: as the forward pass had it.
        seed: as the forward pass had it.

    Returns:
        The gradients of query, key and value, each of the kind, shape and dtype of its array.

    Raises:
        InvalidArgumentError: as in the forward pass; or what it gave does not fit.
    """
    calls.check_options(
        BACKWARD, dropout_p, scale, seed, {"is_causal": is_causal, "enable_gqa": enable_gqa}
    )
    if type(query) is not np.ndarray and _native.device_holds(query):
        on_device: tuple[Any, Any, Any] = devices.gpu().attend_backward(
            (grad_out, out, logsumexp),
            (query, key, value, attn_mask),
            (dropout_p, is_causal, scale, enable_gqa, seed),
        )
        return on_device
    arrays = _taken(BACKWARD, query, key, value, attn_mask)
    route = _route(BACKWARD, arrays, (dropout_p, is_causal, enable_gqa))
    results = _results(route, grad_out, out, logsumexp)
    options = _options(route, scale, dropout_p, is_causal, seed)
    gradients = _finite(
        BACKWARD, route, arrays, lambda: _backward(arrays, results, route, options), 3
    )
    serving.served(BACKWARD, route.kernel, route.because, route.sizes, route.element)
    first, second, third = (
        give(each, like) for each, like in zip(gradients, arrays[:3], strict=True)
    )
    return first, second, third


def _taken(operation: str, query: Any, key: Any, value: Any, mask: Any) -> Arrays:
    return (
        take(query, "query", operation),
        take(key, "key", operation),
        take(value, "value", operation),
        None if mask is None else take(mask, "attn_mask", operation),
    )


def _route(operation: str, arrays: Arrays, options: tuple[float, bool, bool]) -> Route:
    """What is to be done with a call, found or made."""
    described = [(each.array.shape, each.element) if each is not None else None for each in arrays]
    return calls.routes.find(
        (operation, *described, *options),
        lambda: calls.plan(operation, arrays, calls.facts(arrays, options)),
    )


def _finite(
    operation: str, route: Route, arrays: Arrays, compute: Callable[[], Found], results: int
) -> Found:
    """What a call computes; its first `results` must be finite where the flag says so.

    The logsumexp that comes after them is -infinity for a query that sees nothing.
    """
    if not route.checked:
        return compute()
    try:
        found = compute()
        is_finite = all(np.isfinite(widen(each, route.element)).all() for each in found[:results])
    except InvalidArgumentError:  # of a product on the way
        is_finite = False
    if not is_finite:
        raise calls.not_finite(operation, arrays) from None
    return found


def _options(
    route: Route, scale: float | None, dropout_p: float, is_causal: bool, seed: int | None
) -> Options:
    return Options(
        is_causal,
        route.scale if scale is None else float(scale),
        float(dropout_p),
        int(seed or 0),
        route.element,
        route.rounded,
    )


def _arranged(
    arrays: Arrays, route: Route, *, grouped: bool
) -> tuple[Array, Array, Array, Array | None]:
    query, key, value, mask = arrays
    three = query.array, key.array, value.array
    if not route.four:
        three = calls.arranged(three, route.shapes, grouped=grouped)
    hidden = None if mask is None else calls.four_of_mask(mask.array, route.shapes)
    return (*three, hidden)


def _forward(arrays: Arrays, route: Route, options: Options) -> tuple[Array, Array]:
    shapes = route.shapes
    rows = shapes.out[:-1]
    if route.empty:
        work = np.float64 if route.element == "float64" else np.float32
        return np.zeros(shapes.out, arrays[0].array.dtype), np.full(rows, -np.inf, work)
    query, key, value, mask = _arranged(arrays, route, grouped=route.grouped)
    if route.kernel == "math":
        out, logsumexp = products.forward(query, key, value, mask, options)
    else:
        out, logsumexp = _native.attention(
            *(route.kernel, query, key, value, mask, options.is_causal, options.scale),
            *(options.dropout_p, options.seed, route.element, 0),
        )
    return out.reshape(shapes.out), logsumexp.reshape(rows)


def _backward(
    arrays: Arrays, results: tuple[Array, Array, Array], route: Route, options: Options
) -> list[Array]:
    shapes = route.shapes
    given = [each.array for each in arrays[:3] if each is not None]
    if route.empty:
        return [np.zeros(each.shape, each.dtype) for each in given]
    query, key, value, mask = _arranged(arrays, route, grouped=route.grouped)
    lead = (query.shape[0], query.shape[1], shapes.queries)
    grad_out, out = (each.reshape(*lead, shapes.value_width) for each in results[:2])
    logsumexp = results[2].reshape(lead)
    if route.kernel == "math":
        passed = (grad_out, query, key, value, out, logsumexp)
        gradients = products.backward(passed, mask, options)
    else:
        gradients = _native.attention_backward(
            *(grad_out, query, key, value, mask, out, logsumexp, options.is_causal, options.scale),
            *(options.dropout_p, options.seed, route.element, 0),
        )
    return [
        each
        if each.shape == like.shape
        else round_to(
            calls.back(widen(each, route.element), like, shapes.lead),
            route.element,
        )
        for each, like in zip(gradients, given, strict=True)
    ]


def _results(route: Route, grad_out: Any, out: Any, logsumexp: Any) -> tuple[Array, Array, Array]:
    """What the forward pass gave, and the gradient of it, checked."""
    named = {"grad_out": grad_out, "out": out, "logsumexp": logsumexp}
    taken = {name: take(each, name, BACKWARD) for name, each in named.items()}
    total = "float64" if route.element == "float64" else "float32"
    for name, each in taken.items():
        element = total if name == "logsumexp" else route.element
        shape = route.shapes.out[:-1] if name == "logsumexp" else route.shapes.out
        if each.element != element:
            refuse(BACKWARD, f"`{name}` must hold {element}, not {each.element}")
        if each.array.shape != shape:
            refuse(BACKWARD, f"`{name}` must have the shape {shape}, not {each.array.shape}")
    return taken["grad_out"].array, taken["out"].array, taken["logsumexp"].array
