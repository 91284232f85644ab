"""What `explain` says of conv2d, einsum and fft, by the code that makes their choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from backendcfg.errors import InvalidArgumentError
from backendcfg.flags import FlagsInForce
from backendcfg.gpu import einsum as device_einsum
from backendcfg.gpu.convolution import explained
from backendcfg.gpu.fft import calls, plans
from backendcfg.gpu.libraries import alone
from backendcfg.gpu.products import choice as device_choice
from backendcfg.gpu.products.choice import place_of
from backendcfg.gpu.products.gemm import KINDS
from backendcfg.ops import (
    convolution_choice,
    convolution_shapes,
    einsum_equation,
    einsum_order,
    families,
)
from backendcfg.ops.convolution_shapes import Operand
from backendcfg.ops.convolution_ways import WAYS
from backendcfg.ops.families import Answer, Question, Reason
from backendcfg.ops.fft import choice
from backendcfg.ops.fft.arguments import check_element, check_real
from backendcfg.ops.product_choice import element

TRANSFORMS = (
    *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"),
    *("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"),
)


def register() -> None:
    """Say who explains each of them."""
    families.register("conv2d", explain_convolution)
    families.register("einsum", explain_einsum)
    for name in TRANSFORMS:
        families.register(f"fft.{name}", explain_transform)


def explain_convolution(question: Question) -> Answer:
    """`shapes` are of the input, the weight and perhaps the bias; the rest is named as there."""
    shapes, name = _shapes(question, (2, 3)), _element(question.dtype)
    operands = [Operand(shape, name) for shape in shapes]
    try:
        call = convolution_shapes.geometry(
            operands[0],
            operands[1],
            operands[2] if len(operands) > 2 else None,
            question.option("stride", 1),
            question.option("padding", 0),
            question.option("dilation", 1),
            question.option("groups", 1),
        )
    except InvalidArgumentError as error:
        raise _of_explain(error, "conv2d: ") from None
    what = f"conv2d of {shapes[0]} by {shapes[1]}"
    if (place := place_of(question.option("device", "cpu"))) is not None:
        where = f"{what} {name} on {KINDS[place[0]]}:{place[1]}"
        return explained.explained(call, place, where, tuple(WAYS))
    flags = FlagsInForce()
    way, because = convolution_choice.foreseen(call, flags)
    fixed = convolution_choice.fixed_by(flags)
    reasons = tuple(
        Reason(name, "", convolution_choice.unmet(name, call, flags) or fixed or f"behind `{way}`")
        for name in WAYS
        if name != way
    )
    return Answer("conv2d", what, call.shape, way, "", because, reasons, convolution_choice.FLAGS)


def explain_einsum(question: Question) -> Answer:
    """`shapes` are of the operands; `equation` is the text."""
    equation = question.option("equation")
    shapes = _shapes(question, None)
    if not isinstance(equation, str):
        raise InvalidArgumentError(
            "explain: `equation` must be the text that einsum gets",
            helps=['explain("einsum", shapes, dtype, equation="ij,jk->ik")'],
        )
    try:
        labelled = einsum_equation.parse(equation, len(shapes)).label(shapes)
    except InvalidArgumentError as error:
        raise _of_explain(error, "einsum: ") from None
    what = f"einsum {equation} of {', '.join(map(str, shapes))}"
    if (place := device_choice.place_of(question.option("device", "cpu"))) is not None:
        name = element(question.dtype)
        return device_einsum.explained(labelled, what, name, place, FlagsInForce())
    _, who, because = einsum_order.order(labelled.operands, labelled.output, FlagsInForce())
    return Answer("einsum", what, labelled.shape, who, "", because, (), einsum_order.FLAGS)


def explain_transform(question: Question) -> Answer:
    """`shapes` is one shape; `device` where it would be."""
    shape = _shapes(question, (1,))[0]
    operation, name = question.operation.removeprefix("fft."), _element(question.dtype)
    try:
        check_element(operation, name)
        check_real(operation, name)
    except InvalidArgumentError as error:
        raise _of_explain(error, f"{question.operation}: ") from None
    if (place := device_choice.place_of(question.option("device", "cpu"))) is not None:
        return _on_device(question.operation, shape, place)
    flags = FlagsInForce()
    why_not_mkl = choice.mkl_unmet(flags)
    has_scipy = choice.has_scipy()
    who = "scipy" if has_scipy else "numpy"
    reasons = [Reason("scipy", "", "it is not installed")] if not has_scipy else []
    because = "the first that can"
    if why_not_mkl:
        reasons.insert(0, Reason("mkl", "", why_not_mkl))
    else:
        reasons = [*reasons, Reason(who, "", "behind `mkl`")]
        who, because = "mkl", "it is the chosen library"
    if who == "scipy":
        reasons.append(Reason("numpy", "", "behind `scipy`"))
    what = f"{question.operation} of {shape}"
    return Answer(question.operation, what, shape, who, "", because, tuple(reasons), choice.FLAGS)


def _on_device(operation: str, shape: tuple[int, ...], place: tuple[int, int]) -> Answer:
    chosen = alone.choose("cufft", place[0])
    broken = plans.unkept(FlagsInForce().tier)
    reasons = (broken,) if broken else chosen.reasons
    who = "" if reasons else "cufft"
    return Answer(
        operation,
        f"{operation} of {shape} on {KINDS[place[0]]}:{place[1]}",
        shape,
        who,
        chosen.path if who else "",
        calls.BECAUSE if who else "",
        tuple(Reason("cufft", "", why) for why in reasons),
        plans.FLAGS,
    )


def _shapes(question: Question, counts: tuple[int, ...] | None) -> tuple[tuple[int, ...], ...]:
    shapes = question.read_shapes()
    if shapes is None or (counts and len(shapes) not in counts):
        many = (
            "a shape for each operand" if counts is None else f"{counts[0]} or {counts[-1]} shapes"
        )
        many = "one shape in a list" if counts == (1,) else many
        raise InvalidArgumentError(f"explain: `shapes` must be {many}, not {question.shapes!r}")
    return shapes


def _element(dtype: Any) -> str:
    """The name of a type that arrays may have."""
    name = element(dtype)
    try:
        return name if name == "bfloat16" else np.dtype(name).name
    except TypeError:
        raise InvalidArgumentError(
            f"explain: `dtype` must be NumPy's or PyTorch's, not {dtype!r}"
        ) from None


def _of_explain(error: InvalidArgumentError, prefix: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"explain: {str(error).removeprefix(prefix)}")
