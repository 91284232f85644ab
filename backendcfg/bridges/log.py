"""The level of the `backendcfg` logger, as a switch like any other: read back, and undone."""

from __future__ import annotations

import sys

from backendcfg.records import record
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = None
SCOPED_FLAGS = frozenset({"log.level"})

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_handler: logging.Handler | None = None


@record(frozen=True)
class Level(AnytimeSwitch):
    """The numeric level of the logger; 0 leaves it to the root logger, as the library starts."""

    name: str = "logging.backendcfg.level"

    def read(self) -> int:
        # A program that never imported logging, or is about to, has set no level.
        get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
        return int(get_logger("backendcfg").level) if get_logger is not None else 0

    def write(self, value: int) -> None:
        """Set it; where nobody listens to logging, what was asked for goes to standard error."""
        global _handler
        import logging

        logger = logging.getLogger("backendcfg")
        if _handler is not None:
            logger.removeHandler(_handler)
            _handler = None
        if 0 < value < logging.WARNING and not logger.hasHandlers():
            _handler = logging.StreamHandler()
            _handler.setFormatter(logging.Formatter("backendcfg: %(message)s"))
            logger.addHandler(_handler)
        logger.setLevel(value)


def settings(
    values: Mapping[str, Any], asked: Collection[str], name: str = "PROFILE"
) -> list[Setting]:
    """The logger's setting, if the profile asks for a level."""
    if "log.level" not in asked:
        return []
    return [Setting(Level(), _LEVELS[values["log.level"]], "log.level")]
