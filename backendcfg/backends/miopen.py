"""`torch.backends.miopen`: AMD's library of convolutions. Read in PyTorch's sources, not run."""

from __future__ import annotations

from backendcfg.backends.base import PropModule, become, exchange, given, remembered, scoped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backendcfg.session.adjust import Overlay

    immediate: bool

__all__ = ["MiopenModule", "flags", "set_flags"]


def set_flags(_immediate: bool | None = None) -> tuple[bool]:
    """Set immediate mode, where MIOpen takes its algorithm from a table; None keeps it.

    Returns:
        What it was, to be given back: `set_flags(*previous)`.
    """
    return exchange("miopen", locals())


@remembered
def flags(immediate: bool | None = None) -> Overlay:
    """A scope with immediate mode on or off; None keeps it."""
    return scoped(given("miopen", locals()))


class MiopenModule(PropModule):
    """`backendcfg.backends.miopen` with its assignable flag."""


become(__name__, MiopenModule)
