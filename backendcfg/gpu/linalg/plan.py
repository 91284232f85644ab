"""The plan of a call of linear algebra on a device, made once for all calls that are alike.

Calls are alike in the function, its options, the places, types, shapes and strides of the arrays,
and the flags in force. To carry out a plan is to make its memory and then to do its parts in order:
work of the arrays' own library, and steps of vendors' libraries.
"""

from __future__ import annotations

import ctypes
import math
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import SIZES, Arguments
from backendcfg.gpu.libraries.calling import Fault, Session
from backendcfg.gpu.linalg.steps import MAKERS
from backendcfg.gpu.linalg.vendors import AREA, Room, Stack, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.gpu.arrays import DeviceView

    # The values of a call: its arrays from 0, what was made from `MADE`, and what the plan keeps.
    Values = list[Any]
    Doing = Callable[[Values], None]

MADE = 3
_MOST_MADE = 12
_KEPT = MADE + _MOST_MADE
_MOST_KEPT = 6
CALL, GIVEN = _KEPT + _MOST_KEPT, _KEPT + _MOST_KEPT + 1
_ALIGNMENT = 256


class _Call:
    """What the steps of a call need of it: its arrays, all views, and where memory begins."""

    __slots__ = ("arrays", "bases", "views")

    def __init__(self, arrays: Arguments, views: list[DeviceView]) -> None:
        self.arrays, self.views = arrays, views
        self.bases = {at: view.address for at, view in enumerate(views)}


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
        self._memory: tuple[tuple[tuple[int, ...], str], ...] = ()
        self._doing: tuple[Doing, ...] = ()
        self._before = (None,) * (MADE - len(names))
        self._behind: tuple[None, ...] = ()
        self._of: Callable[[Values], Any] = tuple

    # While it is made

    def make(self, shape: tuple[int, ...], element: str, stride: int) -> Stack:
        """An array that the library of the first makes, uninitialised."""
        self._memory += ((shape, element),)
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

    def __call__(
        self,
        given: dict[str, Any],
        values: tuple[Any, ...],
        arrays: Arguments,
        views: list[DeviceView],
    ) -> Any:
        """Carry it out.

        Args:
            given: all arguments that were passed, by name.
            values: the arrays among them.
            arrays: the same, as the call took them.
            views: of the arrays.
        """
        call, made = _Call(arrays, views), []
        for at, (shape, element) in enumerate(self._memory, start=MADE):
            value, view = arrays.make(shape, element)
            made.append(value)
            call.views.append(view)
            call.bases[at] = view.address
        all_of = [*values, *self._before, *made, *self._behind]
        all_of[CALL], all_of[GIVEN] = call, given
        for doing in self._doing:
            doing(all_of)
        return self._of(all_of)

    def run(self, steps: tuple[Step, ...], driver: int) -> None:
        """Add the part that puts steps on the stream."""
        sizes: list[tuple[int, int]] = []  # of each step's workspace, once they were asked for
        area = self.area

        def each(call: _Call, doing: Callable[[Any, int, Step], Any], *more: Any) -> list[Any]:
            """What comes of each step: it is done with its number and the library's handle."""
            said = []
            for library, together in groupby(enumerate(steps), lambda one: one[1].library):
                work = call.arrays.work(library, driver, *call.views, *more)
                with Session(work, MAKERS[library.name].handle) as handle:
                    said += [doing(handle, at, step) for at, step in together]
            return said

        def put(values: Values) -> None:
            call = values[CALL]
            bases = dict(call.bases)

            def ask(handle: Any, at: int, step: Step) -> tuple[int, int]:
                del at
                return MAKERS[step.library.name].sizes(handle, step, step.here(bases))

            def compute(handle: Any, at: int, step: Step) -> None:
                device, host = sizes[at]
                room = Room(start, device, buffer, host)
                MAKERS[step.library.name].compute(handle, step, bases, room)

            try:
                if not sizes:
                    sizes[:] = each(call, ask)
                device, host = (max(several) for several in zip(*sizes, strict=True))
                memory, view, start = None, None, 0
                if area + device:
                    memory, view = call.arrays.make((area + device,), "uint8")
                    bases[AREA], start = view.address, view.address + area
                buffer = ctypes.create_string_buffer(host) if host else None
                each(call, compute, view)
            except Fault as fault:
                title = "cuBLAS" if fault.args[0].startswith("cublas") else self.title
                call.arrays.failed(title, fault.args)
            del memory  # the work is on the stream: what its library does with it comes after

        self.do(put)

    def pointers(self, stack: Stack, matrices: int) -> Stack:
        """Memory on the device with the address of each matrix."""
        made = self.make((matrices,), "int64", SIZES["int64"])

        def fill(values: Values) -> None:
            start = values[CALL].bases[stack.at] + stack.offset
            own_library.count_by(values[made.at], start, stack.stride)

        self.do(fill)
        return made


def size_of(shape: tuple[int, ...], element: str) -> int:
    """Bytes of an array."""
    return math.prod(shape) * SIZES[element]
