"""The command that binds a command, and what a plan is under such a binding."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backendcfg import childprocess
from backendcfg.launch import bound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from backendcfg.launch.arrangement import Share


def words(
    command: Sequence[str],
    share: Share,
    *,
    processors: bool = True,
    memory: bool = True,
    supervised: bool = False,
) -> list[str]:
    """The words that start a command bound to a share.

    Args:
        command: the command and its arguments.
        share: its processors and nodes.
        processors: whether to bind to the processors.
        memory: whether to bind to the memory of the nodes.
        supervised: whether it ends when this process does.
    """
    binding = [
        ",".join(map(str, share.processors)) if processors else "",
        ",".join(map(str, share.nodes)) if memory else "",
        str(os.getpid()) if supervised else "0",
    ]
    return childprocess.command([bound.__file__, *binding, *command], isolated=True)


def memory_refusal(nodes: Collection[int]) -> str:
    """Why memory cannot be bound to nodes here, in the kernel's words; "" where it can.

    Containers forbid the call unless they have CAP_SYS_NICE; kernels without NUMA lack it. A child
    tries, because what is bound cannot always be unbound.
    """
    listed = ",".join(map(str, sorted(nodes)))
    done = childprocess.run([bound.__file__, "", listed, "0", "true"], isolated=True)
    if done.status == 0:
        return ""
    return done.last_line("no reason is given").rpartition(": ")[2]


@contextmanager
def as_if_bound(share: Share) -> Iterator[None]:
    """Run a block where this thread has the processors of a share, so that it plans for them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share.processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
