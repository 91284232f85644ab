"""Runs one step of a program again and again, and says what a step took."""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def report(step: Callable[[], float], *, warm: int = 2) -> None:
    """Print the median seconds of a step, its last number and the peak of memory, as JSON.

    Args:
        step: what is measured; it returns a number that shows what was computed.
        warm: steps before those that count.
    """
    for _ in range(warm):
        number = step()
    took = []
    for _ in range(int(os.environ.get("STEPS", "7"))):
        start = time.perf_counter()
        number = step()
        took.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": statistics.median(took), "number": number, "peak": peak}))
