"""Become a command that runs on some processors, with memory of some nodes.

    python -I -S bound.py PROCESSORS NODES PARENT COMMAND...

PROCESSORS and NODES are lists of numbers, or "" for no binding. PARENT is a process whose end ends
the command too, or 0. A program of its own, because code between fork and exec in a process with
threads may deadlock.

Sources: set_mempolicy(2), prctl(2), and the tables of system calls of Linux 6.
"""

from __future__ import annotations

import os
import sys

MEMORY_CALLS = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 270}
"""The number of `set_mempolicy` by architecture."""

BIND = 2
PARENT_DEATH_SIGNAL = 1
NOT_BOUND = 71


def bind_memory(nodes: list[int]) -> None:
    """Take memory from these nodes only, in this process and what it becomes.

    Raises:
        OSError: the kernel refuses, or has no NUMA.
    """
    import ctypes

    call = MEMORY_CALLS.get(os.uname().machine)
    if call is None:
        raise OSError(38, f"no number of set_mempolicy is known for {os.uname().machine}")
    words = max(nodes) // 64 + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // 64] |= 1 << (node % 64)
    library = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is told.
    result = library.syscall(
        ctypes.c_long(call), ctypes.c_int(BIND), mask, ctypes.c_ulong(words * 64 + 1)
    )
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def end_with(parent: int) -> None:
    """End by SIGTERM when the launcher ends, in whatever way."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before it could be asked for
        os.kill(os.getpid(), signal.SIGTERM)


def main(words: list[str]) -> int:
    """Bind and become the command; the exit status where that fails."""
    processors, nodes, parent, *command = words
    if parent != "0":
        end_with(int(parent))
    try:
        if processors:
            os.sched_setaffinity(0, [int(number) for number in processors.split(",")])
        if nodes:
            bind_memory([int(node) for node in nodes.split(",")])
    except OSError as error:
        sys.stderr.write(f"backendcfg cannot bind to {processors or nodes}: {error.strerror}\n")
        return NOT_BOUND
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell would quote anew
    except FileNotFoundError:
        sys.stderr.write(f"backendcfg: command `{command[0]}` was not found\n")
        return 127
    except OSError as error:
        sys.stderr.write(f"backendcfg: cannot execute `{command[0]}`: {error.strerror}\n")
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
