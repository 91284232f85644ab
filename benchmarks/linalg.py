"""`ops.linalg` against SciPy, PyTorch and NumPy.

    python benchmarks/linalg.py [--quick]
    python benchmarks/linalg.py --alone LIBRARY THREADS [--quick]    # its seconds, as JSON

With one thread all are measured in turns in one process. With two, each has a process of its own:
two pools of threads in one process wake each other, and then both are many times slower. Compared
is the faster of SciPy and PyTorch; stacks of matrices are compared with the faster of NumPy and
PyTorch, as SciPy loops over them in Python.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

from measure import Row, clean_environment, emit, nanoseconds, options, side_by_side

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
DTYPES = ("float64", "float32")
LIBRARIES = ("ours", "scipy", "torch")
THREADS = 2
NOISE = 1.05
"""A single ratio above this is listed as a loss."""

STATEMENTS = {
    "inv": ("L.inv(a)", "S.inv(a)", "T.inv(ta)"),
    "solve": ("L.solve(a, b)", "S.solve(a, b)", "T.solve(ta, tb)"),
    "lu_factor": ("L.lu_factor(a)", "S.lu_factor(a)", "T.lu_factor(ta)"),
    "cholesky": ("L.cholesky(h)", "S.cholesky(h, lower=True)", "T.cholesky(th)"),
    "cholesky_solve": (
        "L.cholesky_solve(b, l)",
        "S.cho_solve((l, True), b)",
        "torch.cholesky_solve(tb, tl)",
    ),
    "qr": ("L.qr(a)", "S.qr(a, mode='economic')", "T.qr(ta)"),
    "eigh": ("L.eigh(h)", "S.eigh(h)", "T.eigh(th)"),
    "eigvalsh": ("L.eigvalsh(h)", "S.eigvalsh(h)", "T.eigvalsh(th)"),
    "svd": ("L.svd(a)", "S.svd(a)", "T.svd(ta)"),
    "svdvals": ("L.svdvals(a)", "S.svdvals(a)", "T.svdvals(ta)"),
}
"""By operation: ours, SciPy's, PyTorch's."""

STACKS = ((10_000, 4), (2_000, 16), (200, 48), (50, 128))
STACKED = {
    "inv": ("L.inv(a)", "N.inv(a)", "T.inv(ta)"),
    "solve": ("L.solve(a, b)", "N.solve(a, b)", "T.solve(ta, tb)"),
    "cholesky": ("L.cholesky(h)", "N.cholesky(h)", "T.cholesky(th)"),
    "eigh": ("L.eigh(h)", "N.eigh(h)", "T.eigh(th)"),
    "svd": ("L.svd(a)", "N.svd(a)", "T.svd(ta)"),
}


def operands(shape: tuple[int, ...], dtype: str, libraries: tuple[str, ...]) -> dict[str, object]:
    """A matrix, a positive-definite one, its factor and right sides, for those libraries."""
    import numpy as np

    random, n = np.random.default_rng(0), shape[-1]
    a = random.standard_normal(shape).astype(dtype)
    h = (a @ np.swapaxes(a, -1, -2) + n * np.eye(n)).astype(dtype)
    b = random.standard_normal((*shape[:-1], max(1, n // 4))).astype(dtype)
    names: dict[str, object] = {"a": a, "h": h, "b": b, "l": np.linalg.cholesky(h)}
    if "ours" in libraries:
        from backendcfg.ops import linalg

        names["L"] = linalg
    if "numpy" in libraries:
        names["N"] = np.linalg
    if "scipy" in libraries:
        import scipy.linalg

        names["S"] = scipy.linalg
    if "torch" in libraries:
        import torch

        names |= {"torch": torch, "T": torch.linalg}
        names |= {f"t{name}": torch.from_numpy(names[name]) for name in ("a", "h", "b", "l")}
    return names


def limit(threads: int, libraries: tuple[str, ...]) -> None:
    """Let every library that is loaded use so many threads."""
    import threadpoolctl

    if "torch" in libraries:
        import torch

        torch.set_num_threads(threads)
    threadpoolctl.threadpool_limits(threads)


def rounds(n: int, *, quick: bool) -> int:
    """How many turns are worth their time."""
    return 3 if n >= 1024 else 5 if quick or n >= 256 else 15


def singles(libraries: tuple[str, ...], *, quick: bool) -> dict[str, dict[str, float]]:
    """Seconds by "dtype operation n" and library, measured in turns."""
    took = {}
    for dtype in DTYPES[: 1 if quick else None]:
        for n in SIZES[: 6 if quick else None]:
            names = operands((n, n), dtype, libraries)
            for operation, all_statements in STATEMENTS.items():
                by_library = dict(zip(LIBRARIES, all_statements, strict=True))
                statements = {name: by_library[name] for name in libraries}
                took[f"{dtype} {operation} {n}"] = side_by_side(
                    statements, names, rounds=rounds(n, quick=quick), turn=0.002
                )
    return took


def alone(library: str, threads: int, *, quick: bool) -> dict[str, float]:
    """Seconds of one library in this process."""
    operands((2, 2), "float64", (library,))  # loads it
    limit(threads, (library,))
    return {case: by[library] for case, by in singles((library,), quick=quick).items()}


def each_alone(threads: int, *, quick: bool) -> dict[str, dict[str, float]]:
    """The same as `singles`, each library in a process of its own."""
    took: dict[str, dict[str, float]] = {}
    for library in LIBRARIES:
        command = [sys.executable, os.path.abspath(__file__), "--alone", library, str(threads)]
        done = subprocess.run(
            [*command, *(["--quick"] if quick else [])],
            env=clean_environment(),
            check=True,
            capture_output=True,
            text=True,
        )
        for case, seconds in json.loads(done.stdout).items():
            took.setdefault(case, {})[library] = seconds
    return took


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def compared(took: dict[str, dict[str, float]], threads: str) -> list[Row]:
    """The geometric mean, that of each operation, and every single loss."""
    ratios: dict[str, float] = {}
    losses = []
    for case, by in took.items():
        best = min(("scipy", "torch"), key=by.__getitem__)
        ratios[case] = by["ours"] / by[best]
        if ratios[case] > NOISE:
            dtype, operation, n = case.split()
            what = f"loss: {operation}, {dtype}, n = {n}, {threads}"
            theirs = f"{nanoseconds(by[best])} by {best}"
            losses.append(Row(what, nanoseconds(by["ours"]), theirs, f"{ratios[case]:.2f}"))
    whole = mean(list(ratios.values()))
    sizes = sorted({int(case.split()[2]) for case in took})
    what = f"all operations, n = {sizes[0]} to {sizes[-1]}, {threads}: geometric mean"
    against = "the faster of SciPy and PyTorch"
    rows = [Row(what, f"{whole:.2f} of the time", against, f"{whole:.2f}", "<= 1.0", whole <= 1)]
    for operation in STATEMENTS:
        one = mean([r for case, r in ratios.items() if case.split()[1] == operation])
        rows.append(Row(f"{operation}, {threads}", f"{one:.2f} of the time", against, f"{one:.2f}"))
    return rows + losses


def stacks(*, quick: bool) -> list[Row]:
    """Stacks of matrices, all in one process with one thread."""
    rows, libraries = [], ("ours", "numpy", "torch")
    for count, n in STACKS:
        names = operands((count // (10 if quick else 1), n, n), "float64", libraries)
        for operation, statements in STACKED.items():
            by = side_by_side(
                dict(zip(libraries, statements, strict=True)), names, rounds=3 if quick else 7
            )
            best = min(("numpy", "torch"), key=by.__getitem__)
            ratio = by["ours"] / by[best]
            rows.append(
                Row(
                    f"{operation} of a stack of {len(names['a'])}, n = {n}, 1 thread",
                    nanoseconds(by["ours"]),
                    f"{nanoseconds(by[best])} by {best}",
                    f"{ratio:.2f}",
                    "< 1.0" if n <= 16 else "",
                    ratio < 1 if n <= 16 else None,
                )
            )
    return rows


def main() -> int:
    """All rows, or one library's seconds."""
    parser = options(__doc__)
    parser.add_argument(
        "--alone", nargs=2, metavar=("LIBRARY", "THREADS"), help="one library's seconds"
    )
    asked = parser.parse_args()
    quick = asked.quick
    if asked.alone:
        library, threads = asked.alone
        json.dump(alone(library, int(threads), quick=quick), sys.stdout)
        return 0
    operands((2, 2), "float64", (*LIBRARIES, "numpy"))  # loads them all
    limit(1, LIBRARIES)
    rows = [*stacks(quick=quick), *compared(singles(LIBRARIES, quick=quick), "1 thread")]
    rows += compared(each_alone(THREADS, quick=quick), f"{THREADS} threads")
    emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
