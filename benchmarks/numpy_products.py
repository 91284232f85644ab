"""NumPy's matmul: by its own BLAS, and routed to our kernels.

    python benchmarks/numpy_products.py [--quick]

In turns, each in a process of its own: in one, threads of both libraries would wait for work on the
same cores. What the processes call is the same.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from measure import Row, clean_environment, emit, nanoseconds, options, side_by_side

SHAPES = (
    *(((n, n), (n, n)) for n in (16, 64, 128, 150, 200, 256, 300, 512, 1000, 1024, 2048)),
    ((1000, 16, 16), (1000, 16, 16)),
    ((100, 64, 64), (100, 64, 64)),
    ((64, 784), (784, 256)),
    ((20000, 50), (50, 3)),
    ((32, 20000), (20000, 32)),
    ((4, 1000), (1000, 1000)),
    ((1, 4096), (4096, 4096)),
    ((8, 4096), (4096, 4096)),
    ((24, 4096), (4096, 4096)),
)
HALF = (((8, 8), (8, 8)), ((128, 128), (128, 128)), ((300, 1000), (1000, 1)))


def rows(*, quick: bool) -> list[Row]:
    """A row for each type and pair of shapes."""
    taken: dict[str, list[dict[str, float]]] = {"native": [], "keep": []}
    for _ in range(2 if quick else 5):
        for route, found in taken.items():
            command = [sys.executable, __file__, f"--route={route}", *["--quick"][:quick]]
            done = subprocess.run(
                command, env=clean_environment(), check=True, stdout=subprocess.PIPE
            )
            found.append(json.loads(done.stdout))
    result = []
    for what in taken["keep"][0]:
        ours, theirs = (
            statistics.median(one[what] for one in taken[route]) for route in ("native", "keep")
        )
        ratio = f"{theirs / ours:.2f} of its speed"
        result.append(Row(what, nanoseconds(ours), f"{nanoseconds(theirs)} by NumPy", ratio))
    return result


def seconds(route: str, *, quick: bool) -> dict[str, float]:
    """The seconds of each product in this process."""
    import numpy as np

    from backendcfg import _native

    random = np.random.default_rng(0)
    found = {}
    for dtype, pairs in (("float32", SHAPES), ("float64", SHAPES), ("float16", HALF)):
        if route == "native":
            _native.numpy_matmul(dtype, True)
        for pair in pairs:
            a, b = (random.standard_normal(shape).astype(dtype) for shape in pair)
            what = " by ".join(" x ".join(map(str, shape)) for shape in pair)
            taken = side_by_side({"it": "a @ b"}, {"a": a, "b": b}, rounds=9 if quick else 31)
            found[f"{what}, {dtype}"] = taken["it"]
    return found


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--route", choices=("native", "keep"), help="its seconds alone")
    asked = parser.parse_args()
    if asked.route:
        print(json.dumps(seconds(asked.route, quick=asked.quick)))
    else:
        emit(rows(quick=asked.quick))
