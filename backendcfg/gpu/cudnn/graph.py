"""Operation graphs of cuDNN as data: what a `CudnnHandle` takes.

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
    """An engine, whose notes come as masks."""
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
