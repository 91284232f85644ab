"""The plans that a library gives us to keep, as PyTorch keeps those of cuFFT.

Per device: least recently used first out, at most `cuda.cufft_plan_cache.max_size` of them, and
none at 0. cuFFT gives plans, and on the CPU MKL; pocketfft's are its own, and no cache has them.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

from backendcfg.errors import InvalidArgumentError
from backendcfg.flags_in_force import FlagsInForce

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    Plan = TypeVar("Plan")

MAX_SIZE = "cuda.cufft_plan_cache.max_size"


class PlanCache:
    """The plans of one device.

    A plan that is dropped lives on until the calls that use it have ended, and is then destroyed.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def max_size(self) -> int:
        """The most that are kept, as the flag says here; it is set by the flag."""
        return int(FlagsInForce()[MAX_SIZE])

    @property
    def size(self) -> int:
        """How many there are."""
        self._drop(self.max_size)
        return len(self._plans)

    def clear(self) -> None:
        """Drop every one."""
        self._drop(0)

    def get(self, key: Hashable, make: Callable[[], Plan], max_size: int) -> Plan:
        """The plan for a key, made where there is none.

        Args:
            key: everything that the plan depends on.
            make: makes it; runs without the lock, so two threads may both make one.
            max_size: the most to keep.
        """
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
        if plan is None:
            made = make()
            with self._lock:
                plan = self._plans.setdefault(key, made) if max_size else made
        if len(self._plans) > max_size:
            self._drop(max_size)
        found: Plan = plan
        return found

    def _drop(self, most: int) -> None:
        dropped = []  # destroyed after the lock is given back
        with self._lock:
            while len(self._plans) > most:
                dropped.append(self._plans.popitem(last=False)[1])

    def _after_fork(self) -> None:
        self._lock = threading.Lock()


class PlanCaches:
    """`ops.fft.plan_cache`: the CPU's, and by name or index that of a device."""

    def __init__(self) -> None:
        self._cpu = PlanCache()
        self._devices: dict[int, PlanCache] = {}
        os.register_at_fork(after_in_child=self._after_fork)

    def __getitem__(self, device: Any) -> PlanCache:
        """The cache of a device.

        Args:
            device: "cpu", "cuda:1", a `torch.device`, or the index of a CUDA device.

        Raises:
            InvalidArgumentError: it names none.
        """
        text = str(device)
        if text.partition(":")[0] == "cpu":
            return self._cpu
        match = re.fullmatch(r"(?:cuda:?)?(\d*)", text)
        if match is None or not text or isinstance(device, bool):
            raise InvalidArgumentError(
                f'plan_cache: `device` must be "cpu" or a CUDA device, not {device!r}',
                helps=['write "cpu", "cuda:0" or 0'],
            )
        return self.of_device(int(match[1] or 0))

    def of_device(self, index: int) -> PlanCache:
        """The cache of a CUDA device; there is one for every index."""
        cache = self._devices.get(index)
        return cache if cache is not None else self._devices.setdefault(index, PlanCache())

    def _after_fork(self) -> None:
        for cache in (self._cpu, *self._devices.values()):
            cache._after_fork()

    @property
    def max_size(self) -> int:
        """See `PlanCache.max_size`."""
        return self._cpu.max_size

    @property
    def size(self) -> int:
        """See `PlanCache.size`."""
        return self._cpu.size

    def clear(self) -> None:
        """See `PlanCache.clear`."""
        self._cpu.clear()


plan_cache = PlanCaches()
