"""PyTorch's own tensors through their own table of functions, said to be on a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("torch_on_device.py")
HELD = """\
matmul torch.float32
matmul torch.float64
matmul torch.complex64
matmul torch.float16
matmul torch.bfloat16
bmm
transposed
every other
expanded
addmm with gradients
parameter
bias with gradients
conjugate
negative
out of every other
out of a conjugate
out of a negative
out of a conjugate's base
empty
nothing inside
ij,jk,kl->il
bi,bi->b
iji->j
...ij,...jk->...ki
error[invalid-argument]: matmul: the result has NaN or infinity, which `ops.check_finite` refuses
torch.bfloat16 (2, 3) cpu
matmul: `a` must be an array on cuda:0, as `b` is
matmul: `a` must be an array on cuda:0, as `b` is
matmul: `a` cannot be read: Unknown device type meta for Dlpack
"""


@pytest.mark.torch
def test_tensors_of_pytorch_are_multiplied_through_their_own_table(device_file):
    exchange = device_file("libexchange.so")
    files = [device_file(f) for f in ("libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), exchange, *files],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == HELD
