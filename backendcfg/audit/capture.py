"""`capture()`: the numeric switches of a running process, as a profile.

A switch counts as tuned when it reads otherwise than in a fresh process that imports the same
frameworks and that no variable steers. So the library decides what its default is, not a list of
ours, and what is left at its default stays out of the profile. `ProcessState` is what was read of
either process, as JSON data.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backendcfg import __version__, _native, childprocess, environ
from backendcfg.audit import facts, survey
from backendcfg.audit.facts import is_option
from backendcfg.bridges import imports
from backendcfg.bridges.environment import started_with
from backendcfg.catalogue.variables import VARIABLES
from backendcfg.errors import BackendCfgError, InvalidArgumentError, StateUnwritableError
from backendcfg.probe import environment
from backendcfg.transact import disk
from backendcfg.transact.outcome import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from backendcfg.catalogue.variables import Variable
    from backendcfg.transact.compiled import Compiled


_BASELINE = """
import importlib, json, sys
from dataclasses import asdict
for module in json.load(sys.stdin):
    try:
        importlib.import_module(module)
    except Exception:
        pass
from backendcfg.audit.capture import read_process
print()
print(json.dumps(asdict(read_process())))
"""


@dataclass(frozen=True)
class ProcessState:
    """A process as JSON data.

    Attributes:
        switches: `{switch: {"flag": flag, "value": value}}`, and `"obstacle"` for one that
            cannot be read.
        would: what the switches would hold under each value that one of them has, as
            `({flag: value}, {switch: value})`.
        variables: the variables of numeric libraries that it has, and those that it started with.
        modules: the frameworks that it has imported, in the order in which they are watched.
        own: flags of the profile in force there that are no switch of a library.
        facts: what has no flag, see `audit.facts`.
        python: its interpreter.
        words: its command.
    """

    switches: dict[str, dict[str, Any]] = field(default_factory=dict)
    would: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    own: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    words: tuple[str, ...] = ()


def read_process() -> ProcessState:
    """What can be read in this process now."""
    modules = tuple(name for name in imports.MODULES if imports.is_imported(name))
    variables = {**environment.watched(started_with()), **survey.variables()}
    switches = {name: _entry(switch) for name, switch in survey.survey().items()}
    return ProcessState(
        switches,
        list(_would(switches)),
        {name: text for name, text in variables.items() if not name.startswith("LD_")},
        modules,
        _own(),
        {name: facts.plain(value) for name, value in facts.facts().items()},
        sys.executable,
        tuple(sys.orig_argv),
    )


def baseline(of: ProcessState) -> ProcessState:
    """What a fresh process reads that imports the same frameworks, with nothing preset.

    Raises:
        InternalError: it died or hung.
    """
    answer = childprocess.ask(
        ["-c", _BASELINE],
        _unset(),
        task="the fresh process to compare with",
        remedy="capture everything instead: `backendcfg.capture(everything=True)`",
        given=json.dumps(of.modules),
        python=of.python,
    )
    return from_dict(answer)


def from_dict(data: dict[str, Any]) -> ProcessState:
    """The inverse of `asdict`, through JSON."""
    return ProcessState(
        **{**data, "modules": tuple(data["modules"]), "words": tuple(data["words"])}
    )


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as the tables of a document: `{"a": {"b": 1}}`."""
    document: dict[str, Any] = {}
    for flag, value in flat.items():
        *tables, key = flag.split(".")
        table = document
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return document


def is_valid(values: Mapping[str, Any]) -> bool:
    """Whether the schema takes these flags."""
    from pydantic import ValidationError

    from backendcfg.schema.profile import Profile

    try:
        Profile.model_validate_json(json.dumps({"schema": 1, **nested(values)}))
    except ValidationError:
        return False
    return True


def at_exit(folder: str, process: int) -> None:
    """Write the state to a folder when the process that asked for it ends; forks do not."""
    if os.getpid() != process:
        return
    text = json.dumps(asdict(read_process()))
    path = os.path.join(folder, f"{process}.json")
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.part", path)


def _would(
    switches: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each value that a switch has, as its flags would have it, and what it would mean for all."""
    seen: list[dict[str, Any]] = []
    for entry in switches.values():
        flags = _flags(entry["flag"], entry["value"])
        if "obstacle" in entry or flags in seen or not is_valid(flags):
            continue
        seen.append(flags)
        wanted = survey.wanted(flags)
        yield flags, {name: _plain(value) for name, value in wanted.items()}


def _flags(flag: str, value: Any) -> dict[str, Any]:
    """The flags that one switch stands for: PyTorch has one for a reduction and its split."""
    if isinstance(value, list) and len(value) == 2 and flag.endswith("_precision_reduction"):
        return {flag: value[0], f"{flag}_split_k": value[1]}
    return {flag: value}


def _entry(switch: survey.SwitchReading) -> dict[str, Any]:
    entry = {"flag": switch.flag, "value": _plain(switch.value)}
    return {**entry, "obstacle": switch.obstacle} if switch.obstacle else entry


def _plain(value: Any) -> Any:
    """A value as JSON has it, so that two states compare wherever they were made."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _own() -> dict[str, Any]:
    current = _native.current()
    if current is None:
        return {}
    compiled: Compiled = current.payload
    return {flag: compiled.values[flag] for flag in compiled.asked if flag in compiled.values}


def _unset() -> dict[str, str]:
    """The environment without whatever steers a library or us."""
    steering = environment.watched()
    return {
        name: text
        for name, text in environ.copy().items()
        if not name.startswith(environ.PREFIX)
        and (name not in steering or name.startswith("LD_") or name.endswith("_VISIBLE_DEVICES"))
    } | {environ.DISABLE.name: "1"}


# What a profile in force says that is no state of a process: its tier and what it presets.
_NO_SWITCH = ("determinism.tier", "environment", "log.level")


@dataclass(frozen=True)
class Captured:
    """A profile made of a process.

    Attributes:
        flags: the flags to set, in the order of the schema, each valid for it.
        notes: what no profile can express, or what differs under this one, one sentence each.
        command: what ran, for the heading.
    """

    flags: dict[str, Any]
    notes: tuple[str, ...] = ()
    command: str = ""

    def __repr__(self) -> str:
        lines = [f"{len(self.flags)} flags captured"]
        lines += [f"  {flag} = {value!r}" for flag, value in self.flags.items()]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])

    def to_toml(self) -> str:
        """The document, with the notes as comments."""
        import tomli_w

        heading = [f"Captured by backendcfg {__version__} from `{self.command}`:"]
        heading += ["what its numeric switches read, where that is not what a library starts with."]
        if self.notes:
            heading += ["", "Not expressed:", *(f"  - {note}" for note in self.notes)]
        comments = "".join(f"# {line}".rstrip() + "\n" for line in heading)
        about = {"schema": 1, "description": f"Captured from {self.command}"}
        document = {**about, **nested(self.flags)}
        return comments + tomli_w.dumps(document, multiline_strings=False)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {"flags": self.flags, "notes": list(self.notes), "command": self.command}

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the document to a file.

        Raises:
            InvalidArgumentError: the file is there already, and `overwrite` is false.
            OSError: it cannot be written.
        """
        content = self.to_toml().encode()
        if overwrite and os.path.exists(path) and not os.path.isfile(path):
            Path(path).write_bytes(content)  # a pipe or a terminal
            return
        target = os.path.realpath(path) if overwrite else os.path.abspath(path)
        try:
            disk.write_whole(target, content, new=not overwrite)
        except FileExistsError:
            raise InvalidArgumentError(
                f"{os.fspath(path)} is there already",
                helps=["give another path, or `overwrite=True`"],
            ) from None


def capture(*, everything: bool = False) -> Captured:
    """The numeric switches of this process, as a profile that gives a fresh process the same.

    Switches that belong to a thread are those of the calling thread. A child process is started to
    learn what the imported frameworks start with. Whatever a profile cannot express is named in
    `notes`, and in comments at the top of the document.

    Args:
        everything: every switch that can be read, also those that are at their default.

    Returns:
        The profile: `flags`, `notes`, `to_toml()`, `write(path)`.

    Raises:
        InternalError: the child died or hung.
    """
    now = read_process()
    return captured(now, None if everything else baseline(now))


def captured(now: ProcessState, fresh: ProcessState | None) -> Captured:
    """The profile of a process.

    Args:
        now: the process.
        fresh: the same frameworks in a process that nothing steers; None takes every switch.
    """
    from backendcfg.schema.profile import flags

    notes: list[str] = []
    found: dict[str, Any] = {}
    switches, at_start = _effective(now), _effective(fresh) if fresh is not None else {}
    for name, entry in now.switches.items():
        if "obstacle" in entry and fresh is not None and fresh.switches.get(name) != entry:
            notes.append(f"`{name}` cannot be read: {entry['obstacle']}")
    for flag in dict.fromkeys(entry["flag"] for entry in switches.values()):
        every = {
            name: entry["value"]
            for name, entry in switches.items()
            if entry["flag"] == flag and "obstacle" not in entry
        }
        tuned = [name for name in every if switches[name] != at_start.get(name)]
        if tuned:
            found |= _of_switches(flag, every, tuned, now.would, notes)
    surveyed = {entry["flag"] for entry in switches.values()}
    found |= _of_variables(now, surveyed, notes)
    for flag, value in now.own.items():
        if flag not in surveyed and flag not in found and not _is_passed_over(flag):
            found |= {flag: value} if is_valid({flag: value}) else {}
    notes += _of_facts(now, fresh)
    command = _command(now)
    ordered = {flag: found[flag] for flag in flags() if flag in found}
    return Captured(ordered, (*notes, *_refusals(Captured(ordered, (), command))), command)


def _effective(of: ProcessState) -> dict[str, dict[str, Any]]:
    """The switches with the values that their libraries use."""
    values = _folded({name: entry["value"] for name, entry in of.switches.items()})
    return {name: {**of.switches[name], "value": value} for name, value in values.items()}


def _folded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge MKL's thread count of this thread into its count: it wins unless it is 0."""
    folded = dict(values)
    for name, value in values.items():
        if not name.endswith(".local_threads"):
            continue
        del folded[name]
        whole = name.replace(".local_threads", ".threads")
        if value and whole in folded:
            folded[whole] = value
    return folded


def _of_switches(
    flag: str,
    every: Mapping[str, Any],
    tuned: Collection[str],
    would: Iterable[tuple[dict[str, Any], dict[str, Any]]],
    notes: list[str],
) -> dict[str, Any]:
    """The value of a flag that describes its switches best; notes say which it does not.

    Args:
        flag: the flag.
        every: its switches, with what they read.
        tuned: those that somebody wrote.
        would: values that some switch has, and what every switch would hold under them.
        notes: where to say what is lost.
    """
    best: tuple[int, int] = (0, 0)
    chosen: dict[str, Any] = {}
    then: dict[str, Any] = {}
    for flags, wanted in would:
        if flag not in flags:
            continue
        meant = _folded(wanted)
        held = [name for name in every if name in meant and meant[name] == every[name]]
        score = (sum(name in tuned for name in held), len(held))
        if score[0] and score > best:
            best, chosen, then = score, flags, meant
    if not chosen:
        values = ", ".join(f"`{name}` is {shown(every[name])}" for name in tuned)
        notes.append(f"{values}, which `{flag}` cannot say")
        return {}
    notes += [
        f"`{name}` is {shown(value)} and would be {shown(then[name])}: `{flag}` is one for all"
        for name, value in every.items()
        if name in then and then[name] != value
    ]
    return dict(chosen)


def _of_variables(now: ProcessState, surveyed: set[str], notes: list[str]) -> dict[str, Any]:
    """The flags of variables that no switch can be read for."""
    found: dict[str, Any] = {}
    known: set[str] = set()
    for row in VARIABLES:
        known |= {row.name}
        text = now.variables.get(row.name)
        if not text or row.flag in surveyed or row.flag in found or _is_passed_over(row.flag):
            continue
        for value in _meanings(row, text):
            if is_valid({row.flag: value}):
                found[row.flag] = value
                break
        else:
            notes.append(f"`{row.name}={text}` is nothing that `{row.flag}` can be")
    notes += [
        f"`{name}={text}` was set in the environment, and no flag stands for it"
        for name, text in sorted(now.variables.items())
        if name not in known
    ]
    return found


def _of_facts(now: ProcessState, fresh: ProcessState | None) -> Iterator[str]:
    """What no flag stands for, where it is not as in a fresh process.

    Without one to compare with, only of torch.compile's options is it known that they were set.
    """
    for name, value in now.facts.items():
        if is_option(name) if fresh is None else fresh.facts.get(name) != value:
            yield f"`{name}` is {shown(value)}, and no flag stands for it"


def _meanings(row: Variable, text: str) -> Iterator[Any]:
    """The values that a variable's text may stand for."""
    for value, spelling in row.values.items():
        if spelling is not None and row.says(text, spelling):
            yield value
    if text.isdecimal():
        yield int(text) * (getattr(row, "unit", 0) or 1)
    yield from (text, text.lower())


def _is_passed_over(flag: str) -> bool:
    return flag in _NO_SWITCH or flag.startswith("seed.")


def _refusals(made: Captured) -> list[str]:
    """Why the profile does not resolve on this machine, if it does not; read back from a file."""
    from backendcfg.session.planning import plan

    if not made.flags:
        return []
    tomllib.loads(made.to_toml())
    try:
        folder = childprocess.scratch()
    except StateUnwritableError as error:  # the program has run, and is not run again for this
        return [f"it was not tried on this machine: {error.message}"]
    with folder as place:
        path = os.path.join(place, "captured.toml")
        made.write(path)
        try:
            plan(path)
        except BackendCfgError as error:
            return [f"this machine refuses it: {one.message}" for one in error.each]
    return []


def _command(of: ProcessState) -> str:
    """The command as one line: a program that was given with `-c` is cut."""
    words = [os.path.basename(of.words[0]), *of.words[1:]] if of.words else ["python"]
    text = " ".join(" ".join(words).split())
    return text if len(text) <= 72 else text[:69] + "..."
