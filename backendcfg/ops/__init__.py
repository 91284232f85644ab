"""Operations that backendcfg serves itself, by the library that the profile in force chooses.

    from backendcfg import ops

    c = ops.matmul(a, b)
    print(ops.explain("matmul", shapes=(a.shape, b.shape), dtype=a.dtype))
    print(ops.stats())
    with ops.trace() as calls:
        ops.matmul(a, b)
    print(calls)

An operation takes the flags and libraries of its context once, when it starts: a profile that is
switched meanwhile does not touch it. Without a profile, NumPy's own library serves.
"""

from __future__ import annotations

from backendcfg import _native, native
from backendcfg._native import matmul
from backendcfg.dispatch import snapshots
from backendcfg.ops import convolution, devices, explanation, fft, linalg, products, serving, sparse
from backendcfg.ops.attention import calls as attention_calls
from backendcfg.ops.attention import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from backendcfg.ops.attention.torch_kernels import TorchAttention, serve_torch
from backendcfg.ops.convolution import conv2d
from backendcfg.ops.einsum import einsum
from backendcfg.ops.einsum import explain as explain_einsum
from backendcfg.ops.explanation import Explanation, Reason, explain
from backendcfg.ops.fft import choice as fft_choice
from backendcfg.ops.products import addmm, baddbmm, bmm, foreign_matmul, refuse
from backendcfg.ops.serving import (
    Call,
    Record,
    Served,
    Statistics,
    Trace,
    reset_stats,
    stats,
    trace,
)
from backendcfg.ops.sparse import (
    Compressed,
    SparseAlgorithm,
    sparse_compress,
    sparse_matmul,
    sparse_search,
)

__all__ = [
    "Call",
    "Compressed",
    "Explanation",
    "Reason",
    "Record",
    "Served",
    "SparseAlgorithm",
    "Statistics",
    "TorchAttention",
    "Trace",
    "addmm",
    "baddbmm",
    "bmm",
    "conv2d",
    "einsum",
    "explain",
    "fft",
    "linalg",
    "matmul",
    "reset_stats",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "serve_torch",
    "sparse_compress",
    "sparse_matmul",
    "sparse_search",
    "stats",
    "trace",
]

_native.set_array_api()  # imports NumPy, so that its library is in the process
_native.bind(
    materialise=snapshots.materialise,
    refuse=refuse,
    foreign=foreign_matmul,
    traced=serving.traced,
)
devices.bind()
native.set_default(snapshots.default())

explanation.register("matmul", products.explain)
for _name in ("addmm", "baddbmm", "bmm"):
    explanation.register(_name, products.explain_added)
for _name in (attention_calls.OPERATION, f"{attention_calls.OPERATION}_backward"):
    explanation.register(_name, attention_calls.explain)
explanation.register("conv2d", convolution.explain)
explanation.register("einsum", explain_einsum)
for _name in fft_choice.TRANSFORMS:
    explanation.register(f"fft.{_name}", fft_choice.explain)
for _name in linalg.FUNCTIONS:
    explanation.register(f"linalg.{_name}", linalg.explain)
for _name in sparse.OPERATIONS:
    explanation.register(_name, devices.explainer("explain_sparse"))
