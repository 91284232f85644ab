"""Finding cuDNN's engine for an operation graph, once for a problem, and running it.

    search = Search(given, work, described, tensors)
    engines = search.engines()
    found = search.first(engines, refusals)         # the engine that computed it, and why no other
    run(given, work, found.plan, tensors)           # the same for the next call

A failure is raised as by `Arguments.failed`, with cuDNN's own words besides. An engine that does
not take a problem, or whose workspace has no room, is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu.cudnn import CudnnHandle, Tensors
from backendcfg.gpu.cudnn import graph as device_cudnn
from backendcfg.gpu.libraries.calling import Fault, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from backendcfg.gpu.arrays import Arguments, Work
    from backendcfg.gpu.cudnn.graph import Description, Engine

# Thousands of cuDNN's statuses: "not supported" and "internal error". Such an engine is passed
# over; after a failure of another kind the device itself may be unusable.
_PASSED_OVER = (3, 4)


class CudnnPlan(NamedTuple):
    """An engine that is ready to compute a problem.

    Attributes:
        described: the problem.
        place: of the engine, in cuDNN's order.
        engine: the engine.
        workspace: bytes that it needs.
    """

    described: Description
    place: int
    engine: Engine
    workspace: int


class Found(NamedTuple):
    """The result of a search.

    Attributes:
        plan: of the engine that serves; it has computed the problem once.
        said: why each other engine that was tried does not serve, by its place in cuDNN's order.
        timed: milliseconds of those that were timed, by place.
    """

    plan: CudnnPlan
    said: dict[int, str]
    timed: dict[int, float]


def told(engines: Sequence[Engine], said: dict[int, str]) -> tuple[str, ...]:
    """Why engines do not serve, each line once: many differ in their settings alone."""
    lines = (f"{engines[place]}: {why}" for place, why in sorted(said.items()))
    return tuple(dict.fromkeys(lines))


class NoEngineError(Exception):
    """No engine computes a problem: `said` has the reason of each."""

    def __init__(self, engines: Sequence[Engine], said: dict[int, str], *, full: bool) -> None:
        super().__init__()
        self.reasons = told(engines, said)
        self.full = full


class Search:
    """The search for the engine of one problem, with the arrays of a call."""

    def __init__(
        self, given: Arguments, work: Work, described: Description, tensors: Tensors
    ) -> None:
        self.given, self.work = given, work
        self.described, self.tensors = described, tensors
        self.said: dict[int, str] = {}
        self.full = False

    def engines(self) -> list[Engine]:
        """The engines for it, in cuDNN's order."""
        try:
            with Session(self.work, CudnnHandle) as handle:
                return [device_cudnn.engine(each) for each in handle.engines(self.described)]
        except Fault as fault:
            failed(self.given, fault)

    def first(self, engines: Sequence[Engine], unmet: Callable[[Engine], str]) -> Found:
        """The first engine that computes it, having done so.

        Args:
            engines: as `engines` gives them.
            unmet: why an engine may not serve, or "".

        Raises:
            NoEngineError: none does.
        """
        for place, engine in enumerate(engines):
            if (plan := self._plan(place, engine, unmet)) is None:
                continue
            if self._try(plan, CudnnHandle.run) is not False:
                for other in range(place + 1, len(engines)):
                    self.said[other] = unmet(engines[other]) or f"behind engine {engine.number}"
                return Found(plan, self.said, {})
        raise NoEngineError(engines, self.said, full=self.full)

    def ready(self, engines: Sequence[Engine], unmet: Callable[[Engine], str]) -> CudnnPlan:
        """The plan of the first engine that takes it; nothing is run.

        Args:
            engines: as `engines` gives them.
            unmet: why an engine may not serve, or "".

        Raises:
            NoEngineError: none does.
        """
        for place, engine in enumerate(engines):
            if (plan := self._plan(place, engine, unmet)) is not None:
                return plan
        raise NoEngineError(engines, self.said, full=self.full)

    def fastest(
        self, engines: Sequence[Engine], unmet: Callable[[Engine], str], limit: int
    ) -> Found:
        """The fastest of the first `limit` engines that compute it (0: of all), having done so.

        Raises:
            NoEngineError: none does.
        """
        timed: dict[int, tuple[float, CudnnPlan]] = {}
        for place, engine in enumerate(engines):
            if limit and len(timed) == limit:
                self.said[place] = f"{limit} were timed, as `cudnn.benchmark_limit` says"
            elif (plan := self._plan(place, engine, unmet)) is not None:
                answer = self._try(plan, CudnnHandle.time)
                if answer is not False:
                    timed[place] = (answer, plan)
        if not timed:
            raise NoEngineError(engines, self.said, full=self.full)
        best = min(timed, key=lambda place: timed[place][0])
        spent, plan = timed[best]
        for place, (other, _) in timed.items():
            if place != best:
                self.said[place] = f"{other:.4g} ms, and {spent:.4g} ms is the fastest"
        run(self.given, self.work, plan, self.tensors)  # the others wrote over its result
        return Found(plan, self.said, {place: each for place, (each, _) in timed.items()})

    def _plan(self, place: int, engine: Engine, unmet: Callable[[Engine], str]) -> CudnnPlan | None:
        if why := unmet(engine):
            self.said[place] = why
            return None
        try:
            with Session(self.work, CudnnHandle) as handle:
                needed = handle.prepare(self.described, place)
        except Fault as fault:
            self._pass_over(place, fault)
            return None
        return CudnnPlan(self.described, place, engine, needed)

    def _try(self, plan: CudnnPlan, call: Callable[..., Any]) -> Any:
        """Run or time a plan; False where it does not serve."""
        try:
            memory, address = workspace(self.given, plan.workspace)
        except Exception as error:
            if not is_full(error):
                raise
            self.full = True
            self.said[plan.place] = f"the device has no room for its {plan.workspace} bytes"
            return False
        try:
            answer = _call(call, self.work, plan, self.tensors, address)
        except Fault as fault:
            self._pass_over(plan.place, fault)
            answer = False
        del memory  # the work is on the stream: what the memory's owner does with it comes after
        return answer

    def _pass_over(self, place: int, fault: Fault) -> None:
        function, status, name, said = _parts(fault)
        if not function.startswith("cudnn") or status // 1000 not in _PASSED_OVER:
            failed(self.given, fault)
        self.said[place] = f"{name}: {said}" if said else name


def run(given: Arguments, work: Work, plan: CudnnPlan, tensors: Tensors) -> None:
    """Run a plan; one that its handle no longer has, or never had, is made first.

    Raises:
        DeviceFailedError: it failed.
        MemoryError: the device is full, or as the library of the arrays says that.
    """
    memory, address = workspace(given, plan.workspace)
    try:
        _call(CudnnHandle.run, work, plan, tensors, address)
    except Fault as fault:
        failed(given, fault)
    del memory


def _call(
    call: Callable[..., Any], work: Work, plan: CudnnPlan, tensors: Tensors, address: int
) -> Any:
    """Run or time a plan, with a handle that may lack it.

    Where threads share a stream, the handle that it was made for may be away.
    """
    with Session(work, CudnnHandle) as handle:
        if (answer := call(handle, plan.described[0], plan.place, tensors, address)) is False:
            handle.prepare(plan.described, plan.place)
            answer = call(handle, plan.described[0], plan.place, tensors, address)
        return answer


def _parts(fault: Fault) -> tuple[str, int, str, str]:
    """Of a failure: the function, its status, the status' name, and what cuDNN says besides."""
    function, status, name, *said = fault.args
    return function, status, name, "".join(said)


def workspace(given: Arguments, size: int) -> tuple[Any, int]:
    """Memory to work in, by the library of the arrays, and its address; None and 0 for no bytes."""
    if size <= 0:
        return None, 0
    made, held = given.make((size,), "uint8")
    return made, held.address


def is_full(error: Exception) -> bool:
    """Whether an exception of whatever library says that the device has no more memory."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def failed(given: Arguments, fault: Fault) -> NoReturn:
    """Raise a failure, with cuDNN's own words besides.

    Raises:
        DeviceFailedError: cuDNN or the driver failed.
        InvalidArgumentError: this process was forked from one that had used the device.
    """
    function, status, name, said = _parts(fault)
    notes = [f"cuDNN says: {said}"] if said else []
    given.failed("cuDNN", (function, status, name), *notes)
