"""Runs verbs in worlds: imports the command once, then forks for each, under limits.

One JSON list per line of standard input: the folder, the variables, the descriptors, the words. One per
line of standard output: the exit status, or null where it was ended for its time, what it printed on
standard output and on standard error, and the bytes by which it grew.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time

SECONDS = 20.0
MEMORY = 512 << 20
"""Bytes beyond what the steward has."""


def run(folder, variables, descriptors, words):
    reading = [os.pipe() for _ in range(2)]
    child = os.fork()
    if child == 0:
        _become(folder, variables, descriptors, [writer for _, writer in reading])
        code = 70
        try:
            from backendcfg.cli.main import main

            code = main(words)
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
    for _, writer in reading:
        os.close(writer)
    texts, ended = _listen({reader: number for number, (reader, _) in enumerate(reading)})
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return (
        os.waitstatus_to_exitcode(status) if ended else None,
        *(text.decode(errors="replace") for text in texts),
        usage.ru_maxrss << 10,
    )


def _become(folder, variables, descriptors, writers):
    for number, writer in enumerate(writers, start=1):
        os.dup2(writer, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY,) * 2)
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors,) * 2)


def _listen(numbers):
    """What the child prints on each descriptor, until both are closed or its time is over."""
    texts, deadline = [b"", b""], time.monotonic() + SECONDS
    while numbers:
        ready, _, _ = select.select(list(numbers), [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return texts, False
        for reader in ready:
            if part := os.read(reader, 1 << 16):
                texts[numbers[reader]] += part
            else:
                os.close(reader)
                del numbers[reader]
    return texts, True


def main():
    # What every verb needs, once.
    from backendcfg.cli import main as command
    from backendcfg.schema import profile

    command, profile.flags()
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
