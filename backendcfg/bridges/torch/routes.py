"""Which library computes what a program asks of PyTorch: the `[route]` table.

Our kernels replace those that PyTorch's attention ends in on the CPU, as by `ops.serve_torch()`,
the one that draws for dropout, and those of products;
`backendcfg/ops/attention/torch_kernels.py`, `backendcfg/ops/torch_dropout.py` and
`backendcfg/ops/torch_products.py` say which calls reach them.
"""

from __future__ import annotations

from backendcfg.bridges.torch.switches import TorchSwitch
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.ops.torch_library import Replaced

ATTENTION = "route.torch.attention"
DROPOUT = "route.torch.dropout"
MATMUL = "route.torch.matmul"
FLAGS: frozenset[str] = frozenset()
"""Those of scopes. A route is for the whole process and takes half a millisecond to set."""


class Kernels(TorchSwitch):
    """Whose kernels PyTorch runs on the CPU: "keep", its own, or "native", ours."""

    only = "base"

    def replaced(self) -> Replaced:
        """The kernels."""
        raise NotImplementedError

    def read(self) -> str:
        return "native" if self.replaced().is_wanted(Kernels) else "keep"

    def write(self, value: str) -> None:
        if value == "native":
            self.replaced().serve(self.torch, Kernels)
        else:
            self.replaced().give_back(Kernels)

    def unsupported(self) -> str:
        return self.replaced().why_not(self.torch)


class Attention(Kernels):
    """Those of attention."""

    name = "torch.attention.kernels"

    def replaced(self) -> Replaced:
        from backendcfg.ops.attention import torch_kernels

        return torch_kernels.REPLACED


class Dropout(Kernels):
    """The one that draws for dropout."""

    name = "torch.dropout.kernel"

    def replaced(self) -> Replaced:
        from backendcfg.ops import torch_dropout

        return torch_dropout.REPLACED


class Products(TorchSwitch):
    """Those of products: PyTorch's ("keep"), ours of float32 ("float32"), of 16 bits ("native")."""

    name = "torch.matmul.kernels"
    only = "base"

    def __init__(self, torch: Any, wanted: str) -> None:
        super().__init__(torch)
        self.wanted = wanted

    def served(self) -> dict[str, Replaced]:
        """The kernels of each value but "keep"."""
        from backendcfg.ops import torch_products

        return {"float32": torch_products.FLOAT32, "native": torch_products.NARROW}

    def read(self) -> str:
        return next((of for of, one in self.served().items() if one.is_wanted(Kernels)), "keep")

    def write(self, value: str) -> None:
        for of, replaced in self.served().items():
            if of != value:
                replaced.give_back(Kernels)
        if value != "keep":
            self.served()[value].serve(self.torch, Kernels)

    def unsupported(self) -> str:
        return self.served()[self.wanted].why_not(self.torch)


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The settings of the routes that a profile asks for; "keep" touches nothing."""
    wanted = {flag: value for flag, value in values.items() if flag in asked and value != "keep"}
    found = [
        Setting(switch(torch), wanted[flag], flag)
        for flag, switch in ((ATTENTION, Attention), (DROPOUT, Dropout))
        if flag in wanted
    ]
    if MATMUL in wanted:
        found.append(Setting(Products(torch, wanted[MATMUL]), wanted[MATMUL], MATMUL))
    return found
