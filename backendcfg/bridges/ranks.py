"""Whether ranks hold their settings against each other when they come together: `[fleet]`.

`torch.distributed.init_process_group` and `jax.distributed.initialize` are replaced by functions
that call them and then `backendcfg.fleet.agree()`.
"""

from __future__ import annotations

import sys

from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import JAX, TORCH
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = None
SCOPED_FLAGS: frozenset[str] = frozenset()
"""None: ranks come together once."""

FUNCTIONS = {
    f"{TORCH.name}.distributed.distributed_c10d": "init_process_group",
    f"{TORCH.name}.distributed": "init_process_group",
    f"{TORCH.name}.distributed.device_mesh": "init_process_group",
    f"{JAX.name}.distributed": "initialize",
}
"""By module, what brings ranks together."""

_OURS = "_backendcfg_original"

_asked = "off"
_watching: list[imports.Watch] = []


class Agree(AnytimeSwitch):
    """What happens when ranks come together that have other settings."""

    name = "fleet.agree"
    only = "base"
    is_numeric = False

    def read(self) -> str:
        return _asked

    def write(self, value: str) -> None:
        global _asked
        _asked = value
        if value == "off" or _watching:
            return
        _watching.append(imports.watch(_replace, FUNCTIONS))
        for module in FUNCTIONS:
            if imports.is_imported(module):
                _replace(module)


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The setting, if the profile says what happens."""
    if "fleet.agree" not in asked:
        return []
    return [Setting(Agree(), values["fleet.agree"], "fleet.agree")]


def _replace(module: str) -> None:
    """Have the function of a module that brings ranks together ask them to agree."""
    held: Any = sys.modules[module]
    original: Any = getattr(held, FUNCTIONS[module], None)
    if original is None or hasattr(original, _OURS):
        return
    # PyTorch has one function under several names.
    ours = next((one for one in _made if getattr(one, _OURS) is original), None)
    if ours is None:
        _made.append(ours := _agreeing(original, module.partition(".")[0]))
    setattr(held, FUNCTIONS[module], ours)


_made: list[Any] = []


def _agreeing(original: Callable[..., Any], engine: str) -> Callable[..., Any]:
    from functools import wraps

    @wraps(original)
    def brought_together(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if _asked != "off":
            from backendcfg.fleet.agreement import agree_or

            agree_or(_asked, engine)
        return found

    setattr(brought_together, _OURS, original)
    return brought_together
