"""Who serves a product, explained by the functions of C that make the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.catalogue.cpu import PROVIDERS
from backendcfg.dispatch import snapshots
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import devices
from backendcfg.ops.arrays import element_named
from backendcfg.ops.explanation import Answer, Question, Reason, read_shapes
from backendcfg.ops.serving import WORDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from backendcfg.dispatch.calibration import Measured
    from backendcfg.dispatch.snapshots import Listing
    from backendcfg.ops.explanation import Question

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
