"""cuDNN's descriptors: graphs, the engines that heuristics name for them, and plans that are run.

A handle is lent to one call at a time. Plans stay with the handle that they were made for, a
bounded number of them. On one device the order of engines is the same for every handle.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu.cudnn.graph import ATTRIBUTES, DESCRIPTORS, TYPES
from backendcfg.gpu.libraries.calling import Fault, Handle
from backendcfg.gpu.libraries.opening import require_device
from backendcfg.gpu.libraries.signatures import CUDA, CUDNN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.gpu.cudnn.graph import Description


_PLANS = 512  # a plan may hold some hundred kilobytes of the host's memory
_ENGINES = 128
_NOTES = 32
_N = CUDNN.constants
_HEURISTICS = (_N["CUDNN_HEUR_MODE_A"], _N["CUDNN_HEUR_MODE_FALLBACK"])
_UNSUPPORTED = _N["CUDNN_STATUS_NOT_SUPPORTED"] // 1000
_C_TYPES = {
    TYPES["HANDLE"]: ctypes.c_void_p,
    TYPES["BACKEND_DESCRIPTOR"]: ctypes.c_void_p,
    TYPES["VOID_PTR"]: ctypes.c_void_p,
    TYPES["BOOLEAN"]: ctypes.c_bool,
    TYPES["INT64"]: ctypes.c_int64,
    TYPES["FLOAT"]: ctypes.c_float,
    TYPES["DOUBLE"]: ctypes.c_double,
}  # and int32 for all enumerations


class Tensors(NamedTuple):
    """The memory of a run: a number of the graph and an address for each tensor."""

    numbers: tuple[int, ...]
    addresses: tuple[int, ...]


class _Plan:
    """A plan, and whether a graph may use its code, so that it is never destroyed."""

    def __init__(self, descriptor: int, workspace: int) -> None:
        self.descriptor, self.workspace, self.captured = descriptor, workspace, False


class _Search:
    """A described graph and its engines: (index, numerical notes, behaviour)."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptors: list[int] = []
        self.configurations: list[int] = []
        self.engines: list[tuple[int, int, int]] = []


class CudnnHandle(Handle):
    """A handle with its plans and its latest search: most problems prepare plans right after."""

    def make(self) -> None:
        self._plans: dict[tuple[int, int], _Plan] = {}
        self._latest: _Search | None = None
        try:
            self.value = self.created("cudnnCreate", "cudnnSetStream", "cudnnDestroy")
        except Fault as fault:
            raise Fault(*fault.args, self._said()) from None

    def close(self) -> None:
        for plan in self._plans.values():
            self._destroy(plan.descriptor)
        self._forget(self._latest)
        self.library.functions["cudnnDestroy"](self.value)

    # What is asked of it

    def engines(self, graph: Description) -> list[tuple[int, int, int]]:
        """The engines for a graph, in cuDNN's order."""
        return self._look(graph).engines

    def prepare(self, graph: Description, place: int) -> int:
        """The workspace of an engine's plan, which is made where there is none.

        Args:
            graph: the problem.
            place: of the engine, in cuDNN's order.
        """
        number = graph[0]
        if known := self._find(number, place):
            return known.workspace
        search = self._look(graph)
        if place not in range(len(search.configurations)):
            self._fail("cudnnBackendFinalize", _N["CUDNN_STATUS_NOT_SUPPORTED"])
        made = self._made("EXECUTION_PLAN")
        try:
            self._set(made, "EXECUTION_PLAN_HANDLE", self.value)
            self._set(made, "EXECUTION_PLAN_ENGINE_CONFIG", search.configurations[place])
            self._call("cudnnBackendFinalize", made)
            (workspace,) = self._get(made, "EXECUTION_PLAN_WORKSPACE_SIZE")
        except Fault:
            self._destroy(made)
            raise
        if len(self._plans) == _PLANS:
            oldest = self._plans.pop(next(iter(self._plans)))
            if not oldest.captured:
                self._destroy(oldest.descriptor)
        self._plans[number, place] = _Plan(made, workspace)
        return int(workspace)

    def run(self, number: int, place: int, tensors: Tensors, workspace: int) -> bool:
        """Run a plan; False where there is none, and then nothing was done."""
        plan = self._find(number, place)
        if plan is None:
            return False
        plan.captured = plan.captured or self.captures
        with self._describing("VARIANT_PACK") as pack:
            self._set(pack, "VARIANT_PACK_DATA_POINTERS", *tensors.addresses)
            self._set(pack, "VARIANT_PACK_UNIQUE_IDS", *tensors.numbers)
            self._set(pack, "VARIANT_PACK_WORKSPACE", workspace or None)
            self._call("cudnnBackendFinalize", pack)
            self._call("cudnnBackendExecute", self.value, plan.descriptor, pack)
        return True

    def time(self, number: int, place: int, tensors: Tensors, workspace: int) -> float | bool:
        """Run it twice, the second time between two events, and wait: milliseconds, or False."""
        if self.captures:
            _driven_to_fail(
                "cuEventSynchronize", CUDA.constants["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"]
            )
        if not self.run(number, place, tensors, workspace):  # which loads code
            return False
        taken = ctypes.c_float()
        with _event() as start, _event() as end:
            _drive("cuEventRecord", start, self.stream)
            self.run(number, place, tensors, workspace)
            _drive("cuEventRecord", end, self.stream)
            _drive("cuEventSynchronize", end)
            _drive("cuEventElapsedTime", ctypes.byref(taken), start, end)
        return taken.value

    # Searches

    def _find(self, number: int, place: int) -> _Plan | None:
        plan = self._plans.pop((number, place), None)
        if plan is not None:
            self._plans[number, place] = plan  # as the newest
        return plan

    def _look(self, graph: Description) -> _Search:
        if self._latest is None or self._latest.number != graph[0]:
            self._forget(self._latest)
            self._latest = None
            fresh = _Search(graph[0])
            try:
                self._describe(graph, fresh)
                for mode in _HEURISTICS:
                    self._ask(fresh, mode)
            except Fault:
                self._forget(fresh)
                raise
            self._latest = fresh if fresh.engines else None
            if not fresh.engines:
                self._forget(fresh)
        return self._latest or _Search(graph[0])

    def _forget(self, search: _Search | None) -> None:
        if search is not None:
            # A descriptor that refers to others comes after them.
            for each in (*search.configurations, *reversed(search.descriptors)):
                self._destroy(each)

    def _describe(self, graph: Description, fresh: _Search) -> None:
        for descriptor, attributes in graph[1]:
            made = self._created(descriptor)
            fresh.descriptors.append(made)
            for number, kind, said in attributes:
                values = said
                if kind == TYPES["HANDLE"]:
                    values = (self.value,)
                elif kind == TYPES["BACKEND_DESCRIPTOR"]:
                    if not all(0 <= at < len(fresh.descriptors) - 1 for at in said):
                        bad = _N["CUDNN_STATUS_BAD_PARAM"]
                        self._fail("cudnnBackendSetAttribute", bad)
                    values = tuple(fresh.descriptors[at] for at in said)
                self._put(made, number, kind, values)
            self._call("cudnnBackendFinalize", made)

    def _ask(self, fresh: _Search, mode: int) -> None:
        """Add what a heuristic in one mode names; one that takes no such graph names nothing."""
        first = len(fresh.engines)
        try:
            with self._describing("ENGINEHEUR") as heuristic:
                self._set(heuristic, "ENGINEHEUR_OPERATION_GRAPH", fresh.descriptors[-1])
                self._set(heuristic, "ENGINEHEUR_MODE", mode)
                self._call("cudnnBackendFinalize", heuristic)
                room = min(self._count(heuristic, "ENGINEHEUR_RESULTS"), _ENGINES - first)
                for _ in range(room):
                    fresh.configurations.append(self._made("ENGINECFG"))
                if room:
                    made = fresh.configurations[first:]
                    found = len(self._get(heuristic, "ENGINEHEUR_RESULTS", *made))
                    # The second query may return fewer: only those that it filled in are valid.
                    self._drop(fresh, first + found)
                for each in fresh.configurations[first:]:
                    fresh.engines.append(self._examine(each))
        except Fault as fault:
            if fault.args[1] // 1000 != _UNSUPPORTED:
                raise
            self._drop(fresh, first)
            del fresh.engines[first:]

    def _drop(self, fresh: _Search, first: int) -> None:
        for each in fresh.configurations[first:]:
            self._destroy(each)
        del fresh.configurations[first:]

    def _examine(self, configuration: int) -> tuple[int, int, int]:
        """Which engine a configuration is of, and its notes as masks."""
        with self._describing("ENGINE") as engine:
            self._get(configuration, "ENGINECFG_ENGINE", engine)
            (index,) = self._get(engine, "ENGINE_GLOBAL_INDEX")
            masks = []
            for name in ("ENGINE_NUMERICAL_NOTE", "ENGINE_BEHAVIOR_NOTE"):
                notes = self._get(engine, name, *[0] * _NOTES)
                masks.append(sum({1 << note for note in notes if 0 <= note < _NOTES}))
        return index, masks[0], masks[1]

    # Descriptors

    def _created(self, number: int) -> int:
        made = ctypes.c_void_p()
        self._call("cudnnBackendCreateDescriptor", number, ctypes.byref(made))
        return made.value or 0

    def _made(self, descriptor: str) -> int:
        return self._created(DESCRIPTORS[descriptor])

    @contextmanager
    def _describing(self, descriptor: str) -> Iterator[int]:
        made = self._made(descriptor)
        try:
            yield made
        finally:
            self._destroy(made)

    def _destroy(self, descriptor: int) -> None:
        self.library.functions["cudnnBackendDestroyDescriptor"](descriptor)

    def _set(self, descriptor: int, name: str, *values: Any) -> None:
        self._put(descriptor, *ATTRIBUTES[name], values)

    def _put(self, descriptor: int, number: int, kind: int, values: Sequence[Any]) -> None:
        given = (_C_TYPES.get(kind, ctypes.c_int32) * len(values))(*values)
        self._call("cudnnBackendSetAttribute", descriptor, number, kind, len(values), given)

    def _get(self, descriptor: int, name: str, *values: int) -> list[Any]:
        """The values of an attribute, as many as there are, written over those given."""
        number, kind = ATTRIBUTES[name]
        first = list(values or (0,))
        of: Any = _C_TYPES.get(kind, ctypes.c_int32)
        room = (of * len(first))(*first)
        count = ctypes.c_int64()
        given = (number, kind, len(first), ctypes.byref(count), room)
        self._call("cudnnBackendGetAttribute", descriptor, *given)
        return list(room[: count.value])

    def _count(self, descriptor: int, name: str) -> int:
        count = ctypes.c_int64()
        given = (*ATTRIBUTES[name], 0, ctypes.byref(count), None)
        self._call("cudnnBackendGetAttribute", descriptor, *given)
        return count.value

    def _call(self, function: str, *arguments: Any) -> None:
        status = self.library.functions[function](*arguments)
        if status:
            self._fail(function, status)

    def _fail(self, function: str, status: int) -> None:
        """Raise a status, with what cuDNN says besides as the fourth of `args`."""
        raise Fault(function, status, self.library.word(status), self._said())

    def _said(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.library.functions["cudnnGetLastErrorString"](text, len(text) - 1)
        return text.value.decode(errors="replace")


@contextmanager
def _event() -> Iterator[int]:
    event = ctypes.c_void_p()
    _drive("cuEventCreate", ctypes.byref(event), 0)
    try:
        yield event.value or 0
    finally:
        require_device("cuda").functions["cuEventDestroy_v2"](event)


def _drive(function: str, *arguments: Any) -> None:
    status = require_device("cuda").functions[function](*arguments)
    if status:
        _driven_to_fail(function, status)


def _driven_to_fail(function: str, status: int) -> None:
    text = ctypes.c_char_p()
    require_device("cuda").functions["cuGetErrorName"](status, ctypes.byref(text))
    raise Fault(function, status, (text.value or b"").decode(), "")
