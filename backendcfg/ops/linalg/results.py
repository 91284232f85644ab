"""What the functions of `ops.linalg` return where it is more than one array."""

from __future__ import annotations

from typing import Any, NamedTuple


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
