"""What the functions of `ops.linalg` return that is more than one array, and what they raise."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.arrays import described, dtype_of

ELEMENTS = "float32, float64, complex64 or complex128"
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
        "type": f"`{detail}` must hold {ELEMENTS}, not {dtype_of(value)}",
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
        "not-finite": "the result has NaN or infinity, which `ops.check_finite` refuses",
        "unserved": "no library that the profile may use has LAPACK for these sizes",
    }
    helps = {
        "type": [f"convert it: `{detail}.astype(numpy.float64)`"],
        "types": [f"convert one: `{detail}.astype({matrix}.dtype)`"],
        "driver-device": ["leave it away, or compute on the CPU"],
        "not-finite": ["look for NaN, infinity or overflow in the arrays, or turn it off"],
        "unserved": [f'`ops.explain("linalg.{function}", ...)` says why; allow `reference`'],
    }
    if hasattr(value, "place"):  # an array on a device
        helps.update(type=["convert it"], types=["convert one: nothing is converted on a device"])
    raise InvalidArgumentError(
        f"linalg.{function}: {messages[reason]}",
        notes=[f"{name}: {described(a)}" for name, a in given.items() if hasattr(a, "shape")],
        state="nothing was computed" if reason != "not-finite" else "nothing was returned",
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
