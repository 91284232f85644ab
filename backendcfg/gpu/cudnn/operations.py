"""Operations of cuDNN on arrays of four dimensions, of which attention is described.

    made = Maker()
    scores = made.virtual((batch, heads, queries, keys))
    made.matmul(made.array(1, query), made.array(2, turned(key)), scores)
    ...
    described = made.done()

The result of an operation has no memory unless it is given some: cuDNN fuses what lies between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.gpu.cudnn.graph import DATA, Graph, named

if TYPE_CHECKING:
    from backendcfg.gpu.cudnn.graph import Description

MODES = named("CUDNN_POINTWISE_")
"""cudnnPointwiseMode_t"""

REDUCERS = named("CUDNN_REDUCE_TENSOR_")
"""cudnnReduceTensorOp_t"""

_FIRST_VIRTUAL = 100

ALIGNMENT = 16
"""Of the memory of an array, in bytes."""


def dense(shape: tuple[int, ...], element: str) -> ArrayFacts:
    """An array of four dimensions whose rows follow each other."""
    _, heads, length, width = shape
    return ArrayFacts(shape, (heads * length * width, length * width, width, 1), element)


def turned(of: ArrayFacts) -> ArrayFacts:
    """The same memory, with rows and columns exchanged."""
    (a, b, c, d), (e, f, g, h) = of.shape, of.strides
    return of._replace(shape=(a, b, d, c), strides=(e, f, h, g))


class Maker:
    """A graph while it is made, its operations, and the number of the latest virtual tensor."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.operations: list[int] = []
        self.latest = _FIRST_VIRTUAL

    def array(self, number: int, of: ArrayFacts) -> int:
        return self.graph.tensor(number, of.element, of.shape, of.strides, ALIGNMENT)

    def virtual(
        self,
        shape: tuple[int, ...],
        element: str = "float32",
        strides: tuple[int, ...] | None = None,
    ) -> int:
        """A tensor that has no memory; dense unless strides say otherwise."""
        self.latest += 1
        return self.graph.tensor(
            *(self.latest, element, shape, strides or dense(shape, element).strides, ALIGNMENT),
            TENSOR_IS_VIRTUAL=True,
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

    def reduction(self, how: str, shape: tuple[int, ...], of: int, *, into: int = -1) -> int:
        """Over what is longer than in `shape`, into a tensor of its own unless one is given."""
        out = self.virtual(shape) if into < 0 else into
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

    def index(self, shape: tuple[int, ...], like: int, axis: int) -> int:
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

    def reshape(self, of: int, out: int) -> None:
        """The same numbers as an array of another shape, or with other strides."""
        self.operation("OPERATION_RESHAPE", OPERATION_RESHAPE_XDESC=of, OPERATION_RESHAPE_YDESC=out)

    def causal(self, shape: tuple[int, ...], scores: int, hidden: int) -> int:
        """Scores where query i sees keys 0 to i, and what hides one elsewhere."""
        row, column = (self.index(shape, scores, axis) for axis in (2, 3))
        seen = self.pointwise("CMP_GE", shape, row, column, element="bool")
        return self.pointwise("BINARY_SELECT", shape, scores, hidden, seen)

    def pointwise(
        self,
        how: str,
        shape: tuple[int, ...],
        *inputs: int,
        element: str = "float32",
        number: int = 0,
        into: int = -1,
    ) -> int:
        """An operation on each number, into a tensor of its own unless one is given."""
        if into < 0 and number:
            into = self.array(number, dense(shape, element))
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

    def done(self) -> Description:
        """The description of all operations, with a number of its own."""
        return self.graph.done(*self.operations)
