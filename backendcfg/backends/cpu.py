"""`torch.backends.cpu`: the class of instruction sets that this processor has."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import become, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backendcfg.schema.host import Cpu

__all__ = ["get_cpu_capability"]

_AVX2 = {"avx2", "fma"}
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}
_OTHERS = {"ppc64le": "VSX", "s390x": "Z VECTOR"}
_NAMES = {"default": "DEFAULT", "avx2": "AVX2", "avx512": "AVX512"}


def get_cpu_capability() -> str:
    """The best instructions that ATen's kernels may use here, as PyTorch names them.

    What the processor has, no better than `torch.cpu_capability` allows: "DEFAULT", "AVX2",
    "AVX512", "SVE256", "VSX" or "Z VECTOR". Where PyTorch is loaded it is asked, because it chose
    when it was imported.
    """
    chosen = base.ask_torch(lambda torch: torch._C._get_cpu_capability())
    if chosen is not None:
        return str(chosen)
    here = _of(base.host().cpu)
    allowed = _NAMES.get(read("torch.cpu_capability"), here)
    ladder = list(_NAMES.values())
    if here in ladder and allowed in ladder:
        return min(here, allowed, key=ladder.index)
    return allowed if allowed == "DEFAULT" else here


def _of(cpu: Cpu) -> str:
    """The class of a processor, by ATen's rules (aten/src/ATen/native/DispatchStub.cpp)."""
    if cpu.architecture in _OTHERS:
        return _OTHERS[cpu.architecture]
    # ATen wants vectors of 256 bits, which of Arm's own cores this one alone has.
    if cpu.microarchitecture == "neoverse_v1":
        return "SVE256"
    features = set(cpu.features)
    if features >= _AVX512:
        return "AVX512"
    return "AVX2" if features >= _AVX2 else "DEFAULT"


become(__name__)
