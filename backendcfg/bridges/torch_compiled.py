"""A word to programs that compiled something before a switch was changed.

`torch.compile` looks at some switches each time that it runs what it made, and compiles anew where
one has changed. It does not look at the others: measured with 2.13, code that was compiled before
goes on as it was. That was measured on a CPU; what compiled code does on a GPU was read in
PyTorch's sources, not run.
"""

from __future__ import annotations

import sys

from backendcfg.transact import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from backendcfg.transact.switch import Setting

GUARDED = (
    "determinism.algorithms",
    "threads.count",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
)
"""Flags whose change compiled code sees: measured, by counting compilations."""

_told: list[bool] = []


def tell(settings: Iterable[Setting]) -> None:
    """Warn, once in a process, when switches will change that code compiled before cannot see."""
    compiled = sys.modules.get("torch._dynamo.convert_frame")
    codes = getattr(getattr(compiled, "output_codes", None), "seen", ())
    if _told or not any(code() is not None for code in codes):
        return
    changed = sorted({one.flag for one in settings if one.flag not in GUARDED and _changes(one)})
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
