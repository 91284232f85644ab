"""Every bridge, in the order in which its switches are written."""

from __future__ import annotations

import sys

from backendcfg.bridges import imports
from backendcfg.catalogue import frameworks
from backendcfg.catalogue.frameworks import NUMBA, NUMPY, TENSORFLOW, TORCH
from backendcfg.errors import BackendCfgError, InternalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.transact.switch import Setting

FRAMEWORKS = {each.name: each.bridge_after for each in frameworks.FRAMEWORKS if each.bridge_after}
"""The framework of each bridge that has one: what is not imported has nothing to set."""

GENERATORS = ("random", "numpy.random", NUMBA.name, TORCH.name, TENSORFLOW.name)
"""The modules whose generators are seeded."""

_FLAGS = {
    "memory": {"memory.keep_freed"},
    NUMPY.name: {"route.numpy.elementwise", "route.numpy.matmul"},
    "ranks": {"fleet.agree"},
    "verbose": {"mkl.verbose", "mkldnn.verbose"},
}
"""All flags of some bridges, which need not be loaded where nobody asks for them."""

# Variables come early, because they act on whatever is loaded from then on; then the libraries;
# then the frameworks, whose own calls go through those libraries. Seeds are last, because
# initialising a framework may draw. Undoing goes the other way.
BRIDGES = ("memory", "ranks", "environment", "pools", "verbose", *FRAMEWORKS, "seeds")


def settings(
    values: Mapping[str, Any],
    asked: Collection[str],
    remedy: str = "",
    *,
    bridges: Collection[str] = BRIDGES,
    dormant: Collection[str] = (),
    scoped: bool = False,
) -> list[Setting]:
    """What a plan wants of every switch in this process, in the order of writing.

    Each bridge has a function `settings(values, asked, remedy)`, which is called when its framework
    has been imported.

    Args:
        values: every flag with its value, as in `Compiled.values`.
        asked: the flags that somebody set and that matter here; no switch is touched for others.
        remedy: the command that starts a process where what cannot be set here holds.
        bridges: the bridges to ask.
        dormant: flags that somebody set and that no hardware here reads. A framework has its
            switch all the same, and programs look at it, so bridges that mirror set it.
        scoped: for a scope rather than for the process. A framework that has a switch for each
            of them tells them apart by `only` on its switches: "scope" or "base".

    Raises:
        InternalError: a bridge failed; the message names it.
    """
    result: list[Setting] = []
    for bridge in bridges:
        if not _may_act(bridge, asked):
            continue
        try:
            module = _load(bridge)
            flags = {*asked, *dormant} if getattr(module, "MIRRORS", False) else asked
            result += module.settings(values, flags, remedy)
        except BackendCfgError:
            raise
        except Exception as error:
            raise InternalError(
                f"bridge `{bridge}` failed: {type(error).__name__}: {error}",
                helps=["report it, with the output of `backendcfg doctor`"],
            ) from error
    other = "base" if scoped else "scope"
    return [setting for setting in result if getattr(setting.switch, "only", "") != other]


def _may_act(bridge: str, asked: Collection[str]) -> bool:
    """Whether a bridge may have something to set now: a process that starts loads no other."""
    if bridge in _FLAGS and _FLAGS[bridge].isdisjoint(asked):
        return False
    if bridge in FRAMEWORKS:
        return imports.is_imported(FRAMEWORKS[bridge])
    if bridge == "seeds":
        return any(map(imports.is_imported, GENERATORS))
    if bridge == "pools":
        return imports.may_have_libraries()
    return True


def _load(bridge: str) -> Any:
    # Without `importlib`, which a process that starts need not load.
    name = f"backendcfg.bridges.{bridge}"
    __import__(name)
    return sys.modules[name]


def scoped_flags(bridges: Collection[str]) -> frozenset[str]:
    """The flags that a scope may set and put back through these bridges: their `SCOPED_FLAGS`."""
    found: set[str] = set()
    for bridge in bridges:
        found |= _load(bridge).SCOPED_FLAGS
    return frozenset(found)
