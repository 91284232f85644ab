"""Run as a program: PyTorch's own tensors, said to be on a device, convolved by cuDNN's fake.

Its arguments are the compiled exchange.c and the fakes of the driver and cuDNN.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions
from torch.nn.functional import conv2d


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    from backendcfg import ops
    from backendcfg._native import Prepared, Scope
    from backendcfg.transact.compiled import Compiled

    torch.manual_seed(0)
    last = torch.channels_last
    flags = {"cudnn.deterministic": True, "cudnn.conv.fp32_precision": "ieee"}

    def random(*shape, dtype=torch.float32):
        return torch.randn(*shape, dtype=torch.float64).to(dtype)

    def held(said, result, wanted, tolerance=1e-4):
        assert type(result) is torch.Tensor, type(result)
        assert result.dtype is wanted.dtype, result.dtype
        assert result.shape == wanted.shape, result.shape
        assert not result.requires_grad
        assert torch.allclose(result, wanted.detach(), rtol=tolerance, atol=tolerance), said
        print(said)

    with Scope(Prepared("test", Compiled("test", "none", flags))):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            x, w, b = (random(*shape, dtype=dtype) for shape in ((2, 4, 7, 6), (6, 2, 3, 3), (6,)))
            wanted = conv2d(x, w, b, stride=(2, 1), padding=1, groups=2)
            result = ops.conv2d(x, w, b, stride=(2, 1), padding=1, groups=2)
            held(f"conv2d {dtype}", result, wanted, 5e-2 if dtype.itemsize == 2 else 1e-4)
        x, w, b = random(2, 4, 7, 6), random(6, 4, 3, 3), random(6)
        wanted = conv2d(x, w, b)
        result = ops.conv2d(x.to(memory_format=last), w, b)
        held("channels last", result, wanted)
        assert result.is_contiguous(memory_format=last)
        held("no copy of a slice", ops.conv2d(x[1:], w, b), wanted[1:])
        held("every other column", ops.conv2d(x[..., ::2], w), conv2d(x[..., ::2], w))
        held("one image", ops.conv2d(x[0], w, b), wanted[0])
        parameter = torch.nn.Parameter(w)
        held("gradients", ops.conv2d(x, parameter, b.requires_grad_()), wanted)


if __name__ == "__main__":
    main()
