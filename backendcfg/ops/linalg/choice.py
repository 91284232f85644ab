"""`explain` for linear algebra: by the function that its calls ask."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.dispatch import snapshots
from backendcfg.errors import InvalidArgumentError
from backendcfg.native import ELEMENTS, FACTORISATIONS
from backendcfg.ops import devices
from backendcfg.ops.explanation import Answer, Question, Reason
from backendcfg.ops.product_choice import behind, calibration_of, measured_row, unlisted
from backendcfg.ops.serving import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.calibration import Measured

FLAGS = ("blas.library", "blas.path", "determinism.tier", "ops.calibration", "threads.count")
_SERVES, _BEHIND, _TOO_LARGE, _LACKS, _VARIES, _SLOWER, _PRODUCTS = range(7)
_WHY = {
    _TOO_LARGE: "a size does not fit its 32-bit integers",
    _VARIES: "its bits may change with its threads, which `determinism.tier` rules out",
    _SLOWER: "slower than our own code for matrices this small",
    _PRODUCTS: "its kernels are for products; `reference` has the same code for matrices",
}
_WITH_RIGHT_SIDE = {"solve": 1, "solve_ex": 1, "cholesky_solve": 0, "lu_solve": -1}
FUNCTIONS = (
    *("inv", "inv_ex", "cholesky", "cholesky_ex", "cholesky_solve", "cholesky_inverse"),
    *("lu_factor", "lu_factor_ex", "lu", "lu_solve", "qr", "eigh", "eigvalsh", "svd", "svdvals"),
    *("solve", "solve_ex"),
)


def explain(question: Question) -> Answer:
    """Who would serve a function of `ops.linalg`, and why nobody else.

    Raises:
        InvalidArgumentError: the shapes or the dtype do not fit the function.
    """
    function = question.operation.removeprefix("linalg.")
    left = question.flag("left", default=True) if function in _WITH_RIGHT_SIDE else True
    m, n, k = _sizes(function, question, left=left)
    element = _element(question.dtype)
    if (place := devices.place_of(question.option("device", "cpu"))) is not None:
        count = _stack(function, question)
        answer: Answer = devices.gpu().explain_linalg(function, (m, n, k), element, place, count)
        return answer
    listed, because, by = _native.linalg_choice(function, ELEMENTS.index(element), m, n, k)
    listing = snapshots.listing_here()
    row: dict[str, Measured] = {}
    if because == "fastest":
        row = measured_row(listing, FACTORISATIONS[by], (m, n, min(m, n)))
    serving = next(((name, path) for name, path, verdict, _ in listed if verdict == _SERVES), None)
    reasons = [
        Reason(name, path, _why(name, verdict, lacking, serving, row))
        for name, path, verdict, lacking in listed
        if verdict != _SERVES
    ]
    reasons += unlisted(listing.reasons, [name for name, *_ in listed])
    sides = f" and {k} right-hand sides" if function in _WITH_RIGHT_SIDE else ""
    return Answer(
        question.operation,
        f"{question.operation} of ({m}, {n}) {element}{sides}",
        (m, n, k),
        serving[0] if serving else "",
        serving[1] if serving else "",
        WORDS.get(because, ""),
        tuple(reasons),
        FLAGS,
        calibration_of(listing, FACTORISATIONS[by]),
    )


def _stack(function: str, question: Question) -> int:
    """How many matrices there are; 1 where one is for all right-hand sides.

    Raises:
        InvalidArgumentError: the leading dimensions do not broadcast.
    """
    import numpy as np

    given = [*(question.read_shapes() or ())]
    at = _WITH_RIGHT_SIDE.get(function)
    side = given.pop(at) if at is not None else ()
    (matrix,) = given
    lead = matrix[:-2]
    is_vector = _is_vector(function, matrix, side)
    try:
        both = np.broadcast_shapes(lead, side[: -1 if is_vector else -2])
    except ValueError:
        shapes = tuple(question.shapes)
        raise InvalidArgumentError(f"explain: `shapes` {shapes} do not broadcast") from None
    return 1 if math.prod(lead) == 1 else math.prod(both)


def _is_vector(function: str, matrix: tuple[int, ...], side: tuple[int, ...]) -> bool:
    """Whether the right side is one vector for each matrix, which only `solve` takes."""
    return function in ("solve", "solve_ex") and (len(side) == 1 or side == matrix[:-1])


def _why(
    name: str,
    verdict: int,
    lacking: str,
    serving: tuple[str, str] | None,
    row: Mapping[str, Measured],
) -> str:
    if verdict == _BEHIND and serving:
        return behind(name, serving[0], row)
    return lacking if verdict == _LACKS else _WHY.get(verdict, "it does not serve")


def _element(dtype: Any) -> str:
    import numpy as np

    name = str(dtype).rpartition(".")[2]
    try:
        name = name if name in ELEMENTS else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in ELEMENTS:
        raise InvalidArgumentError(
            f"explain: `dtype` must be one of {', '.join(ELEMENTS)}, not {dtype!r}"
        )
    return name


def _sizes(function: str, question: Question, *, left: bool) -> tuple[int, int, int]:
    """m, n of one matrix, and k right-hand sides; 0 where there are none."""
    shapes, given = question.shapes, [*(question.read_shapes() or ())]
    at = _WITH_RIGHT_SIDE.get(function)
    wanted = 1 if at is None else 2
    if len(given) != wanted or not all(given):
        what = "a sequence of one shape, ((..., m, n),)" if at is None else "the shapes of both"
        raise InvalidArgumentError(f"explain: `shapes` must be {what}, not {shapes!r}")
    side = given.pop(at) if at is not None else ()
    (matrix,) = given
    square = function not in {"lu", "lu_factor", "lu_factor_ex", "qr", "svd", "svdvals"}
    if len(matrix) < 2 or (square and matrix[-1] != matrix[-2]):
        kind = "square matrices" if square else "matrices"
        raise InvalidArgumentError(f"explain: `shapes` must be those of {kind}, not {shapes!r}")
    m, n = matrix[-2:]
    if at is None:
        return m, n, 0
    is_vector = _is_vector(function, matrix, side)
    if len(side) < 2 and not is_vector:
        kind = f"`{function}` takes matrices as right-hand sides"
        raise InvalidArgumentError(f"explain: {kind}, not `shapes` {tuple(shapes)}")
    rows, columns = (side[-1], 1) if is_vector else (side[-2], side[-1])
    if (rows if left else columns) != n:
        raise InvalidArgumentError(f"explain: `shapes` {tuple(shapes)} do not fit `{function}`")
    return m, n, columns if left else rows
