"""`torch.backends.opt_einsum`: whether and how the order of a contraction is searched."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from backendcfg.backends.base import (
    FlagProperty,
    PropModule,
    become,
    exchange,
    given,
    remembered,
    scoped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.session.adjust import Overlay

    enabled: bool
    strategy: str

__all__ = ["OptEinsumModule", "flags", "get_opt_einsum", "is_available", "set_flags"]


def is_available() -> bool:
    """Whether the package opt_einsum is installed."""
    return find_spec("opt_einsum") is not None


def get_opt_einsum() -> Any:
    """The package opt_einsum, imported; None where it is not installed."""
    return import_module("opt_einsum") if is_available() else None


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str]:
    """Set whether an order is searched, and how, both or neither; None keeps one.

    Args:
        _enabled: false contracts from left to right.
        _strategy: "auto", "greedy" or "optimal".

    Returns:
        What they were, to be given back: `set_flags(*previous)`.
    """
    return exchange("opt_einsum", locals())


@remembered
def flags(enabled: bool | None = None, strategy: str | None = None) -> Overlay:
    """A scope in which an order is searched in this way; None keeps one."""
    return scoped(given("opt_einsum", locals()))


class OptEinsumModule(PropModule):
    """`backendcfg.backends.opt_einsum` with its assignable flags."""

    enabled = FlagProperty("opt_einsum.enabled")
    strategy = FlagProperty("opt_einsum.strategy")


become(__name__, OptEinsumModule)
