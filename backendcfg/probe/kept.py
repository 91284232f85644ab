"""Files of the cache: written whole or not at all, and as good as absent when they are damaged.

A cache that cannot be written is not an error, and is told to nobody but the log.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def entries(path: str) -> dict[str, Any]:
    """What a file of entries has; nothing where it is absent or holds anything else."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def add(path: str, fresh: Mapping[str, Any], *, most: int) -> bool:
    """Add entries to a file, whose oldest ones go.

    Args:
        path: the file.
        fresh: what is new; it wins over what is there.
        most: how many entries are kept.

    Returns:
        Whether it was written.
    """
    # Read now: another process may have added since.
    newest = list({**entries(path), **fresh}.items())[-most:]
    return replace(path, json.dumps(dict(newest)))


def replace(path: str, content: str | bytes) -> bool:
    """Give a file new content, for its owner alone; whether that could be done."""
    import tempfile
    from contextlib import suppress

    folder = os.path.dirname(path)
    temporary = ""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError as error:
        import logging

        logging.getLogger("backendcfg.probe").debug("%s is not kept: %s", path, error)
        with suppress(OSError):
            os.unlink(temporary)
        return False
    return True
