"""What backendcfg says of itself to the logger `backendcfg`, at the level that a profile asks for.

Importing `logging` costs several milliseconds. A program that never imported it has configured no
handler, so nobody could see what is said below a warning; unless a profile asks for it, that is not
said then. Warnings and errors always are: logging prints them to standard error when nobody
configured anything.

The profile's level is looked up when there is something to say, and not set in the logger: that
empties a cache in every logger of the process, and scopes come and go.
"""

from __future__ import annotations

import sys
from _thread import _local as local

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Sequence
    from typing import Any

    from backendcfg.transact.compiled import Compiled

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
"""As `logging` counts."""

_base: Sequence[Compiled] = ()

_applying = local()


def set_base(plans: Sequence[Compiled]) -> None:
    """Take the plans that hold for the process, the one that wins last."""
    global _base
    _base = plans


def begin_applying(plans: Sequence[Compiled]) -> None:
    """This thread applies plans to the process: their level holds for these steps too."""
    _applying.plans = plans


def end_applying() -> None:
    """It is done, or has failed."""
    _applying.plans = ()


def debug(text: str, *values: object) -> None:
    """A step, for somebody who looks for one."""
    _say_if_heard("debug", text, values)


def info(text: str, *values: object) -> None:
    """Something that changed."""
    _say_if_heard("info", text, values)


def warning(text: str, *values: object) -> None:
    """Something that works, and not as somebody may expect."""
    _say("warning", text, values)


def error(text: str, *values: object) -> None:
    """Something that is wrong and has no caller to raise to."""
    _say("error", text, values)


def _say_if_heard(kind: str, text: str, values: tuple[object, ...]) -> None:
    # Another thread may be about to import it, and `getLogger` comes late in it.
    if hasattr(sys.modules.get("logging"), "getLogger") or 0 < _asked() <= _LEVELS[kind]:
        _say(kind, text, values)


def _asked() -> int:
    """The level that profiles ask for here and now; 0 where none does.

    That is the innermost scope that asks for one, or else the profile of the process. While one is
    applied, the more talkative of the old and the new decides.
    """
    # Where the compiled part was never loaded, no scope can be open.
    native = sys.modules.get("backendcfg._native")
    scopes = () if native is None else [each.payload for each in native.chain()]
    in_force = _first_level([*scopes, *reversed(_base)])
    applied = _first_level(reversed(getattr(_applying, "plans", ())))
    return min(filter(None, (in_force, applied)), default=0)


def _first_level(plans: Iterable[Any]) -> int:
    """The level of the first plan that asks for one; 0 where none does."""
    for plan in plans:
        if "log.level" in getattr(plan, "asked", ()):
            return _LEVELS[plan.values["log.level"]]
    return 0


def _say(kind: str, text: str, values: tuple[object, ...]) -> None:
    import logging

    logger, number, least = logging.getLogger("backendcfg"), _LEVELS[kind], _asked()
    if not _is_enabled(logger, number, least):
        return
    caller = sys._getframe(1)
    while caller.f_code.co_filename == __file__ and caller.f_back is not None:
        caller = caller.f_back
    code = caller.f_code
    record = logger.makeRecord(
        logger.name, number, code.co_filename, caller.f_lineno, text, values, None, code.co_name
    )
    if not least or least >= logging.WARNING or logger.hasHandlers():
        logger.handle(record)
    elif kept := logger.filter(record):
        # It was asked for, and nobody listens. Since Python 3.12 a filter may give another record.
        _on_standard_error().handle(record if kept is True else kept)


def _is_enabled(logger: logging.Logger, number: int, least: int) -> bool:
    """Whether to say it: the logger's own level, and whatever silences it, comes first."""
    if logger.level or not least:
        return logger.isEnabledFor(number)
    return number >= least and number > logger.manager.disable and not logger.disabled


def _on_standard_error() -> logging.Handler:
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("backendcfg: %(message)s"))
    return handler
