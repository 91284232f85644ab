"""Reading every switch back: what a profile wants, what is there, and why they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backendcfg import _native
from backendcfg.bridges import all as bridges
from backendcfg.bridges.environment import contradictions
from backendcfg.registry.report import holdings, stuck
from backendcfg.session.wiring import SCOPED

if TYPE_CHECKING:
    from collections.abc import Collection

    from backendcfg.transact.compiled import Compiled
    from backendcfg.transact.knob import Setting

State = Literal["ok", "differs", "pending", "dormant", "unreadable", "stuck"]


@dataclass(frozen=True)
class Reading:
    """One switch, read back.

    Attributes:
        knob: its name, or the flag's for a dormant flag.
        flag: the flag that drives it.
        wanted: the value that the profile in force wants.
        found: the value there, None when it could not be read.
        state: ok; differs, somebody else wrote it; pending, it can no longer be set in this
            process; dormant, nothing here reads it; unreadable; stuck, a scope could not put it
            back.
        because: why, for anything but ok.
    """

    knob: str
    flag: str
    wanted: Any
    found: Any
    state: State
    because: str = ""


@dataclass(frozen=True)
class Verification:
    """Every switch of the profile in force here.

    Attributes:
        profile: its name, or "" when none is in force.
        tier: what it promises.
        in_force: whether everything that the promise rests on was found as wanted.
        readings: one per switch, then one per dormant flag.
        overrides: variables of this process that contradict the profile, in words.
    """

    profile: str
    tier: str
    in_force: bool
    readings: tuple[Reading, ...]
    overrides: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if not self.profile:
            return "no profile is in force"
        counts: dict[str, int] = {}
        for one in self.readings:
            counts[one.state] = counts.get(one.state, 0) + 1
        found = ", ".join(f"{number} {state}" for state, number in counts.items())
        promise = f"{self.tier}, {'' if self.in_force else 'not '}in force"
        lines = [f"{self.profile} ({promise if self.tier != 'none' else 'no promise'}): {found}"]
        for one in self.readings:
            if one.state not in ("ok", "dormant"):
                values = f"wanted {one.wanted!r}, found {one.found!r}; {one.because}"
                lines.append(f"  {one.state} {one.knob}: {values}")
        return "\n".join(lines + [f"  override {text}" for text in self.overrides])

    @property
    def ok(self) -> bool:
        """Whether no switch has another value than it should."""
        return all(reading.state in ("ok", "pending", "dormant") for reading in self.readings)


def verify() -> Verification:
    """Read every switch of the profile in force in this thread or task, and compare.

    Nothing is changed. Switches of libraries that are not loaded are not there to be read.
    """
    current = _native.current()
    if current is None:
        return Verification("", "none", in_force=False, readings=_stuck_readings())
    compiled: Compiled = current.payload
    held = {holding.knob: holding.now for holding in holdings()}
    readings = _readings(compiled, SCOPED if _native.chain() else bridges.BRIDGES, held)
    if _native.chain():
        # A scope does not write environment variables; but its promise may rest on one that had
        # to be there when the process started.
        readings += [
            reading
            for reading in _readings(compiled, ("environment",), held)
            if reading.state == "pending"
        ]
    readings += _stuck_readings()
    in_force = not compiled.unkept and all(reading.state == "ok" for reading in readings)
    readings += [
        Reading(flag, flag, compiled.values.get(flag), None, "dormant", because)
        for flag, because in compiled.dormant.items()
        if flag in compiled.asked
    ]
    return Verification(
        compiled.name,
        compiled.tier,
        in_force,
        tuple(readings),
        # A scope acts by calls, which win over variables.
        () if _native.chain() else tuple(contradictions(compiled.values, compiled.effective)),
    )


def _readings(compiled: Compiled, which: Collection[str], held: dict[str, Any]) -> list[Reading]:
    settings = bridges.settings(compiled.values, compiled.effective, compiled.name, bridges=which)
    return [_read(setting, held) for setting in settings]


def _read(setting: Setting, held: dict[str, Any]) -> Reading:
    knob = setting.knob
    try:
        found = knob.read()
        late = knob.too_late()
    except Exception as error:
        because = f"{type(error).__name__}: {error}"
        return Reading(knob.name, setting.flag, setting.wanted, None, "unreadable", because)
    if found == setting.wanted:
        return Reading(knob.name, setting.flag, setting.wanted, found, "ok")
    if late:
        because = f"{late}; run `{setting.remedy}`" if setting.remedy else late
        return Reading(knob.name, setting.flag, setting.wanted, found, "pending", because)
    if knob.name in held and held[knob.name] == found:
        because = "an open scope of another thread or task holds it"
    else:
        because = "something other than backendcfg wrote it"
    return Reading(knob.name, setting.flag, setting.wanted, found, "differs", because)


def _stuck_readings() -> tuple[Reading, ...]:
    return tuple(
        Reading(one.knob, "", one.wanted, one.found, "stuck", f"{one.because} ({one.profile})")
        for one in stuck()
    )
