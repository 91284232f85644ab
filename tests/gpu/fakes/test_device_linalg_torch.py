"""Linear algebra of PyTorch's own tensors, said to be on a device, by what their own methods do."""

from pathlib import Path

import pytest
from programs import run

PROGRAM = Path(__file__).with_name("torch_linalg_on_device.py")
FUNCTIONS = (
    "cholesky cholesky_ex cholesky_solve cholesky_inverse inv inv_ex solve vector right shared "
    "solve_ex lu_factor lu_factor_ex lu lu_solve lu_solve lu_solve lu_solve qr complete r "
    "eigvalsh eigh svdvals"
)
HELD = f"""\
torch.float32 {FUNCTIONS}
gradients
torch.float64 {FUNCTIONS}
gradients
torch.complex64 {FUNCTIONS}
gradients
conjugate
factor
torch.complex128 {FUNCTIONS}
gradients
conjugate
factor
[1, 1] True
linalg.inv: matrix 0 of the stack is singular: the diagonal element 1 of its factor is zero
linalg.eigh: matrix 0 of the stack was not decomposed: the iteration did not converge (info 1)
[torch.Size([3, 3]), torch.Size([0]), torch.Size([0, 0])]
[torch.Size([0, 3, 2]), torch.Size([0, 2, 2])]
"""


@pytest.mark.torch
def test_tensors_of_pytorch_are_factorised_and_give_what_pytorch_gives(device_file):
    exchange = device_file("libexchange.so")
    files = [device_file(name) for name in ("libcuda.so.1", "libcusolver.so.12", "libcublas.so.13")]
    assert run(PROGRAM, exchange, *files) == HELD
