"""What is decomposed on devices: QR, eigenvalues and singular values. Each gives a tuple."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.dispatch.device_linalg import EIGH, QR, QR_VECTORS, REAL, SVD
from backendcfg.ops import device_layout as layout

if TYPE_CHECKING:
    from backendcfg.ops.device_options import Options
    from backendcfg.ops.device_solver import Solver


def qr(solver: Solver, options: Options) -> tuple[Any, ...]:
    """Q and R; an empty array for Q under mode "r"."""
    m, n, _ = solver.sizes
    least = min(m, n)
    inner = m if options.mode == "complete" else least
    work, tau = solver.copied("A", m, n, by_columns=True), solver.make((least,))
    solver.run(QR, work, solver.scratch(), (m, n, 0), values=tau)
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
        solver.run(QR_VECTORS, vectors, solver.scratch(), (m, inner, least), values=tau)
    solver.finish(vectors.columns, upper)
    return vectors.columns, upper


def eigh(solver: Solver, options: Options) -> tuple[Any, ...]:
    """Eigenvalues, ascending, and eigenvectors, which `eigvalsh` has no use for."""
    n = solver.sizes[1]
    # A real matrix is its own transpose; of a Hermitian one the vectors would be conjugates.
    turns = solver.is_complex
    work, info = solver.copied("A", n, n, by_columns=turns), solver.info()
    values = solver.make((n,), REAL[solver.element])
    vectors = "S" if solver.function == "eigh" else "N"
    upper = options.upper if turns else not options.upper
    solver.run(EIGH, work, info, (n, n, 0), upper=upper, vectors=vectors, values=values)
    solver.check(info, "A")
    solver.check_sound(values, "A")
    solver.finish(values.value, *((work.columns,) if vectors == "S" else ()))
    return values.value, work.columns


def svd(solver: Solver, options: Options) -> tuple[Any, ...]:
    """U, S and V^H; S alone for `svdvals`."""
    m, n, _ = solver.sizes
    # Of a matrix with more columns than rows the transpose is decomposed: it lies by columns.
    is_tall = m >= n
    tall, least = max(m, n), min(m, n)
    work, info = solver.copied("A", m, n, by_columns=is_tall), solver.info()
    values = solver.make((least,), REAL[solver.element])
    if solver.function == "svdvals":
        solver.run(SVD, work, info, (tall, least, 0), values=values)
        results: tuple[Any, ...] = (values.value,)
    else:
        count = tall if options.full_matrices else least
        left, right = solver.make((count, tall)), solver.make((least, least))
        if least == 0:
            layout.identity(left.value)
        vectors = "A" if options.full_matrices else "S"
        solver.run(
            SVD, work, info, (tall, least, 0), vectors=vectors, b=left, c=right, values=values
        )
        u, vh = (left.columns, right.columns) if is_tall else (right.value, left.value)
        results = (u, values.value, vh)
    solver.check(info, "A")
    solver.check_sound(values, "A")
    solver.finish(*results)
    return results
