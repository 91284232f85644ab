"""Who served a call, and why: counted for `stats`, and told to the traces that are open.

    served("scaled_dot_product_attention", "flash", "the first of the order", (1, 8, 1024, 64))

Operations that are written in Python call it once for each call that they served, after it
succeeded, with what `trace` shows: its sizes and, as a fifth argument, its dtype. The reason is one
of a few texts, without numbers of this call in it, because each is counted by itself. Products
count in C instead: see `backendcfg.ops.statistics`.
"""

from __future__ import annotations

from backendcfg._native import served

__all__ = ["WORDS", "counted", "served"]

WORDS = {
    "first": "the first of the order",
    "fastest": "measured to be the fastest for its size",
    "able": "those before it in the order cannot",
    "empty": "there is nothing to multiply",
    "small": "our own code is faster for matrices this small",
    "steady": "its bits do not depend on threads, as `determinism.tier` promises",
}
"""The reasons that C gives, in words."""


def counted() -> dict[tuple[str, str, str], int]:
    """Calls by (operation, provider, because) since the start or the last `reset_stats`."""
    from backendcfg._native import served_counts

    return {(o, p, WORDS.get(why, why)): count for (o, p, why), count in served_counts().items()}
