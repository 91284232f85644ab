"""What the light path says to the `backendcfg` logger, without making every process pay for it.

Importing `logging` costs several milliseconds. A program that never imported it has configured no
handler, so nobody could see these records; they are then not made. Warnings and errors are always
made: logging prints them to standard error when nobody configured anything.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def debug(text: str, *values: object) -> None:
    """A step, for somebody who looks for one."""
    if (get_logger := _get_logger()) is not None:
        get_logger("backendcfg").debug(text, *values)


def info(text: str, *values: object) -> None:
    """Something that changed."""
    if (get_logger := _get_logger()) is not None:
        get_logger("backendcfg").info(text, *values)


def warning(text: str, *values: object) -> None:
    """Something that works, and not as somebody may expect."""
    import logging

    logging.getLogger("backendcfg").warning(text, *values)


def error(text: str, *values: object) -> None:
    """Something that is wrong and has no caller to raise to."""
    import logging

    logging.getLogger("backendcfg").error(text, *values)


def _get_logger() -> Any:
    """`logging.getLogger`, if there is one: another thread may be about to import the module."""
    return getattr(sys.modules.get("logging"), "getLogger", None)
