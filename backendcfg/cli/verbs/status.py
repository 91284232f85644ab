"""`backendcfg status`: the profile that a process started here would have."""

from __future__ import annotations

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
        the first start here makes the stored plan again, "" while it is valid; `in_files` are the
        flags in force that settings files set, by file; `instead` are the weaker picks, strongest
        first; `python` is why a plain `python` starts without it, "" where it has it; `ignored` are
        the lists of what is active that do not count, each with the reason; `passed_over` is the
        file of a project that does not count, or ""; `alone` are the settings files with flags,
        where no profile is in force to go with them;
        `calibration` says whether our own operations go by measured speed.
    """
    from backendcfg import environ, startup
    from backendcfg.cli.wording import calibrated, not_in_python
    from backendcfg.session import choice, planning
    from backendcfg.transact.generations import ignored, take_over_old_state

    document: dict[str, Any] = {
        "profile": None,
        "tier": "none",
        "source": "",
        "generation": 0,
        "settings": {},
        "in_files": {},
        "stale": "",
        "instead": [],
        "python": "",
        "note": "",
        "passed_over": startup.project_of_another(startup.working_directory())[0],
        "ignored": ignored(),
        "alone": [],
        "unkept": [],
        "overrides": [],
        "disabled": environ.disabled(),
        "calibration": None,
    }
    document["note"] = take_over_old_state()
    picked = choice.chosen(whole=True)
    if picked is None:
        if not document["disabled"]:
            document["alone"] = list(choice.settings_alone())
            if (by := choice.declined()) is not None:
                document["source"] = by.source
        return document | {"calibration": calibrated(None)}
    if picked.stored is not None:
        document["stale"] = planning.changed_since(picked.stored)
    valid = planning.compiled_pick(picked)
    return document | {
        "profile": valid.name,
        "tier": valid.tier,
        "source": picked.source,
        "generation": picked.generation,
        "settings": dict(picked.arguments),
        "in_files": dict(valid.in_files),
        "unkept": list(valid.unkept),
        "overrides": list(valid.overrides),
        "instead": [{"profile": one.name, "source": one.source} for one in picked.overrides],
        "python": not_in_python(),
        "calibration": calibrated(valid),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from backendcfg.cli.wording import made_again, no_project, tier_lines, without_profile
    from backendcfg.environ import OWN_IT
    from backendcfg.errors import shown_path

    yield from block("note", [document["note"]] if document["note"] else [], "bold")
    if document["disabled"]:
        yield "backendcfg is turned off by BACKENDCFG_DISABLE"
        return
    unowned = [f"{one}; {OWN_IT}" for one in no_project()]
    yield from block("no project", unowned, "bold", "yellow")
    unused = [f"{path}: {why}" for path, why in document["ignored"].items()]
    yield from block("ignored", unused, "bold", "yellow")
    if document["profile"] is None:
        by = f", as {document['source']} picks `nothing`" if document["source"] else ""
        yield f"no profile is in force here{by}"
        yield from block("settings", without_profile(document["alone"]), "bold", "yellow")
        yield from _calibration(document)
        yield from block("next", ["backendcfg list", "backendcfg apply reproducible"], "bold")
        return
    yield from block("profile", [document["profile"]], "bold")
    yield from block("tier", tier_lines(document["tier"], document["unkept"]), "bold")
    yield from block("from", [document["source"]], "bold")
    instead = [f"{one['profile']} ({one['source']})" for one in document["instead"]]
    yield from block("instead of", instead, "bold")
    settings = [f"{k} = {v}" for k, v in document["settings"].items()]
    settings += [f"{', '.join(on)} in {shown_path(at)}" for at, on in document["in_files"].items()]
    yield from block("settings", settings, "bold")
    if document["stale"]:
        yield from block("stale", [made_again(document["stale"])], "bold")
    yield from block("overrides", document["overrides"], "bold", "yellow")
    yield from _calibration(document)
    if document["python"]:
        yield from block("python", [document["python"]], "bold", "yellow")
    command = "backendcfg run -- python train.py" if document["python"] else "python train.py"
    yield from block("next", [command], "bold")


def _calibration(document: dict[str, Any]) -> Iterator[str]:
    """A line where something was measured for the threads in force; nothing where it was not."""
    from backendcfg.cli.wording import calibration_words

    if document["calibration"]["measured"]:
        yield from block("speed", [calibration_words(document["calibration"])], "bold")
