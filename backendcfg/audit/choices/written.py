"""The profile that has a program's winning choices."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from backendcfg.audit.evidence.variants import variant
from backendcfg.errors import visible
from backendcfg.load.document import is_name
from backendcfg.load.stack import NO_PROFILE
from backendcfg.resolve.words import assignment, literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from backendcfg.audit.choices.verdicts import Measured
    from backendcfg.transact.compiled import Compiled


def profile(
    base: Compiled, best: Measured, command: Sequence[str], reasons: Mapping[str, str]
) -> str:
    """The text of a profile: the base, and the flags of the best choice over it.

    What the base has from variables and settings files is not in it; they count beside it, too.

    Args:
        base: the profile that was measured.
        best: what made the program faster.
        command: the program.
        reasons: what is gained by each flag, by its assignment.
    """
    return "\n".join(
        [
            f"# {best.speed:.2f} times the speed of {visible(base.name)}, as measured here with",
            f"#   {visible(shlex.join(command))}",
            *_base(base, best),
            *_flags(best, reasons),
            "",
        ]
    )


def _base(base: Compiled, best: Measured) -> Iterator[str]:
    parents = base.name.split("+")
    if base.name == NO_PROFILE or not all(map(is_name, parents)):
        # Only a profile that has a name can be extended.
        lines = variant(None, base, ()).splitlines()
        yield from (line for line in lines if line.partition(" = ")[0] not in best.flags)
        return
    yield "schema = 1"
    yield f"extends = {literal(parents if parents[1:] else base.name)}"
    for flag, text in base.request.arguments.items():
        if flag not in best.flags:
            yield f"{flag} = {text}"


def _flags(best: Measured, reasons: Mapping[str, str]) -> Iterator[str]:
    for line in (assignment(flag, value) for flag, value in best.flags.items()):
        yield f"# {reasons[line]}"
        yield line
