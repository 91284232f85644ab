"""How `einsum` contracts its operands: in which order, and by which products.

The order is opt_einsum's, or from left to right. What each step does is worked out once for each
equation, shapes and order: labels become axes here, so that a call of shapes that were seen before
only moves numbers: views where the strides allow it; what a product cannot read as it lies it packs
for itself.

A fixed plan promises that no bit depends on the sizes of labels that are kept: what is summed keeps
the order in which its first operand names it, and every sum is a product's, whose order matmul
fixes: NumPy's depends on what lies beside it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backendcfg import _native
from backendcfg.catalogue.frameworks import OPT_EINSUM
from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backendcfg.flags_in_force import FlagsInForce
    from backendcfg.ops.einsum.equation import Labelled

FLAGS = ("opt_einsum.enabled", "opt_einsum.strategy", "determinism.tier")
"""The flags that the choice looks at."""

FIXED_ORDER = ("cross-machine", "batch-invariant")
"""Tiers under which an order that depends on a package and on sizes may not be used."""

Operands = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""Labels and shape of each."""


def is_fixed(flags: FlagsInForce) -> bool:
    """Whether the tier promises bits that depend on no sizes but those of what is summed."""
    return flags.tier in FIXED_ORDER


def order(
    operands: Operands, output: tuple[int, ...], flags: FlagsInForce
) -> tuple[tuple[tuple[int, ...], ...], str, str]:
    """Which operands are contracted in each step, who says so, and why.

    The result of a step goes to the end of those that are left.
    """
    count = len(operands)
    if count == 1:
        return ((0,),), "one operand", "there is no order to choose"
    plain = ((0, 1), *((last, 0) for last in range(count - 2, 0, -1)))
    if count == 2:
        return plain, "one pair", "there is no order to choose"
    if not flags["opt_einsum.enabled"]:
        return plain, "left to right", "`opt_einsum.enabled` is off"
    if flags.tier in FIXED_ORDER:
        return plain, "left to right", f"the tier is {flags.tier}"
    if not _is_installed():
        return plain, "left to right", "opt_einsum is not installed"
    strategy = str(flags["opt_einsum.strategy"])
    return (
        _path(operands, output, strategy),
        OPT_EINSUM.name,
        f"`opt_einsum.strategy` is {strategy}",
    )


@lru_cache(maxsize=1)
def _is_installed() -> bool:
    return find_spec(OPT_EINSUM.name) is not None


@lru_cache(maxsize=512)
def _path(
    operands: Operands,
    output: tuple[int, ...],
    strategy: str,
) -> tuple[tuple[int, ...], ...]:
    import opt_einsum

    names = [[*map(opt_einsum.get_symbol, labels)] for labels, _ in operands]
    here = frozenset(label for labels, _ in operands for label in labels)
    result = "".join(opt_einsum.get_symbol(label) for label in output if label in here)
    equation = ",".join("".join(each) for each in names) + "->" + result
    try:
        path, _ = opt_einsum.contract_path(
            equation, *(shape for _, shape in operands), shapes=True, optimize=strategy
        )
    except (KeyError, ValueError) as error:
        raise InvalidArgumentError(
            f"einsum: opt_einsum found no order: {error}", state="nothing was computed"
        ) from error
    return tuple(tuple(step) for step in path)


PRODUCTS = frozenset(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))
"""What our matmul computes; integers and bool are NumPy's, whose sums are exact."""

Term = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Where a value is among all, its labels and their sizes."""

_numpy_einsum = np.einsum


class View(NamedTuple):
    """An array's dimensions in another order, summed over some, and merged.

    Attributes:
        summed: axes that nobody needs, the first thing to go; () for none.
        by_product: whether to sum by a product with ones.
        axes: the order of those that are left; None for as they are.
        shape: what they are merged to; None for as they are.
    """

    summed: tuple[int, ...]
    by_product: bool
    axes: tuple[int, ...] | None
    shape: tuple[int, ...] | None

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """It, of an array."""
        if self.summed:
            array = (
                _product_sum(array, self.summed) if self.by_product else _sum(array, self.summed)
            )
        if self.axes is not None:
            array = array.transpose(self.axes)
        return array if self.shape is None else array.reshape(self.shape)


class Step(NamedTuple):
    """Two values into one.

    Attributes:
        left, right: where they are; the result goes to the end.
        kind: "product" of matrices, "multiply" element by element, or "dots" of the rows.
        left_view, right_view: what is multiplied.
        shape: of the result; None for as it comes.
    """

    left: int
    right: int
    kind: str
    left_view: View
    right_view: View
    shape: tuple[int, ...] | None


class Plan(NamedTuple):
    """Everything of a call.

    Attributes:
        diagonals: of each operand, how its labels that are repeated become one; None without any.
        squeezed: of each operand, its shape without what broadcasts; None where that is its own.
        steps: in their order.
        last: what the last value becomes.
        spread: the shape of the result where something in it repeats, else None.
    """

    diagonals: tuple[tuple[list[int], list[int]] | None, ...]
    squeezed: tuple[tuple[int, ...] | None, ...]
    steps: tuple[Step, ...]
    last: View
    spread: tuple[int, ...] | None

    def run(self, values: list[NDArray[Any]]) -> NDArray[Any]:
        """The result; `values` are the operands, of one dtype, and are added to."""
        for position, diagonal in enumerate(self.diagonals):
            if diagonal is not None:
                values[position] = _numpy_einsum(values[position], *diagonal)  # a view
        for position, shape in enumerate(self.squeezed):
            if shape is not None:
                values[position] = values[position].reshape(shape)
        for left, right, kind, left_view, right_view, shape in self.steps:
            a, b = left_view.of(values[left]), right_view.of(values[right])
            if kind == "multiply":
                result = a * b
            elif kind == "dots":
                result = _numpy_einsum("ij,ij->i", a, b)
            else:
                result = _matmul(a, b)
            values.append(result if shape is None else result.reshape(shape))
        # NumPy makes scalars of sums; PyTorch wants arrays of no dimensions.
        result = np.asarray(self.last.of(values[-1]))
        return result if self.spread is None else np.broadcast_to(result, self.spread).copy()


def plan(
    labelled: Labelled, order: tuple[tuple[int, ...], ...], dtype: np.dtype[Any], *, fixed: bool
) -> Plan:
    """The plan of a call, made where there is none.

    Args:
        labelled: what is computed.
        order: which operands are contracted in each step, as `order` says.
        dtype: of the arithmetic.
        fixed: see the module's text.
    """
    key = (order, dtype, fixed)
    found: Plan | None = labelled.plans.get(key)
    if found is None:
        found = labelled.plans[key] = _Planner(labelled, dtype, fixed=fixed).plan(order)
    return found


class _Planner:
    def __init__(self, labelled: Labelled, dtype: np.dtype[Any], *, fixed: bool) -> None:
        self.labelled = labelled
        self.dtype = dtype
        self.fixed = fixed and dtype in PRODUCTS
        self.multiplies = not (self.fixed and dtype.kind == "c")  # NumPy's differ at the edges
        self.steps: list[Step] = []
        self.count = len(labelled.operands)

    def plan(self, order: tuple[tuple[int, ...], ...]) -> Plan:
        labelled = self.labelled
        terms = [(i, *operand) for i, operand in enumerate(labelled.operands)]
        for pair in order:
            chosen = [terms[position] for position in pair]
            terms = [term for position, term in enumerate(terms) if position not in pair]
            needed = frozenset(labelled.output).union(*(labels for _, labels, _ in terms))
            result = chosen[0]
            for position, other in enumerate(chosen[1:], 2):
                later = needed.union(*(labels for _, labels, _ in chosen[position:]))
                result = self._pair(result, other, later)
            terms.append(result)
        (_, labels, _) = terms[0]
        output, shape = labelled.output, labelled.shape
        kept = tuple(label for label in labels if label in output)
        spread = tuple(
            size if label in kept else 1 for label, size in zip(output, shape, strict=True)
        )
        last = self._view(terms[0], [label for label in output if label in kept], spread)
        return Plan(
            tuple(map(_diagonal_of, labelled.inputs)),
            tuple(map(self._squeezed, labelled.inputs, labelled.operands)),
            tuple(self.steps),
            last,
            None if spread == shape else shape,
        )

    def _squeezed(
        self, labels: tuple[int, ...], operand: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        return operand[1] if len(set(labels)) > len(operand[0]) else None

    def _view(self, term: Term, wanted: Sequence[int], shape: tuple[int, ...]) -> View:
        """The dimensions that are wanted, in that order and shape; the others are summed."""
        _, labels, sizes = term
        summed = tuple(i for i, label in enumerate(labels) if label not in wanted)
        left = [label for label in labels if label in wanted]
        axes = tuple(left.index(label) for label in wanted)
        here = tuple(sizes[labels.index(label)] for label in wanted)
        return View(
            summed,
            self.fixed,
            None if axes == tuple(range(len(axes))) else axes,
            None if shape == here else shape,
        )

    def _pair(self, left: Term, right: Term, needed: frozenset[int]) -> Term:
        """The product of two, summed over what both have and nobody needs."""
        a_labels = [x for x in left[1] if x in needed or x in right[1]]
        b_labels = [x for x in right[1] if x in needed or x in left[1]]
        batch = [x for x in a_labels if x in b_labels and x in needed]
        summed = [x for x in a_labels if x in b_labels and x not in needed]
        if not self.fixed and prod(right[2]) > prod(left[2]):
            summed.sort(key=b_labels.index)  # the larger one keeps the order of its dimensions
        rows = [x for x in a_labels if x not in b_labels]
        columns = [x for x in b_labels if x not in a_labels]
        size = {**dict(zip(left[1], left[2], strict=True)), **dict(zip(*right[1:], strict=True))}

        def of(labels: Sequence[int]) -> tuple[int, ...]:
            return tuple(size[label] for label in labels)

        result = (*batch, *rows, *columns)
        # NumPy's multiplication is slow at outer products; a product has them without a minus 0,
        # and so may not serve where what is beside a number chooses between the two.
        outer = not self.fixed and self.dtype in PRODUCTS and rows and columns and not batch
        if not summed and self.multiplies and not outer:
            kind = "multiply"
            shapes = (
                (*of((*batch, *rows)), *(1 for _ in columns)),
                (*of(batch), *(1 for _ in rows), *of(columns)),
            )
            came = of(result)
        elif not self.fixed and not rows and not columns and batch:
            kind, depth = "dots", prod(of(summed))
            shapes = ((prod(of(batch)), depth), (prod(of(batch)), depth))
            came = (prod(of(batch)),)
        else:
            kind, depth = "product", prod(of(summed))
            high, wide = prod(of(rows)), prod(of(columns))
            shapes = ((*of(batch), high, depth), (*of(batch), depth, wide))
            came = (*of(batch), high, wide)
        shape = of(result)
        self.steps.append(
            Step(
                left[0],
                right[0],
                kind,
                self._view(left, [*batch, *rows, *summed], shapes[0]),
                self._view(right, [*batch, *summed, *columns], shapes[1]),
                None if came == shape else shape,
            )
        )
        self.count += 1
        return self.count - 1, result, shape


def _diagonal_of(labels: tuple[int, ...]) -> tuple[list[int], list[int]] | None:
    """As NumPy's einsum takes it: which dimension of the view each is, and those of the view."""
    distinct = tuple(dict.fromkeys(labels))
    if len(distinct) == len(labels):
        return None
    return [distinct.index(label) for label in labels], [*range(len(distinct))]


def _sum(array: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    return np.asarray(array.sum(axis=axes, dtype=array.dtype))


def _product_sum(array: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """The same by a product with ones, whose sums have one order wherever they are."""
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    shape = [array.shape[axis] for axis in kept]
    depth = prod(array.shape[axis] for axis in axes)
    matrix = array.transpose((*kept, *axes)).reshape(prod(shape), depth)
    return _matmul(matrix, np.ones((depth, 1), array.dtype)).reshape(shape)


def _matmul(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    if a.dtype in PRODUCTS:
        return np.asarray(_native.matmul(a, b))
    return np.asarray(np.matmul(a, b))
