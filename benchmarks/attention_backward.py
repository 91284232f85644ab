"""Attention's backward pass against PyTorch's own, and steps of training, served by ours or not.

    python benchmarks/attention_backward.py [--quick]

Both get the same tensors, the same result and the same logsumexp, in turns, in one process with one
team of threads.
"""

from __future__ import annotations

import sys

from measure import Row, emit, nanoseconds, options, side_by_side

SHAPES = ((1, 8, 1024, 64), (4, 16, 512, 128), (1, 8, 4096, 64))
TARGET = 1.5


def rate(work: float, seconds: float) -> str:
    """A time, and the multiplications and additions in it."""
    return f"{nanoseconds(seconds)} ({work / seconds / 1e9:.0f} GF/s)"


def backward(shape: tuple[int, ...], dtype: str, threads: int, *, causal: bool, rounds: int) -> Row:
    """One shape, as `aten::_scaled_dot_product_flash_attention_for_cpu_backward` has it."""
    import torch

    from backendcfg.ops import _native  # which NumPy is ready for

    batch, heads, length, width = shape
    torch.set_num_threads(threads)
    query, key, value, grad_out = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(4))
    aten = torch.ops.aten
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal
    )

    def array(tensor):
        narrow = tensor.dtype == torch.bfloat16  # NumPy gets its bits
        return (tensor.view(torch.uint16) if narrow else tensor).numpy()

    names = {
        "ours": _native.attention_backward,
        "theirs": aten._scaled_dot_product_flash_attention_for_cpu_backward,
        "a": (
            *(array(x) for x in (grad_out, query, key, value)),
            *(None, array(out), array(logsumexp), causal, width**-0.5, 0.0, 0, dtype, threads),
        ),
        "t": (grad_out, query, key, value, out, logsumexp, 0.0, causal),
    }
    took = side_by_side({"ours": "ours(*a)", "theirs": "theirs(*t)"}, names, rounds=rounds)
    work = 10 * batch * heads * length**2 * width / (2 if causal else 1)
    speed = took["theirs"] / took["ours"]
    aimed = dtype == "float32"
    return Row(
        f"{shape}, {dtype}, {'causal, ' if causal else ''}{threads} thread{'s'[: threads > 1]}",
        rate(work, took["ours"]),
        f"{rate(work, took['theirs'])} by PyTorch",
        f"{speed:.2f} of its speed",
        f">= {TARGET}" if aimed else "",
        speed >= TARGET if aimed else None,
    )


def training(dropout: float, *, rounds: int) -> Row:
    """Forward and backward of an encoder layer, with the probability that a weight is dropped."""
    import torch

    from backendcfg import ops

    layer = torch.nn.TransformerEncoderLayer(512, 8, 1024, dropout=dropout, batch_first=True)
    batch = torch.randn(2, 1024, 512)

    def step():
        layer.zero_grad()
        layer(batch).square().mean().backward()

    def served():
        with ops.serve_torch():
            step()

    took = side_by_side(
        {"ours": "served()", "theirs": "step()"}, {"served": served, "step": step}, rounds=rounds
    )
    return Row(
        "a step of TransformerEncoderLayer, (2, 1024, 512), 8 heads"
        + (f", dropout {dropout}" if dropout else ""),
        nanoseconds(took["ours"]),
        f"{nanoseconds(took['theirs'])} by PyTorch",
        f"{took['theirs'] / took['ours']:.2f} of its speed",
    )


def main() -> int:
    """Every shape, dtype and number of threads."""
    quick = options(__doc__).parse_args().quick
    rows = [
        backward(shape, dtype, threads, causal=causal, rounds=3 if quick else 9)
        for dtype in ("float32", "bfloat16")
        for shape in (SHAPES[:1] if quick else SHAPES)
        for causal in (False, True)
        for threads in (1, 2)
    ]
    steps = [training(dropout, rounds=3 if quick else 9) for dropout in (0.0, 0.1)]
    emit([*rows, *steps])
    return 0


if __name__ == "__main__":
    sys.exit(main())
