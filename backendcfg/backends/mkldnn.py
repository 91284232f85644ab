"""`torch.backends.mkldnn`: oneDNN's switches."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import (
    ONEDNN,
    FlagProperty,
    Leaf,
    PropModule,
    Verbose,
    become,
    effective,
    exchange,
    given,
    is_tf32,
    legacy,
    remembered,
    scoped,
)
from backendcfg.catalogue import cpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backendcfg.session.adjust import Overlay

    enabled: bool
    deterministic: bool
    allow_tf32: bool
    fp32_precision: str
    matmul: Leaf
    conv: Leaf
    rnn: Leaf

__all__ = [
    "VERBOSE_OFF",
    "VERBOSE_ON",
    "VERBOSE_ON_CREATION",
    "MkldnnModule",
    "flags",
    "is_acl_available",
    "is_available",
    "set_flags",
    "verbose",
]

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2

_PRECISION = "mkldnn.fp32_precision"


class verbose(Verbose):  # noqa: N801 - PyTorch's name
    """A scope in which oneDNN prints a line for each primitive that it runs or makes, or none.

    Args:
        level: `VERBOSE_OFF`, `VERBOSE_ON`, or `VERBOSE_ON_CREATION`; checked on entering.
    """

    def __init__(self, level: int) -> None:
        super().__init__("mkldnn.verbose", level)
        self.level = level


def is_available() -> bool:
    """Whether a oneDNN is here: the one inside PyTorch or TensorFlow, or a library of its own.

    A PyTorch that is loaded is asked, because it can be built without.
    """
    said = base.ask_torch(lambda torch: torch._C._has_mkldnn)
    if said is not None:
        return bool(said)
    return base.installed(*cpu.ONEDNN.inside) or bool(base.library_file(f"{cpu.ONEDNN.stem}.so"))


def is_acl_available() -> bool:
    """Whether the PyTorch that is loaded has a oneDNN with Arm's Compute Library in it."""
    return bool(base.ask_torch(lambda torch: torch._C._has_mkldnn_acl))


def set_flags(
    _enabled: bool | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = None,
) -> tuple[bool, bool, bool | None, str]:
    """Set several flags, all of them or none; None keeps one.

    Returns:
        What they were, to be given back: `set_flags(*previous)`. `allow_tf32` is None where the
        three kinds of operation differ, which one switch cannot say.
    """
    return exchange("mkldnn", locals(), allow_tf32=legacy(*ONEDNN))


@remembered
def flags(
    enabled: bool | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
    fp32_precision: str | None = None,
) -> Overlay:
    """A scope in which several flags are set; None keeps one."""
    return scoped(given("mkldnn", locals()))


class MkldnnModule(PropModule):
    """`backendcfg.backends.mkldnn` with its assignable flags."""

    allow_tf32 = FlagProperty("mkldnn.allow_tf32", lambda: is_tf32(*ONEDNN))
    matmul = Leaf(f"{__name__}.matmul", "mkldnn.matmul.fp32_precision")
    conv = Leaf(f"{__name__}.conv", "mkldnn.conv.fp32_precision")
    rnn = Leaf(f"{__name__}.rnn", "mkldnn.rnn.fp32_precision")
    fp32_precision = FlagProperty(_PRECISION, lambda: effective(_PRECISION))


become(__name__, MkldnnModule)
