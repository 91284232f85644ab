"""Which devices a program sees, by the rules of CUDA_VISIBLE_DEVICES and its AMD siblings.

The management interfaces list every device whatever these variables say, so the rules are
applied here. CUDA C++ Programming Guide, "CUDA Environment Variables"; where the guide is silent,
what PyTorch does (torch/cuda/__init__.py, `_parse_visible_devices`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(r"\s*([+-]?\d+)")


def visible_indices(
    value: str | None, uuids: Sequence[str], instances: Sequence[Sequence[str]] = ()
) -> list[int]:
    """Indices of the devices that a program sees, in the order in which it sees them.

    Args:
        value: of the variable; None when it is not set, which shows every device. Indices, "GPU-"
            or "MIG-" identifiers or an unambiguous beginning of one, separated by commas. The
            first that names no device ends the list; naming one twice empties it.
        uuids: each device's identifier.
        instances: identifiers of the parts of each device that is divided by MIG.
    """
    if value is None:
        return list(range(len(uuids)))
    seen: list[int] = []
    words: list[str] = []
    for word in (part.strip() for part in value.split(",")):
        if word.startswith("MIG-"):
            found = _device_of_part(word, uuids, instances)
        elif word.startswith("GPU-"):
            found = _only_beginning(word, uuids)
        else:
            number = _NUMBER.match(word)
            index = int(number.group(1)) if number else -1
            found = index if 0 <= index < len(uuids) else None
        if found is None:
            break
        # Two parts of one device are two devices to a program and one here.
        if word in words or (found in seen and not word.startswith("MIG-")):
            return []
        words.append(word)
        if found not in seen:
            seen.append(found)
    return seen


def _only_beginning(word: str, identifiers: Sequence[str]) -> int | None:
    """The one identifier that begins so; none when several do."""
    found = [
        index
        for index, identifier in enumerate(identifiers)
        if identifier.lower().startswith(word.lower())
    ]
    return found[0] if len(found) == 1 else None


def _device_of_part(
    word: str, uuids: Sequence[str], instances: Sequence[Sequence[str]]
) -> int | None:
    # Drivers before R470 name a part by its device: MIG-GPU-<identifier>/<gpu part>/<compute part>.
    if word.startswith("MIG-GPU-"):
        return _only_beginning(word.removeprefix("MIG-").partition("/")[0], uuids)
    owners = [
        device
        for device, parts in enumerate(instances)
        for part in parts
        if part.lower().startswith(word.lower())
    ]
    return owners[0] if len(owners) == 1 else None
