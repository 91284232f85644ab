"""`torch.backends.quantized`: the kernels of quantized operators."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import FlagProperty, PropModule, ReadOnly, become, read
from backendcfg.catalogue.frameworks import TORCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    engine: str
    supported_engines: list[str]

__all__ = ["QuantizedEngine"]

_ENGINE = "quantized.engine"
_NAMES = ("none", "fbgemm", "qnnpack", "onednn", "x86")
"""By their numbers in c10/core/QEngine.h."""


def _supported() -> list[str]:
    """The engines of the PyTorch that is loaded, else those that its wheels have here."""
    said = base.ask_torch(lambda torch: torch._C._supported_qengines())
    if said is not None:
        return [_NAMES[number] for number in said]
    if not base.installed(TORCH.name):
        return []
    cpu = base.host().cpu
    if cpu.architecture != "x86_64":
        return ["qnnpack", "onednn"]
    # FBGEMM, and with it "x86", needs AVX2.
    return ["qnnpack", "onednn", *(["x86", "fbgemm"] if "avx2" in cpu.features else [])]


def _engine() -> str:
    """The engine in force; what PyTorch takes by itself where nobody chose one."""
    chosen = str(read(_ENGINE))
    if chosen != "default":
        return chosen
    here = _supported()
    return next((name for name in ("x86", "qnnpack") if name in here), "none")


class QuantizedEngine(PropModule):
    """`backendcfg.backends.quantized` with its attributes."""

    engine = FlagProperty(_ENGINE, _engine)
    supported_engines = ReadOnly(
        _supported, "`supported_engines` cannot be set: it is what PyTorch was built with"
    )


become(__name__, QuantizedEngine)
