"""`ops.matmul` against `np.matmul`, and every provider alone.

    python benchmarks/matmul.py [--quick]
    python benchmarks/matmul.py --alone PROVIDER    # one provider's times, as JSON

Each provider is measured in a process of its own, in which nobody else computes: two libraries that
take turns wake each other's threads, and then both are many times slower.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from measure import Row, clean_environment, emit, nanoseconds, options, side_by_side

if TYPE_CHECKING:
    from backendcfg._native import Scope

SIZES = (4, 16, 64, 256, 512, 1024, 2048)
DTYPES = ("float32", "float64")
PROVIDERS = ("openblas", "scipy-openblas", "mkl", "blis", "native", "reference")
COMPILED_IN = ("native", "reference")


def operands(n: int, dtype: str) -> dict[str, object]:
    """Two factors and a result, n by n."""
    import numpy as np

    random = np.random.default_rng(0)
    a, b = (random.standard_normal((n, n)).astype(dtype) for _ in range(2))
    return {"a": a, "b": b, "c": np.empty_like(a)}


def rate(n: int, seconds: float) -> str:
    """A time, and from n = 64 on also 2 n**3 operations over it."""
    return nanoseconds(seconds) + (f" ({2 * n**3 / seconds / 1e9:.0f} GF/s)" if n >= 64 else "")


def rounds(n: int, *, quick: bool) -> int:
    """How many turns are worth their time."""
    return 3 if quick and n > 1000 else 7 if quick or n > 1000 else 21


def direct(dtype: str, names: dict[str, object]) -> str | None:
    """A statement that calls NumPy's OpenBLAS as a C program would; None if it has none."""
    from backendcfg.probe.loaded import libraries_in_process

    mine = [x for x in libraries_in_process() if x.provider == "openblas"]
    if not mine:
        return None
    letter, scalar, integer = (
        "s" if dtype == "float32" else "d",
        ctypes.c_float if dtype == "float32" else ctypes.c_double,
        ctypes.c_int64 if mine[0].interface == "ilp64" else ctypes.c_int32,
    )
    function = ctypes.CDLL(mine[0].path)[f"{mine[0].prefix}cblas_{letter}gemm{mine[0].suffix}"]
    function.restype = None
    n, pointers = len(names["a"]), [names[x].ctypes.data for x in "abc"]
    a, b, c = map(ctypes.c_void_p, pointers)
    size = integer(n)
    call = (101, 111, 111, size, size, size, scalar(1), a, size, b, size, scalar(0), c, size)
    names.update(function=function, call=call)
    return "function(*call)"


def against_numpy(*, quick: bool) -> list[Row]:
    """One row for each size and type; the targets hold for 4 and from 256 on."""
    import numpy as np

    from backendcfg import ops

    rows, alone = [], []
    for dtype in DTYPES:
        for n in SIZES:
            names = {"ops": ops, "np": np, **operands(n, dtype)}
            statements = {"ours": "ops.matmul(a, b, c)", "numpy": "np.matmul(a, b, out=c)"}
            if n >= 256 and (statement := direct(dtype, names)):
                statements["direct"] = statement
            took = side_by_side(statements, names, rounds=rounds(n, quick=quick))
            rows.append(_beside_numpy(n, dtype, took["ours"], took["numpy"]))
            if "direct" in took:
                speed = took["direct"] / took["ours"]
                alone.append(
                    Row(
                        f"{dtype}, n = {n}",
                        rate(n, took["ours"]),
                        f"{rate(n, took['direct'])} by cblas_gemm alone",
                        f"{speed:.2f} of its speed",
                        ">= 0.97",
                        speed >= 0.97,
                    )
                )
    return rows + alone


def _beside_numpy(n: int, dtype: str, ours: float, theirs: float) -> Row:
    target, met = "", None
    ratio = f"{ours / theirs:.2f} of its time"
    if n == 4:
        target, met = "<= 0.5", ours <= 0.5 * theirs
    elif n >= 256:
        # Both run the same kernel; less than one percent is what turns differ by.
        target, met = ">= 1.0 of the speed", theirs / ours >= 0.99
        ratio = f"{theirs / ours:.2f} of its speed"
    where = f"{dtype}, n = {n}"
    return Row(where, rate(n, ours), f"{rate(n, theirs)} by `np.matmul`", ratio, target, met)


def scope_of(provider: str) -> Scope | None:
    """A scope in which one provider serves, or None when it is not here."""
    import backendcfg
    from backendcfg._native import Prepared, Scope
    from backendcfg.transact.compiled import Compiled

    libraries = tuple(library.model_dump() for library in backendcfg.detect().libraries)
    if provider not in COMPILED_IN and provider not in {x["provider"] for x in libraries}:
        return None
    compiled = Compiled(provider, "none", {}, order=(provider,), libraries=libraries)
    return Scope(Prepared(provider, compiled), 0)


def alone(provider: str, *, quick: bool) -> dict[str, float]:
    """Seconds by "dtype n"; empty when the provider is not here."""
    from importlib.util import find_spec

    if provider == "mkl" and find_spec("torch"):
        import torch  # noqa: F401 - or its MKL would bind to the one that is measured
    from backendcfg import ops

    scope, took = scope_of(provider), {}
    for dtype in DTYPES if scope else ():
        for n in SIZES:
            if provider == "reference" and n > 512:
                continue  # seconds each, and nothing new
            names = {"ops": ops, **operands(n, dtype)}
            with scope:
                statement = {"it": "ops.matmul(a, b, c)"}
                result = side_by_side(statement, names, rounds=rounds(n, quick=quick))
            took[f"{dtype} {n}"] = result["it"]
    return took


def providers_alone(*, quick: bool) -> list[Row]:
    """One row for each provider and size, in processes of their own."""
    rows, first = [], {}
    for provider in PROVIDERS:
        command = [sys.executable, os.path.abspath(__file__), "--alone", provider]
        done = subprocess.run(
            [*command, *(["--quick"] if quick else [])],
            env=clean_environment(),
            check=True,
            capture_output=True,
            text=True,
        )
        took = json.loads(done.stdout)
        first = first or took
        if not took:
            rows.append(Row(f"{provider} alone", "not installed"))
        for case, seconds in took.items():
            dtype, n = case.split()
            speed, aims = first[case] / seconds, provider == "native" and int(n) >= 256
            rows.append(
                Row(
                    f"{provider} alone, {dtype}, n = {n}",
                    rate(int(n), seconds),
                    ratio=f"{speed:.2f} of openblas's speed",
                    target=">= 0.7" if aims else "",
                    met=speed >= 0.7 if aims else None,
                )
            )
    return rows


def main() -> int:
    """All rows, or one provider's times."""
    parser = options(__doc__)
    parser.add_argument("--alone", metavar="PROVIDER", help="one provider's times")
    asked = parser.parse_args()
    quick = asked.quick
    if asked.alone:
        json.dump(alone(asked.alone, quick=quick), sys.stdout)
    else:
        emit([*against_numpy(quick=quick), *providers_alone(quick=quick)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
