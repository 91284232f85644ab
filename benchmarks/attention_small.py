"""Small calls of PyTorch's attention, served by our kernels or not: what serving costs.

    python benchmarks/attention_small.py [--quick]

Both run in turns, in one process, and ours are undone in between.
"""

from __future__ import annotations

import sys
from statistics import median

from measure import Row, emit, nanoseconds, options, side_by_side

SHAPES = ((1, 8, 1, 64), (1, 8, 16, 64), (1, 8, 64, 64), (1, 12, 197, 64))


def small(*, rounds: int) -> list[Row]:
    """Each shape, forward and with its gradients, as a program calls it."""
    import torch

    from backendcfg import ops

    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for shape in SHAPES:
            q, k, v, g = (torch.randn(shape).to(dtype) for _ in range(4))
            names = {"q": q, "k": k, "v": v, "g": g, "grad": torch.autograd.grad}
            names["attend"] = torch.nn.functional.scaled_dot_product_attention
            for what, call in (
                ("", "attend(q, k, v)"),
                (" and its gradients", "grad(attend(q, k, v), (q, k, v), g)"),
            ):
                for each in (q, k, v):
                    each.requires_grad_(bool(what))
                ours, theirs = [], []
                for _ in range(rounds):
                    # Undone in between: a kernel that only passes calls on costs PyTorch's, too.
                    theirs.append(side_by_side({"it": call}, names, rounds=3)["it"])
                    with ops.serve_torch():
                        ours.append(side_by_side({"it": call}, names, rounds=3)["it"])
                served, own = median(ours), median(theirs)
                found.append(
                    Row(
                        f"{shape}{what}, {str(dtype)[6:]}",
                        nanoseconds(served),
                        f"{nanoseconds(own)} by PyTorch",
                        f"{own / served:.2f} of its speed",
                        ">= 1.0",
                        own >= served,
                    )
                )
    return found


def main() -> int:
    """Every shape, in float32 and bfloat16."""
    emit(small(rounds=3 if options(__doc__).parse_args().quick else 7))
    return 0


if __name__ == "__main__":
    sys.exit(main())
