"""Linear algebra with torch.linalg's names and semantics, over the LAPACK of the chosen provider.

    from backendcfg.ops import linalg

    x = linalg.solve(a, b)
    factor, info = linalg.cholesky_ex(covariances)      # a stack: info says which failed

Matrices are the last two dimensions; what stands before them is a stack, broadcast where there is
more than one operand. They hold float32, float64, complex64 or complex128, in NumPy arrays or in
any CPU array that `backendcfg.ops.arrays.take` knows; results are what the first one was. Results
are new memory, and lie by columns where LAPACK made them so. Arrays on a device are served there,
by its own library: see `backendcfg.gpu.linalg`.

Raises:
    InvalidArgumentError: arguments that do not fit, before anything is computed.
    LinAlgError: a matrix that has no answer: singular, not positive-definite, not finite.
    DeviceFailedError, MissingLibraryError, TierNotKeptError: of arrays on a device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from backendcfg import _native
from backendcfg._native import linalg_cholesky as cholesky
from backendcfg._native import linalg_cholesky_ex as cholesky_ex
from backendcfg._native import linalg_cholesky_inverse as cholesky_inverse
from backendcfg._native import linalg_cholesky_solve as cholesky_solve
from backendcfg._native import linalg_eigh as eigh
from backendcfg._native import linalg_eigvalsh as eigvalsh
from backendcfg._native import linalg_inv as inv
from backendcfg._native import linalg_inv_ex as inv_ex
from backendcfg._native import linalg_lu as lu
from backendcfg._native import linalg_lu_factor as lu_factor
from backendcfg._native import linalg_lu_factor_ex as lu_factor_ex
from backendcfg._native import linalg_lu_solve as lu_solve
from backendcfg._native import linalg_qr as qr
from backendcfg._native import linalg_solve as solve
from backendcfg._native import linalg_solve_ex as solve_ex
from backendcfg._native import linalg_svd as svd
from backendcfg._native import linalg_svdvals as svdvals
from backendcfg.dispatch import snapshots
from backendcfg.errors import InvalidArgumentError, NotFiniteError
from backendcfg.native import ELEMENTS, FACTORISATIONS
from backendcfg.ops import arrays, devices
from backendcfg.ops.arrays import described, dtype_of
from backendcfg.ops.explanation import Answer, Question, Reason
from backendcfg.ops.products import behind, calibration_of, measured_row, unlisted
from backendcfg.ops.serving import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.calibration import Measured
    from backendcfg.ops.arrays import ArrayView


_TYPES = "float32, float64, complex64 or complex128"
UNFINISHED = ("eigh", "eigvalsh", "svd", "svdvals")


class LinAlgError(InvalidArgumentError, np.linalg.LinAlgError):
    """A matrix has no inverse, factor or decomposition; also what NumPy raises for that."""

    __module__ = "backendcfg.ops.linalg"  # where users find it


class InvEx(NamedTuple):
    """`info` is 0, or the place of a zero pivot from 1; `inverse` is NaN there."""

    inverse: Any
    info: Any


class CholeskyEx(NamedTuple):
    """`info` is 0, or the order of the leading minor that is not positive."""

    L: Any
    info: Any


class LuFactor(NamedTuple):
    """`LU` holds U, and L below its diagonal; row i was exchanged with row `pivots[i] - 1`."""

    LU: Any
    pivots: Any


class LuFactorEx(NamedTuple):
    """The same; `info` is 0, or the place of the first zero on U's diagonal from 1."""

    LU: Any
    pivots: Any
    info: Any


class Lu(NamedTuple):
    """P L U is the matrix."""

    P: Any
    L: Any
    U: Any


class Qr(NamedTuple):
    """Q R is the matrix; `Q` is empty for mode "r"."""

    Q: Any
    R: Any


class Eigh(NamedTuple):
    """Ascending; column i of `eigenvectors` belongs to eigenvalue i."""

    eigenvalues: Any
    eigenvectors: Any


class Svd(NamedTuple):
    """U diag(S) Vh is the matrix; `S` descends."""

    U: Any
    S: Any
    Vh: Any


class SolveEx(NamedTuple):
    """`info` is 0, or the place of a zero pivot from 1; `result` is NaN there."""

    result: Any
    info: Any


TYPES: dict[str, type[tuple[Any, ...]]] = {
    "inv_ex": InvEx,
    "cholesky_ex": CholeskyEx,
    "lu_factor": LuFactor,
    "lu_factor_ex": LuFactorEx,
    "lu": Lu,
    "qr": Qr,
    "eigh": Eigh,
    "svd": Svd,
    "solve_ex": SolveEx,
}
"""By the function that returns it."""


def named(function: str, results: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a function as the type that it returns."""
    kind = TYPES.get(function)
    return results if kind is None else kind(*results)


def refuse(function: str, reason: str, detail: str, given: dict[str, Any]) -> NoReturn:
    """Raise what a function was refused for; nothing has been computed.

    Args:
        function: of `ops.linalg`.
        reason: which check failed, as native/src/python/linalg*.c name it.
        detail: the argument's name, or what the check found.
        given: the arguments by name.

    Raises:
        InvalidArgumentError: always.
    """
    value, first = given.get(detail), next(iter(given))
    word = repr(value) if isinstance(value, str) else type(value).__name__
    matrix = "L" if function == "cholesky_solve" else first
    messages = {
        "type": f"`{detail}` must hold {_TYPES}, not {dtype_of(value)}",
        "types": f"`{detail}` must hold {dtype_of(given.get(matrix))}, as `{matrix}` does, "
        f"not {dtype_of(value)}",
        "matrix": f"`{detail}` must have at least two dimensions",
        "dimensions": f"`{detail}` must have at least one dimension",
        "square": f"`{detail}` must be square in its last two dimensions",
        "rows": f"`{detail}` must have as many rows as `{matrix}`",
        "columns": f"`{detail}` must have as many columns as `{matrix}`, for left=False",
        "vector-right": f"`{detail}` must be a matrix, for left=False",
        "batch": f"the leading dimensions of `{matrix}` and `{detail}` must broadcast",
        "large": "the stack has more than 2**63 matrices",
        "pivot": "`pivot` must be true: no provider here factorises without pivoting",
        "pivot-type": f"`pivots` must hold int32, as `lu_factor` gives them, not {dtype_of(value)}",
        "pivot-shape": "`pivots` must have the shape of `LU` without its last dimension",
        "pivot-value": f"`pivots` must be places from 1 to the size of `LU`, not {detail}",
        "flag": f"`{detail}` must be a bool, not {value!r}",
        "driver": "`driver` must be None: it chooses among the ways of cuSOLVER, which is for GPUs",
        "driver-device": f'`driver` must be None or "gesvd" on a device, not {value!r}',
        "mode": f'`mode` must be "reduced", "complete" or "r", not {word}',
        "triangle": f'`UPLO` must be "L" or "U", not {word}',
        "unserved": "no library that the profile may use has LAPACK for these sizes",
    }
    helps = {
        "type": [f"convert it: `{detail}.astype(numpy.float64)`"],
        "types": [f"convert one: `{detail}.astype({matrix}.dtype)`"],
        "driver-device": ["leave it away, or compute on the CPU"],
        "unserved": [f'`ops.explain("linalg.{function}", ...)` says why; allow `reference`'],
    }
    if hasattr(value, "place"):  # an array on a device
        helps.update(type=["convert it"], types=["convert one: nothing is converted on a device"])
    notes = [f"{name}: {described(a)}" for name, a in given.items() if hasattr(a, "shape")]
    if reason == "not-finite":
        raise NotFiniteError.of(f"linalg.{function}", notes=notes, state="nothing was returned")
    raise InvalidArgumentError(
        f"linalg.{function}: {messages[reason]}",
        notes=notes,
        state="nothing was computed",
        helps=helps.get(reason, []),
    )


def fail(
    function: str, info: int, index: int, matrix: Any, lead: tuple[int, ...] | None = None
) -> NoReturn:
    """Raise for the first matrix of a stack that could not be served.

    Args:
        function: of `ops.linalg`.
        info: LAPACK's, or -1 for NaN or infinity.
        index: of the matrix, -1 where there is no stack.
        matrix: the argument.
        lead: the shape of the stack that the index is of, to which the argument was broadcast; its
            own by default.

    Raises:
        LinAlgError: always.
    """
    kind = function.removesuffix("_ex")
    stack = tuple(matrix.shape[:-2]) if lead is None else lead
    at = f"matrix {_index(index, stack)} of the stack" if index >= 0 else "the matrix"
    help_text = f"`linalg.{kind}_ex` gives `info` for each matrix and does not raise"
    if info < 0:
        what = "has NaN or infinity"
        help_text = "look for NaN, infinity or overflow in what made it"
    elif kind in UNFINISHED:
        what = f"was not decomposed: the iteration did not converge (info {info})"
        help_text = "scale the matrix, or use float64"
    elif kind == "cholesky":
        what = f"is not positive-definite: its leading minor of order {info} is not positive"
    else:
        what = f"is singular: the diagonal element {info} of its factor is zero"
        if kind not in {"inv", "lu_factor", "solve"}:
            help_text = "the factor of a positive-definite matrix has no zero on its diagonal"
    raise LinAlgError(
        f"linalg.{function}: {at} {what}",
        notes=[f"argument: {described(matrix)}"],
        state="nothing was returned",
        helps=[help_text],
    )


def _index(index: int, stack: tuple[int, ...]) -> str:
    if len(stack) < 2:
        return str(index)
    return str(tuple(int(i) for i in np.unravel_index(index, stack)))


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


__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "qr",
    "solve",
    "solve_ex",
    "svd",
    "svdvals",
]


def _foreign(function: str, count: int, given: dict[str, Any]) -> Any:
    """Call a function again with its first arguments as NumPy arrays, or on their device."""
    names, values = tuple(given)[:count], tuple(given.values())[:count]
    if any(map(_native.device_holds, values)):
        return devices.gpu().linalg(function, given, names, values)
    taken: list[ArrayView] = []
    for name in names:
        one = arrays.take(given[name], name, f"linalg.{function}")
        if one.element == "bfloat16":
            refuse(function, "type", name, given)
        taken.append(one)
        given[name] = one.array
    positional = [given.pop(name) for name in names]
    result = getattr(_native, f"linalg_{function}")(*positional, **given)
    if isinstance(result, tuple):
        return type(result)(*(arrays.give(array, taken[0]) for array in result))
    return arrays.give(result, taken[0])


_native.bind(linalg_refuse=refuse, linalg_foreign=_foreign, linalg_failed=fail, linalg_result=named)
