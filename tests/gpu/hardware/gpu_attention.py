"""What the tests of attention on a GPU share: calls, tolerances, and who can serve one."""

import pytest

from backendcfg import ops

OPERATION = "scaled_dot_product_attention"
KERNELS = ("flash", "cudnn", "efficient", "math")
TOLERANCES = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 2e-5}

CALLS = {
    "square": ((2, 4, 128, 128, 64), {}),
    "causal": ((2, 4, 128, 128, 64), {"is_causal": True}),
    "wide": ((1, 2, 128, 128, 128), {"is_causal": True}),
    "77 tokens": ((1, 2, 77, 77, 64), {}),
    "one query": ((2, 4, 1, 200, 64), {}),
    "scaled": ((1, 2, 64, 96, 80), {"scale": 0.5}),
    "groups": ((1, 8, 64, 64, 64), {"enable_gqa": True}),
}


def arguments(cuda, name, dtype):
    (batch, heads, queries, keys, width), options = CALLS[name]
    few = heads // 4 if options.get("enable_gqa") else heads
    query = cuda.random(batch, heads, queries, width, dtype=dtype)
    key, value = (cuda.random(batch, few, keys, width, dtype=dtype) for _ in range(2))
    return (query, key, value), options


def needs(cuda, kernel, arrays, dtype, options, operation=OPERATION):
    """Skip a call that this kernel does not serve, for its own reason."""
    asked = {name: value for name, value in options.items() if name != "scale"}
    shapes = [tuple(each.shape) for each in arrays]
    said = ops.explain(operation, shapes, dtype, device=cuda.place, **asked)
    if said.provider != kernel:
        why = "; ".join(r.why for r in said.reasons if r.provider == kernel) or said.because
        pytest.skip(f"needs a GPU that `{kernel}` serves this on: {why}")
