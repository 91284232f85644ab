"""The gradients of attention as cuDNN's graph of operations.

    graph(problem)      # for `_native.device_engines` and its like

    weights = exp(query keyᵀ · scale + bias - logsumexp)         0 where hidden
    grad_value = weightsᵀ grad_out
    delta = sum(grad_out · out)                                  of each row
    slopes = weights · (grad_out valueᵀ - delta) · scale
    grad_key = slopesᵀ query
    grad_query = slopes key

As of attention itself it is the composite form of NVIDIA's frontend. delta, and where the engine
may vary from run to run the sums of grad_query in float32, are memory that a run is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.gpu.attention import cudnn_graph
from backendcfg.gpu.attention.cudnn_graph import (
    BIAS,
    HIDDEN,
    KEY,
    LOGSUMEXP,
    OUT,
    QUERY,
    SCALE,
    VALUE,
)
from backendcfg.gpu.cudnn.operations import Array, Maker, dense, turned
from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.gpu.attention.cudnn_graph import Problem
    from backendcfg.gpu.cudnn.graph import Description

GRAD_OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE, DELTA, SUMS, ONE = range(9, 16)
"""The numbers of the tensors that a run is given the memory of, after those of attention."""


@record(frozen=True)
class Backward:
    """What a graph is made for.

    Attributes:
        forward: the call that it is the gradients of, with its logarithms.
        grad_out: of the shape of its result.
        is_summed: whether blocks add to the gradient of query, in float32 and in any order; else
            it is one product, of slopes that cuDNN keeps in its workspace.
    """

    forward: Problem
    grad_out: Array
    is_summed: bool = True


def numbers(problem: Backward) -> tuple[int, ...]:
    """The tensors whose memory a run needs, in the order in which it is given.

    `ONE` is passed by value too. `DELTA` and `SUMS` are memory to work in, of float32: (batch,
    heads, queries, 1), and of the shape of query, both dense.
    """
    wanted = (*cudnn_graph.numbers(problem.forward), GRAD_OUT, GRAD_QUERY, GRAD_KEY, GRAD_VALUE)
    return (*wanted, DELTA, ONE, *([SUMS] if problem.is_summed else []))


def graph(problem: Backward) -> Description:
    """The description of a problem, with a number of its own."""
    made, of = Maker(), problem.forward
    batch, heads, queries, _ = of.query.shape
    keys = of.key.shape[2]
    element = of.query.element
    scores, rows = (batch, heads, queries, keys), (batch, heads, queries, 1)
    upright = (batch, heads, keys, queries), (heads * queries * keys, queries * keys, 1, keys)
    query, out = made.array(QUERY, of.query), made.array(OUT, of.out)
    key, value = made.array(KEY, turned(of.key)), made.array(VALUE, turned(of.value))
    grad_out = made.array(GRAD_OUT, problem.grad_out)
    scale = made.scalar(SCALE)

    delta = made.reduction("ADD", rows, made.pointwise("MUL", of.out.shape, grad_out, out))
    delta = made.pointwise("MUL", rows, delta, made.scalar(ONE), number=DELTA)

    score = made.virtual(scores)
    made.matmul(query, key, score)
    score = made.pointwise("MUL", scores, score, scale)
    if of.bias is not None:
        score = made.pointwise("ADD", scores, score, made.array(BIAS, of.bias))
    total = made.array(LOGSUMEXP, Array("float32", rows, dense(rows)))
    score = made.pointwise("SUB", scores, score, total)
    if of.is_causal:
        score = made.causal(scores, score, made.scalar(HIDDEN))
    weights = made.pointwise("EXP", scores, score)

    tall = made.virtual(upright[0], element, upright[1])
    made.reshape(weights, tall)
    _product(made, tall, grad_out, GRAD_VALUE, like=of.value, heads=heads)

    slope = made.virtual(scores)
    made.matmul(grad_out, value, slope)
    slope = made.pointwise("SUB", scores, slope, delta)
    slope = made.pointwise("MUL", scores, slope, weights)
    slope = made.pointwise("MUL", scores, slope, scale)
    tall = made.virtual(upright[0], element, upright[1])
    made.reshape(slope, tall)
    _product(made, tall, query, GRAD_KEY, like=of.key, heads=heads)

    plain = made.virtual(of.key.shape, element, of.key.strides)
    made.reshape(key, plain)
    shape = of.query.shape
    into = made.array(GRAD_QUERY, Array(element, shape, dense(shape)))
    if problem.is_summed:
        sums = made.array(SUMS, Array("float32", shape, dense(shape)))
        made.matmul(slope, plain, sums)
        made.pointwise("IDENTITY", shape, sums, into=into)
    else:
        made.matmul(slope, plain, into)
    return made.done()


def _product(made: Maker, left: int, right: int, number: int, *, like: Array, heads: int) -> None:
    """A gradient of key or value: a product, summed over the heads that share one."""
    shape = like.shape
    out = made.array(number, Array(like.element, shape, dense(shape)))
    if heads == shape[1]:
        made.matmul(left, right, out)
        return
    each = made.virtual((shape[0], heads, *shape[2:]), like.element)
    made.matmul(left, right, each)
    made.reduction("ADD", shape, each, into=out)
