"""What the light path says to the `backendcfg` logger, without making every process pay for it.

Importing `logging` costs several milliseconds. A program that never imported it has configured no
handler, so nobody could see these records; they are then not made. Errors are always made: logging
prints them to standard error when nobody configured anything.
"""

from __future__ import annotations

import sys


def debug(text: str, *values: object) -> None:
    """A step, for somebody who looks for one."""
    if (logging := sys.modules.get("logging")) is not None:
        logging.getLogger("backendcfg").debug(text, *values)


def info(text: str, *values: object) -> None:
    """Something that changed."""
    if (logging := sys.modules.get("logging")) is not None:
        logging.getLogger("backendcfg").info(text, *values)


def error(text: str, *values: object) -> None:
    """Something that is wrong and has no caller to raise to."""
    import logging

    logging.getLogger("backendcfg").error(text, *values)
