"""How attention and the products with a sum explain themselves: each by its own choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch import attention, attention_facts, attention_shapes
from backendcfg.dispatch.attention_facts import Call, Tensor
from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu.attention import choice as device_choice
from backendcfg.gpu.attention import rules
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.products.choice import place_of
from backendcfg.gpu.products.gemm import KINDS
from backendcfg.ops import attention_call, attention_choice, product_choice
from backendcfg.ops.families import Answer, Question, Reason
from backendcfg.ops.product_choice import element

if TYPE_CHECKING:
    from collections.abc import Callable

ATTENTION = "scaled_dot_product_attention"


def product(question: Question) -> Answer:
    """`addmm`, `bmm` and `baddbmm`: by the product in them, of the last two shapes."""
    shapes = _shapes(question, 2 if question.operation == "bmm" else 3)
    device = question.option("device", "cpu")
    of = product_choice.sizes(shapes[-2:])
    adds = question.operation == "addmm" and shapes[0] == of[1:2]  # a vector, for each row
    return product_choice.of_product(of, question.dtype, device, adds=adds)


def of_attention(question: Question) -> Answer:
    """`scaled_dot_product_attention` of query, key, value and perhaps a mask."""
    shapes = _shapes(question, 3, 4)
    name = element(question.dtype)
    hidden = element(question.option("mask_dtype", "bool"))
    place = place_of(question.option("device", "cpu"))
    # On a device the backward pass is that of the kernel that gives gradients.
    trains = place is not None and question.operation != ATTENTION
    query, key, value = (_tensor(shape, name, requires_grad=trains) for shape in shapes[:3])
    dropout, scale = question.option("dropout_p", 0.0), question.option("scale")
    is_causal = question.flag("is_causal", default=False)
    if question.operation == ATTENTION:
        question.flag("return_logsumexp", default=False)
    seed = question.option("seed", 0)
    attention_call.check_options("explain", dropout, scale, seed, {})
    if len(shapes) == 4 and is_causal:
        raise InvalidArgumentError("explain: `attn_mask` must not be given with `is_causal`")
    call = Call(
        query,
        key,
        value,
        _tensor(shapes[3], hidden) if len(shapes) == 4 else None,
        float(dropout),
        is_causal,
        question.flag("enable_gqa", default=False),
        scale=None if scale is None else float(scale),
    )
    if wrong := attention_shapes.problem(call):
        raise InvalidArgumentError(f"explain: {wrong}")
    if place is None:
        choice = attention_choice.choose(call, question.values)
    else:
        device, _ = loading.device(*place, start=False)
        choice = device_choice.choose(call, question.values, device)
    where = "" if place is None else f" on {KINDS[place[0]]}:{place[1]}"
    sizes = attention_shapes.sizes(call)
    return Answer(
        question.operation,
        f"{question.operation} of {', '.join(map(str, shapes[:3]))} {name}{where}",
        (*sizes.scores, sizes.width),
        choice.kernel,
        "",
        f"on a device; {choice.because}" if where and choice.kernel else choice.because,
        tuple(
            Reason(kernel, "", "; ".join(choice.reasons.get(kernel, ("not in the order",))))
            for kernel in (attention.OURS if place is None else rules.KERNELS)
            if kernel != choice.kernel
        ),
        attention_facts.FLAGS,
    )


EXPLAINERS: dict[str, Callable[[Question], Answer]] = {
    "addmm": product,
    "baddbmm": product,
    "bmm": product,
    ATTENTION: of_attention,
    f"{ATTENTION}_backward": of_attention,
}
"""By operation, as `families.register` takes them."""


def _shapes(question: Question, least: int, most: int = 0) -> tuple[tuple[int, ...], ...]:
    shapes = question.read_shapes()
    if shapes is None or not least <= len(shapes) <= (most or least):
        wanted = f"{least}" if not most else f"{least} to {most}"
        raise InvalidArgumentError(
            f"explain: `shapes` of {question.operation} must be {wanted} shapes, "
            f"not {question.shapes!r}"
        )
    return shapes


def _tensor(shape: tuple[int, ...], dtype: str, *, requires_grad: bool = False) -> Tensor:
    strides = attention_facts.row_major(shape)
    return Tensor(shape, strides, dtype, requires_grad=requires_grad)
