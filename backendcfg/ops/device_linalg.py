"""Linear algebra of arrays on devices: each function as its steps, with the CPU's results.

A matrix by rows is its transpose by columns. So what is symmetric, and what may as well be solved
transposed, is copied as it lies; only the others are turned on the way into the memory to work in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from backendcfg.dispatch.device_linalg import (
    CHOLESKY,
    CHOLESKY_SOLVE,
    EIGH,
    ELEMENTS,
    LU,
    LU_SOLVE,
    QR,
    QR_VECTORS,
    REAL,
    SVD,
)
from backendcfg.ops import device_layout as layout
from backendcfg.ops.device_arrays import SIZES
from backendcfg.ops.device_solver import Solver, Stack
from backendcfg.ops.linalg_types import TYPES
from backendcfg.ops.refusal import is_flag

if TYPE_CHECKING:
    from collections.abc import Callable

_SQUARE = {"lu_factor", "lu_factor_ex", "lu", "qr", "svd", "svdvals"}
_MATRIX = {"cholesky_solve": "L", "cholesky_inverse": "L", "lu_solve": "LU"}
_SIDES = ("solve", "solve_ex", "cholesky_solve", "lu_solve")
_DEFAULTS = {
    "upper": False,
    "left": True,
    "adjoint": False,
    "full_matrices": True,
    "check_errors": False,
    "pivot": True,
}
_MODES = ("reduced", "complete", "r")


class Options:
    """What was passed beside the arrays, checked."""

    def __init__(self, solver: Solver) -> None:
        given = solver.given
        for name, usual in _DEFAULTS.items():
            value = given.get(name, usual)
            if not is_flag(value):
                solver.refuse("flag", name)
            setattr(self, name, bool(value))
        if not self.pivot:
            solver.refuse("pivot", "pivot")
        if given.get("driver") not in (None, "gesvd"):
            solver.refuse("driver-device", "driver")
        self.mode = given.get("mode", "reduced")
        if not isinstance(self.mode, str) or self.mode not in _MODES:
            solver.refuse("mode", "mode")
        triangle = given.get("UPLO", "L")
        if not isinstance(triangle, str) or triangle not in ("L", "l", "U", "u"):
            solver.refuse("triangle", "UPLO")
        if solver.function in ("eigh", "eigvalsh"):
            self.upper = triangle in ("U", "u")
        self.raises = self.check_errors or not solver.function.endswith("_ex")

    upper: bool
    left: bool
    adjoint: bool
    full_matrices: bool
    check_errors: bool
    pivot: bool


def call(function: str, given: dict[str, Any], arrays: tuple[str, ...]) -> Any:
    """A function of `ops.linalg` whose arrays are on a device.

    Args:
        function: its name.
        given: all arguments that were passed, by name.
        arrays: which of them are arrays.

    Raises:
        InvalidArgumentError: an argument does not fit.
        LinAlgError: a matrix has no answer.
        TierNotKeptError: no library keeps what the profile promises.
        MissingLibraryError: no library can serve it.
        DeviceFailedError: the device or its library failed.
    """
    solver = Solver(function, given, arrays)
    options = Options(solver)
    matrix = _MATRIX.get(function, "A")
    _take(solver, matrix, options)
    results = _FUNCTIONS[function](solver, options)
    kind = TYPES.get(function)
    return results[0] if kind is None else kind(*results)


def _take(solver: Solver, matrix: str, options: Options) -> None:
    """Check types and shapes, in the order in which the CPU does, and choose who serves."""
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
        if name == matrix and solver.function not in _SQUARE and held.shape[-1] != held.shape[-2]:
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
    is_vector = _is_vector(solver)
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


def _is_vector(solver: Solver) -> bool:
    if solver.function not in ("solve", "solve_ex"):
        return False
    matrix, side = solver.held["A"].shape, solver.held["B"].shape
    return len(side) == 1 or side == matrix[:-1]


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    count = max(len(left), len(right))
    left, right = (1,) * (count - len(left)) + left, (1,) * (count - len(right)) + right
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise ValueError
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


def _said(info: Stack, solver: Solver, own: tuple[int, ...]) -> Any:
    """`info` in the shape of the stack, of a factor that all may share."""
    if own == solver.lead:
        return info.value
    made = solver.info()
    layout.copy(solver.operation, "info", made.value, info.value)
    return made.value


def _scratch(solver: Solver) -> Stack:
    """Room for what the steps say that cannot fail."""
    return solver.info(())._replace(step=0)


def _own_lead(solver: Solver, matrix: str) -> tuple[int, ...]:
    """The stack of a factor: its own where all right-hand sides share one, else the call's."""
    own = solver.held[matrix].shape[:-2]
    return () if math.prod(own) == 1 and not (own == solver.lead) else solver.lead


def _shared(stack: Stack, own: tuple[int, ...], solver: Solver) -> Stack:
    return stack if own == solver.lead else stack._replace(step=0)


def _matrix_of(solver: Solver, name: str, own: tuple[int, ...]) -> Any:
    """An argument without the leading dimensions of one matrix that all share."""
    value = solver.given[name]
    return value if own == solver.lead else value.reshape(value.shape[-2:])


# Cholesky


def _cholesky(solver: Solver, options: Options) -> tuple[Any, ...]:
    n = solver.sizes[1]
    factor, info = solver.copied("A", n, n, by_columns=False), solver.info()
    # By columns it is the transpose, the conjugate of a Hermitian matrix, whose other triangle is
    # the one to read, and becomes the transpose of the factor.
    solver.run(CHOLESKY, factor, info, n, n, upper=not options.upper)
    layout.keep_triangle(factor.value, upper=options.upper)
    if options.raises:
        solver.check(info, "A")
    is_ex = solver.function == "cholesky_ex"
    solver.finish(*(() if is_ex else (factor.value,)))
    return (factor.value, info.value)


def _cholesky_solve(solver: Solver, options: Options) -> tuple[Any, ...]:
    _, n, k = solver.sizes
    own = _own_lead(solver, "L")
    factor, is_turned = _factor(solver, "L", n, own, transposed=not _is_complex(solver))
    solution = solver.copied("B", n, k, by_columns=True)
    upper = options.upper != is_turned
    solver.run(CHOLESKY_SOLVE, factor, _scratch(solver), n, n, k, upper=upper, b=solution)
    solver.finish(solution.columns)
    return (solution.columns,)


def _cholesky_inverse(solver: Solver, options: Options) -> tuple[Any, ...]:
    n = solver.sizes[1]
    zeros = layout.numbers(solver.operation, layout.zeros_on_diagonal(solver.given["L"]))
    if any(zeros):
        first = zeros.index(True)
        solver.fail(first % n + 1, first // n, "L")
    factor, is_turned = _factor(solver, "L", n, solver.lead, transposed=not _is_complex(solver))
    inverse = solver.make((n, n))
    layout.identity(inverse.value)
    upper = options.upper != is_turned
    solver.run(CHOLESKY_SOLVE, factor, _scratch(solver), n, n, n, upper=upper, b=inverse)
    solver.finish(inverse.columns)
    return (inverse.columns,)


def _is_complex(solver: Solver) -> bool:
    return solver.element.startswith("complex")


def _factor(
    solver: Solver, name: str, n: int, own: tuple[int, ...], *, transposed: bool
) -> tuple[Stack, bool]:
    """A factor that is only read: where it lies if it can be, and whether that is its transpose."""
    value, held = solver.given[name], solver.held[name]
    size = SIZES[solver.element]
    step = n * n * size
    lead_steps = [math.prod(held.shape[d + 1 : -2]) * step for d in range(len(held.shape) - 2)]
    in_order = own == held.shape[:-2] or math.prod(held.shape[:-2]) == 1
    if in_order and (n <= 1 or own == () or list(held.steps[:-2]) == lead_steps):
        used = 0 if own == () != solver.lead else step
        if held.steps[-2:] == (size, n * size) or n <= 1:
            return Stack(value, held, used), False
        if transposed and held.steps[-2:] == (n * size, size):
            return Stack(value, held, used), True
    made = solver.make((n, n), lead=own)
    layout.copy(solver.operation, name, made.columns, _matrix_of(solver, name, own))
    return _shared(made, own, solver), False


# LU


def _lu_factor(solver: Solver, options: Options) -> tuple[Any, ...]:
    m, n, _ = solver.sizes
    factors, info = solver.copied("A", m, n, by_columns=True), solver.info()
    pivots = solver.make((min(m, n),), solver.recipe.pivots)
    solver.run(LU, factors, info, m, n, pivots=pivots)
    if options.raises:
        solver.check(info, "A")
    is_ex = solver.function == "lu_factor_ex"
    solver.finish(*(() if is_ex else (factors.columns,)))
    return (factors.columns, _as_int32(solver, pivots), *((info.value,) if is_ex else ()))


def _as_int32(solver: Solver, pivots: Stack) -> Any:
    if solver.recipe.pivots == "int32":
        return pivots.value
    made = solver.make(pivots.held.shape[-1:], "int32")
    layout.copy(solver.operation, "pivots", made.value, pivots.value)
    return made.value


def _lu(solver: Solver, options: Options) -> tuple[Any, ...]:
    m, n, _ = solver.sizes
    least = min(m, n)
    factors, info = solver.copied("A", m, n, by_columns=True), solver.info()
    pivots = solver.make((m,), solver.recipe.pivots)
    layout.ramp(pivots.value)  # what no step writes exchanges a row with itself
    solver.run(LU, factors, info, m, n, pivots=pivots)
    turned = factors.value
    lower = layout.triangle(turned[..., :least, :], upper=True, within=1)
    layout.unit_diagonal(lower)
    upper = layout.triangle(turned[..., :, :least], upper=False)
    # Solving with both factors the identity, transposed, leaves the exchanges alone: P.
    permutation, identity = solver.make((m, m)), solver.make((m, m))
    layout.identity(permutation.value)
    layout.identity(identity.value)
    solver.run(
        LU_SOLVE, identity, _scratch(solver), m, m, m, transpose="T", b=permutation, pivots=pivots
    )
    results = permutation.columns, layout.columns(lower), layout.columns(upper)
    solver.finish(*results)
    return results


def _lu_solve(solver: Solver, options: Options) -> tuple[Any, ...]:
    _, n, k = solver.sizes
    own = _own_lead(solver, "LU")
    factors, _ = _factor(solver, "LU", n, own, transposed=False)
    pivots = solver.make((n,), solver.recipe.pivots, own)
    given = solver.given["pivots"]
    given = given if own == solver.lead else given.reshape((n,))
    layout.copy(solver.operation, "pivots", pivots.value, given)
    layout.clamp(pivots.value, n)  # they are not read back, and one outside would end the context
    solution = solver.copied("B", *_side(options, n, k), by_columns=options.left)
    # From the right the transposed system is solved; of the adjoint, the conjugate of that.
    conjugates = options.adjoint and not options.left and _is_complex(solver)
    transpose = ("C" if options.adjoint else "N") if options.left else "T"
    if options.adjoint and not options.left:
        transpose = "N"
    if conjugates:
        layout.conjugate(solution.value)
    solver.run(
        LU_SOLVE, factors, _scratch(solver), n, n, k,
        transpose=transpose, b=solution, pivots=_shared(pivots, own, solver),
    )  # fmt: skip
    if conjugates:
        layout.conjugate(solution.value)
    result = solution.columns if options.left else solution.value
    solver.finish(result)
    return (result,)


def _side(options: Options, n: int, k: int) -> tuple[int, int]:
    return (n, k) if options.left else (k, n)


def _solve(solver: Solver, options: Options) -> tuple[Any, ...]:
    _, n, k = solver.sizes
    own = _own_lead(solver, "A")
    # From the right the transposed system is solved: it is what the same memory says by columns.
    factors = solver.make((n, n), lead=own)
    target = factors.columns if options.left else factors.value
    layout.copy(solver.operation, "A", target, _matrix_of(solver, "A", own))
    info = solver.info(own)
    pivots = solver.make((n,), solver.recipe.pivots, own)
    solver.run(LU, factors, info, n, n, lead=own, pivots=pivots)
    is_vector = _is_vector(solver)
    if is_vector:
        solution = solver.make((n,))
        layout.copy(solver.operation, "B", solution.value, solver.given["B"])
    else:
        solution = solver.copied("B", *_side(options, n, k), by_columns=options.left)
    solver.run(
        LU_SOLVE, _shared(factors, own, solver), _scratch(solver), n, n, k,
        b=solution, pivots=_shared(pivots, own, solver),
    )  # fmt: skip
    result = solution.columns if options.left and not is_vector else solution.value
    return _answered(solver, options, result, info, own, "A")


def _inv(solver: Solver, options: Options) -> tuple[Any, ...]:
    n = solver.sizes[1]
    factors, info = solver.copied("A", n, n, by_columns=False), solver.info()
    pivots = solver.make((n,), solver.recipe.pivots)
    solver.run(LU, factors, info, n, n, pivots=pivots)
    inverse = solver.make((n, n))
    layout.identity(inverse.value)
    solver.run(LU_SOLVE, factors, _scratch(solver), n, n, n, b=inverse, pivots=pivots)
    # The inverse of the transpose by columns is the inverse by rows.
    return _answered(solver, options, inverse.value, info, solver.lead, "A")


def _answered(
    solver: Solver, options: Options, result: Any, info: Stack, own: tuple[int, ...], name: str
) -> tuple[Any, ...]:
    """The result of a solution, and `info` where that is asked for."""
    if options.raises:
        solver.check(info, name)
    if not solver.function.endswith("_ex"):
        solver.finish(result)
        return (result,)
    said = _said(info, solver, own)
    layout.spoil(result, said)
    solver.finish()
    return result, said


# QR, eigenvalues, singular values


def _qr(solver: Solver, options: Options) -> tuple[Any, ...]:
    m, n, _ = solver.sizes
    least = min(m, n)
    inner = m if options.mode == "complete" else least
    work, tau = solver.copied("A", m, n, by_columns=True), solver.make((least,))
    solver.run(QR, work, _scratch(solver), m, n, values=tau)
    upper = layout.columns(layout.triangle(work.value[..., :, :inner], upper=False))
    if options.mode == "r":
        empty, _ = solver.arrays.make((0,), solver.element)
        solver.finish(upper)
        return empty, upper
    vectors = work
    if inner != n:
        vectors = solver.make((inner, m))
        target, source = vectors.value[..., :least, :], work.value[..., :least, :]
        layout.copy(solver.operation, "A", target, source)
    if least == 0:
        layout.identity(vectors.value)
    else:
        solver.run(QR_VECTORS, vectors, _scratch(solver), m, inner, least, values=tau)
    solver.finish(vectors.columns, upper)
    return vectors.columns, upper


def _eigh(solver: Solver, options: Options) -> tuple[Any, ...]:
    n = solver.sizes[1]
    # A real matrix is its own transpose; of a Hermitian one the vectors would be conjugates.
    turns = _is_complex(solver)
    work, info = solver.copied("A", n, n, by_columns=turns), solver.info()
    values = solver.make((n,), REAL[solver.element])
    vectors = "S" if solver.function == "eigh" else "N"
    upper = options.upper if turns else not options.upper
    solver.run(EIGH, work, info, n, n, upper=upper, vectors=vectors, values=values)
    solver.check(info, "A")
    solver.check_sound(values, "A")
    solver.finish(values.value, *((work.columns,) if vectors == "S" else ()))
    return values.value, work.columns


def _svd(solver: Solver, options: Options) -> tuple[Any, ...]:
    m, n, _ = solver.sizes
    # Of a matrix with more columns than rows the transpose is decomposed: it lies by columns.
    is_tall = m >= n
    tall, least = max(m, n), min(m, n)
    work, info = solver.copied("A", m, n, by_columns=is_tall), solver.info()
    values = solver.make((least,), REAL[solver.element])
    if solver.function == "svdvals":
        solver.run(SVD, work, info, tall, least, values=values)
        results: tuple[Any, ...] = (values.value,)
    else:
        count = tall if options.full_matrices else least
        left, right = solver.make((count, tall)), solver.make((least, least))
        if least == 0:
            layout.identity(left.value)
        vectors = "A" if options.full_matrices else "S"
        solver.run(SVD, work, info, tall, least, vectors=vectors, b=left, c=right, values=values)
        u, vh = (left.columns, right.columns) if is_tall else (right.value, left.value)
        results = (u, values.value, vh)
    solver.check(info, "A")
    solver.check_sound(values, "A")
    solver.finish(*results)
    return results


_FUNCTIONS: dict[str, Callable[[Solver, Options], tuple[Any, ...]]] = {
    "cholesky": _cholesky,
    "cholesky_ex": _cholesky,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "eigh": _eigh,
    "eigvalsh": _eigh,
    "inv": _inv,
    "inv_ex": _inv,
    "lu": _lu,
    "lu_factor": _lu_factor,
    "lu_factor_ex": _lu_factor,
    "lu_solve": _lu_solve,
    "qr": _qr,
    "solve": _solve,
    "solve_ex": _solve,
    "svd": _svd,
    "svdvals": _svd,
}
