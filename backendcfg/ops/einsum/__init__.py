"""`einsum`: Einstein's summation, pair by pair, by our matmul."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native
from backendcfg.catalogue.frameworks import NUMPY
from backendcfg.errors import InvalidArgumentError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import devices
from backendcfg.ops.arrays import (
    NARROW,
    ArrayView,
    check_finite,
    element_named,
    give,
    round_to,
    take,
    widen,
)
from backendcfg.ops.einsum.contraction import FLAGS, is_fixed, order, plan
from backendcfg.ops.einsum.equation import parse, parse_sublists, refuse
from backendcfg.ops.explanation import Answer, Question, of_explain
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from backendcfg.ops.einsum.equation import Equation

ARITHMETIC = frozenset(("float32", "float64", "complex64", "complex128", *NARROW))
"""Elements that need no promotion among their own."""


def einsum(*arguments: Any) -> Any:
    """The sum of products that an equation describes, as `torch.einsum`.

        einsum("ij,jk->ik", a, b)
        einsum(a, [0, 1], b, [1, 2], [0, 2])

    Args:
        arguments: the equation and its operands; or each operand with the list of its labels,
            whole numbers from 0 to 51 or `...`, and at the end the labels of the result. Labels
            of an equation are letters; `...` stands for dimensions that broadcast. Without an
            output, labels that occur once are kept in the order A to Z, a to z. A label that is
            repeated in an operand takes its diagonal. A dimension of size 1 fits any size.

    Returns:
        The result, as the first operand came: a NumPy array, or a tensor of its library. It may
        share memory with the operand where there is only one. Operands of several dtypes are
        promoted as NumPy does; float16 and bfloat16 are computed in float32 and rounded once.

    Raises:
        InvalidArgumentError: the equation or an operand does not fit; the message names it.
    """
    operands, equation = _arguments(arguments)
    for each in operands:
        if type(each) is not np.ndarray and _native.device_holds(each):
            return devices.gpu().contract(operands, equation)
    taken = [take(each, f"operand {i}", "einsum") for i, each in enumerate(operands)]
    element = _common_element(taken)
    name = "float32" if element in NARROW else element  # dtype.name takes microseconds
    dtype = np.dtype(name)
    flags = FlagsInForce()
    labelled = equation.label(tuple([each.array.shape for each in taken]))
    steps, provider, because = order(labelled.operands, labelled.output, flags)
    values = [
        each.array
        if each.element == name
        else widen(each.array, each.element).astype(dtype, copy=False)
        for each in taken
    ]
    found = plan(labelled, steps, dtype, fixed=is_fixed(flags))
    result = found.run(values)
    served("einsum", provider, because, result.shape, name)
    if element != name:
        result = round_to(result, element)
    check_finite(result, "einsum", flags, element)
    first = taken[0]
    result = give(result, first if first.element == element else first._replace(element=element))
    return result[()] if taken[0].framework == NUMPY.name and result.ndim == 0 else result


def _arguments(arguments: tuple[Any, ...]) -> tuple[list[Any], Equation]:
    if not arguments:
        refuse("at least an equation and one operand must be given")
    if isinstance(arguments[0], str):
        operands = list(arguments[1:])
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])  # as PyTorch of old
        return operands, parse(arguments[0], len(operands))
    return list(arguments[: len(arguments) // 2 * 2 : 2]), parse_sublists(arguments)


def _common_element(taken: list[ArrayView]) -> str:
    """What is computed: as NumPy promotes; bfloat16 with nothing else."""
    element = taken[0].element
    if element in ARITHMETIC and all(each.element == element for each in taken):
        return element
    elements = dict.fromkeys(each.element for each in taken)
    for position, each in enumerate(taken):
        if each.element == "bfloat16":
            others = ", ".join(name for name in elements if name != "bfloat16")
            refuse(
                f"operand {position} holds bfloat16 and others {others}",
                "convert them to one dtype",
            )
        if each.array.dtype.kind not in "biufc":
            refuse(f"operand {position} must hold numbers, not {each.element}")
    return np.result_type(*(each.array.dtype for each in taken)).name


def explain(question: Question) -> Answer:
    """`shapes` are of the operands; `equation` is the text."""
    equation = question.option("equation")
    shapes = question.shapes_of()
    if not isinstance(equation, str):
        raise InvalidArgumentError(
            "explain: `equation` must be the text that einsum gets",
            helps=['explain("einsum", shapes, dtype, equation="ij,jk->ik")'],
        )
    try:
        labelled = parse(equation, len(shapes)).label(shapes)
    except InvalidArgumentError as error:
        raise of_explain(error, "einsum: ") from None
    what = f"einsum {equation} of {', '.join(map(str, shapes))}"
    if (place := devices.place_of(question.option("device", "cpu"))) is not None:
        name = element_named(question.dtype)
        answer: Answer = devices.gpu().explain_einsum(labelled, what, name, place, FlagsInForce())
        return answer
    _, who, because = order(labelled.operands, labelled.output, FlagsInForce())
    return Answer("einsum", what, labelled.shape, who, "", because, (), FLAGS)
