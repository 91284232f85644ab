"""Where a program is when it does something: file and line, told by functions that are wrapped.

So it is found which line wrote a switch, or drew a number that no seed governs.

Nothing is wrapped but in a process that `backendcfg run --guard` watches. What is wrapped does what
it did before.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING

from backendcfg import startup
from backendcfg.bridges import imports
from backendcfg.catalogue.cpu import MKL
from backendcfg.catalogue.frameworks import JAX, TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import FrameType
    from typing import Any

    from backendcfg.audit.guard import Watched


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


# By module, names within it. Those of MKL's own package were read in its sources, not run.
_WRITERS = {
    TORCH.name: (
        "set_num_threads",
        "set_num_interop_threads",
        "set_float32_matmul_precision",
        "use_deterministic_algorithms",
        "set_deterministic_debug_mode",
        "set_default_dtype",
        "set_default_device",
        "set_default_tensor_type",
        "set_flush_denormal",
        "set_autocast_enabled",
        "set_autocast_dtype",
        "backends.PropModule.__setattr__",
        "backends._FP32Precision.__setattr__",
        "backends.cuda.cuBLASModule.__setattr__",
        "backends.cuda.enable_flash_sdp",
        "backends.cuda.enable_mem_efficient_sdp",
        "backends.cuda.enable_math_sdp",
        "backends.cuda.enable_cudnn_sdp",
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        "backends.cuda.preferred_linalg_library",
        "backends.cuda.preferred_blas_library",
        "backends.cuda.preferred_rocm_fa_library",
        "backends.cudnn.set_flags",
        "backends.mkldnn.set_flags",
        "backends.mha.set_fastpath_enabled",
        "utils.deterministic.__class__.__setattr__",
    ),
    JAX.name: ("config.__class__.update",),
    "threadpoolctl": ("_ThreadpoolLimiter._set_threadpool_limits",),
    MKL.name: ("set_num_threads", "set_num_threads_local"),
    "backendcfg.session.process": ("adjust",),
}
_PASSED = (
    "backendcfg",
    "torch.backends",
    "torch.utils.deterministic",
    "threadpoolctl",
    "jax._src.config",
    "contextlib",
    "os",
)
_MOST_LOOKS = 100
"""At one place; a loop that sets a switch in each turn is not to be slowed down for ever."""

_written: dict[str, tuple[Any, str]] = {}
"""By switch, fact or variable, what was written last, and where."""


def wrote(name: str, value: Any) -> str:
    """Where in the program a switch got the value that it has, or ""."""
    written, where = _written.get(name, (None, ""))
    return where if written == value else ""


class Writers:
    """Notes where what is watched is written, from now on."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.known = {change.switch: change.now for change in watched.changes()}
        self.looks: dict[str, int] = {}
        self.looking = False
        tell(_WRITERS, self._noting)
        sys.addaudithook(_note_variable)

    def _noting(self, original: Any) -> Any:
        ours = getattr(original, "__module__", "") == "backendcfg.session.process"
        traced = getattr(
            getattr(sys.modules.get(TORCH.name), "compiler", None), "is_compiling", None
        )

        def note(*positional: Any, **named: Any) -> Any:
            result = original(*positional, **named)
            # While PyTorch traces, calls have no effect.
            if traced is None or not traced():
                with suppress(Exception):  # the program goes on without knowing of us
                    self._look(ours=ours)
            return result

        return note

    def _look(self, *, ours: bool) -> None:
        caller = sys._getframe(2)
        if self.looking:
            return
        if not ours and is_within(module_of(caller), ("backendcfg",)):
            return
        where = place(_PASSED)
        self.looks[where] = self.looks.get(where, 0) + 1
        if not where or self.looks[where] > _MOST_LOOKS:
            return
        self.looking = True
        try:
            now = {change.switch: change.now for change in self.watched.changes()}
        finally:
            self.looking = False
        for name, value in now.items():
            if (name not in self.known or self.known[name] != value) and not wrote(name, value):
                _written[name] = value, where
        self.known = now


def _note_variable(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("os.putenv", "os.unsetenv"):
        return
    text = os.fsdecode(arguments[1]) if event == "os.putenv" else None
    _written[os.fsdecode(arguments[0])] = text, place(("backendcfg.audit", "os"))
