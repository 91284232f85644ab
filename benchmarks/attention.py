"""Attention against PyTorch's own flash kernel on the CPU, by our kernels and by each of their
instruction sets.

    python benchmarks/attention.py [--quick]

Both get the same memory, in turns, in one process with one team of threads. The speeds count a
multiplication and an addition for every score and width, and half of them under a causal mask.
"""

from __future__ import annotations

import sys

from measure import Row, emit, nanoseconds, options, side_by_side

# Batch, heads, queries, keys, width.
SHAPES = ((1, 8, 1024, 1024, 64), (1, 8, 4096, 4096, 64), (4, 16, 512, 512, 128))
OTHERS = {
    "generating": (1, 8, 1, 4096, 64),
    "generating, wide": (1, 32, 1, 4096, 128),
    "77 tokens": (1, 8, 77, 77, 64),
    "width 80": (1, 8, 1024, 1024, 80),
    "width 96": (1, 8, 1024, 1024, 96),
}
TARGETS = {"float32": 2.0, "bfloat16": 3.5}
AVX2_TARGET = 1.1


def measured(
    what: str,
    shape: tuple[int, ...],
    dtype: str,
    threads: int,
    *,
    causal: bool = False,
    isa: str | None = None,
    target: float | None = None,
    rounds: int,
) -> Row:
    """One shape, as `aten::_scaled_dot_product_flash_attention_for_cpu` has it."""
    import torch

    from backendcfg import _native

    batch, heads, queries, keys, width = shape
    torch.set_num_threads(threads)
    tensors = [
        torch.randn(batch, heads, length, width).to(getattr(torch, dtype))
        for length in (queries, keys, keys)
    ]
    arrays = [(x.view(torch.uint16) if dtype == "bfloat16" else x).numpy() for x in tensors]
    names = {
        "ours": _native.attention,
        "theirs": torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
        "a": ("flash", *arrays, None, causal, width**-0.5, 0.0, 0, dtype, threads),
        "t": (*tensors, 0.0, causal),
    }
    _native.force_kernel_isa(isa)
    try:
        took = side_by_side({"ours": "ours(*a)", "theirs": "theirs(*t)"}, names, rounds=rounds)
    finally:
        _native.force_kernel_isa(None)
    work = 4 * batch * heads * queries * keys * width / (2 if causal else 1)
    speed = took["theirs"] / took["ours"]

    def rate(seconds: float) -> str:
        return f"{nanoseconds(seconds)} ({work / seconds / 1e9:.0f} GF/s)"

    causally = ", causal" if causal else ""
    return Row(
        f"{what}, {dtype}{causally}, {threads} thread{'s'[: threads > 1]}",
        rate(took["ours"]),
        f"{rate(took['theirs'])} by PyTorch",
        f"{speed:.2f} of its speed",
        "" if target is None else f">= {target}",
        None if target is None else speed >= target,
    )


def main() -> int:
    """Every shape, dtype and number of threads, and every instruction set on the first shape."""
    from backendcfg import _native, ops  # noqa: F401  ops hands NumPy's C API to _native

    quick = options(__doc__).parse_args().quick
    rounds = 5 if quick else 15
    available = [name for name, runs, _ in _native.kernel_isas() if runs]
    rows = []
    for threads in (1, 2):
        for dtype, target in TARGETS.items():
            # The targets are for a CPU whose instructions the kernels can use.
            held = target if "avx512" in available else None
            for shape in SHAPES[:1] if quick else SHAPES:
                rows += [
                    measured(f"{shape}", shape, dtype, threads, causal=causal, target=held,
                             rounds=rounds)
                    for causal in (False, True)
                ]  # fmt: skip
            rows += [
                measured(f"{what} {shape}", shape, dtype, threads, rounds=rounds)
                for what, shape in OTHERS.items()
            ]
        for isa in available:
            if isa != "portable":
                target = AVX2_TARGET if isa == "avx2" else None
                rows.append(
                    measured(f"{isa} alone, {SHAPES[0]}", SHAPES[0], "float32", threads, isa=isa,
                             target=target, rounds=rounds)
                )  # fmt: skip
    emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
