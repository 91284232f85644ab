"""Linear algebra of device arrays, by cuSOLVER, hipSOLVER and MAGMA.

A call of `ops.linalg` is checked, planned once for all that are alike, and carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg._native import current
from backendcfg.cache import BoundedCache
from backendcfg.gpu.arrays import Arguments
from backendcfg.gpu.linalg import functions
from backendcfg.gpu.linalg import solver as solvers
from backendcfg.gpu.linalg.solver import Options, Solver
from backendcfg.gpu.linalg.steps import ELEMENTS
from backendcfg.ops.linalg import TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from backendcfg.gpu.linalg.plan import LinalgPlan
    from backendcfg.gpu.linalg.vendors import Stack


_ANY_SHAPE = {"lu_factor", "lu_factor_ex", "lu", "qr", "svd", "svdvals"}
_MATRIX = {"cholesky_solve": "L", "cholesky_inverse": "L", "lu_solve": "LU"}
# By all that a plan follows from, the profile in force among it.
_plans: BoundedCache[Hashable, LinalgPlan] = BoundedCache(512)
_SIDES = ("solve", "solve_ex", "cholesky_solve", "lu_solve")


def call(
    function: str, given: dict[str, Any], names: tuple[str, ...], values: tuple[Any, ...]
) -> Any:
    """A function of `ops.linalg` whose arrays are on a device.

    Args:
        function: its name.
        given: all arguments that were passed, by name.
        names: of those that are arrays.
        values: these arrays.

    Raises:
        InvalidArgumentError: an argument does not fit.
        LinAlgError: a matrix has no answer.
        TierNotKeptError: no library keeps the profile's tier.
        MissingLibraryError: no library can serve it.
        DeviceFailedError: the device or its library failed.
    """
    arrays = Arguments(f"linalg.{function}", dict(zip(names, values, strict=True)))
    views = [arrays.take(name) for name in names]
    kind = tuple(
        [(one.kind, one.ordinal, one.element, one.shape, one.byte_strides) for one in views]
    )
    key: tuple[Any, ...] = (function, kind, current(), _native.mapped())
    if len(given) > len(names):
        options = tuple(given.items())[len(names) :]
        key += (options, tuple(type(value) for _, value in options))
    try:
        plan = _plans.get(key)
    except TypeError:  # an option that cannot be hashed: `_plan` refuses it
        plan = None
    if plan is None:
        plan = _plan(function, given, names)
        if (
            current() is key[2]
        ):  # else another thread replaced the profile: nobody knows which chose
            _plans.put(key, plan)
    return plan(given, values, arrays, views)


def forget() -> None:
    """Drop all plans and choices; the next call of each kind is planned anew."""
    _plans.clear()
    solvers.forget()


def _plan(function: str, given: dict[str, Any], names: tuple[str, ...]) -> LinalgPlan:
    solver = Solver(function, given, names)
    options = Options(solver)
    _take(solver, _MATRIX.get(function, "A"), options)
    results = _FUNCTIONS[function](solver, options)
    solver.plan.returns(results, TYPES.get(function))
    return solver.plan


def _take(solver: Solver, matrix: str, options: Options) -> None:
    """Check types and shapes, in the CPU's order, and choose the library."""
    names = [matrix] + [name for name in solver.held if name not in (matrix, "pivots")]
    for name in names:
        held = solver.held[name]
        if held.element not in ELEMENTS:
            solver.refuse("type", name)
        if held.element != solver.held[matrix].element:
            solver.refuse("types", name)
        is_side = name != matrix and solver.function in ("solve", "solve_ex")
        if len(held.shape) < (1 if is_side else 2):
            solver.refuse("dimensions" if is_side else "matrix", name)
        if (
            name == matrix
            and solver.function not in _ANY_SHAPE
            and held.shape[-1] != held.shape[-2]
        ):
            solver.refuse("square", name)
    held = solver.held[matrix]
    lead, (m, n), k = held.shape[:-2], held.shape[-2:], 0
    if solver.function == "lu_solve":
        pivots = solver.held["pivots"]
        if pivots.element != "int32":
            solver.refuse("pivot-type", "pivots")
        if pivots.shape != held.shape[:-1]:
            solver.refuse("pivot-shape", "pivots")
    if solver.function in _SIDES:
        lead, k = _take_side(solver, matrix, options)
    solver.choose(held.element, lead, (m, n, k))


def _take_side(solver: Solver, matrix: str, options: Options) -> tuple[tuple[int, ...], int]:
    """The shape of the stack, and how many right-hand sides there are."""
    held, side = solver.held[matrix], solver.held["B"]
    shape = side.shape
    is_vector = solver.is_vector
    if is_vector and not options.left:
        solver.refuse("vector-right", "B")
    rows, columns = (shape[-1], 1) if is_vector else (shape[-2], shape[-1])
    if (rows if options.left else columns) != held.shape[-1]:
        solver.refuse("rows" if options.left else "columns", "B")
    own = shape[: -1 if is_vector else -2]
    try:
        lead = _broadcast(held.shape[:-2], own)
    except ValueError:
        solver.refuse("batch", "B")
    return lead, columns if options.left else rows


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    count = max(len(left), len(right))
    left, right = (1,) * (count - len(left)) + left, (1,) * (count - len(right)) + right
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise ValueError
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


_FUNCTIONS: dict[str, Callable[[Solver, Options], tuple[Stack, ...]]] = {
    "cholesky": functions.cholesky,
    "cholesky_ex": functions.cholesky,
    "cholesky_inverse": functions.cholesky_inverse,
    "cholesky_solve": functions.cholesky_solve,
    "eigh": functions.eigh,
    "eigvalsh": functions.eigh,
    "inv": functions.inv,
    "inv_ex": functions.inv,
    "lu": functions.lu,
    "lu_factor": functions.lu_factor,
    "lu_factor_ex": functions.lu_factor,
    "lu_solve": functions.lu_solve,
    "qr": functions.qr,
    "solve": functions.solve,
    "solve_ex": functions.solve,
    "svd": functions.svd,
    "svdvals": functions.svd,
}
