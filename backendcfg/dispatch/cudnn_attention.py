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

from backendcfg.dispatch.device_cudnn import DATA, Graph
from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.dispatch.device_cudnn import Description

MODES = {
    "ADD": 0,
    "MUL": 1,
    "DIV": 6,
    "SUB": 9,
    "EXP": 13,
    "LOG": 15,
    "CMP_GE": 303,
    "GEN_INDEX": 501,
    "BINARY_SELECT": 601,
}
"""cudnnPointwiseMode_t"""

REDUCERS = {"ADD": 0, "MAX": 3}
"""cudnnReduceTensorOp_t"""

QUERY, KEY, VALUE, OUT, SCALE, BIAS, HIDDEN, LOGSUMEXP = range(1, 9)
"""The numbers of the tensors that a run is given the memory of."""
_FIRST_VIRTUAL = 100

ALIGNMENT = 16
"""Of the memory of an array, in bytes."""

INFINITY_SINCE = 91000
"""The first version to which a hidden score is minus infinity, and not the least float32."""

Four = tuple[int, int, int, int]


@record(frozen=True)
class Array:
    """An array of four dimensions.

    Attributes:
        element: what it holds.
        shape: its sizes.
        strides: in numbers.
    """

    element: str
    shape: Four
    strides: Four


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


def dense(shape: Four) -> Four:
    """The strides of an array whose rows follow each other."""
    _, heads, length, width = shape
    return heads * length * width, length * width, width, 1


def graph(problem: Problem) -> Description:
    """The description of a problem, with a number of its own."""
    made = _Maker()
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    scores, rows = (batch, heads, queries, key.shape[2]), (batch, heads, queries, 1)
    turned = Array(key.element, _turned(key.shape), _turned(key.strides))

    product = made.virtual(scores)
    made.matmul(made.array(QUERY, query), made.array(KEY, turned), product)
    score = made.pointwise("MUL", scores, product, made.scalar(SCALE))
    if problem.bias is not None:
        score = made.pointwise("ADD", scores, score, made.array(BIAS, problem.bias))
    if problem.is_causal:
        row, column = (made.index(scores, score, axis) for axis in (2, 3))
        seen = made.pointwise("CMP_GE", scores, row, column, element="bool")
        score = made.pointwise("BINARY_SELECT", scores, score, made.scalar(HIDDEN), seen)

    greatest = made.reduction("MAX", rows, score)
    power = made.pointwise("EXP", scores, made.pointwise("SUB", scores, score, greatest))
    total = made.reduction("ADD", rows, power)
    logarithm = made.pointwise("LOG", rows, total)
    number = LOGSUMEXP if problem.with_logsumexp else 0
    made.pointwise("ADD", rows, greatest, logarithm, number=number)
    weights = made.virtual(scores, query.element)
    made.pointwise("DIV", scores, power, total, into=weights)
    made.matmul(weights, made.array(VALUE, value), made.array(OUT, problem.out))
    return made.graph.done(*made.operations)


def _turned(four: Four) -> Four:
    return four[0], four[1], four[3], four[2]


class _Maker:
    """A graph in the making, its operations, and the number of the latest virtual tensor."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.operations: list[int] = []
        self.latest = _FIRST_VIRTUAL

    def array(self, number: int, of: Array) -> int:
        return self.graph.tensor(number, of.element, of.shape, of.strides, ALIGNMENT)

    def virtual(self, shape: Four, element: str = "float32") -> int:
        """A tensor that has no memory."""
        self.latest += 1
        return self.graph.tensor(
            *(self.latest, element, shape, dense(shape), ALIGNMENT), TENSOR_IS_VIRTUAL=True
        )

    def scalar(self, number: int) -> int:
        one = (1, 1, 1, 1)
        return self.graph.tensor(*(number, "float32", one, one, ALIGNMENT), TENSOR_IS_BY_VALUE=True)

    def matmul(self, left: int, right: int, out: int) -> None:
        product = self.graph.add("MATMUL", MATMUL_COMP_TYPE=DATA["float32"])
        self.operation(
            "OPERATION_MATMUL",
            OPERATION_MATMUL_ADESC=left,
            OPERATION_MATMUL_BDESC=right,
            OPERATION_MATMUL_CDESC=out,
            OPERATION_MATMUL_DESC=product,
        )

    def reduction(self, how: str, shape: Four, of: int) -> int:
        """Along the keys."""
        out = self.virtual(shape)
        reducer = self.graph.add(
            "REDUCTION", REDUCTION_OPERATOR=REDUCERS[how], REDUCTION_COMP_TYPE=DATA["float32"]
        )
        self.operation(
            "OPERATION_REDUCTION",
            OPERATION_REDUCTION_XDESC=of,
            OPERATION_REDUCTION_YDESC=out,
            OPERATION_REDUCTION_DESC=reducer,
        )
        return out

    def index(self, shape: Four, like: int, axis: int) -> int:
        """The position of each number along an axis."""
        out = self.virtual(shape, "int32")
        mode = self.graph.add(
            "POINTWISE",
            POINTWISE_MODE=MODES["GEN_INDEX"],
            POINTWISE_MATH_PREC=DATA["float32"],
            POINTWISE_AXIS=axis,
        )
        self.operation(
            "OPERATION_POINTWISE",
            OPERATION_POINTWISE_PW_DESCRIPTOR=mode,
            OPERATION_POINTWISE_XDESC=like,
            OPERATION_POINTWISE_YDESC=out,
        )
        return out

    def pointwise(
        self,
        how: str,
        shape: Four,
        *inputs: int,
        element: str = "float32",
        number: int = 0,
        into: int = -1,
    ) -> int:
        """An operation on each number, into a tensor of its own unless one is given."""
        if into < 0 and number:
            into = self.array(number, Array(element, shape, dense(shape)))
        elif into < 0:
            into = self.virtual(shape, element)
        mode = self.graph.add(
            "POINTWISE", POINTWISE_MODE=MODES[how], POINTWISE_MATH_PREC=DATA[element]
        )
        ports = ("XDESC", "BDESC", "TDESC")
        self.operation(
            "OPERATION_POINTWISE",
            OPERATION_POINTWISE_PW_DESCRIPTOR=mode,
            OPERATION_POINTWISE_YDESC=into,
            **{
                f"OPERATION_POINTWISE_{port}": each
                for port, each in zip(ports, inputs, strict=False)
            },
        )
        return into

    def operation(self, kind: str, **given: int) -> None:
        self.operations.append(self.graph.add(kind, **given))
