"""Joins compiled plans to the registry: what a scope sets, and what happens on a late import."""

from __future__ import annotations

from backendcfg import _native
from backendcfg._native import mapped
from backendcfg.bridges import all as bridges
from backendcfg.bridges import imports
from backendcfg.registry import entering
from backendcfg.registry.owners import Wanted
from backendcfg.transact.compiled import Compiled
from backendcfg.transact.switch import stays, told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from backendcfg.transact.switch import Setting

SCOPED = tuple(name for name in bridges.BRIDGES if name not in ("environment", "seeds"))
"""The bridges that scopes write through: variables and generators belong to `apply` alone."""

FOLLOWED = tuple(name for name in bridges.BRIDGES if name != "environment")
"""The bridges whose switches may come with a library that is imported later."""

_connected = False


def connect() -> None:
    """Give the compiled part its callbacks, once per process."""
    global _connected
    if not _connected:
        _native.bind(
            enter_switches=entering.enter_switches,
            leave_switches=entering.leave_switches,
            misplaced=entering.misplaced,
            decorate=decorate_later,
            aenter=entering.enter_in_task,
            aexit=entering.leave_in_task,
        )
        _connected = True


def decorate_later(scope: _native.Scope, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the scope around it; only this needs `inspect`, which is slow to load."""
    from backendcfg.registry.decorate import decorate

    return decorate(scope, function)


def nothing() -> Compiled:
    """A plan that asks for nothing: what a scope holds while backendcfg is disabled."""
    return Compiled("none", "none", {})


def settings(
    compiled: Compiled, which: Collection[str] = bridges.BRIDGES, *, scoped: bool = False
) -> list[Setting]:
    """What a plan wants of every switch in this process, or in a scope, through these bridges."""
    return bridges.settings(
        compiled.values,
        compiled.effective,
        compiled.remedy,
        bridges=which,
        dormant=[flag for flag in compiled.asked if flag in compiled.dormant],
        scoped=scoped,
    )


def merged(plans: Sequence[Compiled], which: Collection[str] = bridges.BRIDGES) -> list[Setting]:
    """What several plans want of every switch, the later ones over the earlier."""
    if len(plans) == 1:
        return settings(plans[0], which)
    found: dict[str, Setting] = {}
    # By bridge, so that the order of writing is the bridges' order.
    for bridge in which:
        for plan in plans:
            found.update({one.switch.name: one for one in settings(plan, (bridge,))})
    return list(found.values())


class ScopeSwitches:
    """The settings of a plan that a scope may write, for what is loaded in the process now.

    Collected again only when a library has come or gone since, of which the loader tells, or a
    framework was imported, once more too. Where the loader does not count, any import may have
    brought a library.
    """

    __slots__ = ("compiled", "finished", "libraries", "settings")

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.finished = -1
        self.libraries: object = None
        self.settings = Wanted()

    def __call__(self) -> Wanted:
        libraries = mapped() or imports.sought
        finished = imports.finished
        if libraries != self.libraries or finished != self.finished:
            found = [
                one
                for one in settings(self.compiled, SCOPED, scoped=True)
                if not (told(one.switch, "dormant") or told(one.switch, "unsupported"))
            ]
            for one in found:
                if stays(one.switch) and one.switch.read() != one.wanted:
                    one.switch.write(one.wanted)
            self.settings = Wanted(one for one in found if not stays(one.switch))
            # As they were before: what comes while this collects is collected by the next entry.
            self.libraries = libraries
            self.finished = finished
        return self.settings


prepared: dict[str, _native.Prepared] = {}
"""What scopes enter, by the name of its profile, until `reload()`."""


def prepare_base(compiled: Compiled) -> _native.Prepared:
    """A plan for the process, which no scope enters: nothing needs to be known of its switches."""
    return _native.Prepared(compiled.name, compiled, None)


def prepare(compiled: Compiled) -> _native.Prepared:
    """A plan ready to be entered; without switches when no bridge could carry any of its flags."""
    switches: Any = None
    if not bridges.scoped_flags(SCOPED).isdisjoint(compiled.asked):
        switches = ScopeSwitches(compiled)
    return _native.Prepared(compiled.name, compiled, switches)


def replace_plan(prepared: _native.Prepared, compiled: Compiled) -> None:
    """Give a prepared profile another plan. No scope that enters it may be open."""
    prepared.payload = compiled
    prepared.snapshot = 0  # the next scope makes it
    if prepared.switches is not None:
        prepared.switches = ScopeSwitches(compiled)
