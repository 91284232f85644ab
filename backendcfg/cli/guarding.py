"""`run --guard`: what the command did to numeric switches, said when it has ended."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from backendcfg.cli.output import current
from backendcfg.cli.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backendcfg.audit.guarded import Found, Guarded

Strictness = Literal["report", "error"]
MOST_COMMANDS = 3
MOST_DRAWS = 12


def guarded(start: Callable[[str], int], strictness: Strictness) -> int:
    """Start a command, wait for it, and say what it did.

    Args:
        start: starts it with a value for BACKENDCFG_GUARD, and gives its exit status.
        strictness: whether the command fails that changed a switch, or told nothing.

    Returns:
        The status to exit with.
    """
    from backendcfg.audit.guarded import read

    with tempfile.TemporaryDirectory(prefix="backendcfg-") as folder:
        status = start(folder)
        found = read(folder)
    output = current()
    if output.as_json:
        output.answer({"status": status, **asdict(found)}, [])
    for line in _lines(found):
        output.note(line)
    failed = bool(found.changes or found.applied) or not found.processes
    return 1 if strictness == "error" and status == 0 and failed else status


def _lines(found: Guarded) -> Iterator[str]:
    if not found.processes and not found.silent:
        yield "guard: no Python with backendcfg ran, so nothing is known of its switches"
        return
    if found.changes:
        yield f"guard: the program changed {counted(len(found.changes), 'switch', 'switches')}"
        for one in found.changes:
            place = one.what["place"] and f", set at {one.what['place']}"
            yield f"  {one.what['text']}{place}{_processes(one)}"
    elif found.processes:
        yield "guard: the program changed no switch"
    yield from _draws("guard: the program drew what no seed governs", found, secret=False)
    yield from _draws("guard: the program drew secrets, which no profile seeds", found, secret=True)
    for name in found.applied:
        yield f"guard: the program applied profile `{name}` itself"
    if found.silent:
        yield (
            f"guard: {counted(len(found.silent), 'process', 'processes')} told nothing at the end,"
            " because of a signal, os._exit or exec"
        )
        for words in found.silent[:MOST_COMMANDS]:
            yield f"  {shlex.join(words)}"
        if len(found.silent) > MOST_COMMANDS:
            yield f"  and {len(found.silent) - MOST_COMMANDS} more"


def _draws(title: str, found: Guarded, *, secret: bool) -> Iterator[str]:
    draws = [one for one in found.draws if one.what["secret"] == secret]
    draws.sort(key=lambda one: " for " in one.what["place"])  # those of libraries last
    if draws:
        yield title
    for one in draws[:MOST_DRAWS]:
        yield f"  {one.what['text']}{_processes(one)}"
    if len(draws) > MOST_DRAWS:
        yield f"  and {len(draws) - MOST_DRAWS} more, see `--json`"


def _processes(one: Found) -> str:
    return f", in {one.processes} processes" if one.processes > 1 else ""
