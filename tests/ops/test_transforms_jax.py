"""conv2d, einsum and fft over JAX's arrays, in a process that has it."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.jax,
    pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed"),
]

PROGRAM = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
import numpy as np
from backendcfg import ops

def close(got, wanted, limit=1e-5):
    assert isinstance(got, jax.Array) and got.dtype == wanted.dtype, (type(got), got.dtype)
    got, wanted = (np.asarray(x.astype(jnp.complex64)) for x in (got, wanted))
    assert got.shape == wanted.shape and np.allclose(got, wanted, limit, limit * abs(wanted).max())

keys = jax.random.split(jax.random.key(0), 4)
x, w = jax.random.normal(keys[0], (2, 4, 9, 9)), jax.random.normal(keys[1], (6, 4, 3, 3))
for dtype, limit in ((jnp.float32, 1e-5), (jnp.bfloat16, 2e-2)):
    a, b = x.astype(dtype), w.astype(dtype)
    wanted = jax.lax.conv(a.astype("float32"), b.astype("float32"), (2, 2), "VALID")
    close(ops.conv2d(a, b, stride=2), wanted.astype(dtype), limit)
a, b = jax.random.normal(keys[2], (3, 4)), jax.random.normal(keys[3], (4, 5))
close(ops.einsum("ij,jk->ki", a, b), jnp.einsum("ij,jk->ki", a, b))
close(ops.einsum("ij->", a), a.sum())
close(ops.fft.rfft(a), jnp.fft.rfft(a))
close(ops.fft.fft2(a), jnp.fft.fft2(a))
close(ops.fft.fft(jnp.arange(5)), jnp.fft.fft(jnp.arange(5)))
print("done")
"""


def test_arrays_of_jax_come_back_as_they_came():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
