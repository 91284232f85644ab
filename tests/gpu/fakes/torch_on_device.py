"""Run as a program: PyTorch's own tensors, said to be on a device, multiplied by the fakes.

Its arguments are the compiled exchange.c and the fakes of the driver, cuBLAS and cuBLASLt.
"""

import ctypes
import sys

import torch
from torch.nn import Parameter

EXCHANGE, *LIBRARIES = sys.argv[1:]
for _path in LIBRARIES:
    ctypes.CDLL(_path)

_python = ctypes.pythonapi
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAME = b"dlpack_exchange_api"
exchange = ctypes.CDLL(EXCHANGE)
exchange.fake_exchange.restype = ctypes.c_void_p
exchange.fake_exchange.argtypes = [ctypes.c_void_p]
_made = exchange.fake_exchange(
    _python.PyCapsule_GetPointer(torch.Tensor.__dlpack_c_exchange_api__, _NAME)
)
torch.Tensor.__dlpack_c_exchange_api__ = _python.PyCapsule_New(_made, _NAME, None)


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    from backendcfg import ops
    from backendcfg._native import Prepared, Scope
    from backendcfg.errors import InvalidArgumentError
    from backendcfg.transact.compiled import Compiled

    torch.manual_seed(0)

    def held(said, result, wanted, tolerance=1e-5):
        assert type(result) is torch.Tensor, type(result)
        assert result.dtype is wanted.dtype, result.dtype
        assert result.shape == wanted.shape, result.shape
        assert not result.requires_grad
        assert torch.allclose(result, wanted.detach(), rtol=tolerance, atol=tolerance), said
        print(said)

    def random(*shape, dtype=torch.float32):
        return torch.randn(*shape, dtype=torch.float64).to(dtype)

    for dtype in (torch.float32, torch.float64, torch.complex64, torch.float16, torch.bfloat16):
        a, b = random(3, 5, dtype=dtype), random(5, 4, dtype=dtype)
        held(f"matmul {dtype}", ops.matmul(a, b), a @ b, 2e-2)
    a, b = random(6, 3, 5), random(6, 5, 4)
    held("bmm", ops.bmm(a, b), torch.bmm(a, b))
    held("transposed", ops.bmm(b.mT, a.mT), torch.bmm(b.mT, a.mT))
    held("every other", ops.matmul(a[..., ::2], b[:, ::2]), a[..., ::2] @ b[:, ::2])
    held("expanded", ops.matmul(a[0].expand(2, 3, 5), b[0]), a[0].expand(2, 3, 5) @ b[0])
    bias, grad = random(4), random(3, 5).requires_grad_()
    wanted = torch.addmm(bias, grad, b[0], beta=2, alpha=3)
    held("addmm with gradients", ops.addmm(bias, grad, b[0], beta=2, alpha=3), wanted)
    held("parameter", ops.matmul(a[0], Parameter(b[0])), a[0] @ b[0])
    bias.requires_grad_()
    held("bias with gradients", ops.addmm(bias, a[0], b[0]), bias + a[0] @ b[0])
    c, d = random(3, 3, dtype=torch.complex64), random(3, 3, dtype=torch.complex64)
    before = c.clone()
    held("conjugate", ops.matmul(c.conj(), d.mH), c.conj() @ d.mH)
    held("negative", ops.matmul(c.conj().imag, d.real.contiguous()), c.conj().imag @ d.real)
    out = torch.full((3, 8), torch.nan)
    assert ops.matmul(a[0], b[0], out=out[:, ::2]) is not None
    held("out of every other", out[:, ::2].contiguous(), a[0] @ b[0])
    lazy = torch.zeros(3, 3, dtype=torch.complex64).conj()
    assert ops.matmul(c, d, out=lazy) is lazy
    assert ops.addmm(lazy, c, d, out=lazy) is lazy
    held("out of a conjugate", lazy.resolve_conj(), 2 * (c @ d))
    negative = torch.zeros(3, 3, dtype=torch.complex64).conj().imag
    ops.matmul(c.real.contiguous(), d.real.contiguous(), out=negative)
    held("out of a negative", negative.resolve_neg(), c.real @ d.real)
    ops.matmul(c.conj(), d, out=c)
    held("out of a conjugate's base", c, before.conj() @ d)
    held("empty", ops.matmul(a[:, :0], b), a[:, :0] @ b)
    held("nothing inside", ops.matmul(a[..., :0], b[:, :0]), a[..., :0] @ b[:, :0])

    for equation, *shapes in (
        ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
        ("bi,bi->b", (6, 5), (6, 5)),
        ("iji->j", (4, 3, 4)),
        ("...ij,...jk->...ki", (2, 1, 3, 5), (6, 5, 4)),
    ):
        operands = [random(*shape).requires_grad_() for shape in shapes]
        held(equation, ops.einsum(equation, *operands), torch.einsum(equation, *operands))

    with Scope(Prepared("finite", Compiled("finite", "none", {"ops.check_finite": True}))):
        ops.matmul(a, b)
        try:
            ops.matmul(a * torch.inf, b)
        except InvalidArgumentError as error:
            print(error.render().splitlines()[0])

    from backendcfg.gpu import own_library

    made = own_library.make(d, (2, 3), "bfloat16", 2, 0)
    print(made.dtype, tuple(made.shape), made.device)

    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(3, 5)
    for value in (fake, a[0].to_sparse(), torch.empty(3, 5, device="meta")):
        try:
            ops.matmul(value, b[0])
        except InvalidArgumentError as error:
            print(error.render().splitlines()[0].partition(": ")[2])


if __name__ == "__main__":
    main()
