"""PyTorch's own tensors through their own table of functions, said to be on a device."""

from pathlib import Path

import pytest
from programs import run

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
error[not-finite]: matmul: the result has NaN or infinity, which `ops.check_finite` refuses
torch.bfloat16 (2, 3) cpu
matmul: `a` must be an array on cuda:0, as `b` is
matmul: `a` must be an array on cuda:0, as `b` is
matmul: `a` cannot be read: Unknown device type meta for Dlpack
"""


@pytest.mark.torch
def test_tensors_of_pytorch_are_multiplied_through_their_own_table(device_file):
    exchange = device_file("libexchange.so")
    files = [device_file(f) for f in ("libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13")]
    assert run(PROGRAM, exchange, *files) == HELD


@pytest.mark.torch
def test_tensors_of_pytorch_are_convolved_through_their_own_table(device_file):
    program = PROGRAM.with_name("torch_convolution_on_device.py")
    files = [device_file(f) for f in ("libexchange.so", "libcuda.so.1", "libcudnn.so.9")]
    assert run(program, *files).splitlines() == [
        *(f"conv2d torch.{name}" for name in ("float32", "float64", "float16", "bfloat16")),
        *("channels last", "no copy of a slice", "every other column", "one image", "gradients"),
    ]
