"""`backendcfg autoload on|off|status`: start every Python of this environment under a profile."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import verb
from backendcfg.cli.output import block, current
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTIONS = ("on", "off", "status")


@verb(
    "autoload",
    "Manage",
    tolerant=True,
    interrupted="the start-up file is there or not; see `backendcfg autoload status`",
)
@click.argument("action", type=click.Choice(ACTIONS))
@click.option("--user", is_flag=True, help="With `on`: in the user's site-packages.")
def command(action: str, user: bool) -> None:
    """Start every Python of this environment under the profile in force.

    `on` installs a start-up file, so that also programs that do not know backendcfg start under
    BACKENDCFG_PROFILE or the active profile. `off` removes it. `status` says what is so now.
    """
    from backendcfg.session import autoload

    if user and action != "on":
        raise UsageError(
            f"`backendcfg autoload {action}` takes no `--user`",
            helps=[f"run `backendcfg autoload {action}`, which looks at both places"],
        )
    output = current()
    if action == "on":
        path, changed = autoload.on(user=user)
        said = f"autoload is on: {path}" if changed else f"autoload was on already: {path}"
        output.answer(
            {"on": True, "changed": changed, "file": path, "interpreter": sys.executable},
            [said, *block("next", ["backendcfg apply reproducible", "backendcfg autoload off"])],
        )
    elif action == "off":
        removed = autoload.off()
        lines = [f"autoload is off: removed {path}" for path in removed] or ["autoload was off"]
        output.answer({"on": False, "removed": list(removed)}, lines)
    else:
        document = standing()
        output.answer(document, _lines(document))


def standing() -> dict[str, Any]:
    """Whether autoload is on here, and what a Python that starts here would get.

    Returns:
        `files` are the start-up files, with whether each is what this release writes; `profile`
        and `source` say what is in force here, None and "" for nothing; `problem` is why that
        cannot be told.
    """
    from backendcfg import environ
    from backendcfg.errors import BackendCfgError
    from backendcfg.session import autoload, choice

    files = [{"path": each.path, "current": each.current} for each in autoload.installed()]
    document: dict[str, Any] = {
        "on": bool(files),
        "files": files,
        "interpreter": sys.executable,
        "disabled": environ.disabled(),
        "profile": None,
        "source": "",
        "problem": "",
    }
    try:
        chosen = choice.chosen()
    except BackendCfgError as error:
        return document | {"problem": str(error)}
    if chosen is None:
        return document
    return document | {"profile": chosen.name or "default", "source": chosen.source}


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield from block("autoload", ["on" if document["on"] else "off"], "bold")
    for file in document["files"]:
        yield from block("file", [file["path"]], "bold")
        if not file["current"]:
            why = "written by another release; `backendcfg autoload on` writes it anew"
            yield from block("", [why], "yellow")
    yield from block("python", [document["interpreter"]], "bold")
    if document["disabled"]:
        yield from block("here", ["nothing: BACKENDCFG_DISABLE turns backendcfg off"], "bold")
    elif document["problem"]:
        yield from block("here", [document["problem"]], "bold", "yellow")
    elif document["profile"] is None:
        yield from block("here", ["no profile is in force"], "bold")
    else:
        yield from block("here", [f"{document['profile']} ({document['source']})"], "bold")
    if not document["on"]:
        yield from block("next", ["backendcfg autoload on"], "bold")
