"""Reading every switch back: what a profile wants, what is there, and why they differ.

Who wrote an unwanted value is not guessed: named are a call that is known to leave such a value, a
library that is loaded and known to write it, and a limit that is in force. Measured with PyTorch
2.13 on the CPU, except where a line says that it was read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backendcfg import _native, environ
from backendcfg.audit import survey
from backendcfg.bridges import all as bridges
from backendcfg.bridges.environment import contradictions, started_with
from backendcfg.catalogue import variables as table
from backendcfg.defaults import DEFAULTS
from backendcfg.registry.base import applied
from backendcfg.registry.entering import holdings, stuck
from backendcfg.session import installed, threads, wiring
from backendcfg.session.wiring import SCOPED
from backendcfg.tables import html
from backendcfg.transact.outcome import reason
from backendcfg.transact.switch import in_force, told

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from backendcfg.audit.evidence.measure import Measured
    from backendcfg.registry.entering import Holding
    from backendcfg.transact.compiled import Compiled
    from backendcfg.transact.switch import Setting

State = Literal[
    "ok",
    "irreversible",
    "differs",
    "overridden",
    "pending",
    "dormant",
    "unsupported",
    "undone",
    "unreadable",
    "stuck",
]
HOLDS = ("ok", "irreversible")
"""The states of a switch that has the value wanted, and whose readers obey it."""

FAILS = ("differs", "overridden", "undone", "unreadable", "stuck")
"""The states that make a verification say no."""

_MATMUL = "cuda.matmul.fp32_precision"
_MKLDNN = "mkldnn.matmul.fp32_precision"
_LEVELS: dict[tuple[Any, Any], str] = {
    ("ieee", "ieee"): "highest",
    ("tf32", "tf32"): "high",
    ("tf32", "bf16"): "medium",
}

# Module, what it writes, the value. All were read in the sources of the libraries, not run, except
# PyTorch's own.
_LIBRARIES = (
    ("torch._inductor.fx_passes.numeric_utils", "CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("torch.distributed.distributed_c10d", "NCCL_ALGO", "^NVLS"),
    ("pytorch_lightning", "CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("lightning.pytorch", "CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("accelerate.state", _MATMUL, "tf32"),
    ("iopaint", "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "1"),
)

UNKNOWN = "something other than backendcfg wrote it"


@dataclass(frozen=True)
class Reading:
    """One switch, read back.

    Attributes:
        switch: its name, or the flag's for a dormant flag.
        flag: the flag that drives it; "" for a variable that no flag asked for.
        wanted: the value that the profile in force wants.
        found: the value there, None when it could not be read.
        state: ok; irreversible, as wanted, and what it held before cannot be put back; differs,
            somebody else wrote it; overridden, as wanted, but a variable or a context outranks it;
            pending, it can no longer be set in this process; dormant, nothing here reads it;
            unsupported, this build of the library cannot take the value; undone, its library was
            imported later and could not be given all that was wanted; unreadable; stuck, a scope
            could not put it back.
        because: why, for anything but ok.
        by: for overridden the variable that outranks it, `NAME=text`, or the context in words; for
            differs who probably wrote it, in words, or "" when that is not known.
    """

    switch: str
    flag: str
    wanted: Any
    found: Any
    state: State
    because: str = ""
    by: str = ""


@dataclass(frozen=True)
class Verification:
    """Every switch of the profile in force here.

    Attributes:
        profile: its name, or "" when none is in force.
        tier: its determinism tier.
        in_force: whether everything that the tier rests on was found as wanted.
        readings: one per switch, then one per changed variable and per dormant flag.
        overrides: variables of this process that contradict the profile, in words.
        because: why not everything that the tier rests on was found as wanted, in words.
        draws: what the program drew that no seed governs, in words; known only to a process that
            `backendcfg run --guard` watches.
        measured: the precision that each library computes with, where that was asked for.
    """

    profile: str
    tier: str
    in_force: bool
    readings: tuple[Reading, ...]
    overrides: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()

    def __repr__(self) -> str:
        lines = [self._title()]
        for one in self.readings:
            if one.state not in (*HOLDS, "dormant"):
                values = f"wanted {one.wanted!r}, found {one.found!r}; {one.because}"
                lines.append(f"  {one.state} {one.switch}: {values}")
        return "\n".join([*lines, *(f"  {text}" for text in self._remarks())])

    def _repr_html_(self) -> str:
        rows = [
            (one.state, one.switch, repr(one.wanted), repr(one.found), one.because)
            for one in sorted(self.readings, key=lambda one: one.state in (*HOLDS, "dormant"))
        ]
        head = ("state", "switch", "wanted", "found", "because")
        return html(self._title(), head, rows, self._remarks())

    def _remarks(self) -> list[str]:
        drawn = [f"drawn {text}" for text in self.draws]
        measured = [f"{one.state} {one}: {one.because}" for one in self.measured if one.because]
        return [*(f"override {text}" for text in self.overrides), *drawn, *measured]

    def _title(self) -> str:
        if not self.profile:
            return "no profile is in force"
        counts: dict[str, int] = {}
        for one in self.readings:
            counts[one.state] = counts.get(one.state, 0) + 1
        found = ", ".join(f"{number} {state}" for state, number in counts.items())
        tier = f"{self.tier}, {'' if self.in_force else 'not '}in force"
        return f"{self.profile} ({tier if self.tier != 'none' else 'no tier'}): {found}"

    @property
    def ok(self) -> bool:
        """Whether every switch has its value and acts, and the tier of the profile is in force.

        Nor may a library that was measured compute with fewer bits than the profile grants.
        `backendcfg verify` exits with 1 where this is False.
        """
        if self.tier != "none" and not self.in_force:
            return False
        states = [one.state for one in self.readings] + [one.state for one in self.measured]
        return not any(state in FAILS for state in states)


def verify(*, measure: bool = False) -> Verification:
    """Read every switch of the profile in force in this thread or task, and compare.

    Nothing is changed. Switches of libraries that are not loaded are not there to be read. Outside
    of scopes the variables of numeric libraries are compared with what they were when the profile
    was applied, also those that no flag asked for.

    Args:
        measure: whether to measure, too, with which precision the loaded libraries compute, with
            small arrays of our own. JAX then compiles some functions.
    """
    current, drawn = _native.current(), _drawn()
    measured: tuple[Measured, ...] = ()
    if measure:
        from backendcfg.audit.evidence.measure import measure as measure_all

        values = current.payload.values if current is not None else DEFAULTS
        measured = measure_all(values, current.payload.asked if current is not None else ())
    if current is None:
        return Verification(
            "",
            "none",
            in_force=False,
            readings=_stuck_readings(),
            draws=drawn,
            measured=measured,
        )
    compiled: Compiled = current.payload
    scoped = bool(_native.chain())
    readings = _readings(compiled, SCOPED if scoped else bridges.BRIDGES)
    if scoped:
        # A scope does not write environment variables; but its tier may rest on one that had
        # to be there when the process started.
        late = _readings(compiled, ("environment",))
        readings += [reading for reading in late if reading.state == "pending"]
    else:
        readings += _changed_variables({reading.switch for reading in readings})
    readings += _stuck_readings()
    missing = [
        reading
        for reading in readings
        if reading.state not in (*HOLDS, "dormant") and compiled.tier_rests_on(reading.flag)
    ]
    read = {reading.flag for reading in readings}
    readings += [
        Reading(flag, flag, compiled.values.get(flag), None, "dormant", because)
        for flag, because in compiled.dormant.items()
        if flag in compiled.asked and flag not in read
    ]
    return Verification(
        compiled.name,
        compiled.tier,
        not (missing or compiled.unkept),
        tuple(readings),
        # A scope acts by calls, which win over variables.
        () if scoped else tuple(contradictions(compiled.values, compiled.effective)),
        (
            *(f"`{one.switch}` is {one.state}: {one.because}" for one in missing),
            *(f"this release does not set `{flag}` yet" for flag in compiled.unkept),
        ),
        drawn,
        measured,
    )


def _readings(compiled: Compiled, which: Collection[str]) -> list[Reading]:
    found: list[tuple[Setting, Any, str]] = []
    for setting in wiring.settings(compiled, which, scoped=bool(_native.chain())):
        try:
            found.append((setting, in_force(setting.switch), ""))
        except Exception as error:
            found.append((setting, None, f"{type(error).__name__}: {reason(error)}"))
    judge = _Judge(compiled, {setting.flag: value for setting, value, _ in found})
    return [judge.reading(*one) for one in found]


class _Judge:
    """Decides the state of each switch, from what the registry and the last apply recorded."""

    def __init__(self, compiled: Compiled, by_flag: dict[str, Any]) -> None:
        self.dormant = compiled.dormant
        self.by_flag = by_flag
        self.held = {holding.switch: holding for holding in holdings()}
        self.applied = applied()
        report = installed.report()
        outcomes = report.outcomes if report is not None else ()
        self.one_way = {one.switch for one in outcomes if one.state == "irreversible"}
        self.undone = {one.switch: one.because for one in outcomes if one.state == "undone"}

    def reading(self, setting: Setting, found: Any, obstacle: str) -> Reading:
        try:
            state, because, by = self._judge(setting, found, obstacle)
        except Exception as error:
            state, because, by = "unreadable", f"{type(error).__name__}: {reason(error)}", ""
        name = setting.switch.name
        return Reading(name, setting.flag, setting.wanted, found, state, because, by)

    def _judge(self, setting: Setting, found: Any, obstacle: str) -> tuple[State, str, str]:
        switch = setting.switch
        if not obstacle and found == setting.wanted:
            if variable := _outranked(setting, found, self.dormant):
                return "overridden", f"{variable} outranks it", variable
            if switch.name in self.one_way:
                return "irreversible", "the value it had cannot be written back", ""
            return "ok", "", ""
        if idle := told(switch, "dormant"):
            return "dormant", idle, ""
        if cannot := told(switch, "unsupported"):
            return "unsupported", cannot, ""
        if because := self.undone.get(switch.name):
            return "undone", because, ""
        if obstacle:
            return "unreadable", obstacle, ""
        if (above := told(switch, "overridden")) and switch.read() == setting.wanted:
            return "overridden", f"{above} outranks it", above
        if because := threads.missed(setting):
            return "differs", because, ""
        mine = self.applied.get(switch.name)
        if mine is not None and mine.setting.wanted == setting.wanted:
            # It did hold, so whatever the latch says by now, somebody wrote it since.
            return "differs", *self._who(setting, found)
        if late := switch.too_late():
            because = f"{late}; run `{setting.remedy}`" if setting.remedy else late
            return "pending", because, ""
        return "differs", *self._who(setting, found)

    def _who(self, setting: Setting, found: Any) -> tuple[str, str]:
        """Why a switch differs, and who wrote it where that is known."""
        held = self.held.get(setting.switch.name)
        if held is not None and held.now == found:
            by = _holder(held)
            return f"{by} holds it", by
        by = _writer(setting, found, self.by_flag)
        if where := _place(setting.switch.name, found):
            by = f"{by}, at {where}" if by else f"the program set it at {where}"
        return by or UNKNOWN, by


def _place(switch: str, found: Any) -> str:
    if not environ.GUARD.read():
        return ""
    from backendcfg.audit import places

    return places.wrote(switch, found)


def _drawn() -> tuple[str, ...]:
    if not environ.GUARD.read():
        return ()
    from backendcfg.audit import draws

    return tuple(map(str, draws.seen()))


def _holder(held: Holding) -> str:
    last = held.holders[-1]
    return f"an open scope of profile `{last.profile}` in {last.thread}"


def _changed_variables(read: Collection[str]) -> list[Reading]:
    """Variables that no switch of the profile stands for, and that changed since the apply."""
    before, now = installed.surroundings, survey.variables()
    return [
        _changed(name, before.get(name), now.get(name))
        for name in sorted({*before, *now})
        if name not in read and before.get(name) != now.get(name) and not name.startswith("LD_")
    ]


def _changed(name: str, before: str | None, now: str | None) -> Reading:
    by = _known(name, now)
    because = by or f"{UNKNOWN} since the profile was applied"
    return Reading(name, "", before, now, "differs", because, by)


def _stuck_readings() -> tuple[Reading, ...]:
    return tuple(
        Reading(one.switch, "", one.wanted, one.found, "stuck", f"{one.because} ({one.profile})")
        for one in stuck()
    )


def _writer(setting: Setting, found: Any, by_flag: Mapping[str, Any]) -> str:
    """Who probably wrote a value, in words, or "".

    Args:
        setting: the switch and what it should hold.
        found: what it holds.
        by_flag: what every switch of the profile holds, by the flag that drives it.
    """
    return (
        told(setting.switch, "writer")
        or _limiter(setting.switch.name, found)
        or _call(setting, found, by_flag)
        or _known(setting.flag, found)
    )


def _known(what: str, found: Any) -> str:
    """A library of this process that is known to write this value to a flag or a variable."""
    for module, target, value in _LIBRARIES:
        if target == what and value == found and module in sys.modules:
            return f"`{module}`, which is imported here, is known to write it"
    return ""


def _outranked(setting: Setting, found: Any, dormant: Collection[str]) -> str:
    """The variable, as `NAME=text`, that makes a switch's reader not do what it says, or "".

    Args:
        setting: the switch.
        found: what it reads.
        dormant: flags that no hardware here reads; nothing outranks those.
    """
    if variable := told(setting.switch, "overridden"):
        return variable
    if setting.flag in dormant:
        return ""
    # Limits are read once, when a library is loaded; what came later into this process's
    # environment may have come too late, so both are looked at.
    seen = {**environ.copy(), **started_with()}
    if need := table.PRECISIONS.get(setting.flag, {}).get(found):
        # Read in NVIDIA's documentation, not run.
        said = seen.get(table.TF32_OVERRIDE, "")
        if said in ("0", "1") and said != need:
            return f"{table.TF32_OVERRIDE}={said}"
    name = setting.switch.name
    if name.startswith("openmp[") and name.endswith(".threads"):
        limit = seen.get("OMP_THREAD_LIMIT", "")
        if limit.isdecimal() and type(found) is int and int(limit) < found:
            return f"OMP_THREAD_LIMIT={limit}"
    if name.startswith("mkl[") and name.endswith("].threads"):
        domains = seen.get("MKL_DOMAIN_NUM_THREADS", "")
        return f"MKL_DOMAIN_NUM_THREADS={domains}" if domains else ""
    return ""


def _limiter(name: str, found: Any) -> str:
    """A threadpoolctl limit that is in force and set this count."""
    module = sys.modules.get("threadpoolctl")
    limiter: Any = getattr(module, "_ThreadpoolLimiter", None)
    if limiter is None or not name.endswith(".threads"):
        return ""
    import gc

    for one in gc.get_objects():
        try:
            limits = one._limits if isinstance(one, limiter) else None
        except Exception:  # objects may answer `isinstance` with anything
            continue
        if isinstance(limits, dict) and found in limits.values():
            return f"a threadpoolctl limit of {found} is alive in this process"
    return ""


def _call(setting: Setting, found: Any, by_flag: Mapping[str, Any]) -> str:
    """The PyTorch call that is known to leave this value."""
    flag, name = setting.flag, setting.switch.name
    if flag in (_MATMUL, _MKLDNN):
        pair = (by_flag.get(_MATMUL), by_flag.get(_MKLDNN))
        if (level := _LEVELS.get(pair)) is not None:
            return f'as `torch.set_float32_matmul_precision("{level}")` leaves it'
        if flag == _MATMUL and found in ("ieee", "tf32"):
            on = found == "tf32"
            return f"as `torch.backends.cuda.matmul.allow_tf32 = {on}` leaves it"
    if flag in ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision") and found == "tf32":
        return "as `torch.backends.cudnn.allow_tf32 = True` leaves it"
    if name == "torch.num_threads" or (
        name.startswith("mkl[torch") and name.endswith("local_threads")
    ):
        return f"as `torch.set_num_threads({found})` leaves it" if found else ""
    return ""
