"""`einsum` of arrays on a device: the plan of the CPU, its products by the device's library.

The arrays' own library does what is no product: it reorders dimensions, takes diagonals, sums one
operand, and multiplies element by element, all on its own stream.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from backendcfg import _native
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.gpu.arrays import Arguments
from backendcfg.gpu.own_library import check_finite, plain
from backendcfg.gpu.products import gemm, recipes
from backendcfg.ops.devices import place_named
from backendcfg.ops.einsum.contraction import FLAGS, Plan, View, order, plan
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.ops.products import TYPES
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from backendcfg.ops.einsum.equation import Equation, Labelled

OPERATION = "einsum"
_PLANNED = np.dtype("float32")  # for a plan all types of a device are alike: it multiplies them
_METHODS = ("transpose", "reshape", "sum", "diagonal", "__mul__")


class _Library(Protocol):
    """What the arrays' own library does."""

    def order(self, array: Any, axes: tuple[int, ...]) -> Any: ...
    def sum(self, array: Any, axes: tuple[int, ...]) -> Any: ...
    def diagonal(self, array: Any, first: int, second: int) -> Any: ...
    def spread(self, array: Any, shape: tuple[int, ...]) -> Any: ...


class _Torch:
    def order(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.permute(axes)

    def sum(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.sum(dim=axes)

    def diagonal(self, array: Any, first: int, second: int) -> Any:
        return array.diagonal(dim1=first, dim2=second)

    def spread(self, array: Any, shape: tuple[int, ...]) -> Any:
        return array.expand(shape).clone()


class _Numpy:
    """Any library whose arrays have NumPy's methods: CuPy, JAX."""

    def order(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.transpose(axes)

    def sum(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.sum(axis=axes)

    def diagonal(self, array: Any, first: int, second: int) -> Any:
        return array.diagonal(axis1=first, axis2=second)

    def spread(self, array: Any, shape: tuple[int, ...]) -> Any:
        # By doubling in place of `broadcast_to`, which is a function of the library's module.
        for axis, size in enumerate(shape):
            if array.shape[axis] != size:
                array = array.repeat(size, axis=axis)
        return array


def contract(operands: list[Any], equation: Equation) -> Any:
    """The operation for operands of which one is on a device; see `einsum`.

    Raises:
        InvalidArgumentError: an operand does not fit, or its library cannot do its part.
        TierNotKeptError: no library keeps what the profile promises.
        MissingLibraryError: no library can multiply there.
        DeviceFailedError: the device failed.
    """
    given = Arguments(OPERATION, {f"operand {i}": each for i, each in enumerate(operands)})
    held = [given.take(name) for name in given.given]
    first = held[0]
    for name, each in zip(given.given, held, strict=True):
        if each.element not in gemm.ELEMENTS:
            kind = each.element or str(getattr(given.given[name], "dtype", "another type"))
            given.refuse(f"`{name}` must hold {TYPES}, not {kind}")
        if each.element != first.element:
            given.refuse(
                f"`{name}` must hold {first.element}, as `operand 0` does",
                helps=["convert one of them: nothing is converted on a device"],
            )
    library = _library_of(given)
    recipes.recipe_for(  # refuses what no library keeps, also where nothing is multiplied
        OPERATION, _native.snapshot(), first.kind, first.ordinal, first.element
    )
    labelled = equation.label(tuple([each.shape for each in held]))
    flags = FlagsInForce()
    steps, provider, because = order(labelled.operands, labelled.output, flags)
    found = plan(labelled, steps, _PLANNED, fixed=False)
    result = _run(found, labelled, [plain(each) for each in operands], library)
    served(OPERATION, provider, because, labelled.shape, first.element)
    if flags["ops.check_finite"]:
        check_finite(OPERATION, result)
    return result


def explain(
    labelled: Labelled, what: str, element: str, place: tuple[int, int], flags: FlagsInForce
) -> Answer:
    """What `explain` says of a call on a device.

    Args:
        labelled: the call.
        what: it, for people.
        element: of its operands.
        place: the device, as DLPack numbers it.
        flags: the flags in force.
    """
    _, who, because = order(labelled.operands, labelled.output, flags)
    _, recipe, reasons = recipes.of_element(element, place)
    where = f"{what} on {place_named(place)}"
    read = tuple(dict.fromkeys((*FLAGS, *gemm.FLAGS)))
    if recipe is None:
        others = tuple(Reason(name, "", why) for name, why in reasons.items())
        return Answer(OPERATION, where, labelled.shape, "", "", "", others, read)
    said = f"{because}; products by {recipe.provider}, all else by the arrays' own library"
    return Answer(OPERATION, where, labelled.shape, who, "", said, (), read)


def _library_of(given: Arguments) -> _Library:
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(x, torch.Tensor) for x in given.given.values()):
        return _Torch()
    for name, value in given.given.items():
        if not all(hasattr(type(value), method) for method in _METHODS):
            given.refuse(
                f"`{name}` must be of a library that reorders and sums: PyTorch, CuPy or JAX",
                helps=[f"pass it as one of theirs: `torch.from_dlpack({name.split()[0]})`"],
            )
    if len({type(value) for value in given.given.values()}) > 1:
        given.refuse("the operands must be of one library")
    return _Numpy()


def _view(view: View, array: Any, library: _Library) -> Any:
    if view.summed:
        array = library.sum(array, view.summed)
    if view.axes is not None:
        array = library.order(array, view.axes)
    return array if view.shape is None else array.reshape(view.shape)


def _run(found: Plan, labelled: Labelled, values: list[Any], library: _Library) -> Any:
    for position, labels in enumerate(labelled.inputs):
        values[position] = _distinct(values[position], labels, library)
        shape = found.squeezed[position]
        if shape is not None:
            values[position] = values[position].reshape(shape)
    for left, right, kind, left_view, right_view, shape in found.steps:
        a = _view(left_view, values[left], library)
        b = _view(right_view, values[right], library)
        if kind == "multiply":
            result = a * b
        elif kind == "dots":
            count, depth = a.shape
            rows, columns = a.reshape((count, 1, depth)), b.reshape((count, depth, 1))
            result = _product(rows, columns).reshape((count,))
        else:
            result = _product(a, b)
        values.append(result if shape is None else result.reshape(shape))
    result = _view(found.last, values[-1], library)
    return result if found.spread is None else library.spread(result, found.spread)


def _distinct(array: Any, labels: tuple[int, ...], library: _Library) -> Any:
    """Each label once, in the order in which they first come: repeated ones by their diagonal."""
    left = list(labels)
    for label in dict.fromkeys(labels):
        while left.count(label) > 1:
            one = left.index(label)
            two = left.index(label, one + 1)
            array = library.diagonal(array, one, two)
            left = [*left[:one], *left[one + 1 : two], *left[two + 1 :], label]
    wanted = list(dict.fromkeys(labels))
    return array if left == wanted else library.order(array, tuple(map(left.index, wanted)))


def _product(a: Any, b: Any) -> Any:
    return _native.device_product("matmul", a, b, None, None, 1, 1)
