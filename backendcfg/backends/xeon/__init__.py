"""The launcher of `torch.backends.xeon`: `python -m backendcfg.backends.xeon.run_cpu`."""

from __future__ import annotations

from backendcfg.backends.base import become

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["run_cpu"]


def __getattr__(name: str) -> ModuleType:
    """Load the launcher when it is used; `python -m` runs it, and must not find it loaded."""
    if name != "run_cpu":
        raise AttributeError(name)
    import importlib

    return importlib.import_module(f"{__name__}.run_cpu")


become(__name__)
