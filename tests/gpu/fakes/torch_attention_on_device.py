"""Run as a program: PyTorch's own tensors, said to be on a device, attended to by our own kernel.

Its arguments are the compiled exchange.c, the fakes of the driver and of cuBLAS, and a folder.
"""

import ctypes
import sys
from pathlib import Path

EXCHANGE, CUDA, CUBLAS = sys.argv[1:]
sys.argv[1:] = [EXCHANGE, CUDA]
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch_on_device  # noqa: E402, F401 - it changes PyTorch's table of functions
from attention_on_device import Emulator  # noqa: E402
from products import under  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as theirs  # noqa: E402

from backendcfg import ops  # noqa: E402
from backendcfg.errors import InvalidArgumentError  # noqa: E402
from backendcfg.gpu.attention.efficient import OF  # noqa: E402
from backendcfg.schema.profile import defaults  # noqa: E402


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


def name_of(chosen):
    """A kernel, or what it gives the gradient of."""
    if chosen.name == "attention_efficient_backward":
        return OF[chosen.macros["OF"]]
    return chosen.name.removeprefix("attention_")


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    emulator = Emulator()

    class Fake:
        library = ctypes.CDLL(CUDA)

    emulator.install(Fake, Patch)
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

    def as_it_is(each):
        return each

    def trained(said, arrays, mask=None, needs=(True, True, True), kept=None, **options):
        """The gradients are those of PyTorch's own attention in float64."""
        of_mask = mask is not None and mask.requires_grad
        given = [
            each.detach().requires_grad_(flag) for each, flag in zip(arrays, needs, strict=True)
        ]
        wide = [each.detach().double().requires_grad_() for each in arrays]
        hidden = mask
        if mask is not None and mask.dtype is not torch.bool:
            hidden = mask.detach().double().requires_grad_(of_mask)
        emulator.arrays = []
        emulator.reads(*(Memory(each) for each in (*given, mask) if each is not None))
        before = len(emulator.launched)
        with torch.autograd.graph.saved_tensors_hooks(kept or as_it_is, as_it_is):
            result = ops.scaled_dot_product_attention(*given, mask, **options)
        assert result.requires_grad, said
        (result.double() ** 2).sum().backward()
        (theirs(*wide, hidden, **options) ** 2).sum().backward()
        pairs = [*zip(given, wide, needs, strict=True), *([(mask, hidden, True)] * of_mask)]
        for one, other, needed in pairs:
            assert (one.grad is not None) == needed, said
            if needed:
                assert one.grad.dtype is one.dtype
                assert one.grad.shape == one.shape
                unit = {torch.float32: 2e-5, torch.float64: 1e-12}.get(arrays[0].dtype, 3e-2)
                bound = unit * (1 + other.grad.abs().max().item())
                assert torch.allclose(one.grad.double(), other.grad, rtol=unit, atol=bound), said
        print(said, [name_of(each[0]) for each in emulator.launched[before:]])

    arrays = [random(2, 4, 40, 64) for _ in range(3)]
    trained("all three", arrays, is_causal=True)
    trained("a mask", arrays, torch.rand(40, 40) < 0.7)
    trained("query alone", arrays, needs=(True, False, False))
    trained("value alone", arrays, needs=(False, False, True))
    trained("groups", [arrays[0], *(random(2, 2, 40, 64) for _ in range(2))], enable_gqa=True)
    trained("broadcast", [arrays[0], random(4, 40, 64), random(1, 1, 40, 64)])
    trained("two dimensions", [random(40, 64) for _ in range(3)])
    contiguous, made = torch.Tensor.contiguous, []

    def dense(each):
        """A copy that kernels may read."""
        made.append(contiguous(each))
        emulator.reads(Memory(made[-1]))
        return made[-1]

    torch.Tensor.contiguous = dense
    trained(
        "saved with columns side by side",
        arrays,
        kept=lambda each: contiguous(each.mT).mT if each.dim() == 4 else each,
    )
    torch.Tensor.contiguous = contiguous
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
    single = torch.float32
    for dtype in (single, torch.float64, torch.float16):
        trained(f"{dtype}", [random(1, 2, 20, 20, dtype=dtype) for _ in range(3)])
    arrays = [random(2, 4, 20, 20, dtype=single) for _ in range(3)]
    trained("causal", arrays, is_causal=True)
    trained("key alone", arrays, needs=(False, True, False))
    trained("value alone", arrays, needs=(False, False, True))
    trained("other widths", [*arrays[:2], random(2, 4, 20, 7, dtype=single)])
    few = [random(2, 2, 20, 20, dtype=single) for _ in range(2)]
    trained("groups", [arrays[0], *few], enable_gqa=True)
    spread = [random(4, 20, 20, dtype=single), random(1, 1, 20, 20, dtype=single)]
    trained("broadcast", [arrays[0], *spread])
    trained("two dimensions", [random(20, 20, dtype=single) for _ in range(3)])
    for shape in ((20, 20), (2, 1, 20, 20), (4, 1, 20), (2, 4, 20, 1), (1, 1), (20,)):
        mask = random(*shape, dtype=single).requires_grad_()
        trained(f"a mask {shape}", arrays, mask)
    mask = random(4, 20, 20, dtype=single).requires_grad_()
    trained("a mask alone", arrays, mask, needs=(False, False, False))
    mask = random(20, 20, dtype=single).requires_grad_()
    trained("a mask of 16 bits' arrays", [random(1, 2, 20, 64) for _ in range(3)], mask)
    ctypes.CDLL(CUBLAS)  # as if a framework had brought it
    with under(**{**defaults(), "cuda.sdp_priority": ("math",)}):
        trained("math", arrays)
        trained("math with a mask", arrays, random(20, 20, dtype=single).requires_grad_())
        trained("math of 16 bits", [random(1, 2, 20, 20) for _ in range(3)], is_causal=True)
    query = arrays[0].detach().requires_grad_()
    emulator.reads(Memory(query))
    (once,) = torch.autograd.grad(
        ops.scaled_dot_product_attention(query, query, query).sum(), query, create_graph=True
    )
    try:
        once.sum().backward()
    except InvalidArgumentError as error:
        print(error.message)
    emulator.reads(*(Memory(each) for each in arrays))
    for _ in range(2):  # of a kind that was seen, too
        ops.scaled_dot_product_attention(*arrays)
    with forward_ad.dual_level():
        ops.scaled_dot_product_attention(*arrays)  # without a tangent
        dual = forward_ad.make_dual(arrays[1], torch.ones_like(arrays[1]))
        try:
            ops.scaled_dot_product_attention(arrays[0], dual, arrays[2])
        except InvalidArgumentError as error:
            print(error.message, *error.helps, sep="\n")
        try:
            ops.scaled_dot_product_attention_backward(dual, *arrays, arrays[0], arrays[0])
        except InvalidArgumentError as error:
            print(error.message)


if __name__ == "__main__":
    main()
