"""Operation graphs of cuDNN as data: what `_native.device_engines` and its like take.

    graph = Graph()
    x = graph.tensor(1, "float32", (8, 3, 32, 32), (3072, 1024, 32, 1), alignment=16)
    ...
    operation = graph.add("OPERATION_CONVOLUTION_FORWARD", OPERATION_CONVOLUTION_FORWARD_X=x, ...)
    described = graph.done(operation)           # (number, descriptors)

A description is made once for each problem and has a number of its own, by which C knows its plans.
Names are those of cudnn_graph.h without CUDNN_BACKEND_, _DESCRIPTOR, CUDNN_ATTR_ and CUDNN_TYPE_.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTORS = {
    "POINTWISE": 0,
    "CONVOLUTION": 1,
    "OPERATION_CONVOLUTION_FORWARD": 10,
    "OPERATION_POINTWISE": 13,
    "OPERATIONGRAPH": 15,
    "TENSOR": 17,
    "MATMUL": 18,
    "OPERATION_MATMUL": 19,
    "REDUCTION": 21,
    "OPERATION_REDUCTION": 22,
    "OPERATION_RESHAPE": 31,
}
"""cudnnBackendDescriptorType_t"""

TYPES = {
    "HANDLE": 0,
    "DATA_TYPE": 1,
    "BOOLEAN": 2,
    "INT64": 3,
    "FLOAT": 4,
    "DOUBLE": 5,
    "CONVOLUTION_MODE": 7,
    "POINTWISE_MODE": 14,
    "BACKEND_DESCRIPTOR": 15,
    "REDUCTION_OPERATOR_TYPE": 18,
}
"""cudnnBackendAttributeType_t"""

ATTRIBUTES = {
    "POINTWISE_MODE": (0, "POINTWISE_MODE"),
    "POINTWISE_MATH_PREC": (1, "DATA_TYPE"),
    "POINTWISE_AXIS": (9, "INT64"),
    "CONVOLUTION_COMP_TYPE": (100, "DATA_TYPE"),
    "CONVOLUTION_CONV_MODE": (101, "CONVOLUTION_MODE"),
    "CONVOLUTION_DILATIONS": (102, "INT64"),
    "CONVOLUTION_FILTER_STRIDES": (103, "INT64"),
    "CONVOLUTION_POST_PADDINGS": (104, "INT64"),
    "CONVOLUTION_PRE_PADDINGS": (105, "INT64"),
    "CONVOLUTION_SPATIAL_DIMS": (106, "INT64"),
    "OPERATION_CONVOLUTION_FORWARD_ALPHA": (700, "FLOAT"),
    "OPERATION_CONVOLUTION_FORWARD_BETA": (701, "FLOAT"),
    "OPERATION_CONVOLUTION_FORWARD_CONV_DESC": (702, "BACKEND_DESCRIPTOR"),
    "OPERATION_CONVOLUTION_FORWARD_W": (703, "BACKEND_DESCRIPTOR"),
    "OPERATION_CONVOLUTION_FORWARD_X": (704, "BACKEND_DESCRIPTOR"),
    "OPERATION_CONVOLUTION_FORWARD_Y": (705, "BACKEND_DESCRIPTOR"),
    "OPERATION_POINTWISE_PW_DESCRIPTOR": (750, "BACKEND_DESCRIPTOR"),
    "OPERATION_POINTWISE_XDESC": (751, "BACKEND_DESCRIPTOR"),
    "OPERATION_POINTWISE_BDESC": (752, "BACKEND_DESCRIPTOR"),
    "OPERATION_POINTWISE_YDESC": (753, "BACKEND_DESCRIPTOR"),
    "OPERATION_POINTWISE_TDESC": (758, "BACKEND_DESCRIPTOR"),
    "OPERATIONGRAPH_HANDLE": (800, "HANDLE"),
    "OPERATIONGRAPH_OPS": (801, "BACKEND_DESCRIPTOR"),
    "TENSOR_BYTE_ALIGNMENT": (900, "INT64"),
    "TENSOR_DATA_TYPE": (901, "DATA_TYPE"),
    "TENSOR_DIMENSIONS": (902, "INT64"),
    "TENSOR_STRIDES": (903, "INT64"),
    "TENSOR_UNIQUE_ID": (906, "INT64"),
    "TENSOR_IS_VIRTUAL": (907, "BOOLEAN"),
    "TENSOR_IS_BY_VALUE": (908, "BOOLEAN"),
    "MATMUL_COMP_TYPE": (1500, "DATA_TYPE"),
    "OPERATION_MATMUL_ADESC": (1520, "BACKEND_DESCRIPTOR"),
    "OPERATION_MATMUL_BDESC": (1521, "BACKEND_DESCRIPTOR"),
    "OPERATION_MATMUL_CDESC": (1522, "BACKEND_DESCRIPTOR"),
    "OPERATION_MATMUL_DESC": (1523, "BACKEND_DESCRIPTOR"),
    "REDUCTION_OPERATOR": (1600, "REDUCTION_OPERATOR_TYPE"),
    "REDUCTION_COMP_TYPE": (1601, "DATA_TYPE"),
    "OPERATION_REDUCTION_XDESC": (1610, "BACKEND_DESCRIPTOR"),
    "OPERATION_REDUCTION_YDESC": (1611, "BACKEND_DESCRIPTOR"),
    "OPERATION_REDUCTION_DESC": (1612, "BACKEND_DESCRIPTOR"),
    "OPERATION_RESHAPE_XDESC": (2200, "BACKEND_DESCRIPTOR"),
    "OPERATION_RESHAPE_YDESC": (2201, "BACKEND_DESCRIPTOR"),
}
"""cudnnBackendAttributeName_t, with the type of the values."""

DATA = {"float32": 0, "float64": 1, "float16": 2, "int32": 4, "bfloat16": 9, "bool": 11}
"""cudnnDataType_t"""

NOTES = {
    "TENSOR_CORE": 0,
    "DOWN_CONVERT_INPUTS": 1,
    "REDUCED_PRECISION_REDUCTION": 2,
    "FFT": 3,
    "NONDETERMINISTIC": 4,
    "WINOGRAD": 5,
    "WINOGRAD_TILE_4x4": 6,
    "WINOGRAD_TILE_6x6": 7,
    "WINOGRAD_TILE_13x13": 8,
    "STRICT_NAN_PROP": 9,
}
"""cudnnBackendNumericalNote_t"""

BEHAVIOURS = {
    "RUNTIME_COMPILATION": 0,
    "REQUIRES_FILTER_INT8x32_REORDER": 1,
    "REQUIRES_BIAS_INT8x32_REORDER": 2,
    "SUPPORTS_CUDA_GRAPH_NATIVE_API": 3,
    "CUBLASLT_DEPENDENCY": 4,
}
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
            said.append((number, TYPES[kind], values))
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
        is_fallback: whether it is named only for what nothing faster computes.
    """

    number: int
    notes: tuple[str, ...]
    behaviour: tuple[str, ...]
    is_fallback: bool

    def __str__(self) -> str:
        said = ", ".join((*self.notes, *self.behaviour))
        return f"engine {self.number} ({said})" if said else f"engine {self.number}"


def engine(said: tuple[int, int, int, bool]) -> Engine:
    """An engine as C says it, its notes as masks."""
    number, notes, behaviour, is_fallback = said
    return Engine(number, _named(notes, NOTES), _named(behaviour, BEHAVIOURS), is_fallback)


def _named(mask: int, names: dict[str, int]) -> tuple[str, ...]:
    known = {number: name for name, number in names.items()}
    return tuple(
        known.get(bit, f"note {bit}") for bit in range(mask.bit_length()) if mask >> bit & 1
    )


def alignment(address: int, most: int = 32) -> int:
    """Of memory, in bytes: a power of 2, at most `most`."""
    return min(address & -address, most) if address else most
