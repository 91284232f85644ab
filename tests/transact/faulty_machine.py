"""A machine of fake switches that fails wherever it is told to, and what must hold afterwards."""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import dataclass, field
from itertools import combinations, product

from backendcfg.errors import (
    RollbackIncompleteError,
    RolledBackError,
    UnreadableSwitchError,
)
from backendcfg.transact.switch import Setting

# What can go wrong in one operation.  `half` leaves a third value and raises; `late-interrupt` does
# the work and then raises; `signal` sends a real SIGINT; `lie` returns without doing anything.
FAULTS = ("raise", "half", "lie", "interrupt", "late-interrupt", "exit", "signal")
INTERRUPTS = ("interrupt", "late-interrupt", "exit", "signal")
HALF = -1


@dataclass
class Machine:
    """Counts every operation on its switches and injects the planned faults."""

    faults: dict[int, str]
    clock: int = 0
    log: list[tuple[str, str, object]] = field(default_factory=list)
    published: int = 0
    fired: list[str] = field(default_factory=list)

    def fault(self, name: str, operation: str) -> str:
        """What goes wrong in the operation that begins now."""
        self.clock += 1
        kind = self.faults.get(self.clock, "")
        if kind:
            self.fired.append(f"{kind} at {operation} {name}")
        if kind == "raise":
            raise OSError(f"{operation} of {name} failed")
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "exit":
            raise SystemExit(3)
        if kind == "signal":
            signal.raise_signal(signal.SIGINT)
        return kind

    def publish(self) -> None:
        """One store, which fails before it or not at all."""
        kind = self.fault("registry", "publish")
        if kind in {"half", "late-interrupt"}:
            raise KeyboardInterrupt if kind == "late-interrupt" else OSError("not published")
        self.log.append(("publish", "registry", None))
        self.published += 1


@dataclass
class FakeSwitch:
    """One switch of the machine; `ceiling` clamps silently, as OpenBLAS does."""

    machine: Machine
    name: str
    value: object
    ceiling: int | None = None
    reversible: bool = True
    late: str = ""
    reach: str = "process"
    latch: str = "anytime"

    def read(self) -> object:
        kind = self.machine.fault(self.name, "read")
        if kind in {"half", "late-interrupt"}:
            raise KeyboardInterrupt if kind == "late-interrupt" else OSError("read of half a value")
        self.machine.log.append(("read", self.name, self.value))
        return self.value

    def write(self, value: object) -> None:
        kind = self.machine.fault(self.name, "write")
        self.machine.log.append(("write", self.name, value))
        if kind == "lie":
            return
        if kind == "half":
            self.value = HALF
            raise OSError(f"{self.name} is half written")
        self.value = value if self.ceiling is None else min(value, self.ceiling)
        if kind == "late-interrupt":
            raise KeyboardInterrupt

    def too_late(self) -> str:
        return self.late


def check(transact, count: int, faults: dict[int, str], *, signals: bool = False) -> list[str]:
    """Run one apply of `count` switches with these faults, assert the promise, say what fired."""
    machine = Machine(faults)
    switches = [FakeSwitch(machine, f"k{number}", number) for number in range(count)]
    before = {switch.name: switch.value for switch in switches}
    wanted = {switch.name: number + 100 for number, switch in enumerate(switches)}
    settings = [Setting(switch, wanted[switch.name], f"flag.{switch.name}") for switch in switches]
    stuck: dict[str, tuple[str, str]] = {}
    interrupted = raised = None
    returned = False
    try:
        outcomes = transact(settings, machine.publish, profile="fast", active="base")
        returned = True
    except (RolledBackError, RollbackIncompleteError, UnreadableSwitchError) as error:
        raised = error
    except (KeyboardInterrupt, SystemExit) as error:
        interrupted = error
    if isinstance(raised, RolledBackError):
        assert isinstance(raised.__cause__, Exception)
        assert raised.state == (
            "as before the call; profile `base` is active; "
            "every restored value was read back and matched"
        )
    if isinstance(raised, RollbackIncompleteError):
        stuck = _stuck(raised.state)
        assert raised.__cause__ is not None
    if isinstance(raised, UnreadableSwitchError):
        assert not [entry for entry in machine.log if entry[0] == "write"], "written, then refused"
    now = {switch.name: switch.value for switch in switches}
    if machine.published:
        # Once published, a late signal is delivered on top of the new state.
        assert returned or isinstance(interrupted, KeyboardInterrupt)
        assert now == wanted
        assert machine.published == 1
        assert machine.log[-1][0] == "publish", "something was written after publishing"
    else:
        assert not returned
        expected = {name: value for name, value in before.items() if name not in stuck}
        assert expected == {name: value for name, value in now.items() if name not in stuck}
        for name, text in stuck.items():
            is_now, should_be = text
            assert should_be == str(before[name])
            if not is_now.startswith("cannot be read"):
                assert is_now == f"is {now[name]}"
                assert now[name] != before[name], f"{name} is named and is as it was"
    if returned:
        assert [outcome.state for outcome in outcomes] == ["set"] * count
        assert [outcome.before for outcome in outcomes] == list(before.values())
    if interrupted is None and any(what.split(" ")[0] in INTERRUPTS for what in machine.fired):
        assert stuck, "an interrupt was swallowed"
    assert not stuck or signals or len(machine.fired) > 1, "one fault, and the undo did not work"
    _check_order(machine, [switch.name for switch in switches], wanted, before)
    return machine.fired


def _check_order(machine, names, wanted, before) -> None:
    writes = [(name, value) for kind, name, value in machine.log if kind == "write"]
    forward = [name for name, value in writes if value == wanted[name]]
    assert forward == names[: len(forward)], "not written in order"
    back = [name for name, value in writes if value == before[name]]
    once = list(dict.fromkeys(back))
    assert once == sorted(once, reverse=True), "not undone in reverse"
    kinds = [kind for kind, _, _ in machine.log]
    if "write" in kinds:
        read_first = {name for _, name, _ in machine.log[: kinds.index("write")]}
        assert read_first == set(names), "a switch was written before every switch was read"


def _stuck(state: str) -> dict[str, tuple[str, str]]:
    """`{switch: ("is 3", "1")}` from the state line."""
    found = re.findall(r"`(k\d+)` (is \S+|cannot be read \(.*?\)) and should be (\S+) \(", state)
    assert found, state
    assert state.endswith("; everything else is as before the call")
    return {name: (is_now, should_be) for name, is_now, should_be in found}


def every_single_fault(transact, count: int = 3) -> int:
    """Check every fault at every operation; says how many cases there were."""
    cases = 0
    for kind in FAULTS:
        at = 1
        while True:
            if not check(transact, count, {at: kind}):
                break
            at, cases = at + 1, cases + 1
    return cases


def every_pair_of_faults(transact, count: int = 3, reach: int = 26) -> int:
    """Check a second fault at every operation after the first: most hit the undo."""
    cases = 0
    for first, second in combinations(range(1, reach), 2):
        for kinds in product(FAULTS, repeat=2):
            if _initial_lie(first, kinds[0], count) or _initial_lie(second, kinds[1], count):
                continue
            check(transact, count, {first: kinds[0], second: kinds[1]})
            cases += 1
    return cases


def a_signal_at_every_line(transact, faults: dict[int, str]) -> int:
    """Check a real SIGINT before every line of the journal; says how many lines there were."""
    file = transact.__code__.co_filename
    lines = 0
    at = 1
    while at > lines:
        seen = 0

        def local(frame, event, argument):
            nonlocal seen
            if event == "line":
                seen += 1
                if seen == at:  # noqa: B023
                    signal.raise_signal(signal.SIGINT)
            return local

        def enter(frame, event, argument):
            return local if frame.f_code.co_filename == file else None

        sys.settrace(enter)
        try:
            check(transact, 3, faults, signals=True)
        finally:
            sys.settrace(None)
        if seen < at:
            return lines
        lines, at = at, at + 1
    return lines


def _initial_lie(at: int, kind: str, count: int) -> bool:
    return at <= count and kind == "lie"
