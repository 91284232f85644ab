"""`backendcfg verify`: whether every switch has the value that the profile wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.cli.group import verb
from backendcfg.cli.options import profile_argument
from backendcfg.cli.output import Colour, block, current, says_no, table
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

COLOURS: dict[str, Colour] = {
    "ok": "green",
    "irreversible": "green",
    "differs": "red",
    "overridden": "red",
    "undone": "red",
    "unreadable": "red",
    "stuck": "red",
    "pending": "yellow",
    "unsupported": "yellow",
}


@verb("verify", "Prove")
@profile_argument()
def command(name: str | None) -> None:
    """Read every switch back in a new process, and compare.

    The process imports the frameworks that are installed. It is started as from this shell;
    `backendcfg run -- backendcfg verify` looks at what `run` starts. Exits with 1 when a switch
    has another value than the profile wants, when a variable outranks it, or when the tier of the
    profile is not in force.
    """
    from backendcfg import environ
    from backendcfg.audit.verify import FAILS
    from backendcfg.cli import child, sources
    from backendcfg.cli.verbs.status import standing

    if environ.disabled():
        raise UsageError(
            "backendcfg is turned off by BACKENDCFG_DISABLE, so there is nothing to verify",
            helps=["run `unset BACKENDCFG_DISABLE`"],
        )
    if name is None and standing()["profile"] is None:
        raise UsageError(
            "no profile is in force here, so there is nothing to verify",
            helps=["name one: `backendcfg verify reproducible`", "or run `backendcfg apply`"],
        )
    if name is not None:
        # The child is told by a variable, which must not be blamed for a name given here.
        sources.stack(sources.picked(name, {}))
    found = child.verification(name)
    current().answer(found, _lines(found))
    broken = found["tier"] != "none" and not found["in_force"]
    if broken or any(reading["state"] in FAILS for reading in found["readings"]):
        says_no()


def _lines(found: dict[str, Any]) -> Iterator[str]:
    from backendcfg.audit.verify import FAILS
    from backendcfg.cli.wording import counted, grouped_reasons
    from backendcfg.resolve.words import literal

    readings = [one for one in found["readings"] if one["state"] != "dormant"]
    rows = [
        (one["state"], one["switch"], literal(one["wanted"]), _because(one)) for one in readings
    ]
    painted = [(_coloured(row[0]), *row[1:]) for row in rows]
    yield from table(painted, ("state", "switch", "wanted", "")) if rows else []
    dormant = {
        one["flag"]: one["because"] for one in found["readings"] if one["state"] == "dormant"
    }
    yield from block("dormant", grouped_reasons(dormant), "bold")
    yield from block("overrides", found["overrides"], "bold", "yellow")
    broken = [f"{name} cannot be imported: {why}" for name, why in found["broken"].items()]
    yield from block("not read", broken, "bold", "yellow")
    wrong = sum(one["state"] in FAILS for one in readings)
    yield ""
    if wrong:
        of = f"{counted(wrong, 'switch', 'switches')} of {len(readings)}"
        yield f"{of} not as {found['profile']} wants"
    else:
        yield f"{counted(len(readings), 'switch', 'switches')} read, none differs"
    if found["tier"] != "none":
        yield f"the tier `{found['tier']}` is {'' if found['in_force'] else 'not '}in force"
    for because in found["because"]:
        yield f"  {because}"


def _coloured(state: str) -> str:
    return current().paint(state, COLOURS[state]) if state in COLOURS else state


def _because(reading: dict[str, Any]) -> str:
    from backendcfg.resolve.words import literal

    parts = []
    if reading["found"] != reading["wanted"] and reading["found"] is not None:
        parts.append(f"found {literal(reading['found'])}")
    if reading["because"]:
        parts.append(reading["because"])
    return "; ".join(parts)
