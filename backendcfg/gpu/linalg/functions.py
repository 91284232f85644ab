"""The functions of `ops.linalg` on devices: each plans a call and says where its results will be.

A matrix by rows is its transpose by columns. So Hermitian matrices, and the right-hand sides of a
transposed system, are copied as they lie.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import SIZES
from backendcfg.gpu.linalg.vendors import (
    CHOLESKY,
    CHOLESKY_SOLVE,
    EIGH,
    LU,
    LU_SOLVE,
    QR,
    QR_VECTORS,
    REAL,
    SVD,
    Stack,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.gpu.linalg.plan import Values
    from backendcfg.gpu.linalg.solver import Options, Solver


def _own_lead(solver: Solver, matrix: str) -> tuple[int, ...]:
    """The stack of a factor: its own where all right-hand sides share one, else the call's."""
    own = solver.held[matrix].shape[:-2]
    # For no right-hand side at all nothing is factorised, and nothing can be singular.
    if math.prod(own) != 1 or own == solver.lead or solver.matrices == 0:
        return solver.lead
    solver.together = False  # pivots of one matrix are not repeated for a stack
    return ()


def _shared(stack: Stack, own: tuple[int, ...], solver: Solver) -> Stack:
    return stack if own == solver.lead else stack._replace(stride=0)


def _alone(solver: Solver, name: str, own: tuple[int, ...]) -> tuple[int, ...] | None:
    """The last two sizes of a matrix that all right-hand sides share; None if each has its own."""
    return None if own == solver.lead else solver.held[name].shape[-2:]


# Cholesky


def cholesky(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """The factor and `info`."""
    n, is_upper = solver.sizes[1], options.upper
    factor, info = solver.copied("A", n, n, by_columns=False), solver.info()
    # By columns it is the transpose, the conjugate of a Hermitian matrix, whose other triangle is
    # the one to read, and becomes the transpose of the factor.
    solver.put(CHOLESKY, factor, info, (n, n, 0), upper=not is_upper)
    solver.run()
    at = factor.at
    solver.plan.do(lambda values: own_library.keep_triangle(values[at], upper=is_upper))
    if options.raises:
        solver.check(info, "A")
    is_ex = solver.function == "cholesky_ex"
    solver.finish(*(() if is_ex else (factor,)))
    return (factor, info) if is_ex else (factor,)


def cholesky_solve(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """The solution by a factor."""
    _, n, k = solver.sizes
    own = _own_lead(solver, "L")
    factor, is_turned = _factor(solver, "L", n, own, transposed=not solver.is_complex)
    solution = solver.copied("B", n, k, by_columns=True)
    upper = options.upper != is_turned
    solver.put(CHOLESKY_SOLVE, factor, solver.scratch(), (n, n, k), upper=upper, b=solution)
    solver.run()
    result = solver.columns(solution)
    solver.finish(result)
    return (result,)


def cholesky_inverse(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """The inverse by a factor; its diagonal is checked first."""
    n = solver.sizes[1]
    solver.plan.do(_nonzero_diagonal(solver, n))
    factor, is_turned = _factor(solver, "L", n, solver.lead, transposed=not solver.is_complex)
    inverse = _identity(solver, n)
    upper = options.upper != is_turned
    solver.put(CHOLESKY_SOLVE, factor, solver.scratch(), (n, n, n), upper=upper, b=inverse)
    solver.run()
    result = solver.columns(inverse)
    solver.finish(result)
    return (result,)


def _nonzero_diagonal(solver: Solver, n: int) -> Callable[[Values], None]:
    operation, fail, at = solver.operation, solver.failing("L"), solver.places["L"]

    def look(values: Values) -> None:
        zeros = own_library.numbers(operation, own_library.zeros_on_diagonal(values[at]))
        if any(zeros):
            first = zeros.index(True)
            fail(first % n + 1, first // n)

    return look


def _identity(solver: Solver, n: int) -> Stack:
    made = solver.make((n, n))
    at = made.at
    solver.plan.do(lambda values: own_library.identity(values[at]))
    return made


def _factor(
    solver: Solver, name: str, n: int, own: tuple[int, ...], *, transposed: bool
) -> tuple[Stack, bool]:
    """A factor that is only read, where it lies or as a copy; and whether that is its transpose."""
    held = solver.held[name]
    size = SIZES[solver.element]
    stride = n * n * size
    packed = [math.prod(held.shape[d + 1 : -2]) * stride for d in range(len(held.shape) - 2)]
    in_order = own == held.shape[:-2] and list(held.byte_strides[:-2]) == packed
    if in_order or math.prod(held.shape[:-2]) == 1:
        there = Stack(solver.places[name], stride=0 if own == () != solver.lead else stride)
        if held.byte_strides[-2:] == (size, n * size) or n <= 1:
            return there, False
        if transposed and held.byte_strides[-2:] == (n * size, size):
            return there, True
    made = solver.make((n, n), lead=own)
    solver.copy(name, made, by_columns=True, of=_alone(solver, name, own))
    return _shared(made, own, solver), False


# LU


def lu_factor(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """Both factors in one matrix, pivots, and `info` for the function that ends in `_ex`."""
    m, n, _ = solver.sizes
    factors, info = solver.copied("A", m, n, by_columns=True), solver.info()
    pivots = solver.make((min(m, n),), solver.pivots)
    solver.put(LU, factors, info, (m, n, 0), pivots=pivots)
    solver.run()
    if options.raises:
        solver.check(info, "A")
    is_ex = solver.function == "lu_factor_ex"
    result = solver.columns(factors)
    said = _as_int32(solver, pivots, min(m, n))
    solver.finish(*(() if is_ex else (result,)))
    return (result, said, info) if is_ex else (result, said)


def _as_int32(solver: Solver, pivots: Stack, count: int) -> Stack:
    if solver.pivots == "int32":
        return pivots
    made = solver.make((count,), "int32")
    operation, source, target = solver.operation, pivots.at, made.at
    solver.plan.do(
        lambda values: own_library.copy_argument(
            operation, "pivots", values[target], values[source]
        )
    )
    return made


def lu(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """P, L and U."""
    m, n, _ = solver.sizes
    least, plan = min(m, n), solver.plan
    factors, info = solver.copied("A", m, n, by_columns=True), solver.info()
    pivots = solver.make((m,), solver.pivots)
    # A pivot that no step writes exchanges a row with itself.
    plan.do(lambda values: own_library.count_up(values[pivots.at]))
    # Solving with both factors the identity, transposed, leaves the exchanges alone: P.
    permutation, unit = _identity(solver, m), _identity(solver, m)
    solver.put(LU, factors, info, (m, n, 0), pivots=pivots)
    solver.put(
        LU_SOLVE, unit, solver.scratch(), (m, m, m), transpose="T", b=permutation, pivots=pivots
    )
    solver.run()

    def lower(values: Values) -> Any:
        part = own_library.triangle(values[factors.at][..., :least, :], upper=True, within=1)
        own_library.unit_diagonal(part)
        return own_library.transposed(part)

    def upper(values: Values) -> Any:
        part = values[factors.at][..., :, :least]
        return own_library.transposed(own_library.triangle(part, upper=False))

    results = solver.columns(permutation), plan.keep(lower), plan.keep(upper)
    solver.finish(*results)
    return results


def lu_solve(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """The solution by factors and pivots."""
    _, n, k = solver.sizes
    own = _own_lead(solver, "LU")
    factors, _ = _factor(solver, "LU", n, own, transposed=False)
    pivots = solver.make((n,), solver.pivots, own)
    solver.copy("pivots", pivots, by_columns=False, of=None if own == solver.lead else (n,))
    # Pivots are not checked on the host, and one outside the matrix would end the context.
    solver.plan.do(lambda values: own_library.clamp(values[pivots.at], n))
    solution = solver.copied("B", *_side(options, n, k), by_columns=options.left)
    # From the right the transposed system is solved; of the adjoint, the conjugate of that.
    conjugates = options.adjoint and not options.left and solver.is_complex
    transpose = ("C" if options.adjoint else "N") if options.left else "T"
    if options.adjoint and not options.left:
        transpose = "N"

    def conjugate(values: Values) -> None:
        own_library.conjugate(values[solution.at])

    if conjugates:
        solver.plan.do(conjugate)
    solver.put(
        LU_SOLVE,
        factors,
        solver.scratch(),
        (n, n, k),
        transpose=transpose,
        b=solution,
        pivots=_shared(pivots, own, solver),
    )
    solver.run()
    if conjugates:
        solver.plan.do(conjugate)
    result = solver.columns(solution) if options.left else solution
    solver.finish(result)
    return (result,)


def _side(options: Options, n: int, k: int) -> tuple[int, int]:
    return (n, k) if options.left else (k, n)


def solve(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """The solution, and `info` for the function that ends in `_ex`."""
    _, n, k = solver.sizes
    own = _own_lead(solver, "A")
    # From the right the transposed system is solved, by the factors of the matrix itself: `info` of
    # its transpose would be another.
    factors = solver.make((n, n), lead=own)
    solver.copy("A", factors, by_columns=True, of=_alone(solver, "A", own))
    info, pivots = solver.info(own), solver.hide((n,), solver.pivots, own)
    is_vector = solver.is_vector
    if is_vector:
        solution = solver.make((n,))
        solver.copy("B", solution, by_columns=False)
    else:
        solution = solver.copied("B", *_side(options, n, k), by_columns=options.left)
    solver.put(LU, factors, info, (n, n, 0), lead=own, pivots=pivots)
    factors, pivots = _shared(factors, own, solver), _shared(pivots, own, solver)
    solver.put(
        LU_SOLVE,
        factors,
        solver.scratch(),
        (n, n, k),
        transpose="N" if options.left else "T",
        b=solution,
        pivots=pivots,
    )
    solver.run()
    is_turned = options.left and not is_vector
    result = solver.columns(solution) if is_turned else solution
    return _answered(solver, options, result, info, own)


def inv(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """The inverse, and `info` for the function that ends in `_ex`."""
    n = solver.sizes[1]
    factors, info = solver.copied("A", n, n, by_columns=True), solver.info()
    pivots = solver.hide((n,), solver.pivots)
    inverse = _identity(solver, n)
    solver.put(LU, factors, info, (n, n, 0), pivots=pivots)
    # The matrix itself is factorised: `info` of its transpose would be another. The inverse of the
    # transpose by columns is the inverse by rows.
    solver.put(
        LU_SOLVE, factors, solver.scratch(), (n, n, n), transpose="T", b=inverse, pivots=pivots
    )
    solver.run()
    return _answered(solver, options, inverse, info, solver.lead)


def _answered(
    solver: Solver, options: Options, result: Stack, info: Stack, own: tuple[int, ...]
) -> tuple[Stack, ...]:
    """The result of a solution, and `info` where that is asked for."""
    if options.raises:
        solver.check(info, "A")
    if not solver.function.endswith("_ex"):
        solver.finish(result)
        return (result,)
    said = _said(solver, info, own)
    solver.plan.do(lambda values: own_library.spoil(values[result.at], values[said.at]))
    solver.finish()
    return result, said


def _said(solver: Solver, info: Stack, own: tuple[int, ...]) -> Stack:
    """`info` in the shape of the stack, where one matrix may serve all right-hand sides."""
    if own == solver.lead:
        return info
    made, operation = solver.info(), solver.operation
    solver.plan.do(
        lambda values: own_library.copy_argument(
            operation, "info", values[made.at], values[info.at]
        )
    )
    return made


# QR, eigenvalues and singular values


def qr(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """Q and R; an empty array for Q under mode "r"."""
    (m, n, _), plan = solver.sizes, solver.plan
    least = min(m, n)
    inner = m if options.mode == "complete" else least
    work, tau = solver.copied("A", m, n, by_columns=True), solver.make((least,))
    solver.put(QR, work, solver.scratch(), (m, n, 0), values=tau)
    solver.run()
    at = work.at

    def triangle(values: Values) -> Any:
        return own_library.transposed(own_library.triangle(values[at][..., :, :inner], upper=False))

    upper = plan.keep(triangle)
    if options.mode == "r":
        empty = plan.make((0,), solver.element, 0)
        solver.finish(upper)
        return empty, upper
    vectors = work
    if inner != n:
        vectors, operation = solver.make((inner, m)), solver.operation
        into = vectors.at

        def begin(values: Values) -> None:
            target, source = values[into][..., :least, :], values[at][..., :least, :]
            own_library.copy_argument(operation, "A", target, source)

        plan.do(begin)
    if least == 0:
        plan.do(lambda values: own_library.identity(values[vectors.at]))
    else:
        solver.put(QR_VECTORS, vectors, solver.scratch(), (m, inner, least), values=tau)
        solver.run()
    result = solver.columns(vectors)
    solver.finish(result, upper)
    return result, upper


def eigh(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """Eigenvalues, ascending, and eigenvectors, which `eigvalsh` leaves out."""
    n = solver.sizes[1]
    # A real matrix is its own transpose; of a Hermitian one the vectors would be conjugates.
    turns = solver.is_complex
    work, info = solver.copied("A", n, n, by_columns=turns), solver.info()
    values = solver.make((n,), REAL[solver.element])
    vectors = "S" if solver.function == "eigh" else "N"
    upper = options.upper if turns else not options.upper
    solver.put(EIGH, work, info, (n, n, 0), upper=upper, vectors=vectors, values=values)
    solver.run()
    solver.check(info, "A")
    solver.check_sound(values, "A")
    results = (values, solver.columns(work)) if vectors == "S" else (values,)
    solver.finish(*results)
    return results


def svd(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """U, S and V^H; S alone for `svdvals`."""
    m, n, _ = solver.sizes
    # Of a matrix with more columns than rows the transpose is decomposed: it lies by columns.
    is_tall = m >= n
    tall, least = max(m, n), min(m, n)
    work, info = solver.copied("A", m, n, by_columns=is_tall), solver.info()
    values = solver.make((least,), REAL[solver.element])
    results: tuple[Stack, ...] = (values,)
    if solver.function == "svdvals":
        solver.put(SVD, work, info, (tall, least, 0), values=values)
        solver.run()
    else:
        count = tall if options.full_matrices else least
        left, right = solver.make((count, tall)), solver.make((least, least))
        if least == 0:
            solver.plan.do(lambda made: own_library.identity(made[left.at]))
        vectors = "A" if options.full_matrices else "S"
        solver.put(
            SVD, work, info, (tall, least, 0), vectors=vectors, b=left, c=right, values=values
        )
        solver.run()
        turned = (solver.columns(left), solver.columns(right)) if is_tall else (right, left)
        results = (turned[0], values, turned[1])
    solver.check(info, "A")
    solver.check_sound(values, "A")
    solver.finish(*results)
    return results
