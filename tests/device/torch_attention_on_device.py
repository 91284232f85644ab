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
    try:
        ops.scaled_dot_product_attention(*arrays)
    except InvalidArgumentError as error:
        print(next(each for each in error.notes if each.startswith("flash: "))[7:])


if __name__ == "__main__":
    main()
