"""What of a program is recorded: the operations of the libraries that it imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.audit.trace import numpy_operations, pools, streams
from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import JAX, TORCH

if TYPE_CHECKING:
    from backendcfg.audit.trace.streams import Recorder


def begin(folder: str) -> None:
    """Record this process from now on; libraries are watched as they are imported."""
    try:
        recorder = streams.begin(folder)
    except (OSError, TypeError, ValueError):
        return  # whoever asked for it has ended, and its folder is gone or half written
    pools.watch(recorder)
    modules = (TORCH.name, JAX.name, *numpy_operations.MODULES)
    imports.watch(lambda module: _watch(module, recorder), modules)
    for module in modules:
        if imports.is_imported(module):
            _watch(module, recorder)


def _watch(module: str, recorder: Recorder) -> None:
    if module == TORCH.name:
        from backendcfg.audit.trace import torch_operations

        torch_operations.watch(recorder)
    elif module == JAX.name:
        from backendcfg.audit.trace import jax_operations

        jax_operations.watch(recorder)
    else:
        numpy_operations.watch(module, recorder)
