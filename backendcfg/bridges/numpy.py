"""The instruction sets that NumPy's own loops take, read back.

NPY_DISABLE_CPU_FEATURES leaves some out. NumPy reads it when it is imported, ignores a name that it
does not know with no more than an ImportWarning, and its releases have different names for the
same thing. So a plan that sets the variable is compared here with what NumPy says it uses.
Measured with NumPy 2.4. Its BLAS, and SciPy's, are in `bridges/pools.py`.
"""

from __future__ import annotations

import sys

from backendcfg.bridges import imports
from backendcfg.transact.switch import AnytimeSwitch, Latch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import ModuleType
    from typing import Any

FRAMEWORK: str | None = "numpy"
SCOPED_FLAGS: frozenset[str] = frozenset()
VARIABLE = "NPY_DISABLE_CPU_FEATURES"

# The package moved in 2.0.
_MODULES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")


class DisabledFeatures(AnytimeSwitch):
    """Of the instruction sets that shall be left out, those that NumPy leaves out; sorted names."""

    name = "numpy.disabled_cpu_features"
    latch = Latch.BEFORE_IMPORT
    reversible = False

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def read(self) -> tuple[str, ...]:
        used = _features()
        return tuple(
            name for name in self.names if name in _dispatched() and used.get(name) is False
        )

    def write(self, value: tuple[str, ...]) -> None:
        raise RuntimeError(self.too_late())

    def too_late(self) -> str:
        used = _features()
        version = sys.modules["numpy"].__version__
        said = []
        if unknown := [name for name in self.names if name not in _dispatched()]:
            said.append(
                f"NumPy {version} ignores {', '.join(unknown)}: it has no loops for that name"
            )
        if taken := [name for name in self.names if name not in unknown and used.get(name)]:
            said.append(
                f"NumPy uses {', '.join(taken)}, as it read {VARIABLE} when it was imported"
            )
        return "; ".join(said)


def settings(
    values: Mapping[str, Any], asked: Collection[str], name: str = "PROFILE"
) -> list[Setting]:
    """The instruction sets of the NumPy in this process, if the profile leaves any out.

    Args:
        values: every flag with its value.
        asked: the flags that somebody set.
        name: the profile, for the remedy.
    """
    text = (values.get("environment") or {}).get(VARIABLE) if "environment" in asked else None
    names = tuple(sorted(set((text or "").replace(",", " ").split())))
    if not names or not imports.is_imported("numpy") or not _features():
        return []
    remedy = f"backendcfg run {name} -- python ..."
    return [Setting(DisabledFeatures(names), names, "environment", remedy)]


def _features() -> dict[str, bool]:
    """What NumPy says of each instruction set that it knows: whether it uses it."""
    return getattr(_compiled(), "__cpu_features__", {})


def _dispatched() -> tuple[str, ...]:
    """The instruction sets that NumPy has loops of their own for, and can leave out."""
    return tuple(getattr(_compiled(), "__cpu_dispatch__", ()))


def _compiled() -> ModuleType | None:
    return next(filter(None, map(sys.modules.get, _MODULES)), None)
