"""The plans that a library gives us to keep, as PyTorch keeps those of cuFFT.

Per device: least recently used first out, at most `cuda.cufft_plan_cache.max_size` of them, and
none at 0. On the CPU only MKL gives plans; pocketfft's are its own, so the cache stays empty there.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.switches import Switches

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
        return int(Switches()[MAX_SIZE])

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
                dropped.append(self._plans.popitem(last=False))

    def _after_fork(self) -> None:
        self._lock = threading.Lock()


class PlanCaches:
    """`ops.fft.plan_cache`: the CPU's, and by name that of a device."""

    def __init__(self) -> None:
        self._cpu = PlanCache()
        os.register_at_fork(after_in_child=self._cpu._after_fork)

    def __getitem__(self, device: Any) -> PlanCache:
        if str(device).partition(":")[0] != "cpu":
            raise InvalidArgumentError(
                f'plan_cache: `device` must be "cpu", not {device!r}',
                helps=["the plans of cuFFT are at `backendcfg.backends.cuda.cufft_plan_cache`"],
            )
        return self._cpu

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
