"""`backendcfg doctor`: whether everything that backendcfg rests on works here.

There is one function for each question, and each gives its findings.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from backendcfg import environ
from backendcfg.catalogue.frameworks import NUMPY
from backendcfg.cli.group import verb
from backendcfg.cli.output import Colour, current, says_no, table
from backendcfg.errors import BackendCfgError, UnknownVariableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from backendcfg.schema.host import Host

State = Literal["fine", "note", "wrong"]
"""`note` is worth knowing; what is `wrong` does not work as asked."""


@dataclass(frozen=True)
class Finding:
    """One answer.

    Attributes:
        topic: what was looked at.
        state: how it is.
        detail: the answer in words.
        help: what to do about it, or "".
    """

    topic: str
    state: State
    detail: str
    help: str = ""


MARKS: dict[str, tuple[str, Colour]] = {
    "fine": ("ok", "green"),
    "note": ("note", "yellow"),
    "wrong": ("wrong", "red"),
}


@verb("doctor", "Manage", tolerant=True)
def command() -> None:
    """Check this installation and list every variable that is read.

    Exits with 1 when something is wrong.
    """
    from backendcfg import session
    from backendcfg.schema.profile import flags

    findings = examine(session.detect())
    set_here = {variable.name: variable.read() for variable in environ.VARIABLES}
    derived = {environ.flag_variable(flag): flag for flag in flags()}
    for name in derived:
        if text := environ.current().get(name):
            set_here[name] = text
    document = {
        "findings": [asdict(finding) for finding in findings],
        "variables": [
            {
                "name": variable.name,
                "since": variable.since,
                "summary": variable.summary,
                "value": set_here[variable.name],
            }
            for variable in environ.VARIABLES
        ],
        "flag_variables": derived,
        "set": {name: text for name, text in set_here.items() if text is not None},
    }
    current().answer(document, _lines(findings, set_here))
    if any(finding.state == "wrong" for finding in findings):
        says_no()


def _lines(findings: list[Finding], set_here: Mapping[str, str | None]) -> Iterator[str]:
    from backendcfg.resolve.words import counted

    paint = current().paint
    rows = []
    for finding in findings:
        word, colour = MARKS[finding.state]
        rows.append((paint(word, colour), finding.topic, finding.detail))
        rows += [("", "", finding.help)] if finding.help else []
    yield from table(rows)
    yield ""
    yield "variables that are read:"
    variables = [
        (f"  {variable.name}", set_here[variable.name] or "", variable.summary)
        for variable in environ.VARIABLES
    ]
    variables += [
        (f"  {name}", text or "", "sets a flag")
        for name, text in set_here.items()
        if name not in {variable.name for variable in environ.VARIABLES}
    ]
    variables.append(("  BACKENDCFG_<FLAG>", "", "sets a flag, as BACKENDCFG_THREADS_COUNT=4"))
    yield from table(variables)
    yield ""
    wrong = sum(finding.state == "wrong" for finding in findings)
    yield f"{counted(wrong, 'thing')} wrong" if wrong else "nothing is wrong"


def examine(host: Host) -> list[Finding]:
    """Every finding; a question that fails is itself a finding."""
    findings: list[Finding] = []
    for question in QUESTIONS:
        try:
            findings += question(host)
        except BackendCfgError as error:
            findings.append(
                Finding(_topic(question), "wrong", str(error), "".join(error.helps[:1]))
            )
        except Exception as error:  # what is broken here must not hide the other answers
            text = f"{type(error).__name__}: {error}"
            findings.append(Finding(_topic(question), "wrong", text, "reinstall backendcfg"))
    return findings


def _topic(question: Callable[[Host], Iterator[Finding]]) -> str:
    return question.__name__.replace("_", " ")


def versions(host: Host) -> Iterator[Finding]:
    """What runs, in which versions."""
    from backendcfg import __version__

    packages = ", ".join(f"{name} {version}" for name, version in sorted(host.packages.items()))
    yield Finding("versions", "fine", f"backendcfg {__version__}, Python {host.python.version}")
    yield Finding("packages", "fine", packages or "none that matters")


def native(host: Host) -> Iterator[Finding]:
    """Whether the compiled part loads and its control calls answer."""
    from backendcfg import native as control

    flags = control.library().bcfg_flag_count()
    yield Finding("native", "fine", f"{control.file()}, ABI {control.ABI}, {flags} flags")


def start_file(host: Host) -> Iterator[Finding]:
    """Whether the file is there through which `run` reaches every Python."""
    from backendcfg.session.starting import START

    path = os.path.join(START, "sitecustomize.py")
    if os.path.isfile(path):
        yield Finding("start file", "fine", path)
    else:
        yield Finding("start file", "wrong", f"{path} is missing", "reinstall backendcfg")


def numpy_blas(host: Host) -> Iterator[Finding]:
    """Which library NumPy multiplies with."""
    own = [library for library in host.libraries if library.owner == NUMPY.name]
    for library in own:
        facts = [library.kind, library.version, library.interface, library.core_type]
        yield Finding("numpy's BLAS", "fine", " ".join(fact for fact in facts if fact))
    if not own:
        yield Finding(
            "numpy's BLAS",
            "note",
            "NumPy brings none; it uses one of the system",
            "run `backendcfg detect` to see the libraries that were found",
        )


def openmp_runtimes(host: Host) -> Iterator[Finding]:
    """Whether packages that are installed here bring different OpenMP runtimes."""
    brought = [one for one in host.libraries if one.kind == "openmp" and one.owner != "system"]
    vendors = {library.threading or os.path.basename(library.path) for library in brought}
    names = ", ".join(f"{one.owner} ({os.path.basename(one.path)})" for one in brought)
    if len(brought) > 1:
        kinds = "of different makers" if len(vendors) > 1 else "of one maker"
        yield Finding(
            "OpenMP",
            "note",
            f"{len(brought)} runtimes {kinds} could meet in one process: {names}",
            "each has threads of its own; a profile sets the number of all of them",
        )
    else:
        yield Finding("OpenMP", "fine", names or "no package brings a runtime")


def thread_pools(host: Host) -> Iterator[Finding]:
    """Whether the thread pools that come with NumPy can be steered, and be as large as asked."""
    import numpy as np  # noqa: F401 - its pool is looked at in this process

    from backendcfg.bridges import pools

    missing, usable = pools.missing(), host.cpu.usable
    capped = pools.capped(usable)
    for switch, reason in missing.items():
        yield Finding("thread pools", "note", f"{switch} cannot be set: {reason}")
    for switch, most in capped.items():
        yield Finding(
            "thread pools",
            "note",
            f"{switch} can be {most} at most, as its library was built,"
            f" and this process may use {usable} processors",
        )
    if not missing and not capped:
        yield Finding("thread pools", "fine", "every one that comes with NumPy can be set")


def spinning(host: Host) -> Iterator[Finding]:
    """Whether idle threads are told to burn processor time, and pools to be too large."""
    told = environ.foreign(
        ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OPENBLAS_THREAD_TIMEOUT")
    )
    active = {"active", "infinite", "infinity"}
    spins = [f"{name}={value}" for name, value in told.items() if value.lower() in active]
    if spins:
        yield Finding(
            "spinning",
            "note",
            f"{', '.join(spins)}: idle threads spin and slow down every other pool",
            "unset it unless one pool has the machine to itself",
        )
    counts = environ.foreign(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    )
    over = [
        f"{name}={value}"
        for name, value in counts.items()
        if value.isdecimal() and int(value) > host.cpu.usable
    ]
    if over:
        yield Finding(
            "threads",
            "note",
            f"{', '.join(over)}, and this process may use {host.cpu.usable} processors",
            "unset it, or start programs with `backendcfg run`",
        )
    if not spins and not over:
        yield Finding("spinning", "fine", "no variable makes idle threads spin")


def broken_probes(host: Host) -> Iterator[Finding]:
    """What detection found and could not use."""
    for probe in host.probes:
        if probe.outcome == "broken":
            where = f" {probe.path}" if probe.path else ""
            yield Finding("detection", "note", f"{probe.probe}{where}: {probe.reason}")


def variables(host: Host) -> Iterator[Finding]:
    """Whether a variable looks like ours and is not."""
    from backendcfg.cli.group import reject_unknown_variables

    try:
        reject_unknown_variables()
    except UnknownVariableError as error:
        yield Finding("variables", "wrong", error.message, error.helps[0])
    else:
        yield Finding("variables", "fine", "every BACKENDCFG_* variable that is set is read")
    if environ.disabled():
        yield Finding("variables", "note", "BACKENDCFG_DISABLE turns backendcfg off")


def profiles(host: Host) -> Iterator[Finding]:
    """Whether every profile of the search path is valid, and every settings file counts."""
    from backendcfg.load.locations import locate
    from backendcfg.load.locations import profiles as listed

    found = listed()
    for profile in found:
        if profile.problem:
            yield Finding(
                "profiles",
                "wrong",
                f"{profile.path}: {profile.problem}",
                f"run `backendcfg validate {profile.path}`",
            )
    if passed_over := locate().passed_over():
        yield Finding(
            "profiles",
            "note",
            f"the table in {passed_over} is not read, as there is a backendcfg.toml beside it",
            "keep one of them",
        )
    usable = sum(not profile.problem for profile in found)
    yield Finding("profiles", "fine", f"{usable} of {len(found)} files are valid")


def trust(host: Host) -> Iterator[Finding]:
    """Whether this project's files are trusted as they are."""
    from backendcfg.cli.wording import no_project
    from backendcfg.environ import OWN_IT
    from backendcfg.load.locations import locate
    from backendcfg.load.trust import is_trusted, project_files, recorded

    root = locate().project_root
    if root is None:
        unowned = [Finding("trust", "note", one, OWN_IT) for one in no_project()]
        yield from unowned or [Finding("trust", "fine", "this folder is in no project")]
        return
    files = [os.path.realpath(path) for path in project_files(root)]
    untrusted = [path for path in files if not is_trusted(path)]
    changed = [path for path in untrusted if path in recorded()]
    if changed:
        yield Finding(
            "trust",
            "note",
            f"changed since they were trusted: {', '.join(changed)}",
            "read them, then run `backendcfg trust`",
        )
    elif untrusted:
        yield Finding("trust", "fine", f"{root} is not trusted: it may only choose among flags")
    else:
        yield Finding("trust", "fine", f"every file of {root} is trusted")


def active_profile(host: Host) -> Iterator[Finding]:
    """Whether the profile in force can be used, and is obeyed."""
    from backendcfg.cli.verbs.status import standing
    from backendcfg.cli.wording import made_again

    try:
        found = standing()
    except UnknownVariableError:  # `variables` has said it
        return
    for path, why in found["ignored"].items():
        cure = (
            f"if it is yours, run `chmod go-w {path} {os.path.dirname(path)}`; else ask its owner"
        )
        yield Finding("active", "wrong", f"{path} is ignored: {why}", cure)
    if found["profile"] is None:
        yield Finding("profile", "fine", "none is in force here")
        return
    yield Finding("profile", "fine", f"{found['profile']}, from {found['source']}")
    if found["python"]:
        cure = "until then, start programs with `backendcfg run`"
        why = f"starts without the profile: {found['python']}"
        yield Finding("plain python", "note", why, cure)
    if found["stale"]:
        yield Finding(
            "stored plan",
            "note",
            f"stale: {made_again(found['stale'])}",
        )
    for override in found["overrides"]:
        yield Finding(
            "override", "wrong", override, "unset it, or start programs with `backendcfg run`"
        )


def directories(host: Host) -> Iterator[Finding]:
    """Whether what we write can be written: without state, no profile can be made active."""
    from backendcfg.load.locations import user_dir
    from backendcfg.session.choice import chosen
    from backendcfg.session.planning import cache_directory
    from backendcfg.transact.generations import directory as state_directory

    has_profile = False
    with suppress(BackendCfgError):  # `active_profile` has said it
        has_profile = chosen() is not None
    places: tuple[tuple[str, str, State, environ.Variable], ...] = (
        ("state", state_directory(), "note" if has_profile else "wrong", environ.STATE_DIR),
        ("cache", cache_directory(), "note", environ.CACHE_DIR),
        ("settings", str(user_dir()), "note", environ.CONFIG_DIR),
    )
    for topic, path, state, variable in places:
        if _writable(path):
            yield Finding(topic, "fine", path)
        else:
            how = f"make it writable, or set {variable.name}"
            yield Finding(topic, state, f"{path} cannot be written", how)


def _writable(path: str) -> bool:
    """Whether a directory, or the nearest one that exists above it, can be written."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


QUESTIONS: tuple[Callable[[Host], Iterator[Finding]], ...] = (
    versions,
    native,
    start_file,
    numpy_blas,
    openmp_runtimes,
    thread_pools,
    spinning,
    broken_probes,
    variables,
    profiles,
    trust,
    active_profile,
    directories,
)
