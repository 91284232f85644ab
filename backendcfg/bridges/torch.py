"""PyTorch's switches, in the order in which they are written.

Acts on a PyTorch that the program has imported, never imports it. Every value is read back from
PyTorch. The switches are in the files `torch_*.py` beside this one, by what they govern.
"""

from __future__ import annotations

import sys

from backendcfg.bridges import (
    imports,
    torch_attention,
    torch_compiled,
    torch_kernels,
    torch_libraries,
    torch_precision,
    torch_simple,
)
from backendcfg.bridges.torch_determinism import Algorithms, Fill, Inductor
from backendcfg.bridges.torch_threads import InteropThreads, Threads
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = "torch"
MIRRORS = True
GROUPS = (torch_precision, torch_libraries, torch_simple, torch_attention, torch_kernels)
"""Precision first: what is chosen and tuned afterwards depends on it."""
SCOPED_FLAGS = frozenset(
    {
        "threads.count",
        "determinism.algorithms",
        "determinism.fill_uninitialized_memory",
        *(flag for group in GROUPS for flag in group.FLAGS),
    }
)


def settings(
    values: Mapping[str, Any], asked: Collection[str], name: str = "PROFILE"
) -> list[Setting]:
    """The settings of the PyTorch in this process, for the flags that were asked.

    Args:
        values: every flag with its value; thread counts are numbers, preferences the library.
        asked: the flags that somebody set; others are left alone.
        name: the profile, for the remedies.
    """
    if not imports.is_imported("torch"):
        return []
    torch = sys.modules["torch"]
    remedy = f"backendcfg run {name} -- python ..."
    wanted = [
        (Threads, "threads.count"),
        (InteropThreads, "threads.interop"),
        (Algorithms, "determinism.algorithms"),
        (Fill, "determinism.fill_uninitialized_memory"),
    ]
    result = [
        Setting(switch(torch), values[flag], flag, remedy)
        for switch, flag in wanted
        if flag in asked and values[flag] != "auto"
    ]
    if "determinism.algorithms" in asked and imports.is_imported("torch._inductor.config"):
        inductor = Inductor(torch, sys.modules["torch._inductor.config"])
        on = values["determinism.algorithms"] != "any"
        result.append(Setting(inductor, on, "determinism.algorithms", remedy))
    for group in GROUPS:
        result += group.collect(torch, values, asked)
    torch_compiled.tell(result)
    return result
