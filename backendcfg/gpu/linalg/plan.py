"""The plan of a call of linear algebra on a device, made once for all calls that are alike.

Calls are alike in the function, its options, the places, types, shapes and strides of the arrays,
and the flags in force. To carry out a plan is to make its memory and then to do its parts in order:
work of the arrays' own library, and steps of vendors' libraries, which C puts on the stream, as
many in one call as follow each other.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import SIZES, Arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    # The values of a call: its arrays from 0, what was made from `MADE`, and what the plan keeps.
    Values = list[Any]
    Doing = Callable[[Values], None]

# As device_taken.c and device_linalg.c count: arrays, arrays that were made, and nowhere and the
# memory that only C sees.
MADE = 3
_MOST_MADE = 12
NOWHERE, AREA = -1, -2
_KEPT = MADE + _MOST_MADE
_MOST_KEPT = 6
TAKEN, GIVEN = _KEPT + _MOST_KEPT, _KEPT + _MOST_KEPT + 1
_ALIGNMENT = 256


class Stack(NamedTuple):
    """Where the matrices of a stack are.

    Attributes:
        at: of their memory among the values of a call, or `AREA`.
        offset: bytes from there to the first matrix.
        stride: bytes from one matrix to the next; 0 where there is one for all.
    """

    at: int
    offset: int = 0
    stride: int = 0


class LinalgPlan:
    """A plan, which `linalg.solver.Solver` makes and a call carries out.

    Attributes:
        operation: "linalg.solve".
        names: of the arguments that are arrays.
        title: of the library, for messages.
    """

    __slots__ = ("_before", "_behind", "_doing", "_kept", "_memory", "_of", "area", "names",
                 "operation", "title")  # fmt: skip

    def __init__(self, operation: str, names: tuple[str, ...]) -> None:
        self.operation, self.names, self.title = operation, names, ""
        self.area = self._kept = 0
        self._memory: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self._doing: tuple[Doing, ...] = ()
        self._before = (None,) * (MADE - len(names))
        self._behind: tuple[None, ...] = ()
        self._of: Callable[[Values], Any] = tuple

    # While it is made

    def make(self, shape: tuple[int, ...], element: str, stride: int) -> Stack:
        """An array that the library of the first makes, uninitialised."""
        self._memory += ((element, shape),)
        return Stack(MADE + len(self._memory) - 1, stride=stride)

    def hide(self, size: int, stride: int) -> Stack:
        """Memory that only the steps of one run see."""
        made = Stack(AREA, self.area, stride)
        self.area += -(-size // _ALIGNMENT) * _ALIGNMENT
        return made

    def do(self, doing: Doing) -> None:
        """Add a part; parts are done in the order in which they are added."""
        self._doing += (doing,)

    def keep(self, make: Callable[[Values], Any]) -> Stack:
        """A value that a part makes and that lives until the call ends."""
        kept = Stack(_KEPT + self._kept)
        self._kept += 1
        at = kept.at

        def put(values: Values) -> None:
            values[at] = make(values)

        self.do(put)
        return kept

    def returns(self, results: tuple[Stack, ...], kind: Callable[..., Any] | None) -> None:
        """Say what a call returns: one value, or the values of a named tuple."""
        of = itemgetter(*(one.at for one in results))
        if kind is None:
            self._of = of
        else:
            self._of = lambda values: kind(*of(values))
        self._behind = (None,) * (_MOST_MADE - len(self._memory) + _MOST_KEPT + 2)

    # A call

    def __call__(self, given: dict[str, Any], values: tuple[Any, ...], taken: Any) -> Any:
        """Carry it out.

        Args:
            given: all arguments that were passed, by name.
            values: the arrays among them.
            taken: the same as `_native.device_taken` gives them.
        """
        made = _native.device_made(taken, self._memory)
        if made is None:
            made = self._made_by_python(given, values, taken)
        all_of = [*values, *self._before, *made, *self._behind]
        all_of[TAKEN], all_of[GIVEN] = taken, given
        for doing in self._doing:
            doing(all_of)
        return self._of(all_of)

    def _made_by_python(
        self, given: dict[str, Any], values: tuple[Any, ...], taken: Any
    ) -> list[Any]:
        """The memory, where the library of the arrays has no DLPack exchange table."""
        arguments = self.arguments(given)
        first = arguments.take(self.names[0])
        try:
            made = [
                own_library.make(values[0], shape, element, first.kind, first.ordinal)
                for element, shape in self._memory
            ]
        except InvalidArgumentError:
            arguments.refuse(
                f"`{self.names[0]}` must be of a library that makes its results: PyTorch or CuPy",
                helps=[f"pass it as one of theirs: `torch.from_dlpack({self.names[0]})`"],
            )
        _native.device_added(taken, made)
        return made

    def arguments(self, given: dict[str, Any]) -> Arguments:
        """The arrays of a call, for a message."""
        return Arguments(self.operation, {name: given[name] for name in self.names})

    def run(self, steps: Any) -> None:
        """Add the part that puts steps on the stream, as `_native.device_linalg_plan` made them."""
        put = _native.device_linalg

        def doing(values: Values) -> None:
            fault = put(steps, values[TAKEN])
            if fault is not None:
                title = "cuBLAS" if fault[0].startswith("cublas") else self.title
                self.arguments(values[GIVEN]).failed(title, fault)

        self.do(doing)

    def pointers(self, stack: Stack, matrices: int) -> Stack:
        """Memory on the device with the address of each matrix."""
        made = self.make((matrices,), "int64", SIZES["int64"])

        def fill(values: Values) -> None:
            start = _native.device_address(values[TAKEN], stack.at) + stack.offset
            own_library.count_by(values[made.at], start, stack.stride)

        self.do(fill)
        return made


def size_of(shape: tuple[int, ...], element: str) -> int:
    """Bytes of an array."""
    return math.prod(shape) * SIZES[element]
