"""NumPy's element-wise functions, and sums: on one thread, and on all of them.

    python benchmarks/numpy_elementwise.py [--quick]

In turns, in one process: the threads sleep while NumPy computes alone. Results go into an array
that is there.
"""

from __future__ import annotations

import statistics

import numpy as np
from measure import Row, emit, nanoseconds, options, side_by_side

from backendcfg import _native

CASES = {
    "add": "np.add(x, y, out)",
    "less": "np.less(x, y, flags)",
    "sqrt": "np.sqrt(x, out)",
    "exp": "np.exp(x, out)",
    "sin": "np.sin(x, out)",
    "power": "np.power(x, y, out)",
    "sum": "np.add.reduce(x)",
}
COUNTS = (1_000, 60_000, 150_000, 1_000_000, 10_000_000)


def rows(*, quick: bool) -> list[Row]:
    """A row for each function, type and size."""
    random = np.random.default_rng(0)
    result = []
    for dtype in ("float32", "float64"):
        for count in COUNTS:
            x, y, out = (random.random(count).astype(dtype) + 0.5 for _ in range(3))  # type: ignore[operator]
            names = {"np": np, "x": x, "y": y, "out": out, "flags": np.empty(count, bool)}
            for name, call in CASES.items():
                taken: dict[bool, list[float]] = {True: [], False: []}
                for _ in range(3 if quick else 7):
                    for shared, found in taken.items():
                        _native.numpy_elementwise(shared)
                        rounds = 5 if quick else 15
                        found.append(side_by_side({"it": call}, names, rounds=rounds)["it"])
                ours, theirs = (statistics.median(taken[shared]) for shared in (True, False))
                ratio = f"{theirs / ours:.2f} of its speed"
                what = f"{name}, {count:,} of {dtype}"
                result.append(
                    Row(what, nanoseconds(ours), f"{nanoseconds(theirs)} by NumPy", ratio)
                )
    return result


if __name__ == "__main__":
    emit(rows(quick=options(__doc__).parse_args().quick))
