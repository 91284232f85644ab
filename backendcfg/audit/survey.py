"""Every numeric switch that can be read in this process, whoever set it, profile or not.

Reads and never writes. What is there depends on what is loaded: a library that is imported later
brings its switches with it.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from backendcfg.bridges import all as bridges
from backendcfg.bridges import imports
from backendcfg.bridges.imports import mapped_set
from backendcfg.probe import environment
from backendcfg.records import record
from backendcfg.transact.outcome import reason
from backendcfg.transact.switch import in_force

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.transact.protocol import Switch
    from backendcfg.transact.switch import Setting

# A generator's seed cannot be read back, and variables are compared as texts, see `variables`.
_PASSED_OVER = ("memory", "ranks", "seeds", "environment")
# Where a default leaves the choice to the library, a bridge has nothing to set and so no switch.
_ANY_VALUE: dict[str, Any] = {
    "threads.count": 1,
    "threads.interop": 1,
    "blas.openblas.core_type": "any",
    "blas.blis.arch_type": "any",
    "cuda.sdp_priority": ["flash", "efficient", "math", "cudnn", "overrideable"],
    "cuda.cublas_workspace_size": 1,
    "cuda.cublaslt_workspace_size": 1,
    "quantized.engine": "none",
}
_collected: tuple[Any, tuple[Setting, ...]] = (None, ())


@record(frozen=True)
class SwitchReading:
    """One switch as it reads now.

    Attributes:
        switch: the switch.
        flag: the flag that drives it.
        value: what it reads; None when it cannot be read.
        obstacle: why it cannot be read, or "".
        own: what it holds itself, also where something else outranks it in this thread.
    """

    switch: Switch
    flag: str
    value: Any
    obstacle: str = ""
    own: Any = None


def survey() -> dict[str, SwitchReading]:
    """Every switch by its name, in the order in which a profile would write them."""
    found: dict[str, SwitchReading] = {}
    for setting in _settings():
        if setting.switch.name not in found:
            found[setting.switch.name] = _read(setting)
    return found


def wanted(values: Mapping[str, Any]) -> dict[str, Any]:
    """What every switch here would have to hold under these flags, by its name."""
    settings = _ask({**_values(), **values}, values.keys())
    return {setting.switch.name: setting.wanted for setting in reversed(settings)}


def variables() -> dict[str, str]:
    """The variables of other software that are set now and change numbers, threads or speed."""
    return {
        name: text
        for name, text in environment.watched().items()
        if not name.startswith("LD_")  # they choose files, which are looked at themselves
    }


def matters(flag: str) -> bool:
    """Whether a flag can change the bits of a result."""
    from backendcfg.schema.profile import flags

    return flags()[flag].flag.bits


def loaded() -> tuple[tuple[int, ...], tuple[int, int] | None]:
    """What brings switches: the frameworks that are imported, and the libraries that are mapped.

    Two answers are equal while none has come or gone; None for libraries that cannot be listed.
    """
    # By identity: one that was imported anew has other switches.
    return tuple(id(sys.modules.get(name)) for name in imports.MODULES), mapped_set()


def _settings() -> tuple[Setting, ...]:
    """One setting per switch; collected again when a framework or a library has come or gone."""
    global _collected
    now = loaded()
    if _collected[0] != now or now[1] is None:
        values = _values()
        found = tuple(_ask(values, values.keys()))
        # Collecting may import.
        _collected = (loaded(), found)
    return _collected[1]


def _ask(values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    which = [name for name in bridges.BRIDGES if name not in _PASSED_OVER]
    found = bridges.settings(values, asked, bridges=which)
    return [one for one in found if getattr(one.switch, "is_numeric", True)]


@cache
def _values() -> Mapping[str, Any]:
    from backendcfg.schema.profile import defaults

    # A plan has the name of a library where nobody chose one.
    chosen = {
        flag: "default" if value == {} and flag != "environment" else value
        for flag, value in defaults().items()
    }
    return {**chosen, **_ANY_VALUE}


def _read(setting: Setting) -> SwitchReading:
    switch = setting.switch
    try:
        value = in_force(switch)
        own = switch.read() if hasattr(switch, "overridden") else value
    except Exception as error:
        return SwitchReading(switch, setting.flag, None, reason(error))
    return SwitchReading(switch, setting.flag, value, own=own)
