"""A project's files: begun with comments that say what they do, and checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backendcfg import environ, startup
from backendcfg.errors import (
    BackendCfgError,
    InvalidValueError,
    MissingLibraryError,
    StateUnwritableError,
    UnsupportedHardwareError,
    UntrustedProjectError,
    UsageError,
)
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backendcfg.schema.host import Host

SETTINGS = """\
#:schema {schemas}/settings.json
# What this project computes with. A folder with this file is a project of backendcfg: whoever works
# in it or below uses the profile that is named here, unless they name another one.
# `backendcfg status` shows which profile is in force, and why.
profile = "{name}"

# Flags may be set here too; they win over the profile. This one would use four threads.
# threads.count = 4
"""

PROFILE = """\
#:schema ../{schemas}/profile.json
# The profile `{name}`: flags that everybody who works in this project shares.
# `backendcfg plan {name}` shows what it means on this machine, `backendcfg explain WORDS` finds
# flags, and `backendcfg validate` checks this file.
schema = 1
description = "How this project computes"

# Begin with a profile that comes with backendcfg; `backendcfg list` has them all.
extends = {extends}

# What follows are examples. Remove the `#` of those that you want.

# [threads]
# count = "auto"            # every core that this process may use; or a number

# [cuda.matmul]
# fp32_precision = "ieee"   # "tf32" is faster, and rounds the factors of products to 11 bits

# [blas]
# library = "openblas"      # for backendcfg.ops on the CPU

# [[when]]                  # only where the host is like this
# gpu.vendor = "nvidia"
# [when.flags.cudnn]
# benchmark = false
"""


SCHEMAS = ".backendcfg"
"""The folder of a project with the schemas that its files name, for editors."""

NO_FAULT = (MissingLibraryError, UnsupportedHardwareError, UntrustedProjectError)
"""What keeps a valid file from being used: here, or by somebody who has not read it."""


@dataclass(frozen=True)
class Checked:
    """A file that was checked.

    Attributes:
        path: as it was given.
        faults: everything that is wrong with it, with what it extends, and in itself.
        obstacles: why it cannot be used on this host although nothing is wrong with it.
    """

    path: str
    faults: tuple[BackendCfgError, ...] = ()
    obstacles: tuple[BackendCfgError, ...] = ()


def files() -> tuple[str, ...]:
    """The settings files and the profiles of the project that this folder is in; () in none."""
    from backendcfg.load.locations import locate, profile_files

    places = locate()
    if places.project_file is None or places.project_profiles is None:
        return ()
    settings = filter(None, (places.project_file, places.passed_over()))
    every = (*settings, *profile_files(places.project_profiles))
    return tuple(os.path.relpath(path) for path in every)


def check(path: str, host: Host) -> Checked:
    """A profile or settings file: its text, its parents, and whether its flags fit together here.

    Args:
        path: the file.
        host: what conditions are compared with and conflicts looked for on.
    """
    from backendcfg.load.document import A_NAME, SETTINGS_FILES, is_name, read_settings
    from backendcfg.load.locations import PROJECT, locate
    from backendcfg.load.stack import Request, load
    from backendcfg.resolve.plan import examine
    from backendcfg.schema.describe import toml

    whole = Path(os.path.abspath(path))
    try:
        places = locate(whole.parent)
        is_here = whole.parent == Path.cwd()
        name: str | None = f"./{whole.name}" if is_here else str(whole)
        if whole.name in SETTINGS_FILES:
            read_settings(path)
            if places.passed_over() == whole:
                why = (
                    f"{PROJECT} beside it is this project's settings file, and this one is not read"
                )
                return Checked(path, obstacles=(UsageError(why),))
            if places.project_file != whole:
                return Checked(path)
            name = None
        elif whole.parent == places.project_profiles:
            if not is_name(whole.stem):
                why = f"{toml(whole.stem)} is not the name of a profile"
                wrong = InvalidValueError(why, helps=["rename the file", A_NAME])
                return _checked(path, (wrong, *_own_faults(path)))
            name = whole.stem
        stack = load(Request(name, cwd=whole.parent, use_environment=False))
    except BackendCfgError as error:
        found = error.each
        if not any(span.path == path for one in found for span in one.spans):
            # The settings are wrong, which are read first; the profile may be, too.
            found = (*found, *_own_faults(path))
        return _checked(path, found)
    return _checked(path, examine(stack, host).refusals)


def _own_faults(path: str) -> tuple[BackendCfgError, ...]:
    """What is wrong with a file itself, whatever else it needs."""
    from backendcfg.load.document import SETTINGS_FILES, read_profile

    try:
        if os.path.basename(path) not in SETTINGS_FILES:
            read_profile(path)
    except BackendCfgError as error:
        return error.each
    return ()


def _checked(path: str, found: Iterable[BackendCfgError]) -> Checked:
    every = tuple(found)
    faults = tuple(error for error in every if not isinstance(error, NO_FAULT))
    return Checked(path, faults, tuple(error for error in every if isinstance(error, NO_FAULT)))


def begin(folder: str, name: str, extends: str | None = None) -> tuple[str, ...]:
    """Write `backendcfg.toml`, `profiles/NAME.toml` and schemas; files that are there stay.

    Args:
        folder: the project's.
        name: the profile that the project uses.
        extends: the profile that a new one begins with; None for the one that has its name so far,
            or `reproducible`.

    Returns:
        The files that were written.

    Raises:
        RequestError: the folder is a project already, or a name is none.
        StateUnwritableError: a file cannot be written.
    """
    from backendcfg.load.document import A_NAME, is_name
    from backendcfg.load.locations import PROJECT, locate
    from backendcfg.load.stack import Request, load
    from backendcfg.schema.describe import toml
    from backendcfg.schema.export import json_schema

    locations = locate(folder)
    if locations.project_root == locations.cwd:
        raise UsageError(
            f"{locations.project_file} makes this folder a project already",
            helps=["edit it; `backendcfg list` shows the profiles that it can name"],
        )
    is_mine = str(locations.cwd) in startup.upwards(str(locations.cwd))
    if not is_mine or os.path.lexists(os.path.join(folder, PROJECT)):
        raise UsageError(
            "a project here would not count:"
            f" {f'its {PROJECT}' if is_mine else locations.cwd} is another user's",
            helps=[environ.OWN_IT],
        )
    if not is_name(name):
        raise UsageError(
            f"`{name}` is not the name of a profile",
            helps=[A_NAME],
        )
    files = {}
    profile = os.path.join(folder, "profiles", f"{name}.toml")
    if not os.path.lexists(profile):
        if extends is None:
            others = [one for one in locations.search() if one != locations.project_profiles]
            is_there = any((one / f"{name}.toml").is_file() for one in others)
            extends = name if is_there else "reproducible"
        load(Request(extends, use_environment=False))
        parents = extends.split("+")
        files[profile] = PROFILE.format(
            name=name, extends=toml(parents if parents[1:] else extends), schemas=SCHEMAS
        )
    for document in ("profile", "settings"):
        path = os.path.join(folder, SCHEMAS, f"{document}.json")
        if not os.path.lexists(path):
            files[path] = json_schema(document)
    files[os.path.join(folder, PROJECT)] = SETTINGS.format(name=name, schemas=SCHEMAS)
    for path, text in files.items():
        _write_new(path, text)
    return tuple(files)


def _write_new(path: str, text: str) -> None:
    folder = os.path.dirname(path) or os.curdir
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(folder):
            raise OSError(0, f"{folder} is a link to another folder, which `init` does not follow")
        disk.write_whole(path, text.encode(), new=True)
    except OSError as error:
        raise StateUnwritableError(
            f"cannot write {path}: {error.strerror}",
            state="files that `backendcfg init` wrote before are there",
            helps=["run it in a folder that you may write"],
        ) from error
