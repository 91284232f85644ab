"""Until when a plan made here is valid: what it rested on, and whether that still holds.

Standard library only, and fast: a process that starts under a profile checks the stamp instead
of detecting and resolving. What is compared is what a plan can depend on; the message says in
words what changed.
"""

from __future__ import annotations

import os
import sys
import time

from backendcfg import environ
from backendcfg.catalogue.cpu import LIBRARIES
from backendcfg.catalogue.frameworks import FRAMEWORKS
from backendcfg.errors import shown_path
from backendcfg.probe import HUNG_SECONDS, first_line_of, first_processor
from backendcfg.probe import environment as foreign
from backendcfg.probe.limits import read_cores, read_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

VERSION = 3
# This file, because an upgrade of an editable install keeps its version; the loader's list,
# because installing a system library changes nothing else that is looked at here.
_ALWAYS = (__file__, "/etc/ld.so.cache")
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
# What a plan says of these drivers is nothing but their versions.
_DRIVERS = {
    "/proc/driver/nvidia/version": "the NVIDIA driver",
    "/sys/module/amdgpu/version": "the AMD driver",
    "/opt/rocm/.info/version": "ROCm",
}
_PACKAGES = frozenset(
    package.replace("-", "_")
    for package in (
        *("backendcfg",),
        *(name for each in FRAMEWORKS if each.in_host for name in each.packages),
        *(name for each in LIBRARIES for name in (*each.wheels, *each.listed)),
    )
)
_PACKAGE_FAMILIES = tuple(name for each in FRAMEWORKS for name in each.families)
# They say where ours are kept and which profile is asked for, not what a profile means.
_NOT_FLAGS = frozenset(
    variable.name
    for variable in (
        environ.PROFILE,
        environ.DISABLE,
        environ.STATE_DIR,
        environ.CACHE_DIR,
        environ.STARTED_BY,
        environ.STARTED_ANEW,
        environ.CARRIED,
        environ.INHERIT,
        # Each run of a program has a folder of its own under these.
        environ.CAPTURE,
        environ.GUARD,
        environ.TRACE,
        environ.RECORDS,
        environ.RANKS,
    )
)
# It says where the user's settings are, unless BACKENDCFG_CONFIG_DIR does.
_SETTINGS_HOME = "XDG_CONFIG_HOME"


def stamp(
    files: Iterable[str | os.PathLike[str]],
    missing: Iterable[str | os.PathLike[str]] = (),
    *,
    environment: Mapping[str, str] | None = None,
    unanswered: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """What holds now, as JSON data for `holds`.

    Args:
        files: that were read; each is compared by times, size and identity.
        missing: files that would have been read if they existed.
        environment: of the process that will check the stamp, instead of this one's.
        unanswered: probes that failed, in words, each with the seconds after which it may not fail
            again: for so long the stamp holds.
    """
    failed = unanswered or {}
    directories = [entry for entry in dict.fromkeys(sys.path) if os.path.isdir(entry)]
    return {
        "version": VERSION,
        "unanswered": list(failed),
        "until": time.time() + min(failed.values(), default=0.0),
        "python": _python(),
        "files": {environ.as_text(path): _version(path) for path in _absolute([*files, *_ALWAYS])},
        "missing": [environ.as_text(path) for path in _absolute(missing)],
        "limits": _limits(),
        "drivers": {path: first_line_of(path) for path in _DRIVERS},
        "environment": relevant_environment(environment),
        "packages": {environ.as_text(entry): _packages(entry) for entry in directories},
    }


def holds(stamp: Mapping[str, Any], *, environment: Mapping[str, str] | None = None) -> str:
    """What has changed since, in words; "" when nothing has.

    Args:
        stamp: from `stamp`, possibly through JSON; anything else does not hold.
        environment: to compare with, instead of this process's.
    """
    try:
        return next(_changes(stamp, environment), "")
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration):
        return "the stored plan is from another release of backendcfg"


def _changes(stamp: Mapping[str, Any], environment: Mapping[str, str] | None) -> Iterator[str]:
    """Every change, the cheapest to look for first."""
    if stamp["version"] != VERSION:
        yield "the stored plan is from another release of backendcfg"
    if not 0.0 < stamp["until"] - time.time() <= HUNG_SECONDS:
        for words in stamp["unanswered"]:
            yield f"when the plan was made, {words}"
    for name, now in _python().items():
        if (before := stamp["python"][name]) != now:
            yield f"{name} was {before} and is {now} now"
    yield from _variables(stamp["environment"], relevant_environment(environment))
    for text, identity in stamp["files"].items():
        path = environ.as_path(text)
        found = _version(path)
        if found != identity:
            what = "is gone" if found is None else "changed" if identity else "appeared"
            yield f"file {shown_path(path)} {what}"
    for path in map(environ.as_path, stamp["missing"]):
        if os.path.lexists(path):
            yield f"file {shown_path(path)} appeared"
    for what, now in _limits().items():
        if (before := stamp["limits"][what]) != now:
            yield f"{what} was {_told(before)} and is {_told(now)} now"
    for path, before in stamp["drivers"].items():
        if (now := first_line_of(path)) != before:
            yield f"{_DRIVERS[path]} changed"
    yield from _installed(stamp["packages"])


def _told(value: Any) -> Any:
    return "none" if value is None else "unknown" if value == "" else value


def _variables(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        if name not in before:
            yield f"{name} is set now"
        elif name not in now:
            yield f"{name} is no longer set"
        elif before[name] != now[name]:
            yield f"{name} changed from {before[name]} to {now[name]}"


def _installed(before: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Packages that came, went or changed, in the directories of then and of now."""
    # A start-up file runs before the last directories are on the path; they are compared when
    # they were there before, and looked through for new packages when they were not.
    earlier = {environ.as_path(text): found for text, found in before.items()}
    for directory in dict.fromkeys([*earlier, *sys.path]):
        then, now = earlier.get(directory, {}), _packages(directory)
        for name in sorted(then.keys() | now.keys()):
            label = name.rpartition(".")[0]
            if name not in then:
                yield f"package {label} was installed"
            elif name not in now:
                yield f"package {label} was removed"
            elif list(then[name]) != list(now[name]):
                yield f"package {label} was reinstalled"


def _python() -> dict[str, str]:
    from backendcfg import __version__

    return {
        "Python": sys.version.split()[0],
        "the Python environment": sys.prefix,
        "backendcfg": __version__,
    }


def relevant_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that can change what a profile means: other software's, and our flags."""
    source = environ.copy() if environment is None else environment
    ours = {
        name: value
        for name, value in source.items()
        if name.startswith(environ.PREFIX) and name not in _NOT_FLAGS and value
    }
    if environ.CONFIG_DIR.read(source) is None and source.get(_SETTINGS_HOME):
        ours[_SETTINGS_HOME] = source[_SETTINGS_HOME]
    return {**foreign.relevant(source), **ours}


def _limits() -> dict[str, Any]:
    """The hardware and what of it this process may use; a home directory may be shared by hosts."""
    first = first_processor()
    limits = read_limits()
    return {
        "the processor": first.get("model name") or first.get("CPU part") or first.get("cpu") or "",
        "the list of NVIDIA GPUs": _nvidia_gpus(),
        "the number of processors": limits.logical,
        # Their number and not which: instances on cores of their own share a plan.
        "the number of processors that the affinity allows": limits.affinity,
        "the number of cores to compute on": read_cores(limits).count,
        "the cpuset": limits.cpuset,
        "the processor quota": limits.quota,
        "the memory limit": limits.memory,
    }


def _nvidia_gpus() -> list[str]:
    """The first line of what the driver says of each GPU, which is its model."""
    folder = "/proc/driver/nvidia/gpus"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [first_line_of(os.path.join(folder, name, "information")) or "" for name in names]


def _packages(directory: str) -> dict[str, list[int]]:
    """Distributions that matter in a directory of `sys.path`, with their times."""
    try:
        names = os.listdir(directory or ".")
    except OSError:
        return {}
    found = {}
    for name in names:
        if name.endswith((".dist-info", ".egg-info")) and _matters(name):
            identity = _identity(os.path.join(directory, name))
            found[name] = identity or []
    return found


def _matters(name: str) -> bool:
    """Whether `numpy-2.0.1.dist-info` and its like is a package that a plan can depend on."""
    project, version, _ = name.lower().partition("-")
    return bool(version) and (project in _PACKAGES or project.startswith(_PACKAGE_FAMILIES))


def _identity(path: str) -> list[int] | None:
    """Time, size and identity of a file or a folder."""
    version = _version(path)
    return version[:3] if version else None


def _version(path: str) -> list[int] | None:
    """Time, size and identity of a file, and when its content or its mode was last changed.

    The last cannot be set: it tells an edit that keeps the time and the size. Of what is installed,
    installers change it by every link that they make.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    identity = [status.st_mtime_ns, status.st_size, status.st_ino]
    installed = path in _ALWAYS or path.startswith(_PACKAGE)
    return identity if installed else [*identity, status.st_ctime_ns]


def _absolute(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    return [os.path.abspath(os.fspath(path)) for path in paths]
