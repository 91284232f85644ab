"""A bridge to a library that does not exist, put beside the real ones before anything uses them.

Import it before anything else of backendcfg. `SWITCHES` are its switches by flag; what a profile
asks for by these flags goes to them.
"""

from __future__ import annotations

import sys
import types

import backendcfg.bridges.all as bridges
from backendcfg.transact.switch import Setting

LIBRARY = types.ModuleType("backendcfg.bridges.fake")


class Switch:
    """One switch; `says` answers the optional methods of a switch."""

    reach = "process"
    latch = "anytime"

    def __init__(self, name, value, *, reversible=True, late="", **says):
        self.name, self.value, self.reversible, self.late = name, value, reversible, late
        for question, answer in says.items():
            setattr(self, question, lambda answer=answer: answer)

    def read(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def write(self, value):
        self.value = value

    def too_late(self):
        return self.late


SWITCHES: dict[str, Switch] = {}


def settings(values, asked, remedy=""):
    return [
        Setting(switch, values[flag], flag, remedy)
        for flag, switch in SWITCHES.items()
        if flag in asked
    ]


LIBRARY.settings = settings
LIBRARY.SCOPED_FLAGS = frozenset()
LIBRARY.MIRRORS = True
sys.modules[LIBRARY.__name__] = LIBRARY
assert "backendcfg.session.wiring" not in sys.modules, "a profile is in force already"
bridges.BRIDGES = (*bridges.BRIDGES, "fake")
