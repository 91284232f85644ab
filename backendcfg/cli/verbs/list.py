"""`backendcfg list`: every profile that can be named here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.cli.group import verb
from backendcfg.cli.output import current, table
from backendcfg.errors import BackendCfgError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.load.document import ProfileFile
    from backendcfg.load.locations import Listed, Locations


@verb("list", "Look")
def command() -> None:
    """List the profiles: where from, what their tier is, what they are.

    `*` marks the one that is in force here.
    """
    from backendcfg.cli import sources
    from backendcfg.load.locations import locate, profiles

    active = sources.picked(None, {}).name or ""
    locations = locate()
    read: dict[str, ProfileFile] = {}
    document = [_document(found, active, locations, read) for found in profiles()]
    current().answer(document, _lines(document))


def _document(
    found: Listed, active: str, locations: Locations, read: dict[str, ProfileFile]
) -> dict[str, Any]:
    """A profile as JSON; `read` has the files of those before, and gets what this one needs."""
    from backendcfg.load.stack import Family

    tier, problem = "", found.problem
    if not problem and not found.hidden:
        family = Family(locations, dict(read))
        try:
            tier = family.tier(found.name)
            read |= family.read  # nothing is wrong with any of them
        except BackendCfgError as error:
            problem = str(error)
    return {
        "name": found.name,
        "from": found.title,
        "path": found.path,
        "tier": tier,
        "description": found.description,
        "active": not found.hidden and found.name in active.split("+"),
        "hidden": found.hidden,
        "problem": problem,
    }


def _lines(document: list[dict[str, Any]]) -> Iterator[str]:
    rows = []
    for profile in document:
        text = profile["description"]
        if profile["hidden"]:
            text = f"(hidden by the profile of this name above) {text}"
        if profile["problem"]:
            text = f"cannot be used: {profile['problem']}"
        mark = "*" if profile["active"] else ""
        rows.append((mark, profile["name"], profile["from"], profile["tier"], text.rstrip()))
    yield from table(rows, ("", "profile", "from", "tier", "description"))
