"""What most switches are, and the value that a plan wants in one."""

from __future__ import annotations

from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from backendcfg.transact.protocol import Latch, Reach, Switch


ANYTIME: tuple[Latch, ...] = ("anytime", "each-thread")
"""The latches of switches that can be set, and put back, at any time."""


class AnytimeSwitch:
    """What most switches are: for the whole process, set at any time, and put back.

    A switch that is otherwise in one of these says so itself.
    """

    reach: Reach = "process"
    latch: Latch = "anytime"
    reversible = True

    def too_late(self) -> str:
        """Never."""
        return ""


@record(frozen=True)
class Setting:
    """A switch and the value a plan wants in it.

    Attributes:
        switch: the switch.
        wanted: the value, comparable with what `switch.read()` returns.
        flag: the flag that asks for it.
        remedy: for a pending switch, the command that starts a process where it holds.
    """

    switch: Switch
    wanted: Any
    flag: str
    remedy: str = ""


def told(
    switch: Switch,
    what: Literal["dormant", "unsupported", "overridden", "writer", "lasting", "kept"],
) -> str:
    """What a switch says of itself, or "": the optional methods of `protocol.Switch`."""
    method = getattr(switch, what, None)
    return str(method()) if method is not None else ""


def stays(switch: Switch) -> bool:
    """Whether a scope writes it once and leaves it; see `protocol.Switch`."""
    return getattr(switch, "stays", False)


def in_force(switch: Switch) -> Any:
    """What holds where a switch is looked at: its value, or what it takes from elsewhere."""
    effective = getattr(switch, "in_force", None)
    return switch.read() if effective is None else effective()
