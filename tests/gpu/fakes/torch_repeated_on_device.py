"""Run as a program: repeated calls with PyTorch's own tensors, said to be on a device.

Its arguments are the compiled exchange.c and the fakes of the driver, cuFFT and cuDNN.
"""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions
from torch.autograd import forward_ad
from torch.nn.functional import conv2d

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.transact.compiled import Compiled

FLAGS = {"cudnn.deterministic": True, "cudnn.conv.fp32_precision": "ieee"}


def same(said, call, truth, variants):
    """Each variant of the arrays gives what PyTorch gives."""
    for arrays in variants:
        plain = [each.detach() for each in arrays]
        before = [each.clone() for each in plain]
        result, wanted = call(*arrays), truth(*plain)
        assert type(result) is torch.Tensor, type(result)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        assert not result.requires_grad
        assert torch.allclose(result, wanted, rtol=1e-4, atol=1e-4), said
        for each, old in zip(plain, before, strict=True):
            assert torch.equal(each, old)
    print(said)


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    torch.manual_seed(0)
    numbers = [torch.randn(4, 6, 5, dtype=torch.complex64) for _ in range(3)]
    real = [torch.randn(4, 6, 5) for _ in range(3)]
    lazy = [numbers[0].conj(), (numbers[1] * 2).resolve_conj()]
    for operation, values, options in (
        ("fft", numbers, {}),
        ("ifft", numbers, {"norm": "forward"}),
        ("irfft", numbers, {"n": 7}),
        ("hfft", numbers, {}),
        ("rfft", real, {"dim": 1}),
        ("ihfft", real, {}),
        ("fftn", numbers, {"s": (8, 3), "dim": (0, 2)}),
        ("fft", real, {}),
    ):
        variants = [(each,) for each in (*values, values[0].clone().requires_grad_())]
        ours, theirs = getattr(ops.fft, operation), getattr(torch.fft, operation)
        same(
            f"{operation} {options}",
            lambda x, ours=ours, options=options: ours(x, **options),
            lambda x, theirs=theirs, options=options: theirs(x, **options),
            variants,
        )
    same("a conjugate", ops.fft.ifft2, torch.fft.ifft2, [(each,) for each in lazy])
    same("a conjugate's copy", ops.fft.irfft2, torch.fft.irfft2, [(each,) for each in lazy])

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(numbers[0], numbers[1])
        for operation in ("ifft", "irfft"):
            function = getattr(ops.fft, operation)
            for value in (numbers[0].clone(), dual, dual):
                assert forward_ad.unpack_dual(function(value)).tangent is None
    print("tangents are not followed")

    with Scope(Prepared("test", Compiled("test", "none", FLAGS))):
        images = [torch.randn(2, 4, 7, 6) for _ in range(3)]
        w, b = torch.randn(6, 4, 3, 3), torch.randn(6)
        trained = (images[2], torch.nn.Parameter(w), b.clone().requires_grad_())
        variants = [(images[0], w, b), (images[1], w, b * 2), trained]
        same(
            "conv2d",
            lambda x, w, b: ops.conv2d(x, w, b, (2, 1), 1),
            lambda x, w, b: conv2d(x, w, b, (2, 1), 1),
            variants,
        )
        last = [x.to(memory_format=torch.channels_last) for x in images[:2]]
        kernel = w.to(memory_format=torch.channels_last)
        same("channels last", ops.conv2d, conv2d, [(x, kernel, b) for x in last])
        found = ops.conv2d(last[0], kernel, b)
        assert found.is_contiguous(memory_format=torch.channels_last)
        same("one image", ops.conv2d, conv2d, [(x[0], w, b) for x in images[:2]])
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(b, b)
            for bias in (b, dual, dual):
                found = ops.conv2d(images[0], w, bias)
                assert forward_ad.unpack_dual(found).tangent is None

    gc.collect()
    tensors = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
    for _ in range(200):
        ops.fft.ifft(numbers[0])
        ops.conv2d(images[0], w, b)
    gc.collect()
    assert sum(isinstance(each, torch.Tensor) for each in gc.get_objects()) == tensors
    print("no tensor is kept")


if __name__ == "__main__":
    main()
