"""PyTorch's switches, in the order in which they are written.

It acts on a PyTorch that the program has imported and never imports it. Every value is read back
from PyTorch. The switches are in the modules of this package, by what they govern.
"""

from __future__ import annotations

import sys

from backendcfg import log
from backendcfg.bridges import imports
from backendcfg.bridges.torch import (
    compiled,
    kernels,
    libraries,
    opt_einsum,
    precision,
    routes,
    switches,
)
from backendcfg.bridges.torch.switches import Algorithms, Fill, Inductor, InteropThreads, Threads
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from backendcfg.transact.protocol import Switch

FRAMEWORK: str | None = "torch"
MIRRORS = True
GROUPS = (precision, libraries, switches, kernels, opt_einsum, routes)
"""Precision first: what is chosen and tuned afterwards depends on it."""
SCOPED_FLAGS = frozenset(
    {
        "threads.count",
        "determinism.algorithms",
        "determinism.fill_uninitialized_memory",
        *(flag for group in GROUPS for flag in group.FLAGS),
    }
)

_SEEN = (
    "determinism.algorithms",
    "threads.count",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
)
"""Flags whose change makes `torch.compile` compile again: measured, by counting compilations.

It checks these each time that it runs what it made. Code that was compiled before any other switch
changed keeps the old value. Measured with the CPU build of 2.13; what compiled code does on a GPU
was read in PyTorch's sources, not run.
"""

_told: list[bool] = []


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The settings of the PyTorch in this process, for the flags that were asked."""
    torch = sys.modules["torch"]
    wanted: list[tuple[Callable[[Any], Switch], str]] = [
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
    _warn_compiled(result)
    # It imports this with the first compilation, before it looks for compiled code.
    if imports.is_imported("torch._inductor.config") and (found := compiled.folder(values, asked)):
        result.append(Setting(compiled.CodeFolder(torch), *found, remedy))
    return result


def _warn_compiled(settings: Iterable[Setting]) -> None:
    """Warn, once in a process, of changes that functions compiled earlier will not see."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    codes = getattr(getattr(frames, "output_codes", None), "seen", ())
    if _told or not any(code() is not None for code in codes):
        return
    changed = sorted({one.flag for one in settings if one.flag not in _SEEN and _changes(one)})
    if changed:
        _told.append(True)
        log.warning(
            "functions that torch.compile compiled before keep what they were compiled with: %s;"
            " torch._dynamo.reset() makes it compile them anew",
            ", ".join(changed),
        )


def _changes(setting: Setting) -> bool:
    try:
        return bool(setting.switch.read() != setting.wanted)
    except Exception:
        return False
