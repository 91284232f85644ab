"""What the switches of PyTorch have in common, and those that two functions of it read and write.

The functions of `torch._C` are called and not the attributes of `torch.backends`: after
`torch.backends.disable_global_flags()` those refuse bare assignments. What that call guards against
is forgetting to put a switch back, which the journal and the owner table do.
"""

from __future__ import annotations

from backendcfg.transact.switch import AnytimeSwitch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class TorchSwitch(AnytimeSwitch):
    """A switch of PyTorch for the whole process, which can be set at any time and put back."""

    name: str

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def read(self) -> Any:
        """The value now, from PyTorch."""
        raise NotImplementedError

    def write(self, value: Any) -> None:
        """Tell PyTorch."""
        raise NotImplementedError

    def unsupported(self) -> str:
        """Why this PyTorch cannot take the value wanted, or ""."""
        return ""


class Pair(AnytimeSwitch):
    """A switch that one function of `torch._C` reads and another one writes."""

    read: Callable[[], Any]
    write: Callable[[Any], None]

    def __init__(self, torch: Any, name: str, getter: str, setter: str) -> None:
        self.name = name
        self.torch = torch
        read = getattr(torch._C, getter, None)
        write = getattr(torch._C, setter, None)
        self._why_not = "" if read and write else absent(torch, cuda_only="_cuda_" in getter)
        # The functions themselves: a scope calls them each time that it is entered and left.
        self.read = read or self._refuse
        self.write = write or self._refuse

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError(self._why_not)

    def unsupported(self) -> str:
        """Why this PyTorch has no such switch, or ""."""
        return self._why_not


def absent(torch: Any, *, cuda_only: bool = False) -> str:
    """Why a function of PyTorch is not there, in words."""
    if cuda_only and not has_gpu_build(torch):
        return f"PyTorch {torch.__version__} is built without CUDA and ROCm"
    return f"PyTorch {torch.__version__} has no such switch"


def has_gpu_build(torch: Any) -> bool:
    """Whether this PyTorch is built for CUDA or ROCm; ROCm's builds say so of CUDA too."""
    return bool(getattr(torch._C, "_has_cuda", False))
