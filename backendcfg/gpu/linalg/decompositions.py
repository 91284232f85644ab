"""What is decomposed on devices: QR, eigenvalues and singular values.

Each plans a kind of call and gives where its results will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.gpu import layout
from backendcfg.gpu.linalg.steps import EIGH, QR, QR_VECTORS, REAL, SVD

if TYPE_CHECKING:
    from backendcfg.gpu.linalg.options import Options
    from backendcfg.gpu.linalg.plan import Stack, Values
    from backendcfg.gpu.linalg.solver import Solver


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
        return layout.columns(layout.triangle(values[at][..., :, :inner], upper=False))

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
            layout.copy(operation, "A", target, source)

        plan.do(begin)
    if least == 0:
        plan.do(lambda values: layout.identity(values[vectors.at]))
    else:
        solver.put(QR_VECTORS, vectors, solver.scratch(), (m, inner, least), values=tau)
        solver.run()
    result = solver.columns(vectors)
    solver.finish(result, upper)
    return result, upper


def eigh(solver: Solver, options: Options) -> tuple[Stack, ...]:
    """Eigenvalues, ascending, and eigenvectors, which `eigvalsh` has no use for."""
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
            solver.plan.do(lambda made: layout.identity(made[left.at]))
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
