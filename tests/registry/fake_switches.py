"""Fake switches of somebody's library, and profiles over them."""

from __future__ import annotations

from dataclasses import dataclass, field

from backendcfg import _native
from backendcfg.registry.owners import Wanted
from backendcfg.session import wiring
from backendcfg.transact.switch import Setting

RAISE, WAIT, SKIP = 0, 1, 2

wiring.connect()


@dataclass
class Switch:
    """A switch that counts its writes and can be told to fail."""

    name: str
    value: object = 8
    reach: str = "process"
    latch: str = "anytime"
    reversible: bool = True
    late: str = ""
    writes: list = field(default_factory=list)
    refuse: tuple = ()
    lie: bool = False

    def read(self):
        return self.value

    def write(self, value):
        self.writes.append(value)
        if value in self.refuse:
            raise OSError(f"{self.name} refuses {value}")
        if not self.lie:
            self.value = value

    def too_late(self):
        return self.late


def profile(name, *wanted):
    """A prepared profile: `profile("fast", (switch, 4), (other, 2))`."""
    settings = Wanted([Setting(switch, value, switch.name) for switch, value in wanted])
    return _native.Prepared(name, {"name": name}, lambda: settings)


def scope(name, *wanted, busy=RAISE):
    """A scope of such a profile."""
    return _native.Scope(profile(name, *wanted), busy)
