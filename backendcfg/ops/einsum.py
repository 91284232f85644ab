"""`einsum`: Einstein's summation, pair by pair, by our matmul."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native
from backendcfg.ops.arrays import Taken, give, take
from backendcfg.ops.einsum_equation import parse, parse_sublists, refuse
from backendcfg.ops.einsum_order import order
from backendcfg.ops.finite import check_finite
from backendcfg.ops.narrow import NARROW, round_to, widen
from backendcfg.ops.serving import served
from backendcfg.ops.switches import Switches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.ops.einsum_equation import Equation

PRODUCTS = ("float32", "float64", "complex64", "complex128")
"""What our matmul computes; integers and bool are NumPy's, whose sums are exact."""

Term = tuple["NDArray[Any]", tuple[int, ...]]
"""An operand and the labels of its dimensions, each once."""


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
    taken = [take(each, f"operand {i}", "einsum") for i, each in enumerate(operands)]
    element = _common_element(taken)
    dtype = np.dtype(np.float32 if element in NARROW else element)
    switches = Switches()
    labelled = equation.label([each.array.shape for each in taken])
    terms = [
        _reduced(widen(each.array, each.element).astype(dtype, copy=False), labels)
        for each, labels in zip(taken, labelled.inputs, strict=True)
    ]
    # NumPy makes scalars of sums; PyTorch wants arrays of no dimensions.
    result = np.asarray(_contract(terms, labelled.output, switches))
    result = round_to(result, element)
    check_finite(result, "einsum", switches, element)
    result = give(result, taken[0]._replace(element=element))
    return result[()] if taken[0].framework == "numpy" and result.ndim == 0 else result


def _arguments(arguments: tuple[Any, ...]) -> tuple[list[Any], Equation]:
    if not arguments:
        refuse("at least an equation and one operand must be given")
    if isinstance(arguments[0], str):
        operands = list(arguments[1:])
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])  # as PyTorch of old
        return operands, parse(arguments[0], len(operands))
    return list(arguments[: len(arguments) // 2 * 2 : 2]), parse_sublists(arguments)


def _common_element(taken: list[Taken]) -> str:
    """What is computed: as NumPy promotes; bfloat16 with nothing else."""
    elements = dict.fromkeys(each.element for each in taken)
    if len(elements) == 1 and taken[0].element in NARROW:
        return taken[0].element
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


def _reduced(array: NDArray[Any], labels: tuple[int, ...]) -> Term:
    """An operand with each label once: the diagonal of those that are repeated."""
    kept: list[int] = []
    strides: list[int] = []
    shape: list[int] = []
    for label, size, stride in zip(labels, array.shape, array.strides, strict=True):
        if label in kept:
            strides[kept.index(label)] += stride
        else:
            kept.append(label)
            strides.append(stride)
            shape.append(size)
    if len(kept) < len(labels):
        array = np.lib.stride_tricks.as_strided(array, shape, strides)
    return array, tuple(kept)


def _contract(terms: list[Term], output: tuple[int, ...], switches: Switches) -> NDArray[Any]:
    """All of them into one, in the order that the flags choose."""
    sizes: dict[int, int] = {}
    for array, labels in terms:
        for label, size in zip(labels, array.shape, strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    terms = [_squeezed(term, sizes) for term in terms]
    steps, provider, because = order(
        tuple((labels, array.shape) for array, labels in terms), output, switches
    )
    for pair in steps:
        chosen = [terms[position] for position in pair]
        terms = [term for position, term in enumerate(terms) if position not in pair]
        needed = frozenset(output).union(*(labels for _, labels in terms))
        result = _summed(chosen[0], needed.union(*(labels for _, labels in chosen[1:])))
        for position, other in enumerate(chosen[1:], 2):
            later = needed.union(*(labels for _, labels in chosen[position:]))
            result = _pair(result, _summed(other, later.union(result[1])), later)
        terms.append(_summed(result, needed))
    (array, labels), shape = terms[0], tuple(sizes[label] for label in output)
    served("einsum", provider, because, shape, array.dtype.name)
    array = array.transpose([labels.index(label) for label in output if label in labels])
    spread = tuple(
        size if label in labels else 1 for label, size in zip(output, shape, strict=True)
    )
    array = array.reshape(spread)
    return array if spread == shape else np.broadcast_to(array, shape).copy()


def _squeezed(term: Term, sizes: dict[int, int]) -> Term:
    """Without the dimensions of size 1 whose label is longer elsewhere: they broadcast."""
    array, labels = term
    gone = tuple(i for i, label in enumerate(labels) if array.shape[i] == 1 != sizes[label])
    if not gone:
        return term
    return array.squeeze(gone), tuple(x for i, x in enumerate(labels) if i not in gone)


def _summed(term: Term, needed: frozenset[int]) -> Term:
    """Without the labels that nobody needs."""
    array, labels = term
    gone = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not gone:
        return term
    return (
        array.sum(axis=gone, dtype=array.dtype),
        tuple(label for label in labels if label in needed),
    )


def _pair(left: Term, right: Term, needed: frozenset[int]) -> Term:
    """The product of two, summed over what both have and nobody needs.

    Transposes and merges dimensions in views where the strides allow it; what matmul cannot read
    as it lies it packs for itself.
    """
    (a, a_labels), (b, b_labels) = left, right
    batch = [x for x in a_labels if x in b_labels and x in needed]
    summed = [x for x in a_labels if x in b_labels and x not in needed]
    if b.size > a.size:  # the larger one keeps the order of its dimensions
        summed.sort(key=b_labels.index)
    rows = [x for x in a_labels if x not in b_labels]
    columns = [x for x in b_labels if x not in a_labels]
    a = a.transpose([a_labels.index(x) for x in (*batch, *rows, *summed)])
    b = b.transpose([b_labels.index(x) for x in (*batch, *summed, *columns)])
    common, result = a.shape[: len(batch)], (*batch, *rows, *columns)
    row_shape, column_shape = a.shape[len(batch) :][: len(rows)], b.shape[b.ndim - len(columns) :]
    if not summed:
        a = a.reshape((*a.shape, *(1 for _ in columns)))
        b = b.reshape((*common, *(1 for _ in rows), *column_shape))
        return a * b, result
    depth = _count(a.shape[len(batch) + len(rows) :])
    product = _matmul(
        a.reshape(*common, _count(row_shape), depth),
        b.reshape(*common, depth, _count(column_shape)),
    )
    return product.reshape((*common, *row_shape, *column_shape)), result


def _matmul(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    if a.dtype.name in PRODUCTS:
        return np.asarray(_native.matmul(a, b))
    return np.asarray(np.matmul(a, b))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
