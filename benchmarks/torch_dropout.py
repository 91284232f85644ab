"""PyTorch's dropout: drawn by its own kernel, and by ours, which draws the same numbers.

    python benchmarks/torch_dropout.py [--quick]

What a program calls is the same in both turns: `route.torch.dropout = "native"` is on in one, and
for attention `route.torch.attention` as well. A small call shows what the route costs those that it
leaves to PyTorch.
"""

from __future__ import annotations

from typing import Any

from measure import Row, emit, options
from torch_products import Route, row

SHAPES = ((512,), (64, 256), (256, 1024), (4, 512, 768))
"""Too few for our kernel, a batch of a small network, of a larger one, and tokens of GPT-2."""

QUERIES = (4, 8, 512, 64)


def rows(*, quick: bool) -> list[Row]:
    """A row for each shape, and for attention that trains."""
    import torch

    import backendcfg
    from backendcfg.ops import torch_dropout
    from backendcfg.ops.attention import torch_kernels

    backendcfg.apply(settings={"memory.keep_freed": "auto"})  # as under `fast`
    rounds = 5 if quick else 15
    functional = torch.nn.functional
    names: dict[str, Any] = {
        "dropout": functional.dropout,
        "attention": functional.scaled_dot_product_attention,
        "step": step,
    }
    route, found = Route(torch_dropout.REPLACED), []
    for shape in SHAPES:
        names["x"] = torch.randn(shape)
        found.append(row(route, f"dropout of {shape}", "dropout(x, 0.1)", names, rounds))
    both = Route(torch_dropout.REPLACED, torch_kernels.REPLACED)
    for dtype in (torch.float32, torch.bfloat16):
        names["q"] = torch.randn(QUERIES, dtype=dtype).requires_grad_()
        what = f"attention with dropout, {QUERIES}, {str(dtype)[6:]}, and its gradients"
        found.append(row(both, what, "step(attention, q)", names, rounds))
    return found


def step(attention: Any, q: Any) -> None:
    """One pass forward and backward."""
    attention(q, q, q, dropout_p=0.1, is_causal=True).sum().backward()


if __name__ == "__main__":
    emit(rows(quick=options(__doc__).parse_args().quick))
