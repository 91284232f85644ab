"""Groups of ranks, as their engine keeps them: how one rank tells the others something.

No collective operation of the program's is used, and every wait ends: PyTorch has a store of keys
and values, JAX a coordination service, and with MPI messages go between rank 0 and each other one.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict, deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from backendcfg.audit.token import digest
from backendcfg.catalogue.frameworks import JAX, TORCH
from backendcfg.errors import FleetTimeoutError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MPI = "mpi4py"
_STATE = "nothing was compared"


class Group(Protocol):
    """Ranks from 0 to `size` - 1, one of which this process is.

    Attributes:
        rank: the number of this one.
        size: how many there are.
        names: the number of each among all ranks of the job, as logs have it.
        name: of the group, the same in each of its ranks.
        calls: numbers the calls of this process, of which each rank makes as many.
    """

    rank: int
    size: int
    names: Sequence[int]
    name: str
    calls: Iterator[int]

    def tell(self, key: str, text: str) -> None:
        """Let rank 0 read a text; where rank 0 tells it, all others.

        Raises:
            FleetTimeoutError: the others cannot be reached any more.
        """

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        """What a rank told; None where it has not within so many seconds."""

    def forget(self, key: str) -> None:
        """Take back what this rank told, so that none reads it for something else later."""


def group_of(given: Any = None, engine: str = "") -> Group:
    """The ranks that an engine brought together.

    Args:
        given: a process group of `torch.distributed` or a communicator of mpi4py; None for all
            ranks of an engine.
        engine: which; "" for whichever is initialised: PyTorch, else JAX, else MPI.

    Raises:
        UsageError: none is, or this process is not in the group.
    """
    torch: Any = sys.modules.get(f"{TORCH.name}.distributed")
    jax: Any = sys.modules.get(f"{JAX.name}._src.distributed")
    mpi: Any = sys.modules.get(f"{MPI}.MPI")
    if hasattr(given, "Get_rank"):
        return MpiGroup(mpi, given)
    is_torch = torch is not None and torch.is_available() and torch.is_initialized()
    if is_torch and engine in ("", TORCH.name):
        return TorchGroup(torch, given)
    if given is None:
        if jax is not None and jax.global_state.client is not None and engine in ("", JAX.name):
            return JaxGroup(jax.global_state)
        if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            return MpiGroup(mpi, mpi.COMM_WORLD)
    raise UsageError(
        "no ranks were brought together in this process",
        state=_STATE,
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

    _calls: WeakKeyDictionary[Any, Iterator[int]] = WeakKeyDictionary()

    def __init__(self, distributed: Any, given: Any) -> None:
        group = distributed.group.WORLD if given is None else given
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise UsageError(
                "this process is not in the group",
                state=_STATE,
                helps=["call it in the ranks of the group only"],
            )
        self.names = distributed.get_process_group_ranks(group)
        # A dry run of one process, which says that it is one of many.
        if distributed.get_backend(group) == "fake":
            self.size = 1
        self.name = digest(self.names)
        self.calls = self._calls.setdefault(group, count())
        self.store = distributed.distributed_c10d._get_default_store()

    def tell(self, key: str, text: str) -> None:
        try:
            self.store.set(f"{key}/{self.rank}", text)
        except RuntimeError as error:  # DistStoreError and the like, in every release
            raise _unreachable(error) from error

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        key = f"{key}/{source}"
        # The store's own wait keeps the program's other threads from using it.
        with suppress(RuntimeError):  # the store is gone
            if within(seconds, lambda: self.store.check([key])):
                text: str = self.store.get(key).decode()
                return text
        return None

    def forget(self, key: str) -> None:
        with suppress(RuntimeError):
            self.store.delete_key(f"{key}/{self.rank}")


class JaxGroup:
    """Processes of `jax.distributed`, by its coordination service.

    Args:
        state: of the module that keeps it.
    """

    _calls: tuple[int, Iterator[int]] = 0, count()
    """The `id` of a client, which has no weak references, and the numbers of its calls."""

    def __init__(self, state: Any) -> None:
        self.rank, self.size, self.client = state.process_id, state.num_processes, state.client
        self.names: Sequence[int] = range(self.size)
        self.name = "all"
        if JaxGroup._calls[0] != id(self.client):
            JaxGroup._calls = id(self.client), count()
        self.calls = JaxGroup._calls[1]

    def tell(self, key: str, text: str) -> None:
        try:
            self.client.key_value_set(f"{key}/{self.rank}", text, allow_overwrite=True)
        except RuntimeError as error:
            raise _unreachable(error) from error

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        wait = max(1, int(1000 * seconds))
        with suppress(RuntimeError):  # it was not told in time, or the service is gone
            found: str = self.client.blocking_key_value_get(f"{key}/{source}", wait)
            return found
        return None

    def forget(self, key: str) -> None:
        with suppress(RuntimeError):
            self.client.key_value_delete(f"{key}/{self.rank}")


class MpiGroup:
    """Ranks of a communicator of mpi4py, by messages that nobody waits for without end.

    Args:
        mpi: the module.
        comm: the communicator.
    """

    TAG = 23117
    """Of our messages, so that the program's do not meet them."""

    _kept: int | None = None
    """The key of the attribute of communicators that holds their `_Messages`."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()
        self.name = "all"
        self.names = comm.Get_group().Translate_ranks(group=mpi.COMM_WORLD.Get_group())
        if MpiGroup._kept is None:
            MpiGroup._kept = mpi.Comm.Create_keyval()
        if (state := comm.Get_attr(MpiGroup._kept)) is None:
            state = _Messages()
            comm.Set_attr(MpiGroup._kept, state)
        self.calls, self.messages = state.calls, state

    def tell(self, key: str, text: str) -> None:
        for other in range(1, self.size) if not self.rank else [0]:
            self.messages.told.append(self.comm.isend((key, text), dest=other, tag=self.TAG))

    def ask(self, key: str, source: int, seconds: float) -> str | None:
        kept = self.messages

        def is_heard() -> bool:
            # What is on its way moves on only while MPI is called.
            kept.told = [one for one in kept.told if not one.test()[0]]
            while (message := self.comm.improbe(source=source, tag=self.TAG)) is not None:
                kept.coming[source].append(message.irecv())
            while kept.coming[source]:
                done, told = kept.coming[source][0].test()
                if not done:
                    break
                kept.coming[source].popleft()
                kept.heard[told[0], source] = told[1]
            return (key, source) in kept.heard

        return kept.heard.pop((key, source)) if within(seconds, is_heard) else None

    def forget(self, key: str) -> None:
        """A message is read once."""


class _Messages:
    """Of one communicator: those sent, those coming, and those heard before being asked for."""

    def __init__(self) -> None:
        self.calls = count()
        self.told: list[Any] = []
        self.coming: defaultdict[int, deque[Any]] = defaultdict(deque)
        self.heard: dict[tuple[str, int], str] = {}


def _unreachable(error: Exception) -> FleetTimeoutError:
    return FleetTimeoutError(
        "the other ranks cannot be reached any more",
        notes=[str(error).partition("\n")[0]],
        state=_STATE,
        helps=["look at what the other ranks printed: the first may have ended"],
    )


_SHORTEST, _LONGEST = 0.001, 0.1


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether something becomes so in time: looked at often first, and less often later."""
    end, pause = time.monotonic() + seconds, _SHORTEST
    while not is_so():
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST)
    return True
