"""`backendcfg autoload on|off|status`: whether every Python of this environment obeys."""

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
    interrupted="autoload is on or off; see `backendcfg autoload status`",
)
@click.argument("action", type=click.Choice(ACTIONS))
@click.option("--user", is_flag=True, help="With `off`: for you, in every environment.")
def command(action: str, user: bool) -> None:
    """Let every Python here start under the profile in force, or none.

    It is on after an installation: programs that do not know backendcfg start under
    BACKENDCFG_PROFILE or the profile in force. `off` is kept when backendcfg is upgraded; `on`
    takes it back. `status` says what is so now.
    """
    from backendcfg.session import autoload

    if user and action != "off":
        raise UsageError(
            f"`backendcfg autoload {action}` takes no `--user`",
            helps=[f"run `backendcfg autoload {action}`, which looks at both places"],
        )
    output = current()
    if action == "on":
        removed = autoload.on()
        why = autoload.silent()
        lines = [f"autoload is {'off' if why else 'on'}{f': {why}' if why else ''}"]
        lines += [f"removed {path}" for path in removed]
        output.answer({"on": not why, "removed": list(removed)}, lines)
    elif action == "off":
        path = autoload.off(user=user)
        output.answer({"on": False, "file": path}, [f"autoload is off: {path} says so"])
    else:
        document = standing()
        output.answer(document, _lines(document))


def standing() -> dict[str, Any]:
    """Whether autoload is on here, and what a Python that starts here would get.

    Returns:
        `file` is the start-up file, "" where there is none; `off` are the files that turn it off;
        `old` those that 0.1.0 wrote; `profile` and `source` say what is in force here, None and ""
        for nothing; `python` is why a plain `python` starts without it, "" where it has it;
        `problem` is why that cannot be told, or applied.
    """
    from backendcfg import environ
    from backendcfg.cli.wording import untrusted
    from backendcfg.errors import BackendCfgError
    from backendcfg.session import autoload, choice, planning

    file, off = autoload.start_file(), autoload.off_files()
    document: dict[str, Any] = {
        "on": bool(file) and not off,
        "file": file,
        "off": list(off),
        "old": list(autoload.old_files()),
        "interpreter": sys.executable,
        "disabled": environ.disabled(),
        "profile": None,
        "source": "",
        "python": "",
        "problem": "",
    }
    try:
        picked = choice.chosen()
        if picked is None:
            return document
        planning.compiled_pick(picked)
    except BackendCfgError as error:
        return document | {"problem": str(error)}
    name = picked.name or "default"
    return document | {"profile": name, "source": picked.source, "python": untrusted()}


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield from block("autoload", ["on" if document["on"] else "off"], "bold")
    missing = "none: backendcfg is not installed in this environment"
    yield from block("file", [document["file"] or missing], "bold")
    yield from block("off by", document["off"], "bold", "yellow")
    for path in document["old"]:
        why = f"{path} was written by 0.1.0; `backendcfg autoload on` removes it"
        yield from block("old", [why], "bold", "yellow")
    yield from block("python", [document["interpreter"]], "bold")
    if document["disabled"]:
        yield from block("here", ["nothing: BACKENDCFG_DISABLE turns backendcfg off"], "bold")
    elif document["problem"]:
        yield from block("here", [document["problem"]], "bold", "yellow")
    elif document["profile"] is None:
        yield from block("here", ["no profile is in force"], "bold")
    else:
        here = f"{document['profile']} ({document['source']})"
        why = document["python"]
        yield from block("here", [f"{here}, {why}" if why else here], "bold")
    if document["off"]:
        yield from block("next", ["backendcfg autoload on"], "bold")
