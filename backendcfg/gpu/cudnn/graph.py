"""Operation graphs of cuDNN as data, which a `CudnnHandle` takes, and the operations of attention.

    graph = Graph()
    x = graph.tensor(1, "float32", (8, 3, 32, 32), (3072, 1024, 32, 1), alignment=16)
    ...
    operation = graph.add("OPERATION_CONVOLUTION_FORWARD", OPERATION_CONVOLUTION_FORWARD_X=x, ...)
    described = graph.done(operation)           # (number, descriptors)

A description is made once for each problem; its plans are known by its number.
Names are those of cudnn_graph.h without CUDNN_BACKEND_, _DESCRIPTOR, CUDNN_ATTR_ and CUDNN_TYPE_.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.gpu.libraries.signatures import CUDNN

if TYPE_CHECKING:
    from collections.abc import Sequence


def named(prefix: str, suffix: str = "") -> dict[str, int]:
    """The numbers of the header whose names begin and end so, by what lies between."""
    return {
        name.removeprefix(prefix).removesuffix(suffix): number
        for name, number in CUDNN.constants.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }


DESCRIPTORS = named("CUDNN_BACKEND_", "_DESCRIPTOR")
"""cudnnBackendDescriptorType_t"""

TYPES = named("CUDNN_TYPE_")
"""cudnnBackendAttributeType_t"""

_TYPES = {
    "POINTWISE_MODE": """
        POINTWISE_MODE
    """,
    "DATA_TYPE": """
        POINTWISE_MATH_PREC CONVOLUTION_COMP_TYPE TENSOR_DATA_TYPE MATMUL_COMP_TYPE
        REDUCTION_COMP_TYPE
    """,
    "INT64": """
        POINTWISE_AXIS CONVOLUTION_DILATIONS CONVOLUTION_FILTER_STRIDES
        CONVOLUTION_POST_PADDINGS CONVOLUTION_PRE_PADDINGS CONVOLUTION_SPATIAL_DIMS
        TENSOR_BYTE_ALIGNMENT TENSOR_DIMENSIONS TENSOR_STRIDES TENSOR_UNIQUE_ID
        EXECUTION_PLAN_WORKSPACE_SIZE VARIANT_PACK_UNIQUE_IDS ENGINE_GLOBAL_INDEX
    """,
    "CONVOLUTION_MODE": """
        CONVOLUTION_CONV_MODE
    """,
    "FLOAT": """
        OPERATION_CONVOLUTION_FORWARD_ALPHA OPERATION_CONVOLUTION_FORWARD_BETA
    """,
    "BACKEND_DESCRIPTOR": """
        OPERATION_CONVOLUTION_FORWARD_CONV_DESC OPERATION_CONVOLUTION_FORWARD_W
        OPERATION_CONVOLUTION_FORWARD_X OPERATION_CONVOLUTION_FORWARD_Y
        OPERATION_POINTWISE_PW_DESCRIPTOR OPERATION_POINTWISE_XDESC OPERATION_POINTWISE_BDESC
        OPERATION_POINTWISE_YDESC OPERATION_POINTWISE_TDESC OPERATIONGRAPH_OPS
        OPERATION_MATMUL_ADESC OPERATION_MATMUL_BDESC OPERATION_MATMUL_CDESC
        OPERATION_MATMUL_DESC OPERATION_REDUCTION_XDESC OPERATION_REDUCTION_YDESC
        OPERATION_REDUCTION_DESC OPERATION_RESHAPE_XDESC OPERATION_RESHAPE_YDESC
        ENGINEHEUR_OPERATION_GRAPH ENGINEHEUR_RESULTS ENGINECFG_ENGINE
        EXECUTION_PLAN_ENGINE_CONFIG
    """,
    "HANDLE": """
        OPERATIONGRAPH_HANDLE EXECUTION_PLAN_HANDLE
    """,
    "BOOLEAN": """
        TENSOR_IS_VIRTUAL TENSOR_IS_BY_VALUE
    """,
    "REDUCTION_OPERATOR_TYPE": """
        REDUCTION_OPERATOR
    """,
    "HEUR_MODE": """
        ENGINEHEUR_MODE
    """,
    "VOID_PTR": """
        VARIANT_PACK_DATA_POINTERS VARIANT_PACK_WORKSPACE
    """,
    "NUMERICAL_NOTE": """
        ENGINE_NUMERICAL_NOTE
    """,
    "BEHAVIOR_NOTE": """
        ENGINE_BEHAVIOR_NOTE
    """,
}

_NUMBERS = named("CUDNN_ATTR_")
ATTRIBUTES = {
    name: (_NUMBERS[name], TYPES[kind]) for kind, names in _TYPES.items() for name in names.split()
}
"""By name, cudnnBackendAttributeName_t and the type of the values."""

DATA = {"float32": 0, "float64": 1, "float16": 2, "int32": 4, "bfloat16": 9, "bool": 11}
"""cudnnDataType_t"""

NOTES = named("CUDNN_NUMERICAL_NOTE_")
"""cudnnBackendNumericalNote_t"""

BEHAVIOURS = named("CUDNN_BEHAVIOR_NOTE_")
"""cudnnBackendBehaviorNote_t"""

Description = tuple[int, tuple[Any, ...]]

_numbers = itertools.count(1)


class Graph:
    """A graph while it is made: its descriptors, which refer to each other by place."""

    __slots__ = ("descriptors",)

    def __init__(self) -> None:
        self.descriptors: list[tuple[int, tuple[Any, ...]]] = []

    def add(self, descriptor: str, **attributes: Any) -> int:
        """One more descriptor.

        Args:
            descriptor: its type, a key of `DESCRIPTORS`.
            attributes: by name, a key of `ATTRIBUTES`: one value or several, in the order that they
                are set. A descriptor is its place.

        Returns:
            Its place.
        """
        said = []
        for name, given in attributes.items():
            number, kind = ATTRIBUTES[name]
            values = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            said.append((number, kind, values))
        self.descriptors.append((DESCRIPTORS[descriptor], tuple(said)))
        return len(self.descriptors) - 1

    def tensor(
        self,
        number: int,
        element: str,
        shape: Sequence[int],
        strides: Sequence[int],
        alignment: int,
        **more: Any,
    ) -> int:
        """A tensor.

        Args:
            number: by which a run gives its memory.
            element: a key of `DATA`.
            shape: from 1 on.
            strides: in numbers.
            alignment: of its memory in bytes.
            more: attributes besides: `TENSOR_IS_VIRTUAL=True`.
        """
        return self.add(
            "TENSOR",
            TENSOR_UNIQUE_ID=number,
            TENSOR_DATA_TYPE=DATA[element],
            TENSOR_BYTE_ALIGNMENT=alignment,
            TENSOR_DIMENSIONS=tuple(shape),
            TENSOR_STRIDES=tuple(strides),
            **more,
        )

    def done(self, *operations: int) -> Description:
        """The description of a graph of operations."""
        self.add("OPERATIONGRAPH", OPERATIONGRAPH_HANDLE=(), OPERATIONGRAPH_OPS=operations)
        return next(_numbers), tuple(self.descriptors)


class Engine(NamedTuple):
    """An engine with its settings, as cuDNN's heuristics name it for a graph.

    Attributes:
        number: in cuDNN's list of engines.
        notes: what its results are like, names of `NOTES`.
        behaviour: what it needs, names of `BEHAVIOURS`.
    """

    number: int
    notes: tuple[str, ...]
    behaviour: tuple[str, ...]

    def __str__(self) -> str:
        said = ", ".join((*self.notes, *self.behaviour))
        return f"engine {self.number} ({said})" if said else f"engine {self.number}"


def engine(said: tuple[int, int, int]) -> Engine:
    """An engine, whose notes come as masks."""
    number, notes, behaviour = said
    return Engine(number, _named(notes, NOTES), _named(behaviour, BEHAVIOURS))


def _named(mask: int, names: dict[str, int]) -> tuple[str, ...]:
    known = {number: name for name, number in names.items()}
    return tuple(
        known.get(bit, f"note {bit}") for bit in range(mask.bit_length()) if mask >> bit & 1
    )


def alignment(address: int, most: int = 32) -> int:
    """Of memory, in bytes: a power of 2, at most `most`."""
    return min(address & -address, most) if address else most


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
