"""Run as a program: PyTorch's own tensors, said to be on a device, compressed and multiplied.

Its arguments are the compiled exchange.c and the fakes of the driver and cuSPARSELt.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions

from backendcfg import ops


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    torch.manual_seed(0)

    def numbers(*shape, dtype):
        return torch.randint(-3, 4, shape).to(dtype)

    def pruned(*shape, dtype):
        keep = torch.rand(*shape[:-1], shape[-1] // 4, 4).argsort(-1) < 2
        return numbers(*shape, dtype=dtype) * keep.reshape(shape)

    def held(said, a, b, *bias):
        result = ops.sparse_matmul(ops.sparse_compress(a), b, *bias)
        wanted = a.detach().double() @ b.detach().double()
        if bias:
            wanted += bias[0].double()[:, None]
        assert type(result) is torch.Tensor
        assert result.dtype is (torch.int32 if a.dtype is torch.int8 else a.dtype)
        assert not result.requires_grad
        assert torch.equal(result.double(), wanted), said
        print(said)

    for dtype in (torch.float16, torch.bfloat16, torch.int8):
        a, b = pruned(32, 64, dtype=dtype), numbers(64, 16, dtype=dtype)
        held(f"{dtype}", a, b)
        held(f"{dtype} by columns", a, b.T.contiguous().T)
    weight = pruned(64, 64, dtype=torch.float16)[::2].requires_grad_()
    held("a weight with gradients and a bias", weight, b.half()[:, :8], torch.ones(32).half())
    compressed = ops.sparse_compress(weight)
    print(compressed, compressed.memory.dtype)
    print(ops.sparse_search(compressed, b.half()))


if __name__ == "__main__":
    main()
