"""Attention as cuDNN's graph of operations: a pure function from a problem to descriptors.

    graph(problem)      # for `_native`: descriptors, each a type and its attributes

    scores = query keyᵀ · scale + bias         a product, and operations on each number
    scores = scores where row >= column        under `is_causal`
    logsumexp = max + log(sum(exp(scores - max)))
    out = (exp(scores - max) / sum) value

It is the composite form that NVIDIA's frontend has built since cuDNN 9.0, and PyTorch with it;
cuDNN knows it as attention and fuses it into one kernel. From 9.13 there is one operation for all
of it, `CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR`, which takes a causal or an added mask only
from 9.21: it is not used. cuDNN matches the operations as they are: without the logarithm and its
sum, which nobody reads when `logsumexp` is not wanted, it finds no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

# Names of cudnnBackendDescriptorType_t.
_POINTWISE, _OF_POINTWISE, _GRAPH, _TENSOR = 0, 13, 15, 17
_MATMUL, _OF_MATMUL, _REDUCTION, _OF_REDUCTION = 18, 19, 21, 22
# cudnnBackendAttributeType_t
_HANDLE, _DATA_TYPE, _BOOLEAN, _INT64, _MODE, _DESCRIPTOR, _REDUCER = 0, 1, 2, 3, 14, 15, 18
# cudnnDataType_t
FLOAT, INT32, BOOLEAN = 0, 4, 11
TYPES = {"float32": FLOAT, "float16": 2, "bfloat16": 9}
# cudnnPointwiseMode_t and cudnnReduceTensorOp_t
_ADD, _MUL, _DIV, _SUB, _EXP, _LOG = 0, 1, 6, 9, 13, 15
_GREATER_OR_EQUAL, _INDEX, _SELECT = 303, 501, 601
_SUM, _GREATEST = 0, 3

QUERY, KEY, VALUE, OUT, SCALE, BIAS, HIDDEN, LOGSUMEXP = range(1, 9)
"""The numbers of the tensors that a run is given the memory of, `CUDNN_ATTR_TENSOR_UNIQUE_ID`."""
_FIRST_VIRTUAL = 100

ALIGNMENT = 16
"""Of the memory of an array, in bytes."""

INFINITY_SINCE = 91000
"""The first version to which a hidden score is minus infinity, and not the least float32."""

NONDETERMINISTIC = 4
"""`CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC`: the engine may give other bits from run to run."""

Four = tuple[int, int, int, int]


class Attribute(NamedTuple):
    """One attribute of a descriptor, with cuDNN's numbers."""

    name: int
    type: int
    values: tuple[Any, ...]


class Descriptor(NamedTuple):
    """One descriptor. Attributes that are descriptors give their places in the graph."""

    type: int
    attributes: tuple[Attribute, ...]


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


def graph(problem: Problem) -> tuple[Descriptor, ...]:
    """The descriptors of a problem; the last one is the operation graph."""
    made = _Maker()
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    scores, rows = (batch, heads, queries, key.shape[2]), (batch, heads, queries, 1)
    turned = (key.shape[0], key.shape[1], key.shape[3], key.shape[2])
    steps = (key.strides[0], key.strides[1], key.strides[3], key.strides[2])
    first = made.tensor(query.shape, query.strides, TYPES[query.element], QUERY)
    second = made.tensor(turned, steps, TYPES[key.element], KEY)
    last = made.tensor(value.shape, value.strides, TYPES[value.element], VALUE)
    out = made.tensor(problem.out.shape, problem.out.strides, TYPES[problem.out.element], OUT)

    product = made.virtual(scores)
    made.matmul(first, second, product)
    score = made.pointwise(_MUL, product, scores, made.scalar(SCALE))
    if problem.bias is not None:
        bias = problem.bias
        added = made.tensor(bias.shape, bias.strides, TYPES[bias.element], BIAS)
        score = made.pointwise(_ADD, score, scores, added)
    if problem.is_causal:
        row = made.index(score, scores, 2)
        column = made.index(score, scores, 3)
        seen = made.pointwise(_GREATER_OR_EQUAL, row, scores, column, kind=BOOLEAN)
        score = made.pointwise(_SELECT, score, scores, made.scalar(HIDDEN), seen)

    greatest = made.reduction(_GREATEST, score, rows)
    less = made.pointwise(_SUB, score, scores, greatest)
    power = made.pointwise(_EXP, less, scores)
    total = made.reduction(_SUM, power, rows)
    logarithm = made.pointwise(_LOG, total, rows)
    number = LOGSUMEXP if problem.with_logsumexp else 0
    made.pointwise(_ADD, greatest, rows, logarithm, number=number)
    weights = made.virtual(scores, TYPES[query.element])
    made.pointwise(_DIV, power, scores, total, into=weights)
    made.matmul(weights, last, out)
    return made.finish()


class _Maker:
    """Descriptors as they are made, and which of them are operations."""

    def __init__(self) -> None:
        self.descriptors: list[Descriptor] = []
        self.operations: list[int] = []
        self.virtuals = _FIRST_VIRTUAL

    def add(self, kind: int, *attributes: tuple[int, int, Sequence[Any]]) -> int:
        found = tuple(Attribute(name, type_, tuple(values)) for name, type_, values in attributes)
        self.descriptors.append(Descriptor(kind, found))
        return len(self.descriptors) - 1

    def tensor(
        self, shape: Four, strides: Four, element: int, number: int = 0, *, by_value: bool = False
    ) -> int:
        """A tensor; without a number it is virtual, and has no memory."""
        if not number:
            self.virtuals += 1
        return self.add(
            _TENSOR,
            (901, _DATA_TYPE, [element]),
            (902, _INT64, shape),
            (903, _INT64, strides),
            (906, _INT64, [number or self.virtuals]),
            (900, _INT64, [ALIGNMENT]),
            (907, _BOOLEAN, [not number]),
            (908, _BOOLEAN, [by_value]),
        )

    def virtual(self, shape: Four, element: int = FLOAT) -> int:
        return self.tensor(shape, dense(shape), element)

    def scalar(self, number: int) -> int:
        return self.tensor((1, 1, 1, 1), (1, 1, 1, 1), FLOAT, number, by_value=True)

    def matmul(self, left: int, right: int, out: int) -> None:
        product = self.add(_MATMUL, (1500, _DATA_TYPE, [FLOAT]))
        self.operation(_OF_MATMUL, {1520: left, 1521: right, 1522: out, 1523: product})

    def reduction(self, how: int, of: int, shape: Four) -> int:
        out = self.virtual(shape)
        reducer = self.add(_REDUCTION, (1600, _REDUCER, [how]), (1601, _DATA_TYPE, [FLOAT]))
        self.operation(_OF_REDUCTION, {1610: of, 1611: out, 1612: reducer})
        return out

    def index(self, like: int, shape: Four, axis: int) -> int:
        """The position of each number along an axis."""
        out = self.virtual(shape, INT32)
        mode = self.add(
            _POINTWISE, (0, _MODE, [_INDEX]), (1, _DATA_TYPE, [FLOAT]), (9, _INT64, [axis])
        )
        self.operation(_OF_POINTWISE, {750: mode, 751: like, 753: out})
        return out

    def pointwise(
        self,
        how: int,
        first: int,
        shape: Four,
        second: int | None = None,
        third: int | None = None,
        *,
        kind: int = FLOAT,
        number: int = 0,
        into: int | None = None,
    ) -> int:
        """An operation on each number, into a tensor of its own unless one is given."""
        if into is None:
            into = self.tensor(shape, dense(shape), kind, number)
        mode = self.add(_POINTWISE, (0, _MODE, [how]), (1, _DATA_TYPE, [kind]))
        given = {750: mode, 751: first, 753: into}
        if second is not None:
            given[752] = second
        if third is not None:
            given[758] = third
        self.operation(_OF_POINTWISE, given)
        return into

    def operation(self, kind: int, given: dict[int, int]) -> None:
        attributes = [(name, _DESCRIPTOR, [place]) for name, place in given.items()]
        self.operations.append(self.add(kind, *attributes))

    def finish(self) -> tuple[Descriptor, ...]:
        self.add(_GRAPH, (800, _HANDLE, [0]), (801, _DESCRIPTOR, self.operations))
        return tuple(self.descriptors)
