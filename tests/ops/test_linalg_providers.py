"""Every library with LAPACK that is here serves linear algebra, in either width of integers."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import sys
name = sys.argv[1]
if name == "mkl" and sys.argv[2] == "torch":
    import torch  # or its own MKL would bind to the one that is opened
import numpy as np
import backendcfg
from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.ops import linalg
from backendcfg.transact.compiled import Compiled

libraries = tuple(library.model_dump() for library in backendcfg.detect().libraries)
if name not in {library["provider"] for library in libraries}:
    print("absent")
    sys.exit()
compiled = Compiled(name, "none", {}, order=(name,), libraries=libraries)
random = np.random.default_rng(0)
with Scope(Prepared(name, compiled), 0):
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for n in (3, 30, 70):
            a = random.standard_normal((2, n, n)) + 1j * random.standard_normal((2, n, n))
            a = (a if dtype[0] == "c" else a.real).astype(dtype)
            turned = np.conj(np.swapaxes(a, -1, -2))
            h = a @ turned + n * np.eye(n, dtype=dtype)
            limit = dict(rtol=0, atol=3e4 * n * np.finfo(dtype).eps)
            np.testing.assert_allclose(linalg.inv(h) @ h, np.broadcast_to(np.eye(n), h.shape), **limit)
            np.testing.assert_allclose(h @ linalg.solve(h, a), a, **limit)
            lu, pivots = linalg.lu_factor(h)
            np.testing.assert_allclose(h @ linalg.lu_solve(lu, pivots, a), a, **limit)
            factor = linalg.cholesky(h)
            np.testing.assert_allclose(factor @ np.conj(np.swapaxes(factor, -1, -2)), h, **limit)
            np.testing.assert_allclose(h @ linalg.cholesky_solve(a, factor), a, **limit)
            np.testing.assert_allclose(linalg.cholesky_inverse(factor), linalg.inv(h), **limit)
            q, r = linalg.qr(a)
            np.testing.assert_allclose(q @ r, a, **limit)
            values, vectors = linalg.eigh(h)
            np.testing.assert_allclose(vectors * values[:, None, :], h @ vectors, **limit)
            np.testing.assert_allclose(linalg.eigvalsh(h), values, **limit)
            u, s, vh = linalg.svd(a)
            np.testing.assert_allclose(u * s[:, None, :] @ vh, a, **limit)
            np.testing.assert_allclose(linalg.svdvals(a), s, **limit)
            assert np.array_equal(linalg.inv(h)[1], linalg.inv(h[1]))
    assert {r.provider for r in ops.stats().operations} == {name}
print("served")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scipy-openblas", "mkl"])
def test_it_serves_alone(name):
    torch = "torch" if find_spec("torch") else "none"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, torch], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    if done.stdout == "absent\n":
        pytest.skip(f"{name} is not installed")
    assert done.stdout == "served\n"
