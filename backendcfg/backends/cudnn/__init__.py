"""`torch.backends.cudnn`: cuDNN's switches, and MIOpen's on AMD.

What they do on a GPU was read in PyTorch's sources, not run.
"""

from __future__ import annotations

import os
import re

from backendcfg import startup
from backendcfg.backends import base
from backendcfg.backends.base import (
    CUDNN,
    FlagProperty,
    Leaf,
    PropModule,
    become,
    effective,
    exchange,
    given,
    is_tf32,
    legacy,
    read,
    remembered,
    scoped,
)
from backendcfg.backends.cudnn import rnn
from backendcfg.catalogue import gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.session.adjust import Overlay

    enabled: bool
    benchmark: bool
    benchmark_limit: int
    deterministic: bool
    allow_tf32: bool
    fp32_precision: str
    depthwise_kernel: str
    conv: Leaf

__all__ = [
    "CUDNN_TENSOR_DTYPES",
    "CudnnModule",
    "flags",
    "is_acceptable",
    "is_available",
    "rnn",
    "set_flags",
    "version",
]

_PRECISION = "cudnn.fp32_precision"
_WHEELS = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu11")
_MIOPEN_VERSION = re.compile(r"define MIOPEN_VERSION_(\w+) (\d+)$", re.MULTILINE)
_GPU_DEVICES = (2, 10)
"""DLPack's numbers of CUDA and ROCm."""


class TensorTypes(frozenset[str]):
    """Names of element types; `in` takes PyTorch's, NumPy's and CuPy's types as well."""

    def __contains__(self, dtype: object) -> bool:
        name = getattr(dtype, "__name__", None) or str(dtype)
        return frozenset.__contains__(self, name.removeprefix("torch."))


CUDNN_TENSOR_DTYPES = TensorTypes({"float16", "float32", "float64"})


def is_available() -> bool:
    """Whether a GPU that this process may use has its library here: cuDNN, or MIOpen on AMD."""
    return bool(
        (base.gpus("nvidia") and base.library_file(gpu.CUDNN.stem))
        or (base.gpus("amd") and base.library_file(gpu.MIOPEN.stem))
    )


def version() -> int | None:
    """The version of cuDNN, or of MIOpen on AMD: 91002 for 9.10.2, 8907 for 8.9.7.

    None where there is none, or where neither the file's name nor its wheel nor, for MIOpen, the
    header beside it says the version.
    """
    if not is_available():
        return None
    on_nvidia = bool(base.gpus("nvidia"))
    if on_nvidia:
        found = base.version(base.library_file(gpu.CUDNN.stem), _WHEELS)
    else:
        found = _miopen(base.library_file(gpu.MIOPEN.stem))
    if found is None:
        return None
    major, minor, patch = found
    # cuDNN gave the major version more room in 9.
    return major * (1000 if on_nvidia and major < 9 else 10_000) + minor * 100 + patch


def _miopen(library: str) -> tuple[int, int, int] | None:
    """The version in MIOpen's header; its file is numbered by ROCm's version."""
    header = os.path.join(os.path.dirname(library), "..", "include", gpu.MIOPEN.name, "version.h")
    numbers = dict(_MIOPEN_VERSION.findall((startup.read(header) or b"").decode(errors="replace")))
    major, minor, patch = (int(numbers.get(part, 0)) for part in ("MAJOR", "MINOR", "PATCH"))
    return (major, minor, patch) if major else None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN would be used for an array: of a GPU, of float16, float32 or float64.

    Args:
        tensor: anything with a `dtype` that says where it is, by DLPack or by `device`.

    Raises:
        InvalidArgumentError: it is no such thing.
    """
    if not hasattr(tensor, "dtype"):
        from backendcfg.errors import InvalidArgumentError

        raise InvalidArgumentError(
            f"`tensor` must be an array with a dtype, not {type(tensor).__name__}"
        )
    if not read("cudnn.enabled") or tensor.dtype not in CUDNN_TENSOR_DTYPES:
        return False
    return _on_gpu(tensor) and is_available()


def _on_gpu(tensor: Any) -> bool:
    if hasattr(tensor, "__dlpack_device__"):
        return tensor.__dlpack_device__()[0] in _GPU_DEVICES
    return getattr(getattr(tensor, "device", None), "type", "") == "cuda"


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = None,
    _depthwise_kernel: str | None = None,
) -> tuple[bool, bool, int, bool, bool | None, str, str]:
    """Set several flags, all of them or none; None keeps one.

    Returns:
        What they were, to be given back: `set_flags(*previous)`. `allow_tf32` is None where
        convolutions and recurrent layers differ, which one switch cannot say.
    """
    return exchange("cudnn", locals(), allow_tf32=legacy(*CUDNN))


@remembered
def flags(  # noqa: PLR0917 - PyTorch's signature
    enabled: bool | None = None,
    benchmark: bool | None = None,
    benchmark_limit: int | None = None,
    deterministic: bool | None = None,
    allow_tf32: bool | None = None,
    fp32_precision: str | None = None,
    depthwise_kernel: str | None = None,
) -> Overlay:
    """A scope in which several flags are set; None keeps one."""
    return scoped(given("cudnn", locals()))


class CudnnModule(PropModule):
    """`backendcfg.backends.cudnn` with its assignable flags."""

    allow_tf32 = FlagProperty("cudnn.allow_tf32", lambda: is_tf32(*CUDNN))
    conv = Leaf(f"{__name__}.conv", "cudnn.conv.fp32_precision")
    fp32_precision = FlagProperty(_PRECISION, lambda: effective(_PRECISION))


become(__name__, CudnnModule)
