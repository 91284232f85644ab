"""Run as a program: PyTorch's own tensors, said to be on a device, trained through cuDNN's fake.

Its arguments are the compiled exchange.c and the fakes of the driver and cuDNN.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions
from torch.nn.functional import scaled_dot_product_attention as theirs


def main():
    """Each line that is printed is one thing that held; an exception ends it."""
    from backendcfg import ops
    from backendcfg._native import Prepared, Scope
    from backendcfg.errors import InvalidArgumentError
    from backendcfg.schema.profile import defaults
    from backendcfg.transact.compiled import Compiled

    torch.manual_seed(0)
    every = (True, True, True)

    def random(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape).to(dtype)

    def squared(result):
        return (result * result).sum()

    def as_it_is(each):
        return each

    def elsewhere(each):
        """A copy that begins anywhere."""
        return torch.cat([each.flatten()[:1], each.flatten()])[1:].view(each.shape)

    def trained(said, arrays, mask=None, needs=every, loss=squared, kept=None, **options):
        """The gradients are those of PyTorch's own attention in float32."""
        given = [
            each.detach().requires_grad_(flag) for each, flag in zip(arrays, needs, strict=True)
        ]
        wide = [each.detach().float().requires_grad_() for each in arrays]
        hooks = torch.autograd.graph.saved_tensors_hooks(kept or as_it_is, as_it_is)
        with ops.trace() as calls, hooks:
            result = ops.scaled_dot_product_attention(*given, mask, **options)
            loss(result).backward()
        added = None if mask is None else mask.float()
        loss(theirs(*wide, added, **options)).backward()
        for one, other, needed in zip(given, wide, needs, strict=True):
            assert (one.grad is not None) == needed, said
            if needed:
                assert one.grad.dtype is one.dtype
                bound = 3e-2 * other.grad.abs().max().item()
                assert (one.grad.float() - other.grad).abs().max().item() <= bound, said
        print(said, [call.provider for call in calls])

    arrays = [random(2, 4, 40, 64) for _ in range(3)]
    trained("all three", arrays, is_causal=True)
    trained("float16", [each.half() for each in arrays], scale=0.2)
    trained("query alone", arrays, needs=(True, False, False))
    trained("value alone", arrays, needs=(False, False, True))
    few = [random(2, 2, 50, 64) for _ in range(2)]
    trained("groups", [arrays[0], *few], enable_gqa=True)
    trained("values of other heads", [arrays[0], few[0], random(2, 1, 50, 32)], enable_gqa=True)
    together = random(2, 40, 3, 4, 64)
    projected = [each.transpose(1, 2) for each in together.unbind(2)]
    trained("projected", projected, loss=lambda out: squared(out.transpose(1, 2).reshape(80, 256)))
    trained("a sum of itself", arrays, loss=torch.sum)  # whose gradient has no strides
    for said, kept in (
        ("saved densely", lambda each: each.clone(memory_format=torch.contiguous_format)),
        ("saved spread", lambda each: each.mT.contiguous().mT if each.dim() == 4 else each),
        ("saved anywhere", elsewhere),
    ):
        trained(said, projected, kept=kept)
    order = {**defaults(), "cuda.sdp_priority": ("cudnn",)}
    order["determinism.algorithms"] = "deterministic"
    with Scope(Prepared("test", Compiled("test", "none", order))):
        trained("a mask", arrays, random(40, 40))
        print("under flags", end=": ")
        query = arrays[0].detach().requires_grad_()
        result = ops.scaled_dot_product_attention(query, *arrays[1:])
    (once,) = torch.autograd.grad(result.sum(), query, create_graph=True)
    try:
        once.sum().backward()
    except InvalidArgumentError as error:
        print(error.message)
    mask = random(40, 40).requires_grad_()
    others = ("flash", "mem_efficient", "math")
    alone = {**order, **{f"cuda.enable_{other}_sdp": False for other in others}}
    try:
        with Scope(Prepared("test", Compiled("test", "none", alone))):
            ops.scaled_dot_product_attention(*arrays, mask)
    except InvalidArgumentError as error:
        print(next(each for each in error.notes if each.startswith("cudnn: "))[7:])


if __name__ == "__main__":
    main()
