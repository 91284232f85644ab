"""`backendcfg status`: the profile that a process started here would have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from backendcfg.cli.group import verb
from backendcfg.cli.output import block, current

if TYPE_CHECKING:
    from collections.abc import Iterator


@verb("status", "Look")
def command() -> None:
    """Show which profile is in force here, and who picked it."""
    document = standing()
    current().answer(document, _lines(document))


def standing() -> dict[str, Any]:
    """What is in force for a process that starts here.

    Returns:
        The profile with its tier, source and generation, or None as its name; `stale` says why
        the stored plan is made again when a process starts, "" while it is valid; `picked` is
        the profile that the settings files pick where none is in force, or ""; `calibration` says
        whether our own operations go by measured speed.
    """
    from backendcfg import environ
    from backendcfg.cli.wording import calibrated
    from backendcfg.session import choice as session_choice

    document: dict[str, Any] = {
        "profile": None,
        "tier": "none",
        "source": "",
        "generation": 0,
        "settings": {},
        "stale": "",
        "picked": "",
        "unkept": [],
        "overrides": [],
        "disabled": environ.disabled(),
        "calibration": None,
    }
    choice = session_choice.chosen()
    if choice is None:
        return document | {"picked": picked(), "calibration": calibrated(None)}
    if choice.stored is not None:
        from backendcfg.probe.stamp import holds

        document["stale"] = holds(choice.stored.stamp)
    valid = session_choice.compiled(choice)
    return document | {
        "profile": valid.name,
        "tier": valid.tier,
        "source": choice.source,
        "generation": choice.generation,
        "settings": dict(choice.arguments),
        "unkept": list(valid.unkept),
        "overrides": list(valid.overrides),
        "calibration": calibrated(valid),
    }


def picked() -> str:
    """The profile that the settings files here pick, which `apply` would make active, or "".

    Raises:
        RequestError: a settings file is wrong, or picks what does not exist.
    """
    from backendcfg import environ, session
    from backendcfg.cli.child import NOBODY

    if environ.disabled() or not _has_settings():
        return ""
    name = session.stack(None).name
    return "" if name == NOBODY else name


def _has_settings() -> bool:
    """Whether a file is here that may hold settings; to read them costs 100 ms of imports."""
    import platformdirs

    from backendcfg import environ
    from backendcfg.session.choice import project_files

    user = environ.CONFIG_DIR.read() or platformdirs.user_config_dir("backendcfg")
    system = environ.SYSTEM_DIR.read() or "/etc/backendcfg"
    if any(os.path.lexists(os.path.join(place, "config.toml")) for place in (user, system)):
        return True
    return bool(project_files())


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from backendcfg.cli.wording import tier_lines

    if document["disabled"]:
        yield "backendcfg is turned off by BACKENDCFG_DISABLE"
        return
    if document["profile"] is None:
        yield "no profile is in force here"
        yield from _calibration(document)
        if document["picked"]:
            why = f"{document['picked']} is what the settings files pick; `run` uses it already"
            yield from block("picked", [why], "bold")
            yield from block("next", ["backendcfg apply"], "bold")
            return
        yield from block("next", ["backendcfg list", "backendcfg apply reproducible"], "bold")
        return
    yield from block("profile", [document["profile"]], "bold")
    yield from block("tier", tier_lines(document["tier"], document["unkept"]), "bold")
    yield from block("from", [document["source"]], "bold")
    yield from block("settings", [f"{k} = {v}" for k, v in document["settings"].items()], "bold")
    if document["stale"]:
        why = f"{document['stale']}; `backendcfg apply` stores a plan for what is here now"
        yield from block("stale", [why], "bold", "yellow")
    yield from block("overrides", document["overrides"], "bold", "yellow")
    yield from _calibration(document)
    yield from block("next", ["backendcfg run -- python train.py"], "bold")


def _calibration(document: dict[str, Any]) -> Iterator[str]:
    """A line where something was measured for the threads in force; nothing where it was not."""
    from backendcfg.cli.wording import calibration_words

    if document["calibration"]["measured"]:
        yield from block("speed", [calibration_words(document["calibration"])], "bold")
