"""Which line of a program wrote a switch, in a process that `backendcfg run --guard` watches.

The functions by which programs set switches are wrapped: what is otherwise after a call of one was
written there. Python tells itself of every variable that is set. What a library writes in another
way is not seen.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from backendcfg.audit import places
from backendcfg.catalogue.cpu import MKL
from backendcfg.catalogue.frameworks import JAX, TORCH

if TYPE_CHECKING:
    from typing import Any

    from backendcfg.audit.guard import Watched

# By module, names within it. Those of MKL's own package were read in its sources, not run.
_WRITERS = {
    TORCH.name: (
        "set_num_threads",
        "set_num_interop_threads",
        "set_float32_matmul_precision",
        "use_deterministic_algorithms",
        "set_deterministic_debug_mode",
        "set_default_dtype",
        "set_default_device",
        "set_default_tensor_type",
        "set_flush_denormal",
        "set_autocast_enabled",
        "set_autocast_dtype",
        "backends.PropModule.__setattr__",
        "backends._FP32Precision.__setattr__",
        "backends.cuda.cuBLASModule.__setattr__",
        "backends.cuda.enable_flash_sdp",
        "backends.cuda.enable_mem_efficient_sdp",
        "backends.cuda.enable_math_sdp",
        "backends.cuda.enable_cudnn_sdp",
        "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        "backends.cuda.preferred_linalg_library",
        "backends.cuda.preferred_blas_library",
        "backends.cuda.preferred_rocm_fa_library",
        "backends.cudnn.set_flags",
        "backends.mkldnn.set_flags",
        "backends.mha.set_fastpath_enabled",
        "utils.deterministic.__class__.__setattr__",
    ),
    JAX.name: ("config.__class__.update",),
    "threadpoolctl": ("_ThreadpoolLimiter._set_threadpool_limits",),
    MKL.name: ("set_num_threads", "set_num_threads_local"),
    "backendcfg.session.process": ("adjust",),
}
_PASSED = (
    "backendcfg",
    "torch.backends",
    "torch.utils.deterministic",
    "threadpoolctl",
    "jax._src.config",
    "contextlib",
    "os",
)
_MOST_LOOKS = 100
"""At one place; a loop that sets a switch in each turn is not to be slowed down for ever."""

_written: dict[str, tuple[Any, str]] = {}
"""By switch, fact or variable, what was written last, and where."""


def wrote(name: str, value: Any) -> str:
    """Where in the program a switch got the value that it has, or ""."""
    written, where = _written.get(name, (None, ""))
    return where if written == value else ""


class Writers:
    """Notes where what is watched is written, from now on."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.known = {change.switch: change.now for change in watched.changes()}
        self.looks: dict[str, int] = {}
        self.looking = False
        places.tell(_WRITERS, self._noting)
        sys.addaudithook(_note_variable)

    def _noting(self, original: Any) -> Any:
        ours = getattr(original, "__module__", "") == "backendcfg.session.process"
        traced = getattr(
            getattr(sys.modules.get(TORCH.name), "compiler", None), "is_compiling", None
        )

        def note(*positional: Any, **named: Any) -> Any:
            result = original(*positional, **named)
            # While PyTorch traces, calls have no effect.
            if traced is None or not traced():
                with suppress(Exception):  # the program goes on without knowing of us
                    self._look(ours=ours)
            return result

        return note

    def _look(self, *, ours: bool) -> None:
        caller = sys._getframe(2)
        if self.looking:
            return
        if not ours and places.is_within(places.module_of(caller), ("backendcfg",)):
            return
        where = places.place(_PASSED)
        self.looks[where] = self.looks.get(where, 0) + 1
        if not where or self.looks[where] > _MOST_LOOKS:
            return
        self.looking = True
        try:
            now = {change.switch: change.now for change in self.watched.changes()}
        finally:
            self.looking = False
        for name, value in now.items():
            if (name not in self.known or self.known[name] != value) and not wrote(name, value):
                _written[name] = value, where
        self.known = now


def _note_variable(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("os.putenv", "os.unsetenv"):
        return
    text = os.fsdecode(arguments[1]) if event == "os.putenv" else None
    _written[os.fsdecode(arguments[0])] = text, places.place(("backendcfg.audit", "os"))
