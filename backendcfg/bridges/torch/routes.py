"""Which library computes what a program asks of PyTorch: the `[route]` table.

Attention: our kernels replace the two that PyTorch's attention ends in on the CPU, as by
`ops.serve_torch()`; `backendcfg/ops/attention/torch_kernels.py` says which calls reach them.
"""

from __future__ import annotations

from backendcfg.bridges.torch.switches import TorchSwitch
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.ops.attention.torch_kernels import TorchAttention

ATTENTION = "route.torch.attention"
FLAGS: frozenset[str] = frozenset()
"""Those of scopes. A route is for the whole process and takes half a millisecond to set."""

_serving: list[TorchAttention] = []
"""What gives PyTorch its kernels back; empty while a profile serves none."""


class Attention(TorchSwitch):
    """Whose kernels PyTorch's attention runs on the CPU: "keep", its own, or "native", ours."""

    name = "torch.attention.kernels"
    only = "base"

    def read(self) -> str:
        return "native" if _serving else "keep"

    def write(self, value: str) -> None:
        from backendcfg.ops.attention import torch_kernels

        if value == "native" and not _serving:
            _serving.append(torch_kernels.serve_torch())
        elif value == "keep" and _serving:
            _serving.pop().undo()

    def unsupported(self) -> str:
        from backendcfg.ops.attention import torch_kernels

        return torch_kernels.why_not(self.torch)


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The setting of the route, if a profile asks for one; "keep" touches nothing."""
    if ATTENTION not in asked or values[ATTENTION] == "keep":
        return []
    return [Setting(Attention(torch), values[ATTENTION], ATTENTION)]
