"""Joins compiled plans to the registry: what a scope sets, and what happens on a late import."""

from __future__ import annotations

import sys

from backendcfg import _native
from backendcfg.bridges import all as bridges
from backendcfg.registry import scopes
from backendcfg.transact.compiled import Compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.transact.knob import Setting

SCOPED = ("log", "pools", "torch")
"""The bridges that scopes write through: environment variables belong to `apply` alone."""

SCOPED_FLAGS = frozenset(
    {
        "log.level",
        "threads.count",
        "threads.dynamic",
        "determinism.algorithms",
        "determinism.fill_uninitialized_memory",
    }
)
"""The flags with a switch, in some library, that a scope may set and put back."""

_connected = False


def connect() -> None:
    """Give the compiled part its callbacks, once per process."""
    global _connected
    if not _connected:
        scopes.connect()
        _connected = True


def nothing() -> Compiled:
    """A plan that asks for nothing: what a scope holds while backendcfg is disabled."""
    return Compiled("none", "none", {})


class ScopeKnobs:
    """The settings of a plan that a scope may write, for what is loaded in the process now.

    Collected again only when a module was imported or removed since, because libraries come with
    modules; one that is opened without any is seen with the next import.
    """

    __slots__ = ("compiled", "modules", "settings")

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.modules = -1
        self.settings: list[Setting] = []

    def __call__(self) -> list[Setting]:
        modules = len(sys.modules)
        if modules != self.modules:
            compiled = self.compiled
            self.settings = bridges.settings(
                compiled.values, compiled.effective, compiled.name, bridges=SCOPED
            )
            # Collecting may import.
            self.modules = len(sys.modules)
        return self.settings


def prepare(compiled: Compiled) -> _native.Prepared:
    """A plan ready to be entered; without knobs when no bridge could carry any of its flags."""
    knobs: Any = None
    if not SCOPED_FLAGS.isdisjoint(compiled.effective):
        knobs = ScopeKnobs(compiled)
    return _native.Prepared(compiled.name, compiled, knobs)
