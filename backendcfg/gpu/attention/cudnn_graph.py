"""Attention as cuDNN's graph of operations: a pure function from a problem to its description.

    graph(problem)      # for `_native.device_engines` and its like

    scores = query keyᵀ · scale + bias         a product, and operations on each number
    scores = scores where row >= column        under `is_causal`
    logsumexp = max + log(sum(exp(scores - max)))
    out = (exp(scores - max) / sum) value

It is the composite form that NVIDIA's frontend has built since cuDNN 9.0, and PyTorch with it;
cuDNN knows it as attention and fuses it into one kernel. From 9.13 there is one operation for all
of it, `CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR`, which takes a causal or an added mask only
from 9.21: it is not used. cuDNN matches the operations as they are: without the logarithm and its
sum, which nobody reads when `logsumexp` is not wanted, 9.28 finds no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.gpu.cudnn.operations import Array, Maker, turned
from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.gpu.cudnn.graph import Description

QUERY, KEY, VALUE, OUT, SCALE, BIAS, HIDDEN, LOGSUMEXP = range(1, 9)
"""The numbers of the tensors that a run is given the memory of."""

INFINITY_SINCE = 91000
"""The first version to which a hidden score is minus infinity, and not the least float32."""


@record(frozen=True)
class Problem:
    """What a graph is made for; equal problems have equal graphs.

    Attributes:
        query: (batch, heads, queries, width).
        key: (batch, key heads, keys, width).
        value: (batch, value heads, keys, value width).
        out: (batch, heads, queries, value width), of the element of query.
        bias: what is added to the scores: (batch or 1, heads or 1, queries or 1, keys or 1).
        is_causal: query i sees keys 0 to i.
        with_logsumexp: whether the logarithms are written: (batch, heads, queries, 1), dense.
    """

    query: Array
    key: Array
    value: Array
    out: Array
    bias: Array | None = None
    is_causal: bool = False
    with_logsumexp: bool = False


def numbers(problem: Problem) -> tuple[int, ...]:
    """The tensors whose memory a run needs, in the order in which it is given.

    `SCALE` and `HIDDEN` are passed by value: one float32 of the host each.
    """
    wanted = [QUERY, KEY, VALUE, OUT, SCALE]
    wanted += [BIAS] if problem.bias is not None else []
    wanted += [HIDDEN] if problem.is_causal else []
    return (*wanted, *([LOGSUMEXP] if problem.with_logsumexp else []))


def hidden_score(version: int) -> float:
    """What a hidden score is set to by a version of cuDNN, as it writes it: 91500 is 9.15.0."""
    return float("-inf") if version >= INFINITY_SINCE else -3.4028234663852886e38


def graph(problem: Problem) -> Description:
    """The description of a problem, with a number of its own."""
    made = Maker()
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    scores, rows = (batch, heads, queries, key.shape[2]), (batch, heads, queries, 1)

    product = made.virtual(scores)
    made.matmul(made.array(QUERY, query), made.array(KEY, turned(key)), product)
    score = made.pointwise("MUL", scores, product, made.scalar(SCALE))
    if problem.bias is not None:
        score = made.pointwise("ADD", scores, score, made.array(BIAS, problem.bias))
    if problem.is_causal:
        score = made.causal(scores, score, made.scalar(HIDDEN))

    greatest = made.reduction("MAX", rows, score)
    power = made.pointwise("EXP", scores, made.pointwise("SUB", scores, score, greatest))
    total = made.reduction("ADD", rows, power)
    logarithm = made.pointwise("LOG", rows, total)
    number = LOGSUMEXP if problem.with_logsumexp else 0
    made.pointwise("ADD", rows, greatest, logarithm, number=number)
    weights = made.virtual(scores, query.element)
    made.pointwise("DIV", scores, power, total, into=weights)
    made.matmul(weights, made.array(VALUE, value), made.array(OUT, problem.out))
    return made.done()
