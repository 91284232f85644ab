"""Where a program is when it does something: file and line, told by functions that are wrapped.

Nothing is wrapped but in a process that `backendcfg run --guard` watches. What is wrapped does what
it did before.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import wraps
from typing import TYPE_CHECKING

from backendcfg import startup
from backendcfg.bridges import imports

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import FrameType
    from typing import Any

_MARK = "_backendcfg_tells"
_PYTHONS = tuple(os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib"))
_PACKAGES = ("/site-packages/", "/dist-packages/")
_HERE = os.path.join(startup.working_directory(), "")


def place(passed: Collection[str], start: FrameType | None = None) -> str:
    """Where `nearest` is: "train.py:12", or ""; "lib/a.py:3 for train.py:12" in a library."""
    frame = nearest(passed, start or sys._getframe(1))
    if frame is None:
        return ""
    own: FrameType | None = frame
    while own is not None and _is_library(own):
        own = own.f_back
    return _shown(frame) if own in (frame, None) else f"{_shown(frame)} for {_shown(own)}"


def nearest(passed: Collection[str], start: FrameType | None = None) -> FrameType | None:
    """The nearest Python code, from `start` on, that is in none of these modules or below them.

    What imports is no such code.
    """
    frame = start or sys._getframe(1)
    while _is_inner(frame) or is_within(module_of(frame), passed):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame


def is_importing(frame: FrameType | None) -> bool:
    """Whether a library runs there because it is being imported."""
    while frame is not None and _is_library(frame):
        if _is_inner(frame):
            return True
        frame = frame.f_back
    return False


def module_of(frame: FrameType) -> str:
    """The name of the module whose code runs."""
    return str(frame.f_globals.get("__name__", ""))


def is_within(module: str, trees: Collection[str]) -> bool:
    """Whether a module is one of these, or below one."""
    return any(module == tree or module.startswith(f"{tree}.") for tree in trees)


def is_python(frame: FrameType) -> bool:
    """Whether the code belongs to Python's own library."""
    path = frame.f_code.co_filename
    return path.startswith(_PYTHONS) and not _is_package(path)


def _is_library(frame: FrameType) -> bool:
    ours = is_within(module_of(frame), ("backendcfg",))
    return ours or _is_inner(frame) or is_python(frame) or _is_package(frame.f_code.co_filename)


def _is_package(path: str) -> bool:
    return any(folder in path for folder in _PACKAGES)


def tell(functions: Mapping[str, Collection[str]], make: Callable[[Any], Any]) -> None:
    """Wrap functions, now or the moment that their module is imported.

    Args:
        functions: dotted names within a module, by the module's name.
        make: makes the function that takes the place of one.
    """

    def wrap(module: str) -> None:
        for name in functions[module]:
            _wrap(sys.modules[module], name, make)

    imports.watch(wrap, functions)
    for module in functions:
        if imports.is_imported(module):
            wrap(module)


def _wrap(module: Any, name: str, make: Callable[[Any], Any]) -> None:
    *path, last = name.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part, None)
    original = getattr(owner, last, None)
    # Other releases may not have it; and a module that runs again may have kept ours.
    if original is None or getattr(original, _MARK, None) is original:
        return
    replacement = wraps(original)(make(original))
    setattr(replacement, _MARK, replacement)
    setattr(owner, last, replacement)


def _is_inner(frame: FrameType) -> bool:
    """Whether Python imports there, or runs code that PyTorch generated."""
    return frame.f_code.co_filename.startswith(("<frozen ", "<eval_with_key>"))


def _shown(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    for folder in _PACKAGES:
        if folder in path:
            path = path.rpartition(folder)[2]
            break
    else:
        for folder in _PYTHONS:
            path = path.removeprefix(folder)
        path = path.removeprefix(_HERE)
    return f"{path}:{frame.f_lineno}"
