"""The composition root: joins the stages into what people call.

Names are loaded when used, so that starting a process imports only what it needs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.session.planning import detect, plan, profiles, stack
    from backendcfg.session.process import apply, undo
    from backendcfg.session.scopes import profile, reload
    from backendcfg.session.shell import (
        activate,
        current,
        distrust,
        history,
        off,
        rehearse,
        run_environment,
        trust,
        undo_generation,
    )
    from backendcfg.session.view import active, flags

_HOMES = {
    "planning": ("detect", "plan", "profiles", "stack"),
    "process": ("apply", "undo"),
    "scopes": ("profile", "reload"),
    "shell": (
        "activate",
        "current",
        "distrust",
        "history",
        "off",
        "rehearse",
        "run_environment",
        "trust",
        "undo_generation",
    ),
    "view": ("active", "flags"),
}

__all__ = [
    "activate",
    "active",
    "apply",
    "current",
    "detect",
    "distrust",
    "flags",
    "history",
    "off",
    "plan",
    "profile",
    "profiles",
    "rehearse",
    "reload",
    "run_environment",
    "stack",
    "trust",
    "undo",
    "undo_generation",
]


def __getattr__(name: str) -> Any:
    """Load a name from the module that holds it."""
    for home, names in _HOMES.items():
        if name in names:
            import importlib

            return getattr(importlib.import_module(f"backendcfg.session.{home}"), name)
    raise AttributeError(f"module 'backendcfg.session' has no attribute {name!r}")
