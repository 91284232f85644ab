"""What MKL and oneDNN print about their own calls, in the libraries that are loaded.

Switches are `mkl[torch].verbose`, `mkl[mkl].verbose`, `onednn[torch].verbose`. The variables
MKL_VERBOSE and ONEDNN_VERBOSE, for libraries and processes to come, are in `environment.py`.

MKL tells its level through `mkl_serv_verbose_mode`, which its headers do not declare: it returns
the address of the level (read in the code of MKL 2024.2 and 2026.2). oneDNN has no call that tells
its level (https://uxlfoundation.github.io/oneDNN/dev_guide_verbose.html): it is what this module
set last, and before that what oneDNN's own variable says.
"""

from __future__ import annotations

import os
import sys

from backendcfg import environ
from backendcfg.bridges import afresh, imports
from backendcfg.bridges.imports import mapped_set
from backendcfg.bridges.pool_calls import handle, inventory
from backendcfg.catalogue.cpu import MKL, MKL_CORE, ONEDNN
from backendcfg.catalogue.frameworks import TENSORFLOW, TORCH
from backendcfg.probe import loaded
from backendcfg.probe.loaded import owner_of
from backendcfg.records import field, record
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from backendcfg.bridges.pool_calls import Inventory
    from backendcfg.transact.protocol import Latch, Reach


@record(frozen=True)
class LibraryLevel:
    """The verbosity of one library.

    Attributes:
        label: "mkl[torch]", "onednn[torch]"; unique.
        kind: "mkl" or "onednn".
        get: the level now, or a text of the library's variable that is no level.
        set: takes a level; raises when the library refuses it.
        fixed: why no call can give back what it has now, or "".
    """

    label: str
    kind: str
    get: Callable[[], int | str]
    set: Callable[[int], None]
    fixed: str = ""


@record(frozen=True)
class LibraryLevels:
    """What can be switched in this process, and, by switch name, why the rest cannot."""

    found: tuple[LibraryLevel, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


_last: tuple[Any, LibraryLevels] = (None, LibraryLevels())
_told: dict[str, int | str] = {}
"""By label of a oneDNN: its level as far as anybody can know."""


def library_levels() -> LibraryLevels:
    """The switches of this process; looked for again after a library or PyTorch was loaded."""
    global _last
    now = (mapped_set(), imports.is_imported(TORCH.name))
    if now[0] is None or _last[0] != now:
        _last = (now, take_levels(inventory(), loaded.mapped_files()))
    return _last[1]


def take_levels(libraries: Inventory, files: list[str]) -> LibraryLevels:
    """Bind the calls.

    Args:
        libraries: the MKLs of this process.
        files: what is mapped in it.
    """
    found: list[LibraryLevel] = []
    missing: dict[str, str] = {}
    for label, path in libraries.files.items():
        if not label.startswith("mkl["):
            continue
        try:
            found.append(_mkl(label, path, files, waits=f"{label}.threads" in libraries.waiting))
        except LookupError as error:
            missing[f"{label}.verbose"] = str(error)
    if imports.is_imported(TORCH.name):
        _onednn_of_torch(found, missing)
    if TENSORFLOW.name in sys.modules:
        missing["onednn[tensorflow].verbose"] = "TensorFlow hides the calls of the oneDNN inside it"
    for path in files:
        if os.path.basename(path).startswith(("libdnnl.", "libonednn.")):
            _onednn(path, found, missing)
    return LibraryLevels(tuple(found), missing)


def _mkl(label: str, path: str, files: list[str], *, waits: bool) -> LibraryLevel:
    opened = handle(path)
    if opened is None:
        raise LookupError(f"{path} is not in this process")
    set_ = getattr(opened, "MKL_Verbose", None)
    if set_ is None:
        raise LookupError("it has no MKL_Verbose")

    def write(level: int) -> None:
        # It answers the level that it has then.
        if set_(level) != level:
            raise RuntimeError(f"MKL_Verbose({level}) was refused")

    if waits:

        def write_waiting(level: int) -> None:
            if level != _level_of_waiting():
                write(level)

        return LibraryLevel(label, MKL.name, _level_of_waiting, write_waiting)
    cell = _cell(path if hasattr(opened, "mkl_serv_verbose_mode") else _core(files) or path)
    return LibraryLevel(label, MKL.name, lambda: cell.value, write)


def _level_of_waiting() -> int:
    """The level of a libmkl_rt that nobody had called, without calling it.

    Any call makes it choose its layers for good, so it is called to change its level, not to ask.
    """
    if core := _core(loaded.mapped_files()):
        return _cell(core).value
    return int(level_under(MKL.name, {}))


def _core(files: list[str]) -> str:
    """The layer of an MKL wheel that keeps its level; "" while it is not loaded."""
    return next((path for path in files if os.path.basename(path).startswith(MKL_CORE)), "")


def _cell(path: str) -> ctypes.c_int:
    """Where an MKL keeps its level.

    Raises:
        LookupError: this MKL does not say it as the known ones do.
    """
    import ctypes

    where = getattr(handle(path), "mkl_serv_verbose_mode", None)
    if where is None:
        raise LookupError(f"{os.path.basename(path)} has no mkl_serv_verbose_mode")
    where.restype, where.argtypes = ctypes.c_void_p, []
    address = where() or 0
    # A level instead of an address would be a small number.
    cell = ctypes.c_int.from_address(address) if address > 4096 else None
    if cell is None or cell.value not in (0, 1, 2):
        raise LookupError("its mkl_serv_verbose_mode does not lead to a level")
    return cell


def _onednn_of_torch(found: list[LibraryLevel], missing: dict[str, str]) -> None:
    torch: Any = sys.modules[TORCH.name]
    calls = getattr(getattr(torch, "_C", None), "_verbose", None)
    set_ = getattr(calls, "mkldnn_set_verbose", None)
    if set_ is None or not getattr(torch._C, "_has_mkldnn", False):
        missing["onednn[torch].verbose"] = "this build of PyTorch has no oneDNN"
        return
    found.append(_without_getter("onednn[torch]", lambda level: bool(set_(level))))


def _onednn(path: str, found: list[LibraryLevel], missing: dict[str, str]) -> None:
    label = f"onednn[{owner_of(path, sys.prefix)}]"
    if any(each.label == label for each in found):
        label = f"{label[:-1]} {os.path.basename(path)}]"
    set_ = getattr(handle(path), "dnnl_set_verbose", None)
    if set_ is None:
        missing[f"{label}.verbose"] = "it has no dnnl_set_verbose"
    else:
        found.append(_without_getter(label, lambda level: set_(level) == 0))


def _without_getter(label: str, accepts: Callable[[int], bool]) -> LibraryLevel:
    if label not in _told:
        _told[label] = level_under(ONEDNN.name, {})

    def write(level: int) -> None:
        if not accepts(level):
            raise RuntimeError(f"oneDNN refused level {level}")
        _told[label] = level

    said = _told[label]
    fixed = (
        f"it was started with {said}, and no call of oneDNN could give that back"
        if isinstance(said, str)
        else ""
    )
    return LibraryLevel(label, ONEDNN.name, lambda: _told[label], write, fixed)


def level_under(kind: str, variables: Mapping[str, str | None]) -> int | str:
    """What its variable tells a library that reads it: a level, or its text if it says more.

    Args:
        kind: "mkl" or "onednn".
        variables: texts to take for those of this process; None is unset.
    """
    here: dict[str, str | None] = {**environ.foreign(_READ)}
    set_ = {name: text for name, text in {**here, **variables}.items() if text}
    if kind == MKL.name:
        said = set_.get("MKL_VERBOSE", "")
        return int(said) if said in ("1", "2") else 0
    name = "ONEDNN_VERBOSE" if "ONEDNN_VERBOSE" in set_ else "DNNL_VERBOSE"
    level = 0
    for word in set_.get(name, "").split(","):
        # Words that it does not know are ignored.
        if word in ("0", "none"):
            level = 0
        elif word in ("1", "2"):
            level = max(level, int(word))
        elif word in _MORE or word.startswith(("debuginfo=", "filter=")):
            return f"{name}={set_[name]}"
    return level


_READ = ("MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE")
_MORE = (
    "all",
    "-1",
    "check",
    "dispatch",
    "profile",
    "profile_create",
    "profile_exec",
    "profile_externals",
    "warn",
)
"""Words of ONEDNN_VERBOSE that no level stands for; `error` is in every level but an explicit 0."""


FRAMEWORK: str | None = None
SCOPED_FLAGS = frozenset({"mkl.verbose", "mkldnn.verbose"})

_KINDS = {"mkl.verbose": MKL.name, "mkldnn.verbose": ONEDNN.name}


@record(frozen=True)
class Verbosity:
    """The level of one library: 0 silent, 1 calls, 2 more."""

    switch: LibraryLevel
    reach: Reach = "process"
    latch: Latch = "anytime"

    @property
    def name(self) -> str:
        return f"{self.switch.label}.verbose"

    @property
    def reversible(self) -> bool:
        return not self.switch.fixed

    @property
    def read(self) -> Callable[[], int | str]:
        """What answers."""
        return self.switch.get

    @property
    def write(self) -> Callable[[int], None]:
        """What sets it."""
        return self.switch.set

    def too_late(self) -> str:
        return ""

    def unsupported(self) -> str:
        """Why the level cannot be changed: what was before could never be put back."""
        return self.switch.fixed

    @property
    def reads(self) -> frozenset[str]:
        """The variables that decide the level which the library starts with."""
        flags = {kind: flag for flag, kind in _KINDS.items()}
        return afresh.readers(flags[self.switch.kind])

    def afresh(self, variables: Mapping[str, Any]) -> int:
        """The level that it starts with under these variables.

        Raises:
            LookupError: no call gives it what they say.
        """
        level = level_under(self.switch.kind, afresh.texts(variables))
        if level in (0, 1, 2):
            return int(level)
        raise LookupError(f"without, {level} had said more than any call of oneDNN can")


def settings(
    values: Mapping[str, Any],
    asked: Collection[str],
    remedy: str = "",
    *,
    found: LibraryLevels | None = None,
) -> list[Setting]:
    """The settings of every MKL and oneDNN in this process, for the flags that were asked.

    Args:
        values: every flag with its value.
        asked: the flags that somebody set; others are left alone.
        remedy: not used; what is set here is never too late.
        found: the switches, else those of this process.
    """
    if SCOPED_FLAGS.isdisjoint(asked):
        return []
    offered = library_levels() if found is None else found
    return [
        Setting(Verbosity(switch), values[flag], flag)
        for flag, kind in _KINDS.items()
        if flag in asked
        for switch in offered.found
        if switch.kind == kind
    ]


def missing(found: LibraryLevels | None = None) -> dict[str, str]:
    """The switches that are not offered, each with the reason."""
    return (library_levels() if found is None else found).missing
