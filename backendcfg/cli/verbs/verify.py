"""`backendcfg verify`: whether every switch has the value wanted, and acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import profile_argument, report_option, write_report
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
    "granted, not taken": "yellow",
    "not measured": "yellow",
}


@verb("verify", "Prove")
@profile_argument()
@click.option(
    "--measure", is_flag=True, help="Also measure with which precision each library computes."
)
@report_option()
def command(name: str | None, *, measure: bool, report: str | None) -> None:
    """Read every switch back in a new process, and compare.

    The process imports the frameworks that are installed. It is started as from this shell;
    `backendcfg run -- backendcfg verify` looks at what `run` starts. Exits with 1 when a switch
    has another value than the profile wants, when a variable outranks it, when the tier of the
    profile is not in force, or when a plain `python` would start here without the profile.
    """
    from dataclasses import asdict

    from backendcfg import environ
    from backendcfg.audit.report.data import About, verified
    from backendcfg.cli import child, sources
    from backendcfg.cli.verbs.status import standing

    if environ.disabled():
        raise UsageError(
            "backendcfg is turned off by BACKENDCFG_DISABLE, so there is nothing to verify",
            helps=["run `unset BACKENDCFG_DISABLE`"],
        )
    here = {"profile": name, "python": ""} if name is not None else standing()
    if not measure and here["profile"] is None:
        raise UsageError(
            "no profile is in force here, so there is nothing to verify",
            helps=["name one: `backendcfg verify reproducible`", "or run `backendcfg apply`"],
        )
    if name is not None:
        # The child is told by a variable, which must not be blamed for a name given here.
        sources.stack(sources.picked(name, {}))
    found = child.verification(name, measure=measure)
    about = About("verify")
    # The child has the profile because it imports backendcfg, which other programs do not.
    python = here["python"]
    found |= {"ok": found["ok"] and not python, "python": python}
    lines = [*_lines(found), *block("python", [python] if python else [], "bold", "yellow")]
    current().answer(found | {"about": asdict(about)}, lines)
    if report is not None:
        write_report(verified(about, found), report)
    if not found["ok"]:
        says_no()


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if found["profile"]:
        yield from _switches(found)
        yield from [""] if found["measured"] else []
    if found["measured"]:
        yield from _measured(found)
    if not found["profile"]:
        yield from _unread(found)


def _switches(found: dict[str, Any]) -> Iterator[str]:
    from backendcfg.audit.verify import FAILS
    from backendcfg.cli.wording import grouped_reasons
    from backendcfg.resolve.words import counted, literal

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
    yield from _unread(found)
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


def _unread(found: dict[str, Any]) -> list[str]:
    broken = [f"{name} cannot be imported: {why}" for name, why in found["broken"].items()]
    return block("not read", broken, "bold", "yellow")


def _measured(found: dict[str, Any]) -> Iterator[str]:
    """A row for each operation: the bits of the fraction that its operands and its sums keep."""
    from backendcfg.audit.report import words

    every = found["measured"]
    rows = []
    for one in every:
        precision = one["precision"] or {}
        bits, sums = precision.get("operands"), precision.get("accumulator")
        device = "" if one["device"] == "cpu" else f" on {one['device']}"
        row = (one["operation"] + device, one["dtype"], _number(bits), _number(sums))
        rows.append((_coloured(one["state"]), *row, one["because"]))
    yield from table(rows, ("measured", "operation", "dtype", "bits", "sums", ""))
    flushed = [
        f"{one['operation']} ({one['dtype']})"
        for one in every
        if one["precision"] and one["precision"]["subnormals"] is False
    ]
    yield from block(
        "subnormals", [f"taken for 0 by {', '.join(flushed)}"] if flushed else [], "bold"
    )
    yield ""
    yield words.measured([one["state"] for one in every])
    yield from _served(every)


def _served(measured: list[dict[str, Any]]) -> Iterator[str]:
    """A row for each operation whose code was found: the library, and its function."""
    rows = [
        (one["served"]["library"], one["operation"], one["dtype"], one["served"]["kernel"])
        for one in measured
        if one["served"]
    ]
    if rows:
        yield ""
        yield from table(sorted(rows), ("served by", "operation", "dtype", "function"))


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


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
