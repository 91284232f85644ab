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
from backendcfg.gpu.products import calls as device_products
from backendcfg.gpu.sparse import calls as sparse
from backendcfg.gpu.sparse.calls import (
    Compressed,
    SparseAlgorithm,
    sparse_compress,
    sparse_matmul,
    sparse_search,
)
from backendcfg.ops import (
    explainers,
    families,
    fft,
    linalg,
    linalg_choice,
    product_choice,
    tracing,
    transforms_explained,
)
from backendcfg.ops.attention import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from backendcfg.ops.convolution import conv2d
from backendcfg.ops.einsum import einsum
from backendcfg.ops.explanation import Explanation, Reason, explain
from backendcfg.ops.products import addmm, baddbmm, bmm, foreign_matmul
from backendcfg.ops.refusal import refuse
from backendcfg.ops.statistics import Record, Served, Statistics, reset_stats, stats
from backendcfg.ops.torch_attention import TorchAttention, serve_torch
from backendcfg.ops.tracing import Call, Trace, trace

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
    traced=tracing.traced,
)
device_products.bind()
native.set_default(snapshots.default())

families.register("matmul", product_choice.explain)
for _name, _explainer in explainers.EXPLAINERS.items():
    families.register(_name, _explainer)
for _function in linalg_choice.FUNCTIONS:
    families.register(f"linalg.{_function}", linalg_choice.explain)
transforms_explained.register()
for _name in sparse.OPERATIONS:
    families.register(_name, sparse.explain_sparse)
