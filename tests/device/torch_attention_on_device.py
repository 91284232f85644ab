"""Run as a program: PyTorch's own tensors, said to be on a device, attended to by our own kernel.

Its arguments are the compiled exchange.c, the double of the driver, and a folder.
"""

import ctypes
import sys
from pathlib import Path

EXCHANGE, CUDA, FOLDER = sys.argv[1:]
sys.argv[1:] = [EXCHANGE, CUDA]
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch_on_device  # noqa: E402, F401 - it changes PyTorch's table of functions
from attention_on_device import Emulator  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as theirs  # noqa: E402

from backendcfg import ops  # noqa: E402
from backendcfg.errors import InvalidArgumentError  # noqa: E402


class Patch:
    """What `monkeypatch` is to a test."""

    setattr = staticmethod(setattr)


class Memory:
    """The memory of a tensor, as an emulator asks for it."""

    def __init__(self, tensor):
        storage = tensor.untyped_storage()
        kind = ctypes.c_uint8 * storage.nbytes()
        self.held = tensor
        self.array = np.frombuffer(kind.from_address(storage.data_ptr()), np.uint8)


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    emulator = Emulator(Path(FOLDER))

    class Double:
        library = ctypes.CDLL(CUDA)

    emulator.install(Double, Patch)
    torch.manual_seed(0)

    def held(said, arrays, mask=None, **options):
        emulator.arrays = []
        emulator.reads(*(Memory(each) for each in (*arrays, mask) if each is not None))
        result = ops.scaled_dot_product_attention(*arrays, mask, **options)
        assert type(result) is torch.Tensor, type(result)
        assert result.dtype is arrays[0].dtype, result.dtype
        assert not result.requires_grad
        wide = [each.detach().float() for each in arrays]
        wanted = theirs(*wide, mask, **options)
        assert torch.allclose(result.float(), wanted, rtol=2e-2, atol=2e-2), said
        assert len(emulator.launched) == held.launches + 1
        held.launches += 1
        print(said)

    held.launches = 0

    def random(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape).to(dtype)

    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        held(f"{dtype}", [random(2, 3, 40, 64, dtype=dtype) for _ in range(3)])
    arrays = [random(2, 4, 40, 64) for _ in range(3)]
    held("a mask", arrays, torch.rand(40, 40) < 0.7)
    held("groups of heads", [arrays[0], *(random(2, 2, 40, 64) for _ in range(2))], enable_gqa=True)
    together = random(2, 40, 3, 4, 64)
    held("projected", [each.transpose(1, 2) for each in together.unbind(2)])
    arrays[0].requires_grad_()
    with torch.no_grad():
        held("without gradients", arrays)

    def trained(said, arrays, mask=None, needs=(True, True, True), **options):
        """The gradients are those of PyTorch's own attention in float32."""
        given = [
            each.detach().requires_grad_(flag) for each, flag in zip(arrays, needs, strict=True)
        ]
        wide = [each.detach().float().requires_grad_() for each in arrays]
        emulator.arrays = []
        emulator.reads(*(Memory(each) for each in (*given, mask) if each is not None))
        before = len(emulator.launched)
        result = ops.scaled_dot_product_attention(*given, mask, **options)
        assert result.requires_grad, said
        (result.float() * result.float()).sum().backward()
        (theirs(*wide, mask, **options) ** 2).sum().backward()
        for one, other, needed in zip(given, wide, needs, strict=True):
            assert (one.grad is not None) == needed, said
            if needed:
                assert one.grad.dtype is one.dtype
                bound = 3e-2 * other.grad.abs().max().item()
                assert torch.allclose(one.grad.float(), other.grad, rtol=3e-2, atol=bound), said
        print(
            said, [each[0].name.removeprefix("attention_") for each in emulator.launched[before:]]
        )

    arrays = [random(2, 4, 40, 64) for _ in range(3)]
    trained("all three", arrays, is_causal=True)
    trained("a mask", arrays, torch.rand(40, 40) < 0.7)
    trained("query alone", arrays, needs=(True, False, False))
    trained("value alone", arrays, needs=(False, False, True))
    trained("groups", [arrays[0], *(random(2, 2, 40, 64) for _ in range(2))], enable_gqa=True)
    trained("broadcast", [arrays[0], random(4, 40, 64), random(1, 1, 40, 64)])
    trained("two dimensions", [random(40, 64) for _ in range(3)])
    emulator.arrays = []
    query = random(2, 3, 40, 64).requires_grad_()
    emulator.reads(Memory(query))
    result, logsumexp = ops.scaled_dot_product_attention(query, query, query, return_logsumexp=True)
    assert result.requires_grad
    assert not logsumexp.requires_grad
    result.sum().backward()  # a gradient without strides
    wide = query.detach().float().requires_grad_()
    theirs(wide, wide, wide).sum().backward()
    assert torch.allclose(query.grad.float(), wide.grad, rtol=3e-2, atol=3e-2)
    print("a sum of itself")
    result = ops.scaled_dot_product_attention(query, query, query, dropout_p=0.4, seed=9)
    grad_out = torch.randn_like(result)
    (found,) = torch.autograd.grad(result, query, grad_out)
    wide = query.detach().float()
    out, total = ops.scaled_dot_product_attention(
        wide.numpy(), wide.numpy(), wide.numpy(), dropout_p=0.4, seed=9, return_logsumexp=True
    )
    three = ops.scaled_dot_product_attention_backward(
        grad_out.float().numpy(), *[wide.numpy()] * 3, out, total, dropout_p=0.4, seed=9
    )
    assert np.abs(found.float().numpy() - sum(three)).max() < 6e-2
    print("dropout as on the CPU")
    (once,) = torch.autograd.grad(
        ops.scaled_dot_product_attention(query, query, query).sum(), query, create_graph=True
    )
    try:
        once.sum().backward()
    except InvalidArgumentError as error:
        print(error.message)
    mask = random(40, 40).requires_grad_()
    try:
        ops.scaled_dot_product_attention(query, query, query, mask)
    except InvalidArgumentError as error:
        print(next(each for each in error.notes if each.startswith("flash: "))[7:])


if __name__ == "__main__":
    main()
