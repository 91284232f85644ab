"""Operations that backendcfg serves itself, by the library that the profile in force chooses.

    from backendcfg import ops

    c = ops.matmul(a, b)
    print(ops.explain("matmul", shapes=(a.shape, b.shape), dtype=a.dtype))

An operation takes the flags and libraries of its context once, when it starts: a profile that is
switched meanwhile does not touch it. Without a profile, NumPy's own library serves.
"""

from __future__ import annotations

from backendcfg import _native, native
from backendcfg._native import matmul
from backendcfg.dispatch import snapshots
from backendcfg.ops.explanation import Explanation, Reason, explain
from backendcfg.ops.refusal import refuse
from backendcfg.ops.statistics import Served, reset_stats, stats

__all__ = ["Explanation", "Reason", "Served", "explain", "matmul", "reset_stats", "stats"]

_native.set_array_api()  # imports NumPy, so that its library is in the process
_native.bind(materialise=snapshots.materialise, refuse=refuse)
native.set_default(snapshots.default())
