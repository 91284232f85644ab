"""Tensors of PyTorch, compressed and multiplied through their own table of functions."""

from pathlib import Path

import pytest
from programs import run

PROGRAM = Path(__file__).with_name("torch_sparse_on_device.py")
HELD = """\
torch.float16
torch.float16 by columns
torch.bfloat16
torch.bfloat16 by columns
torch.int8
torch.int8 by columns
a weight with gradients and a bias
Compressed(shape=(32, 64), dtype='float16', device='cuda:0') torch.uint8
SparseAlgorithm(number=3, split_k=1, split_k_mode=0, most=5)
"""


@pytest.mark.torch
@pytest.mark.parametrize("definitions", [(), ("VERSION=701",)], ids=["0.10", "0.7"])
def test_tensors_of_pytorch_are_multiplied_through_their_own_table(device_file, definitions):
    files = [device_file(f) for f in ("libexchange.so", "libcuda.so.1")]
    files.append(device_file("libcusparseLt.so.0", *definitions))
    assert run(PROGRAM, *files) == HELD
