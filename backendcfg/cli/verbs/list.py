"""`backendcfg list`: every profile that can be named here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.cli.group import verb
from backendcfg.cli.output import current, table
from backendcfg.errors import BackendCfgError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.load.locations import Listed


@verb("list", "Look")
def command() -> None:
    """List the profiles: where from, what their tier is, what they are.

    `*` marks the one that is in force here.
    """
    from backendcfg.cli import sources
    from backendcfg.load.locations import profiles

    active = sources.picked(None, {}).name or ""
    document = [_document(found, active) for found in profiles()]
    current().answer(document, _lines(document))


def _document(found: Listed, active: str) -> dict[str, Any]:
    tier, problem = "", found.problem
    if not problem and not found.hidden:
        try:
            tier = tier_of(found.name)
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


def tier_of(name: str) -> str:
    """The determinism tier that a profile asks for by itself.

    Raises:
        RequestError: the profile cannot be loaded.
    """
    from backendcfg.load.stack import Request, load

    tier = "none"
    for layer in load(Request(name=name, use_environment=False)).layers:
        for one in layer.assignments:
            if layer.profile and one.flag == "determinism.tier":
                tier = one.value
    return tier


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
