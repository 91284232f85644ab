"""Plans of cuFFT: made, run and destroyed."""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from backendcfg.gpu.libraries.calling import Fault, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.gpu.fft.plans import Pass
    from backendcfg.gpu.libraries.calling import OpenLibrary, Work


class CufftPlan:
    """A plan without a work area of its own: each run passes one.

    Attributes:
        bytes: that it needs to work in.
    """

    def __init__(self, library: OpenLibrary, driver: int, index: int, of: Pass) -> None:
        """Make a plan; nothing is left of it where that fails.

        Raises:
            Fault: it fails.
        """
        self._library, self._made, self._captured = library, False, False
        self._work: Work = (library, driver, index, 0, (), False)
        self._busy = threading.Lock()  # while a run sets the stream and launches
        plan, size = ctypes.c_int(), ctypes.c_size_t()
        with Session(self._work):
            library.call("cufftCreate", ctypes.byref(plan))
            self._plan = plan.value
            try:
                library.call("cufftSetAutoAllocation", self._plan, 0)
                one, two = (
                    (_numbers(side.embed), side.stride, side.distance, side.type)
                    for side in (of.input, of.output)
                )
                given = (len(of.sizes), _numbers(of.sizes), *one, *two, of.batch)
                made = (ctypes.byref(size), of.execution)
                library.call("cufftXtMakePlanMany", self._plan, *given, *made)
            except Fault:
                library.functions["cufftDestroy"](self._plan)
                raise
        self.bytes, self._made = size.value, True

    def run(self, work: Work, of: Pass, addresses: tuple[int, int, int]) -> None:
        """Put a plan's work on a stream. Threads that run one plan at once take turns.

        Args:
            work: where.
            of: how often, and how input and output move on.
            addresses: of what is read, of what is written, and of `bytes` to work in.

        Raises:
            Fault: it fails.
        """
        call, session = self._library.call, Session(work)
        source, target, area = addresses
        with session, self._busy:
            self._captured = self._captured or session.captured
            call("cufftSetStream", self._plan, work[3])
            if area:
                call("cufftSetWorkArea", self._plan, area)
            for at in range(of.count):
                start, end = source + at * of.steps[0], target + at * of.steps[1]
                call("cufftXtExec", self._plan, start, end, of.direction)

    def __del__(self) -> None:
        # While the process ends the driver may be gone already. In a forked process a plan is
        # forgotten, and so is one that a captured graph may refer to.
        if self._made and not self._captured and not sys.is_finalizing():
            with suppress(Fault), Session(self._work):
                self._library.functions["cufftDestroy"](self._plan)


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_longlong * len(values))(*values)
