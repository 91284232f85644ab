"""Linear algebra with torch.linalg's names and semantics, over the LAPACK of the chosen provider.

    from backendcfg.ops import linalg

    x = linalg.solve(a, b)
    factor, info = linalg.cholesky_ex(covariances)      # a stack: info says which failed

Matrices are the last two dimensions; what stands before them is a stack, broadcast where there is
more than one operand. They hold float32, float64, complex64 or complex128, in NumPy arrays or in
any CPU array that `backendcfg.ops.arrays.take` knows; results are what the first one was. Results
are new memory, and lie by columns where LAPACK made them so. Arrays on a device are served there,
by its own library: see `backendcfg.gpu.linalg.calls`.

Raises:
    InvalidArgumentError: arguments that do not fit, before anything is computed.
    LinAlgError: a matrix that has no answer: singular, not positive-definite, not finite.
    DeviceFailedError, MissingLibraryError, TierNotKeptError: of arrays on a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from backendcfg.ops import arrays, devices
from backendcfg.ops.linalg.outcomes import LinAlgError, fail, named, refuse

if TYPE_CHECKING:
    from backendcfg.ops.arrays import ArrayView

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
