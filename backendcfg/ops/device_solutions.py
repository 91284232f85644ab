"""What is solved on devices: Cholesky's and LU's factors, solutions and inverses.

Each gives its results as a tuple. A matrix by rows is its transpose by columns: what is Hermitian,
and what may as well be solved transposed, is copied as it lies.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from backendcfg.dispatch.device_linalg import CHOLESKY, CHOLESKY_SOLVE, LU, LU_SOLVE
from backendcfg.ops import device_layout as layout
from backendcfg.ops import device_library
from backendcfg.ops.device_arrays import SIZES
from backendcfg.ops.device_solver import Solver, Stack

if TYPE_CHECKING:
    from backendcfg.ops.device_options import Options


def _said(info: Stack, solver: Solver, own: tuple[int, ...]) -> Any:
    """`info` in the shape of the stack, of a factor that all may share."""
    if own == solver.lead:
        return info.value
    made = solver.info()
    layout.copy(solver.operation, "info", made.value, info.value)
    return made.value


def _own_lead(solver: Solver, matrix: str) -> tuple[int, ...]:
    """The stack of a factor: its own where all right-hand sides share one, else the call's."""
    own = solver.held[matrix].shape[:-2]
    return () if math.prod(own) == 1 and own != solver.lead else solver.lead


def _shared(stack: Stack, own: tuple[int, ...], solver: Solver) -> Stack:
    return stack if own == solver.lead else stack._replace(step=0)


def _matrix_of(solver: Solver, name: str, own: tuple[int, ...]) -> Any:
    """An argument without the leading dimensions of one matrix that all share."""
    value = solver.given[name]
    return value if own == solver.lead else value.reshape(value.shape[-2:])


# Cholesky


def cholesky(solver: Solver, options: Options) -> tuple[Any, ...]:
    """The factor and `info`."""
    n = solver.sizes[1]
    factor, info = solver.copied("A", n, n, by_columns=False), solver.info()
    # By columns it is the transpose, the conjugate of a Hermitian matrix, whose other triangle is
    # the one to read, and becomes the transpose of the factor.
    solver.run(CHOLESKY, factor, info, (n, n, 0), upper=not options.upper)
    layout.keep_triangle(factor.value, upper=options.upper)
    if options.raises:
        solver.check(info, "A")
    is_ex = solver.function == "cholesky_ex"
    solver.finish(*(() if is_ex else (factor.value,)))
    return (factor.value, info.value)


def cholesky_solve(solver: Solver, options: Options) -> tuple[Any, ...]:
    """The solution by a factor."""
    _, n, k = solver.sizes
    own = _own_lead(solver, "L")
    factor, is_turned = _factor(solver, "L", n, own, transposed=not solver.is_complex)
    solution = solver.copied("B", n, k, by_columns=True)
    upper = options.upper != is_turned
    solver.run(CHOLESKY_SOLVE, factor, solver.scratch(), (n, n, k), upper=upper, b=solution)
    solver.finish(solution.columns)
    return (solution.columns,)


def cholesky_inverse(solver: Solver, options: Options) -> tuple[Any, ...]:
    """The inverse by a factor, whose diagonal is looked at first."""
    n = solver.sizes[1]
    zeros = layout.numbers(solver.operation, layout.zeros_on_diagonal(solver.given["L"]))
    if any(zeros):
        first = zeros.index(True)
        solver.fail(first % n + 1, first // n, "L")
    factor, is_turned = _factor(solver, "L", n, solver.lead, transposed=not solver.is_complex)
    inverse = solver.make((n, n))
    layout.identity(inverse.value)
    upper = options.upper != is_turned
    solver.run(CHOLESKY_SOLVE, factor, solver.scratch(), (n, n, n), upper=upper, b=inverse)
    solver.finish(inverse.columns)
    return (inverse.columns,)


def _factor(
    solver: Solver, name: str, n: int, own: tuple[int, ...], *, transposed: bool
) -> tuple[Stack, bool]:
    """A factor that is only read: where it lies if it can be, and whether that is its transpose."""
    value, held = solver.given[name], solver.held[name]
    size = SIZES[solver.element]
    step = n * n * size
    lead_steps = [math.prod(held.shape[d + 1 : -2]) * step for d in range(len(held.shape) - 2)]
    in_order = own == held.shape[:-2] and list(held.steps[:-2]) == lead_steps
    if in_order or math.prod(held.shape[:-2]) == 1:
        used = 0 if own == () != solver.lead else step
        if held.steps[-2:] == (size, n * size) or n <= 1:
            return Stack(value, held, used), False
        if transposed and held.steps[-2:] == (n * size, size):
            return Stack(value, held, used), True
    made = solver.make((n, n), lead=own)
    layout.copy(solver.operation, name, made.columns, _matrix_of(solver, name, own))
    return _shared(made, own, solver), False


# LU


def lu_factor(solver: Solver, options: Options) -> tuple[Any, ...]:
    """Both factors in one matrix, pivots, and `info` for the function that ends in `_ex`."""
    m, n, _ = solver.sizes
    factors, info = solver.copied("A", m, n, by_columns=True), solver.info()
    pivots = solver.make((min(m, n),), solver.recipe.pivots)
    solver.run(LU, factors, info, (m, n, 0), pivots=pivots)
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


def lu(solver: Solver, options: Options) -> tuple[Any, ...]:
    """P, L and U."""
    m, n, _ = solver.sizes
    least = min(m, n)
    factors, info = solver.copied("A", m, n, by_columns=True), solver.info()
    pivots = solver.make((m,), solver.recipe.pivots)
    layout.ramp(pivots.value)  # what no step writes exchanges a row with itself
    solver.run(LU, factors, info, (m, n, 0), pivots=pivots)
    turned = factors.value
    lower = layout.triangle(turned[..., :least, :], upper=True, within=1)
    layout.unit_diagonal(lower)
    upper = layout.triangle(turned[..., :, :least], upper=False)
    # Solving with both factors the identity, transposed, leaves the exchanges alone: P.
    permutation, identity = solver.make((m, m)), solver.make((m, m))
    layout.identity(permutation.value)
    layout.identity(identity.value)
    solver.run(
        LU_SOLVE, identity, solver.scratch(), (m, m, m), transpose="T", b=permutation, pivots=pivots
    )
    results = permutation.columns, layout.columns(lower), layout.columns(upper)
    solver.finish(*results)
    return results


def lu_solve(solver: Solver, options: Options) -> tuple[Any, ...]:
    """The solution by factors and pivots."""
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
    conjugates = options.adjoint and not options.left and solver.is_complex
    transpose = ("C" if options.adjoint else "N") if options.left else "T"
    if options.adjoint and not options.left:
        transpose = "N"
    if conjugates:
        device_library.conjugate(solution.value)
    pivots = _shared(pivots, own, solver)
    solver.run(
        LU_SOLVE,
        factors,
        solver.scratch(),
        (n, n, k),
        transpose=transpose,
        b=solution,
        pivots=pivots,
    )
    if conjugates:
        device_library.conjugate(solution.value)
    result = solution.columns if options.left else solution.value
    solver.finish(result)
    return (result,)


def _side(options: Options, n: int, k: int) -> tuple[int, int]:
    return (n, k) if options.left else (k, n)


def solve(solver: Solver, options: Options) -> tuple[Any, ...]:
    """The solution, and `info` for the function that ends in `_ex`."""
    _, n, k = solver.sizes
    own = _own_lead(solver, "A")
    # From the right the transposed system is solved: it is what the same memory says by columns.
    factors = solver.make((n, n), lead=own)
    target = factors.columns if options.left else factors.value
    layout.copy(solver.operation, "A", target, _matrix_of(solver, "A", own))
    info = solver.info(own)
    pivots = solver.make((n,), solver.recipe.pivots, own)
    solver.run(LU, factors, info, (n, n, 0), lead=own, pivots=pivots)
    is_vector = solver.is_vector
    if is_vector:
        solution = solver.make((n,))
        layout.copy(solver.operation, "B", solution.value, solver.given["B"])
    else:
        solution = solver.copied("B", *_side(options, n, k), by_columns=options.left)
    factors, pivots = _shared(factors, own, solver), _shared(pivots, own, solver)
    solver.run(LU_SOLVE, factors, solver.scratch(), (n, n, k), b=solution, pivots=pivots)
    result = solution.columns if options.left and not is_vector else solution.value
    return _answered(solver, options, result, info, own)


def inv(solver: Solver, options: Options) -> tuple[Any, ...]:
    """The inverse, and `info` likewise."""
    n = solver.sizes[1]
    factors, info = solver.copied("A", n, n, by_columns=False), solver.info()
    pivots = solver.make((n,), solver.recipe.pivots)
    solver.run(LU, factors, info, (n, n, 0), pivots=pivots)
    inverse = solver.make((n, n))
    layout.identity(inverse.value)
    solver.run(LU_SOLVE, factors, solver.scratch(), (n, n, n), b=inverse, pivots=pivots)
    # The inverse of the transpose by columns is the inverse by rows.
    return _answered(solver, options, inverse.value, info, solver.lead)


def _answered(
    solver: Solver, options: Options, result: Any, info: Stack, own: tuple[int, ...]
) -> tuple[Any, ...]:
    """The result of a solution, and `info` where that is asked for."""
    if options.raises:
        solver.check(info, "A")
    if not solver.function.endswith("_ex"):
        solver.finish(result)
        return (result,)
    said = _said(info, solver, own)
    layout.spoil(result, said)
    solver.finish()
    return result, said
