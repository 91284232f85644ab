"""Products of arrays that are not NumPy's, and products that are added to something.

`addmm`, `baddbmm` and `bmm` take what PyTorch's functions of these names take. Arrays on devices
are multiplied in C; what follows here is for the CPU. `explain` asks the functions of C that make
the choice for both.
"""

from __future__ import annotations

from numbers import Complex, Number, Real
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from backendcfg import _native, native
from backendcfg.catalogue.cpu import PROVIDERS
from backendcfg.catalogue.frameworks import JAX, NUMPY
from backendcfg.dispatch import snapshots
from backendcfg.errors import InvalidArgumentError, NotFiniteError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import devices
from backendcfg.ops.arrays import (
    NARROW,
    ArrayView,
    broadcasts,
    check_finite,
    described,
    dtype_of,
    element_named,
    give,
    round_to,
    take,
    take_out,
    widen,
)
from backendcfg.ops.explanation import Answer, Question, Reason, read_shapes
from backendcfg.ops.serving import WORDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from backendcfg.dispatch.calibration import Measured
    from backendcfg.dispatch.snapshots import Listing


TYPES = "float32, float64, bfloat16, float16, complex64 or complex128"


_ELEMENTS = ("float32", "float64", "complex64", "complex128", *NARROW)


def foreign_matmul(a: Any, b: Any, out: Any) -> Any:
    """`matmul` where an argument is no NumPy array: over its memory, returning what came in.

    Args:
        a: any array on the CPU.
        b: any array on the CPU.
        out: where the product goes, or None.

    Raises:
        InvalidArgumentError: an argument is no array on the CPU, or `matmul` refuses it.
    """
    left, right = take(a, "a", "matmul"), take(b, "b", "matmul")
    target = None if out is None else take_out(out, "matmul")
    product, element = _multiply(left, right, target)
    return out if target is not None else give(product, _like(element, left, right))


def addmm(
    input: Any,  # noqa: A002 - PyTorch's name
    mat1: Any,
    mat2: Any,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)`, as `torch.addmm`.

    Args:
        input: broadcasts to (n, p). Not read when `beta` is 0, so that its NaN does not count.
        mat1: (n, m).
        mat2: (m, p), of the same type as the others.
        beta: a number.
        alpha: a number.
        out: (n, p), of the same type; may be `input`.

    Returns:
        What came in: a tensor for tensors.

    Raises:
        InvalidArgumentError: an argument is no array, or does not fit the others.
    """
    return _added(
        "addmm",
        ("input", "mat1", "mat2"),
        (input, mat1, mat2),
        beta=beta,
        alpha=alpha,
        out=out,
    )


def baddbmm(
    input: Any,  # noqa: A002 - PyTorch's name
    batch1: Any,
    batch2: Any,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
) -> Any:
    """`beta * input + alpha * (batch1 @ batch2)` for each matrix of a batch, as `torch.baddbmm`.

    Args:
        input: broadcasts to (b, n, p). Not read when `beta` is 0.
        batch1: (b, n, m).
        batch2: (b, m, p), of the same type as the others.
        beta: a number.
        alpha: a number.
        out: (b, n, p), of the same type; may be `input`.

    Returns:
        What came in: a tensor for tensors.

    Raises:
        InvalidArgumentError: an argument is no array, or does not fit the others.
    """
    return _added(
        "baddbmm",
        ("input", "batch1", "batch2"),
        (input, batch1, batch2),
        beta=beta,
        alpha=alpha,
        out=out,
    )


def bmm(input: Any, mat2: Any, *, out: Any = None) -> Any:  # noqa: A002 - PyTorch's name
    """The product of each matrix of one batch with that of another, as `torch.bmm`.

    Args:
        input: (b, n, m).
        mat2: (b, m, p), of the same type.
        out: (b, n, p), of the same type, or None.

    Returns:
        What came in: a tensor for tensors.

    Raises:
        InvalidArgumentError: an argument is no array, or does not fit the other.
    """
    product = _native.device_product("bmm", input, mat2, None, out, 1, 0)
    if product is not NotImplemented:
        return product
    left, right = take(input, "input", "bmm"), take(mat2, "mat2", "bmm")
    shape = _check("bmm", (("input", left), ("mat2", right)), 3)
    target = _target("bmm", out, left.element, shape)
    product, element = _multiply(left, right, target)
    return out if target is not None else give(product, _like(element, left, right))


def _added(
    operation: str,
    names: tuple[str, ...],
    given: tuple[Any, ...],
    *,
    beta: Any,
    alpha: Any,
    out: Any,
) -> Any:
    product = _native.device_product(operation, given[1], given[2], given[0], out, alpha, beta)
    if product is not NotImplemented:
        return product
    added, left, right = (
        take(value, name, operation) for name, value in zip(names, given, strict=True)
    )
    factors = ((names[1], left), (names[2], right))
    shape = _check(operation, factors, 2 if operation == "addmm" else 3)
    if added.element != left.element:
        _refuse(operation, f"`{names[0]}` must hold {left.element}, as the others do", added)
    if not broadcasts(added.array.shape, shape):
        _refuse(operation, f"`{names[0]}` must broadcast to {shape}", added)
    for name, factor in (("beta", beta), ("alpha", alpha)):
        _check_factor(operation, name, factor, left.element)
    target = _target(operation, out, left.element, shape)
    # Between the product and the sum nothing is rounded to 16 bits.
    result = _native.matmul(widen(left.array, left.element), widen(right.array, right.element))
    if alpha != 1:
        result *= _scalar(alpha, result)
    if beta != 0:
        term = widen(added.array, added.element)
        result += term if beta == 1 else term * _scalar(beta, result)
    result = round_to(result, left.element)
    check_finite(result, operation, FlagsInForce(), left.element)
    if target is None:
        return give(result, _like(left.element, added, left, right))
    target.array[...] = result
    return out


def _multiply(
    left: ArrayView, right: ArrayView, target: ArrayView | None
) -> tuple[NDArray[Any], str]:
    """The product, and the element type that it holds."""
    out = None if target is None else target.array
    if left.element == right.element == "bfloat16":
        if target is not None and target.element != "bfloat16":
            _refuse("matmul", "`out` must hold bfloat16, as the product does", target)
        return _native.matmul_bfloat16(left.array, right.array, out), "bfloat16"
    a, b = (
        widen(x.array, x.element) if x.element == "bfloat16" else x.array for x in (left, right)
    )
    if target is not None and target.element == "bfloat16":
        _refuse("matmul", f"`out` must hold {np.result_type(a, b)}, as the product does", target)
    product: NDArray[Any] = _native.matmul(a, b, out)
    return product, product.dtype.name


def _like(element: str, *arguments: ArrayView) -> ArrayView:
    """The argument whose kind a result takes: the first that is not NumPy's."""
    first = next((each for each in arguments if each.framework != NUMPY.name), arguments[0])
    origin = next((x.origin for x in arguments if x.element == element), first.origin)
    return first._replace(
        element=element, origin=first.origin if first.framework == JAX.name else origin
    )


def _scalar(factor: Any, like: NDArray[Any]) -> Any:
    return like.dtype.type(factor)


def _check(
    operation: str, factors: tuple[tuple[str, ArrayView], ...], dimensions: int
) -> tuple[int, ...]:
    """The shape of the product of two factors, which must fit."""
    (left_name, left), (right_name, right) = factors
    for name, taken in factors:
        if taken.element not in _ELEMENTS:
            _refuse(operation, f"`{name}` must hold {TYPES}, not {taken.element}", taken)
        if taken.array.ndim != dimensions:
            _refuse(operation, f"`{name}` must have {dimensions} dimensions", taken)
    if left.element != right.element:
        _refuse(operation, f"`{right_name}` must hold {left.element}, as `{left_name}` does", right)
    rows, columns = left.array.shape, right.array.shape
    if rows[-1] != columns[-2] or rows[:-2] != columns[:-2]:
        _refuse(operation, f"`{left_name}` and `{right_name}` must fit", left, right)
    return (*rows[:-1], columns[-1])


def _check_factor(operation: str, name: str, factor: Any, element: str) -> None:
    is_number = isinstance(factor, Number) and not isinstance(factor, bool)
    is_complex = isinstance(factor, Complex) and not isinstance(factor, Real)
    if not is_number or (is_complex and "complex" not in element):
        _refuse(operation, f"`{name}` must be a number that {element} can hold, not {factor!r}")


def _target(operation: str, out: Any, element: str, shape: tuple[int, ...]) -> ArrayView | None:
    """`out`, which must be able to hold the result."""
    if out is None:
        return None
    target = take_out(out, operation)
    if target.element != element:
        _refuse(operation, f"`out` must hold {element}, as the result does", target)
    if target.array.shape != shape:
        _refuse(operation, f"`out` must have the shape of the result, {shape}", target)
    if not target.array.flags.writeable:
        _refuse(operation, "`out` must be writeable", target)
    return target


def _refuse(operation: str, what: str, *values: ArrayView) -> None:
    raise InvalidArgumentError(
        f"{operation}: {what}",
        notes=[f"{x.element} array of shape {x.array.shape}" for x in values],
        state="nothing was computed",
    )


def refuse(reason: str, detail: str, a: Any, b: Any, out: Any) -> NoReturn:
    """Raise what `matmul` was refused for; nothing has been written.

    Args:
        reason: which check failed, as native/src/python/matmul.c names it.
        detail: the argument's name, or a sentence of the core.
        a: as passed.
        b: as passed.
        out: as passed.

    Raises:
        InvalidArgumentError: always.
    """
    named = {"a": a, "b": b, "out": out}
    messages = {
        "type": f"`{detail}` must hold {TYPES}, not {dtype_of(named.get(detail))}",
        "out-type": f"`out` must hold {detail}, as the product does, not {dtype_of(out)}",
        "dimensions": f"`{detail}` must have at least one dimension",
        "inner": f"the last dimension of `a` and the {_rows(b)} of `b` must be equal",
        "batch": "the leading dimensions of `a` and `b` must broadcast",
        "out-shape": "`out` must have the shape of the product",
        "read-only": "`out` must be writeable",
        "range": detail,
        "unserved": detail,
        "argument": f"`out` cannot hold the product: {detail}",
    }
    helps = {
        "type": [f"convert it: `{detail}.astype(numpy.float64)`"],
        "range": ["add a provider with 64-bit integers to `[blas] library`, or split the product"],
    }
    notes = [f"{name}: {described(value)}" for name, value in named.items() if value is not None]
    if reason == "not-finite":
        raise NotFiniteError.of("matmul", detail, notes=notes, state="`out` was not written")
    raise InvalidArgumentError(
        f"matmul: {messages[reason]}",
        notes=notes,
        state="nothing was computed",
        helps=helps.get(reason, []),
    )


def _rows(value: Any) -> str:
    return "only dimension" if getattr(value, "ndim", 0) == 1 else "second to last dimension"


LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
OWN = {"bfloat16": "bgemm", "float16": "hgemm"}
FLAGS = ("blas.library", "blas.path", "determinism.tier", "ops.calibration", "ops.check_finite")


def explain(question: Question) -> Answer:
    """The answer for "matmul"."""
    return of_product(sizes(question.shapes), question.dtype, question.option("device", "cpu"))


def of_product(
    of: tuple[int, int, int], dtype: Any, device: Any = "cpu", *, adds: bool = False
) -> Answer:
    """Who would serve a product of sizes m, n, k here and now, for every operation that has one.

    Args:
        of: m, n and k.
        dtype: of the arrays.
        device: where they are.
        adds: whether a vector is added to each row.
    """
    m, n, k = of
    if (place := devices.place_of(device)) is not None:
        operation = operation_of(dtype, "gemm")
        answer: Answer = devices.gpu().explain_product(
            operation, of, element_named(dtype), place, adds=adds
        )
        return answer
    name = operation_of(dtype, "gemv" if 1 in (m, n) else "gemm")
    snapshot = _native.snapshot()
    listing = snapshots.listing_here()
    serving, others = None, []
    for handle in native.ordered(snapshot, name):
        opened, verdict = native.describe(handle), native.judge(snapshot, name, handle, of)
        if verdict == "serves":
            serving = opened
        else:
            others.append(Reason(opened.name, opened.path, verdict))
    reason = native.reason(snapshot, name, of)
    row = measured_row(listing, name, of)
    reasons = [Reason(r.provider, r.path, _why(r, serving, reason, row)) for r in others]
    listed = {r.provider for r in reasons} | ({serving.name} if serving else set())
    if name in native.OWN:
        reasons += unlisted({}, listed, f"has no products of {element_named(dtype)}")
    else:
        reasons += unlisted(listing.reasons, listed)
    return Answer(
        name,
        f"{name} of ({m}, {k}) and ({k}, {n})",
        of,
        serving.name if serving else "",
        serving.path if serving else "",
        WORDS.get(reason, ""),
        tuple(reasons),
        FLAGS,
        calibration_of(listing, name),
    )


def unlisted(
    reasons: Mapping[str, str],
    listed: Collection[str],
    otherwise: str = "not among those that the profile may use",
) -> list[Reason]:
    """Why the providers that the order does not list are not there."""
    return [
        Reason(p.name, "", reasons.get(p.name, otherwise))
        for p in PROVIDERS
        if p.name not in listed
    ]


def measured_row(listing: Listing, operation: str, of: tuple[int, int, int]) -> dict[str, Measured]:
    """What was measured next to these sizes; empty where the calibration says nothing."""
    if listing.table is None:
        return {}
    rows = listing.table.times.get(operation, {})
    size = native.size_class(*of)
    return rows[min(rows, key=lambda near: abs(near - size))] if rows else {}


def _why(
    other: Reason, serving: native.Opened | None, reason: str, row: dict[str, Measured]
) -> str:
    """Why an open library does not serve; its `why` is still the verdict."""
    if other.why == "too-large":
        return "a size does not fit its 32-bit integers"
    if other.why == "lacks":
        return "it has no such operation"
    if serving is None:
        return other.why
    return behind(other.provider, serving.name, row if reason == "fastest" else {})


def behind(other: str, serving: str, row: Mapping[str, Measured]) -> str:
    """That another one serves, and how much faster it is where that is why."""
    if serving not in row or other not in row:
        return f"behind `{serving}`"
    times = row[other].seconds / row[serving].seconds
    return f"behind `{serving}`, which was measured to be {times:.2g} times as fast"


def calibration_of(listing: Listing, operation: str) -> str:
    """What the measured times said of an operation, or why they were not asked."""
    if listing.table is None:
        return f"not used: {listing.unused}" if listing.unused else ""
    from backendcfg.dispatch.calibration import in_words

    said = f"used: measured {listing.table.day} with {in_words(listing.table.threads)}"
    if operation not in listing.table.times:
        said += f"; it says nothing of {operation}"
    if listing.decision.pool:
        said += f"; `{listing.decision.pool}` alone serves what is worth threads"
    return said


def operation_of(dtype: Any, kind: str) -> str:
    """The operation of BLAS, "gemm" or "gemv", for a type.

    Raises:
        InvalidArgumentError: there are no products of it.
    """
    name = element_named(dtype)
    if name in OWN:
        return OWN[name]
    if name in LETTERS:
        return LETTERS[name] + kind
    raise InvalidArgumentError(
        f"explain: `dtype` must be one of {', '.join((*LETTERS, *OWN))}, not {dtype!r}"
    )


def sizes(shapes: Any) -> tuple[int, int, int]:
    """m, n and k of each product, by the rules of `matmul`.

    Raises:
        InvalidArgumentError: they are no two shapes, or have no product.
    """
    read = read_shapes(shapes)
    if read is None or len(read) != 2:
        raise InvalidArgumentError(
            f"explain: `shapes` must be two shapes, ((m, k), (k, n)), not {shapes!r}"
        )
    a, b = read
    if not _has_product(a, b):
        raise InvalidArgumentError(
            f"explain: `shapes` {a} and {b} have no product",
            helps=["the last dimension of the first is the second to last of the other"],
        )
    return (a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1, a[-1])


def _has_product(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        return False
    pairs = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return all(left == right or 1 in (left, right) for left, right in pairs)


def explain_added(question: Question) -> Answer:
    """`addmm`, `bmm` and `baddbmm`: by the product in them, of the last two shapes."""
    shapes = question.shapes_of(2 if question.operation == "bmm" else 3)
    device = question.option("device", "cpu")
    of = sizes(shapes[-2:])
    adds = question.operation == "addmm" and shapes[0] == of[1:2]  # a vector, for each row
    return of_product(of, question.dtype, device, adds=adds)
