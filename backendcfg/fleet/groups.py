"""Groups of ranks, as their engine keeps them: how one rank tells the others something.

No collective operation of the program's is used, and every wait ends: PyTorch has a store of keys
and values, JAX a coordination service, and with MPI messages go between rank 0 and each other one.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from backendcfg.catalogue.frameworks import JAX, TORCH
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Group(Protocol):
    """Ranks from 0 to `size` - 1, one of which this process is.

    Attributes:
        name: that tells it from other groups that have the same keys.
        calls: numbers those of this process, which are the same in all ranks.
    """

    name: str
    rank: int
    size: int
    calls: Iterator[int]

    def tell(self, key: str, text: str) -> None:
        """Let rank 0 read a text; where rank 0 tells it, all others."""

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        """What a rank told; None where it has not within so many seconds."""

    def settle(self, seconds: float) -> None:
        """Wait, so long at most, until what was told is on its way without this process."""


_calls: defaultdict[tuple[str, Any], Iterator[int]] = defaultdict(count)
"""By engine and group."""


def group_of(given: Any = None) -> Group:
    """The ranks that an engine brought together.

    Args:
        given: a process group of `torch.distributed` or a communicator of mpi4py; None for all
            ranks of whichever engine is initialised: PyTorch, else JAX, else MPI.

    Raises:
        UsageError: none is, or this process is not in the group.
    """
    torch: Any = sys.modules.get(f"{TORCH.name}.distributed")
    if given is not None and hasattr(given, "Get_rank"):
        return MpiGroup(given)
    if torch is not None and torch.is_available() and torch.is_initialized():
        return TorchGroup(torch, given)
    jax: Any = sys.modules.get(f"{JAX.name}._src.distributed")
    if jax is not None and jax.global_state.client is not None:
        return JaxGroup(jax.global_state)
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        return MpiGroup(mpi.COMM_WORLD)
    raise UsageError(
        "no ranks were brought together in this process",
        state="nothing was compared",
        helps=[
            "call it after `torch.distributed.init_process_group()`",
            "or after `jax.distributed.initialize()`, or under `mpirun` with mpi4py imported",
        ],
    )


class TorchGroup:
    """Ranks of `torch.distributed`, by the store that they met through.

    Args:
        distributed: the module.
        given: a process group; None for all ranks.
    """

    def __init__(self, distributed: Any, given: Any) -> None:
        self.rank, self.size = distributed.get_rank(given), distributed.get_world_size(given)
        if self.rank < 0:
            raise UsageError(
                "this process is not in the group",
                state="nothing was compared",
                helps=["call it in the ranks of the group only"],
            )
        ranks = distributed.get_process_group_ranks(given)
        self.name = ",".join(map(str, ranks)) if given is not None else "all"
        self.calls = _calls[TORCH.name, self.name]
        self.store = distributed.distributed_c10d._get_default_store()

    def tell(self, key: str, text: str) -> None:
        self.store.set(f"{key}/{self.rank}", text)

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        key = f"{key}/{source}"
        try:
            # No wait at all is one without end.
            self.store.wait([key], dt.timedelta(seconds=max(seconds, 0.001)))
        except RuntimeError:  # DistStoreError, in every release
            return None
        text: str = self.store.get(key).decode()
        return text

    def settle(self, seconds: float) -> None:
        """The store has it."""


class JaxGroup:
    """Processes of `jax.distributed`, by its coordination service.

    Args:
        state: of the module that keeps it.
    """

    name = "all"

    def __init__(self, state: Any) -> None:
        self.rank, self.size, self.client = state.process_id, state.num_processes, state.client
        self.calls = _calls[JAX.name, self.name]

    def tell(self, key: str, text: str) -> None:
        self.client.key_value_set(f"{key}/{self.rank}", text)

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        try:
            found: str = self.client.blocking_key_value_get(
                f"{key}/{source}", max(1, int(1000 * seconds))
            )
        except RuntimeError:  # that the deadline is exceeded
            return None
        return found

    def settle(self, seconds: float) -> None:
        """The service has it."""


class MpiGroup:
    """Ranks of a communicator of mpi4py, by messages that nobody waits for without end.

    Args:
        comm: the communicator.
    """

    TAG = 23117
    """Of our messages, so that the program's do not meet them."""

    name = "all"

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()
        self.calls = _calls["mpi", comm.py2f()]
        self.told: list[Any] = []
        # A rank that is ahead tells what belongs to its next call.
        self.heard = _heard[comm.py2f()]

    def tell(self, key: str, text: str) -> None:
        for other in range(1, self.size) if not self.rank else [0]:
            self.told.append(self.comm.isend((key, text), dest=other, tag=self.TAG))

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        def is_heard() -> bool:
            while self.comm.iprobe(source=source, tag=self.TAG):
                name, text = self.comm.recv(source=source, tag=self.TAG)
                self.heard[name, source] = text
            # What was told moves on only while MPI is called.
            self._is_told()
            return (key, source) in self.heard

        return self.heard.pop((key, source)) if _within(seconds, is_heard) else None

    def settle(self, seconds: float) -> None:
        _within(seconds, self._is_told)

    def _is_told(self) -> bool:
        self.told = [one for one in self.told if not one.test()[0]]
        return not self.told


_heard: defaultdict[int, dict[tuple[str, int], str]] = defaultdict(dict)
"""By communicator, what was heard and not asked for yet."""

_PAUSE = 0.001


def _within(seconds: float, is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE)
    return True
