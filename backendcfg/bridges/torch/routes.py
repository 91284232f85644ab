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
    """Whose kernels PyTorch runs on the CPU: "keep", its own, or some of ours, by their name."""

    only = "base"

    def __init__(self, torch: Any, wanted: str) -> None:
        super().__init__(torch)
        self.wanted = wanted

    def ours(self) -> dict[str, Replaced]:
        """The kernels of each value but "keep"."""
        raise NotImplementedError

    def read(self) -> str:
        return next((name for name, one in self.ours().items() if one.is_wanted(Kernels)), "keep")

    def write(self, value: str) -> None:
        ours = self.ours()
        for name, replaced in ours.items():
            if name != value:
                replaced.give_back(Kernels)
        if value != "keep":
            ours[value].serve(self.torch, Kernels)

    def unsupported(self) -> str:
        return self.ours()[self.wanted].why_not(self.torch)


class Attention(Kernels):
    """Those of attention."""

    name = "torch.attention.kernels"

    def ours(self) -> dict[str, Replaced]:
        # The room first: where Ctrl-C ended its first import, a part of it may be there alone.
        from backendcfg import ops  # noqa: F401
        from backendcfg.ops.attention import torch_kernels

        return {"native": torch_kernels.REPLACED}


class Dropout(Kernels):
    """The one that draws for dropout."""

    name = "torch.dropout.kernel"

    def ours(self) -> dict[str, Replaced]:
        from backendcfg.ops import torch_dropout

        return {"native": torch_dropout.REPLACED}


class Products(Kernels):
    """Those of products: ours of float32 ("float32"), or of bfloat16 and float16 ("native")."""

    name = "torch.matmul.kernels"

    def ours(self) -> dict[str, Replaced]:
        from backendcfg.ops import torch_products

        return {"float32": torch_products.FLOAT32, "native": torch_products.NARROW}


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The settings of the routes that a profile asks for; "keep" touches nothing."""
    return [
        Setting(switch(torch, values[flag]), values[flag], flag)
        for flag, switch in ((ATTENTION, Attention), (DROPOUT, Dropout), (MATMUL, Products))
        if flag in asked and values[flag] != "keep"
    ]
