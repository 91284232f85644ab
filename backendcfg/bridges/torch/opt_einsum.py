"""`torch.backends.opt_einsum`: whether and how torch.einsum looks for an order of contraction.

PyTorch keeps both switches as globals of the module that its own functions see. Assigning an
attribute (`torch.backends.opt_einsum.strategy = ...`) puts a value before them that nobody checks
and that `flags()` and `set_flags()` no longer reach. So the globals are written here, and what lies
before them is removed: afterwards PyTorch's own functions work, also after a program's assignment.
Measured with PyTorch 2.13.

The package opt_einsum itself has no switch for the process: `contract` and `contract_path` take
their `optimize` from the caller, and nothing here changes what a program passes to them.
"""

from __future__ import annotations

import sys

from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import ModuleType
    from typing import Any

FLAGS = frozenset({"opt_einsum.enabled", "opt_einsum.strategy"})

_MODULE = "torch.backends.opt_einsum"
_NOWHERE = object()


class OptEinsumSwitch(AnytimeSwitch):
    """One of the two switches, as torch.einsum reads it."""

    def __init__(self, module: ModuleType, attribute: str, wanted: Any) -> None:
        self.module: Any = module
        self.attribute = attribute
        self.wanted = wanted
        self.name = f"{_MODULE}.{attribute}"

        # `m` is the module of the functions; the one in sys.modules stands before it.
        self._globals = vars(getattr(module, "m", module))
        self._before = vars(module)

    def read(self) -> Any:
        # As the attribute is found, without the AttributeError that Python makes on the way.
        found = self._before.get(self.attribute, _NOWHERE)
        return self._globals[self.attribute] if found is _NOWHERE else found

    def write(self, value: Any) -> None:
        if self._before is not self._globals:
            self._before.pop(self.attribute, None)
        self._globals[self.attribute] = value

    def dormant(self) -> str:
        """Why PyTorch does not look at it."""
        if self.module.is_available():
            return ""
        return "PyTorch found no opt_einsum when it was imported, and contracts from left to right"


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The settings of `torch.backends.opt_einsum`, for the flags that were asked."""
    module = sys.modules.get(_MODULE)
    return [
        Setting(OptEinsumSwitch(module, flag.rpartition(".")[2], values[flag]), values[flag], flag)
        for flag in sorted(FLAGS & set(asked))
        if module is not None
    ]
