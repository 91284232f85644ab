"""float16 and bfloat16 in float32 arithmetic: widened exactly, rounded once at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NARROW = ("float16", "bfloat16")


def widen(array: NDArray[Any], element: str) -> NDArray[Any]:
    """The same numbers as float32; what is not narrow as it is."""
    if element == "float16":
        return array.astype(np.float32)
    if element == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def round_to(array: NDArray[Any], element: str) -> NDArray[Any]:
    """float32 rounded to the nearest, ties to even, as `widen` takes it; else as it is."""
    if element == "float16":
        with np.errstate(over="ignore"):  # to infinity, as the format says
            return array.astype(np.float16)
    if element == "bfloat16":
        bits = np.asarray(array, order="C").view(np.uint32)  # ascontiguousarray adds a dimension
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype(np.uint16)
    return array
