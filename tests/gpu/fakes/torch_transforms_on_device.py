"""Run as a program: PyTorch's own tensors, said to be on a device, transformed through the fakes.

Its arguments are the compiled exchange.c and the fakes of the driver and cuFFT.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions

from backendcfg import ops
from backendcfg.ops.fft import plan_cache


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    torch.manual_seed(0)

    def held(said, operation, value, *arguments, **options):
        before = value.clone()
        result = getattr(ops.fft, operation)(value, *arguments, **options)
        wanted = getattr(torch.fft, operation)(value.detach(), *arguments, **options)
        assert type(result) is torch.Tensor, type(result)
        assert result.dtype is wanted.dtype, (result.dtype, wanted.dtype)
        assert result.shape == wanted.shape, result.shape
        assert not result.requires_grad
        assert torch.allclose(result, wanted, rtol=1e-5, atol=1e-5), said
        assert torch.equal(value, before)
        print(said)

    real, whole = torch.randn(4, 6, 5), torch.arange(24).reshape(4, 6)
    numbers = torch.randn(4, 6, 5, dtype=torch.complex64)
    for operation in ("fft", "ifft", "hfft", "irfft"):
        held(operation, operation, numbers, norm="ortho")
    for operation in ("rfft", "ihfft"):
        held(operation, operation, real, dim=1)
    held("padded", "fftn", numbers, (8, 3), (0, 2))
    held("several", "irfftn", numbers, norm="forward")
    held("fake", "rfft2", real.double())
    held("whole numbers", "fft", whole)
    held("bool", "rfft", whole > 3)
    held("a conjugate", "fft", numbers.conj())
    held("a conjugate's real numbers", "irfft", numbers.conj())
    held("a negative", "rfft", numbers.conj().imag)
    held("a view", "fft", numbers[:, ::2].mT, dim=1)
    held("expanded", "fft2", numbers[:1].expand(3, 6, 5))
    held("with gradients", "rfft", real.requires_grad_(), 9)
    held("five dimensions", "rfftn", torch.randn(2, 3, 2, 3, 4))
    held("shifted", "fftshift", numbers, dim=(0, 2))
    held("shifted back", "ifftshift", real)
    torch.set_default_dtype(torch.float64)
    held("whole numbers in double", "fft", whole)
    torch.set_default_dtype(torch.bfloat16)
    assert ops.fft.fft(whole).dtype is torch.complex64  # as on the CPU
    assert plan_cache["cuda:0"].size > 0
    assert plan_cache["cpu"].size == 0


if __name__ == "__main__":
    main()
