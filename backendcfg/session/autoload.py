"""Whether every interpreter of this environment starts under what is in force.

The wheel brings the start-up file: `backendcfg-startup.pth`, whose line `site` runs, and
`_backendcfg_startup.py`, a copy of `backendcfg/startup.py`. `off` leaves a file outside the package
that turns it off, for this environment or for this user, so that it stays off after an upgrade.

0.1.0 wrote start-up files of its own, which pip does not know. `on` and `off` remove them.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig

from backendcfg import environ, startup
from backendcfg.errors import StateUnwritableError
from backendcfg.transact import disk, generations

MODULE = "_backendcfg_startup"
NAME = "backendcfg-startup.pth"
OLD_FILES = ("zz-backendcfg-autoload.pth", "_backendcfg_autoload.py")


def start_file() -> str:
    """The start-up file that interpreters of this environment run, "" where there is none."""
    for folder in _folders():
        path = os.path.join(folder, NAME)
        if os.path.isfile(path) and os.path.isfile(os.path.join(folder, f"{MODULE}.py")):
            return path
    return ""


def off_files() -> tuple[str, ...]:
    """The files that are there and turn it off."""
    return tuple(path for path in startup.off_files() if os.path.lexists(path))


def old_files() -> tuple[str, ...]:
    """The start-up files that 0.1.0 wrote, in the order of removing."""
    import glob

    found: list[str] = []
    for folder in _folders():
        cache = os.path.join(glob.escape(folder), "__pycache__", "_backendcfg_autoload.*.pyc")
        found += [os.path.join(folder, name) for name in OLD_FILES] + sorted(glob.glob(cache))
    return tuple(path for path in found if os.path.lexists(path))


def silent() -> str:
    """When a plain `python` of this environment would have what is in force; "" where it has."""
    if environ.disabled():
        return f"not while {environ.DISABLE.name} is set"
    if (environ.STARTED_BY.read() or "").startswith("run "):
        return ""  # `run` hands on a start-up file of its own
    if off_files():
        return "not before you run `backendcfg autoload on`"
    if not start_file():
        return f"not before backendcfg is installed in {sys.prefix}"
    return ""


def on() -> tuple[str, ...]:
    """Undo `off`, and remove what 0.1.0 wrote; the files that were removed.

    Raises:
        StateUnwritableError: one cannot be removed; `state` says which were.
    """
    paths = (*off_files(), *old_files())
    disk.remove(paths)
    return paths


def off(*, user: bool = False) -> str:
    """Let no plain `python` have what is in force; the file that says so.

    Args:
        user: for this user in every environment, rather than for this environment.

    Raises:
        StateUnwritableError: the file cannot be written, or one of 0.1.0 cannot be removed.
    """
    if user:
        # Not this environment's file where there is no home directory.
        environ.refuse_home_of_sudoer(generations.directory(), environ.STATE_DIR)
    path = startup.off_files()[-1 if user else 0]
    try:
        disk.make_directory(os.path.dirname(path), shared=not user)
        disk.replace(path, b"`backendcfg autoload on` removes this file\n", shared=not user)
    except StateUnwritableError as error:
        if not user:
            error.helps += (
                "or write `backendcfg autoload off --user`, for every environment that you use",
            )
        error.state = "nothing was changed"
        raise
    disk.remove(old_files())
    return path


def _folders() -> list[str]:
    """The folders whose `.pth` files an interpreter of this environment runs."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    own = [sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    return list(dict.fromkeys([*user, *site.getsitepackages(), *own]))
