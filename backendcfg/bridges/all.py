"""Every bridge, in the order in which its switches are written."""

from __future__ import annotations

import importlib

from backendcfg.bridges import imports
from backendcfg.catalogue import frameworks
from backendcfg.errors import BackendCfgError, InternalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.transact.switch import Setting

FRAMEWORKS = {each.name: each.bridge_after for each in frameworks.FRAMEWORKS if each.bridge_after}
"""The framework of each bridge that has one: what is not imported has nothing to set, and a process
that starts need not load its bridge to know."""

# The logger first, so that it tells of the rest. Then variables, because they act on whatever is
# loaded from then on; then the libraries; then the frameworks, whose own calls go through those
# libraries. Seeds are last, because initialising a framework may draw. Undoing goes the other way.
BRIDGES = ("log", "memory", "environment", "pools", "verbose", *FRAMEWORKS, "seeds")


def settings(
    values: Mapping[str, Any],
    asked: Collection[str],
    name: str = "PROFILE",
    *,
    bridges: Collection[str] = BRIDGES,
    dormant: Collection[str] = (),
    scoped: bool = False,
) -> list[Setting]:
    """What a plan wants of every switch in this process, in the order of writing.

    Each bridge has a function `settings(values, asked, name)`, which is called when its framework
    has been imported.

    Args:
        values: every flag with its value, as in `Compiled.values`.
        asked: the flags that somebody set and that matter here; no switch is touched for others.
        name: the profile, for the remedies of what cannot be set here.
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
        if not imports.is_imported(FRAMEWORKS.get(bridge, "sys")):
            continue
        try:
            module = importlib.import_module(f"backendcfg.bridges.{bridge}")
            flags = {*asked, *dormant} if getattr(module, "MIRRORS", False) else asked
            result += module.settings(values, flags, name)
        except BackendCfgError:
            raise
        except Exception as error:
            raise InternalError(
                f"bridge `{bridge}` failed: {type(error).__name__}: {error}",
                helps=["report it, with the output of `backendcfg doctor`"],
            ) from error
    other = "base" if scoped else "scope"
    return [setting for setting in result if getattr(setting.switch, "only", "") != other]


def scoped_flags(bridges: Collection[str]) -> frozenset[str]:
    """The flags that a scope may set and put back through these bridges: their `SCOPED_FLAGS`."""
    found: set[str] = set()
    for bridge in bridges:
        found |= importlib.import_module(f"backendcfg.bridges.{bridge}").SCOPED_FLAGS
    return frozenset(found)
