"""Attention as plain products: over `matmul`, by the library that the profile chooses.

It holds the scores of as many heads at once as fit a budget. Sixteen-bit numbers are computed in
float32; where `cuda.allow_fp16_bf16_reduction_math_sdp` allows it, scores and weights are rounded
to sixteen bits on the way, as PyTorch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backendcfg._native import matmul
from backendcfg.ops.arrays import round_to, widen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

BUDGET = 1 << 24
"""Scores that are held at once, if one head has no more."""


class Options(NamedTuple):
    """What a call asks for, besides its arrays.

    Attributes:
        is_causal: whether a query sees the keys up to its own position alone.
        scale: what scores are multiplied by.
        dropout_p: the probability that a weight is dropped.
        seed: of dropout, 64 bits.
        element: of the arrays; "bfloat16" arrays hold uint16.
        rounded: whether scores and weights are rounded to `element` on the way.
    """

    is_causal: bool
    scale: float
    dropout_p: float
    seed: int
    element: str
    rounded: bool


@np.errstate(all="ignore")  # NaN and infinity are results like any other
def forward(
    query: Array, key: Array, value: Array, mask: Array | None, options: Options
) -> tuple[Array, Array]:
    """The result, and the logarithm of the sum of exponentials of each row of scores.

    Args:
        query: (batch, heads, queries, width).
        key: (batch, key heads, keys, width); key heads divide heads.
        value: (batch, value heads, keys, value width).
        mask: (batch, heads, queries, keys), bool or what is added, or None.
        options: the rest.
    """
    batch, heads, queries, _ = query.shape
    work = np.float64 if options.element == "float64" else np.float32
    out = np.empty((batch, heads, queries, value.shape[3]), query.dtype)
    logsumexp = np.empty((batch, heads, queries), work)
    for part in _parts(query, key):
        weights, logsumexp[part] = _weights(query, key, mask, options, part)
        if options.dropout_p:
            weights *= _kept(weights.shape, part, heads, options)
        out[part] = round_to(matmul(weights, _of(value, part, heads, options)), options.element)
    return out, logsumexp


@np.errstate(all="ignore")
def backward(
    arrays: tuple[Array, Array, Array, Array, Array, Array], mask: Array | None, options: Options
) -> tuple[Array, Array, Array]:
    """The gradients of query, key and value.

    Args:
        arrays: grad_out, query, key, value, out and logsumexp, as `forward` has them.
        mask: as for `forward`.
        options: as for `forward`.
    """
    grad_out, query, key, value, out, logsumexp = arrays
    heads = query.shape[1]
    work = np.float64 if options.element == "float64" else np.float32
    grad_query, grad_key, grad_value = (np.zeros(a.shape, work) for a in (query, key, value))
    for part in _parts(query, key):
        scores = _scores(query, key, mask, options, part)
        # A row that sees nothing has weights of 0, as forward gave it.
        total = logsumexp[part][..., None]
        weights = np.exp(scores - np.where(np.isneginf(total), 0, total))
        given = widen(grad_out[part], options.element)
        kept = _kept(weights.shape, part, heads, options) if options.dropout_p else None
        dropped = weights if kept is None else weights * kept
        _add(grad_value, part, heads, matmul(dropped.swapaxes(-1, -2), given))
        share = matmul(given, _of(value, part, heads, options).swapaxes(-1, -2))
        if kept is not None:
            share *= kept
        share -= np.sum(given * widen(out[part], options.element), axis=-1, keepdims=True)
        share *= weights
        share *= work(options.scale)
        grad_query[part] = matmul(share, _of(key, part, heads, options))
        _add(
            grad_key, part, heads, matmul(share.swapaxes(-1, -2), _of(query, part, heads, options))
        )
    narrowed = [round_to(each, options.element) for each in (grad_query, grad_key, grad_value)]
    return narrowed[0], narrowed[1], narrowed[2]


def _parts(query: Array, key: Array) -> Iterator[tuple[slice, slice]]:
    """Slices of (batch, heads) whose scores fit the budget."""
    batch, heads, each = query.shape[0], query.shape[1], query.shape[2] * key.shape[2]
    if batch * heads * each <= BUDGET:
        yield slice(0, batch), slice(0, heads)
        return
    step = max(1, min(heads, BUDGET // max(1, each)))
    for at in range(batch):
        for first in range(0, heads, step):
            yield slice(at, at + 1), slice(first, min(first + step, heads))


def _of(array: Array, part: tuple[slice, slice], heads: int, options: Options) -> Array:
    """The heads of an array that those of a part use, one for each, to compute with."""
    batch, queried = part
    group = heads // array.shape[1]
    if group == 1:
        return widen(array[part], options.element)
    used = np.arange(queried.start, queried.stop) // group
    return widen(array[batch][:, used], options.element)


def _add(total: Array, part: tuple[slice, slice], heads: int, share: Array) -> None:
    """Add what each head of a part gives to the head that it uses, in the order of heads."""
    batch, queried = part
    group = heads // total.shape[1]
    for at, head in enumerate(range(queried.start, queried.stop)):
        total[batch, head // group] += share[:, at]


def _scores(
    query: Array, key: Array, mask: Array | None, options: Options, part: tuple[slice, slice]
) -> Array:
    heads = query.shape[1]
    scores = matmul(
        _of(query, part, heads, options), _of(key, part, heads, options).swapaxes(-1, -2)
    )
    scores *= scores.dtype.type(options.scale)
    if mask is not None:
        seen = mask[part]
        if seen.dtype == np.bool_:
            # Added, as PyTorch and the fused kernels do: a score of NaN is not hidden by it.
            np.add(scores, -np.inf, out=scores, where=~seen)
        else:
            scores += seen if seen.dtype.itemsize >= 4 else widen(seen, options.element)
    if options.is_causal:
        scores[..., ~np.tri(*scores.shape[-2:], dtype=np.bool_)] = -np.inf
    return _round(scores, options)


def _weights(
    query: Array, key: Array, mask: Array | None, options: Options, part: tuple[slice, slice]
) -> tuple[Array, Array]:
    scores = _scores(query, key, mask, options, part)
    highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    highest[np.isneginf(highest)] = 0  # a row that sees nothing
    scores -= highest
    np.exp(scores, out=scores)
    total = np.sum(scores, axis=-1, keepdims=True)
    logsumexp = (highest + np.log(total))[..., 0]
    total[total == 0] = 1
    scores /= total
    return _round(scores, options), logsumexp


def _round(array: Array, options: Options) -> Array:
    if not options.rounded:
        return array
    return widen(round_to(array, options.element), options.element)


def _kept(shape: tuple[int, ...], part: tuple[slice, slice], heads: int, options: Options) -> Array:
    """What each weight is multiplied by: 0 where it is dropped.

    The generator is that of our kernels (native/src/kernels/philox.h), so that they drop the same.
    """
    batch, queried = part
    rows = np.arange(batch.start, batch.stop, dtype=np.uint64)[:, None] * np.uint64(heads)
    where = (rows + np.arange(queried.start, queried.stop, dtype=np.uint64))[:, :, None, None]
    groups = np.arange((shape[-1] + 3) // 4, dtype=np.uint64)
    queries = np.arange(shape[-2], dtype=np.uint64)[:, None]
    words = np.stack(_philox(options.seed, groups, queries, where), axis=-1)
    words = words.reshape(*words.shape[:-2], -1)[..., : shape[-1]]
    dropped = words < np.uint64(int(options.dropout_p * 2.0**32))
    factor = 1 / (1 - options.dropout_p) if options.dropout_p < 1 else 0.0
    work = np.float64 if options.element == "float64" else np.float32
    return np.where(dropped, work(0), work(factor))


def _philox(seed: int, first: Array, second: Array, third: Array) -> tuple[Array, ...]:
    """Philox 4x32-10 of counters (first, second, low and high word of third); 32 bits in 64."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c = np.broadcast_arrays(first, second, third)
    c, d = c & low, c >> half
    one, two = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, c = (right >> half) ^ b ^ np.uint64(one), (left >> half) ^ d ^ np.uint64(two)
        b, d = right & low, left & low
        one, two = (one + 0x9E3779B9) & 0xFFFFFFFF, (two + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d
