"""The start-up files that let every interpreter of an environment start under what is in force.

`site` runs the `import` line of each `.pth` file in a site-packages folder. Ours runs the module
beside it, a copy of `interpreter_start.py`, which decides without backendcfg whether anything is
active. After an uninstall it finds no backendcfg and does nothing.

    python -I, -E, -S                  nothing happens
    BACKENDCFG_DISABLE=1               nothing happens
    pip, ensurepip, venv, backendcfg   nothing happens
    BACKENDCFG_PROFILE is set          what fails ends the process, with the error and its code
    else                               what fails is one line on standard error
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig

from backendcfg import childprocess, environ
from backendcfg.errors import MissingLibraryError, StateUnwritableError, UsageError
from backendcfg.probe import text_of
from backendcfg.records import record
from backendcfg.transact import disk

MODULE = "_backendcfg_autoload"
NAME = "zz-backendcfg-autoload.pth"
"""`site` takes the files of a folder by alphabet; those that add folders shall come first."""

# Not `import {MODULE}`: that would list every folder on the path, which takes longer than the rest.
# `sitedir` is the parameter of `site.addpackage` whose frame this line runs in, as in the
# `-nspkg.pth` files of setuptools.
TEXT = f"""\
# Written by `backendcfg autoload on`; `backendcfg autoload off` removes it.
import _frozen_importlib_external as loading; \
module = type(loading)("{MODULE}"); \
loading.SourceFileLoader("{MODULE}", sitedir + "/{MODULE}.py").exec_module(module)
"""
SOURCE = os.path.join(os.path.dirname(__file__), "interpreter_start.py")


@record(frozen=True)
class StartFile:
    """A start-up file in a folder that this interpreter looks at.

    Attributes:
        path: the `.pth` file.
        current: whether it and its module are what this release writes.
    """

    path: str
    current: bool


def installed() -> tuple[StartFile, ...]:
    """The start-up files of this environment, in the order in which `site` runs them."""
    found = []
    for folder in _folders():
        path = os.path.join(folder, NAME)
        if os.path.lexists(path):
            same = all(text_of(file) == text for file, text in _wanted(folder).items())
            found.append(StartFile(path, same))
    return tuple(found)


def files() -> tuple[str, ...]:
    """Every file of ours in the folders of this environment, in the order of removing."""
    return tuple(path for folder in _folders() for path in _files(folder))


def on(*, user: bool = False) -> tuple[str, bool]:
    """Install the start-up file in this environment.

    Args:
        user: in the user's own site-packages rather than in the environment's.

    Returns:
        The file, and whether it was not there in this form before.

    Raises:
        UsageError: this interpreter does not look at the user's site-packages.
        MissingLibraryError: other interpreters of this environment would not find backendcfg.
        StateUnwritableError: the folder cannot be written.
    """
    folder = _user_folder() if user else _folder()
    _refuse_unless_found()
    path = os.path.join(folder, NAME)
    if StartFile(path, current=True) in installed():
        return path, False
    try:
        os.makedirs(folder, exist_ok=True)
        # The module first: a `.pth` file without it would complain at every start.
        for file, text in _wanted(folder).items():
            _replace(file, text)
    except OSError as error:
        raise _unwritable(folder, error, "write") from error
    _compile(os.path.join(folder, f"{MODULE}.py"))
    return path, True


def off() -> tuple[str, ...]:
    """Remove every start-up file of this environment; the files that were removed.

    Raises:
        StateUnwritableError: one cannot be removed; `state` says which were.
    """
    removed: list[str] = []
    for folder in _folders():
        for path in _files(folder):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unwritable(
                    path, error, "remove", f"removed: {', '.join(removed) or 'nothing'}"
                ) from error
            removed.append(path)
    return tuple(removed)


def _wanted(folder: str) -> dict[str, str]:
    """The files that belong into a folder, in the order of writing."""
    return {
        os.path.join(folder, f"{MODULE}.py"): text_of(SOURCE),
        os.path.join(folder, NAME): TEXT,
    }


def _files(folder: str) -> list[str]:
    """The files of ours in a folder, in the order of removing."""
    import glob

    compiled = glob.glob(os.path.join(glob.escape(folder), "__pycache__", f"{MODULE}.*.pyc"))
    present = [*reversed(_wanted(folder)), *sorted(compiled)]
    return [path for path in present if os.path.lexists(path)]


def _replace(path: str, text: str) -> None:
    """Write a file whole or not at all; everybody may read it, as umask allows."""
    temporary = f"{path}.{os.getpid()}.new"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        disk.discard(temporary)
        raise


def _compile(path: str) -> None:
    """Compile the module now: later starts may not be allowed to write."""
    import py_compile
    from contextlib import suppress

    with suppress(OSError, py_compile.PyCompileError):
        py_compile.compile(path, doraise=True)


def _folders() -> list[str]:
    """The folders whose `.pth` files an interpreter of this environment runs."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return list(dict.fromkeys([*user, *site.getsitepackages(), _folder()]))


def _folder() -> str:
    """Where this environment installs packages, among the folders that `site` looks at."""
    seen = site.getsitepackages()
    chosen = sysconfig.get_path("purelib")
    return chosen if chosen in seen or not seen else seen[0]


def _user_folder() -> str:
    if not site.ENABLE_USER_SITE:
        raise UsageError(
            f"{sys.executable} does not look at the site-packages of the user",
            notes=["virtual environments do not, nor does Python with -s or PYTHONNOUSERSITE"],
            helps=["run `backendcfg autoload on`, which takes the environment's own"],
        )
    return site.getusersitepackages()


def _refuse_unless_found() -> None:
    """Refuse an environment where backendcfg is only on PYTHONPATH, or in the working directory."""
    search = "import importlib.util as u; print(u.find_spec('backendcfg') is not None)"
    environment = {
        name: text
        for name, text in environ.current().items()
        if not name.startswith(("PYTHON", environ.PREFIX))
    }
    done = childprocess.run(["-c", search], {**environment, environ.DISABLE.name: "1"})
    if done.text.strip() == "True":
        return
    raise MissingLibraryError(
        f"backendcfg is not installed for {sys.executable}",
        notes=[
            "it was found through PYTHONPATH or the working directory only",
            *done.complaints.strip().splitlines()[-1:],
        ],
        helps=[f"run `{sys.executable} -m pip install backendcfg`, then this again"],
    )


def _unwritable(
    path: str, error: OSError, doing: str, state: str = "nothing was changed"
) -> StateUnwritableError:
    return StateUnwritableError(
        f"cannot {doing} {path}: {os.strerror(error.errno or 0)}",
        notes=[f"it belongs to the Python environment at {sys.prefix}"],
        state=state,
        helps=[
            "run it as the owner of that environment, or in a virtual environment of your own",
            "or write `backendcfg autoload on --user`, where Python looks at the user's packages",
        ],
    )
