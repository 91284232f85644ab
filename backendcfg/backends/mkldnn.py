"""`torch.backends.mkldnn`: oneDNN's switches."""

from __future__ import annotations

from backendcfg.backends import presence
from backendcfg.backends.base import (
    FlagProperty,
    PropModule,
    assign,
    become,
    named,
    read,
    remembered,
    scoped,
)
from backendcfg.backends.precision import ONEDNN, Leaf, effective, is_tf32, legacy
from backendcfg.backends.verbosity import OneDnnVerbose
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

verbose = OneDnnVerbose

_ENABLED, _DETERMINISTIC = "mkldnn.enabled", "mkldnn.deterministic"
_ALLOW_TF32, _PRECISION = "mkldnn.allow_tf32", "mkldnn.fp32_precision"


def is_available() -> bool:
    """Whether a oneDNN is here: the one inside PyTorch or TensorFlow, or a library of its own.

    A PyTorch that is loaded is asked, because it can be built without.
    """
    said = presence.ask_torch(lambda torch: torch._C._has_mkldnn)
    if said is not None:
        return bool(said)
    return presence.installed(*cpu.ONEDNN.inside) or bool(presence.library(f"{cpu.ONEDNN.stem}.so"))


def is_acl_available() -> bool:
    """Whether the PyTorch that is loaded has a oneDNN with Arm's Compute Library in it."""
    return bool(presence.ask_torch(lambda torch: torch._C._has_mkldnn_acl))


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
    previous = (read(_ENABLED), read(_DETERMINISTIC), legacy(*ONEDNN), read(_PRECISION))
    assign(
        named(
            {
                _ENABLED: _enabled,
                _DETERMINISTIC: _deterministic,
                _ALLOW_TF32: _allow_tf32,
                _PRECISION: _fp32_precision,
            }
        )
    )
    return previous


@remembered
def flags(
    enabled: bool | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
    fp32_precision: str | None = None,
) -> Overlay:
    """A scope in which several flags are set; None keeps one."""
    return scoped(
        named(
            {
                _ENABLED: enabled,
                _DETERMINISTIC: deterministic,
                _ALLOW_TF32: allow_tf32,
                _PRECISION: fp32_precision,
            }
        )
    )


class MkldnnModule(PropModule):
    """`backendcfg.backends.mkldnn` with its assignable flags."""

    allow_tf32 = FlagProperty(_ALLOW_TF32, lambda: is_tf32(*ONEDNN))
    matmul = Leaf(f"{__name__}.matmul", "mkldnn.matmul.fp32_precision")
    conv = Leaf(f"{__name__}.conv", "mkldnn.conv.fp32_precision")
    rnn = Leaf(f"{__name__}.rnn", "mkldnn.rnn.fp32_precision")
    fp32_precision = FlagProperty(_PRECISION, lambda: effective(_PRECISION))


become(__name__, MkldnnModule)
