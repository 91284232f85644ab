"""A process as JSON data: what its numeric switches, variables and facts read.

`baseline` takes the same of a fresh process that imports the same frameworks and that no variable
steers.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg import _native, childprocess, environ
from backendcfg.audit import facts, survey
from backendcfg.bridges import imports
from backendcfg.bridges.environment import started_with
from backendcfg.probe import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.transact.compiled import Compiled

_BASELINE = """
import importlib, json, sys
from dataclasses import asdict
for module in json.load(sys.stdin):
    try:
        importlib.import_module(module)
    except Exception:
        pass
from backendcfg.audit.process_state import read_process
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
        for name, text in environ.current().items()
        if not name.startswith(environ.PREFIX)
        and (name not in steering or name.startswith("LD_") or name.endswith("_VISIBLE_DEVICES"))
    } | {environ.DISABLE.name: "1"}
