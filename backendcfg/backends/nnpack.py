"""`torch.backends.nnpack`: the convolutions of NNPACK inside PyTorch."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import become, exchange, given, remembered, scoped
from backendcfg.catalogue.frameworks import TORCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backendcfg.session.adjust import Overlay

__all__ = ["flags", "is_available", "set_flags"]


def is_available() -> bool:
    """Whether PyTorch has NNPACK for this processor.

    A PyTorch that is loaded is asked. Otherwise: whether one is installed on a processor that its
    wheels have NNPACK for.
    """
    said = base.ask_torch(lambda torch: torch._nnpack_available())
    if said is not None:
        return bool(said)
    return base.installed(TORCH.name) and base.host().cpu.architecture == "x86_64"


def set_flags(_enabled: bool | None) -> tuple[bool]:
    """Allow or forbid NNPACK; None keeps it.

    Returns:
        What it was, to be given back: `set_flags(*previous)`.
    """
    return exchange("nnpack", locals())


@remembered
def flags(enabled: bool | None = None) -> Overlay:
    """A scope in which NNPACK is allowed or forbidden; None keeps it."""
    return scoped(given("nnpack", locals()))


become(__name__)
