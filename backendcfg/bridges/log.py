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
_handler: logging.StreamHandler[Any] | None = None
_loggers: list[logging.Logger] = []


@record(frozen=True)
class Level(AnytimeSwitch):
    """The numeric level of the logger; 0 leaves it to the root logger, as the library starts."""

    name: str = "logging.backendcfg.level"

    def read(self) -> int:
        logger = _logger()
        # A program that never imported logging, or is about to, has set no level.
        return logger.level if logger is not None else 0

    def write(self, value: int) -> None:
        """Set it; where nobody listens to logging, what was asked for goes to standard error."""
        global _handler
        import logging

        logger = _logger() or logging.getLogger("backendcfg")
        # Each call here takes the lock of all loggers, so none is made for nothing.
        if _handler in logger.handlers:
            logger.removeHandler(_handler)
        if 0 < value < logging.WARNING and not logger.hasHandlers():
            if _handler is None:
                _handler = logging.StreamHandler()
                _handler.setFormatter(logging.Formatter("backendcfg: %(message)s"))
            _handler.setStream(sys.stderr)
            logger.addHandler(_handler)
        logger.setLevel(value)


def _logger() -> logging.Logger | None:
    """Our logger, which is the same one for ever; None where nobody has imported logging."""
    if not _loggers:
        get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
        if get_logger is None:
            return None
        _loggers.append(get_logger("backendcfg"))
    return _loggers[0]


def settings(
    values: Mapping[str, Any], asked: Collection[str], name: str = "PROFILE"
) -> list[Setting]:
    """The logger's setting, if the profile asks for a level."""
    if "log.level" not in asked:
        return []
    return [Setting(Level(), _LEVELS[values["log.level"]], "log.level")]
