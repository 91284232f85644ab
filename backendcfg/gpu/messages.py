"""Words for arrays on devices and for what a device's library or driver answered."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from backendcfg.errors import InvalidArgumentError, TierNotKeptError
from backendcfg.ops.arrays import place_named
from backendcfg.ops.devices import KINDS

# By part of a status' name: what to do about it.
_ADVICE = {
    "MEMORY": "free memory on the device, or make the workspace smaller",
    "SUBLIBRARY": "a part of cuDNN cannot be loaded: its files, libcudnn_*.so.9, must lie beside "
    "each other and be of one version, and the engines that it compiles need NVIDIA's driver",
    "ALLOC_FAILED": "free memory on the device, or make the workspace smaller",
    "DEVICE_ALLOC": "free memory on the device: MAGMA takes its own, beside the framework's",
    "NOT_SUPPORTED": "the library has no kernel for this: set `cuda.preferred_blas_library`",
    "INVALID_VALUE": "the library refuses an argument: set `cuda.preferred_blas_library`",
    "ARCH_MISMATCH": "the library has no code for this device: install another release of it",
    "EXECUTION_FAILED": "an earlier kernel may have failed: see `compute-sanitizer`",
    "ILLEGAL_ADDRESS": "an earlier kernel wrote where it may not: see `compute-sanitizer`",
    "LAUNCH_FAILED": "an earlier kernel may have failed: see `compute-sanitizer`",
    "NO_DEVICE": "the device may be gone: see `nvidia-smi` and the system's log",
    "UNAVAILABLE": "the device may be gone, or another process's alone: see `nvidia-smi`",
    "ERROR_UNKNOWN": "the device may be gone: see `nvidia-smi` and the system's log",
    "NOT_INITIALIZED": "the library could not start on this device: is its memory full?",
    "MISMATCH": "the driver does not fit its kernel module: reboot, or reinstall it",
    "CAPTURE": "call it once on the capture's stream before: nothing must be set up in it",
}


def advice(function: str, name: str) -> list[str]:
    """What to do about a status.

    Args:
        function: of the library or driver that returned it.
        name: of the status.
    """
    if function in ("cuInit", "hipInit") and "NOT_INITIALIZED" in name:
        return ["in a child of a process that had used the device, none works: use `spawn`"]
    return [text for part, text in _ADVICE.items() if part in name][:1]


def is_of_driver(function: str) -> bool:
    """Whether a function is the driver's and not a library's: `cuMemAlloc`, `hipMalloc`."""
    return re.match(r"cu[A-Z]|hip[A-Z]", function) is not None


def forked(operation: str) -> NoReturn:
    """Raise in a child of a process that had used the device.

    Raises:
        InvalidArgumentError: always.
    """
    raise InvalidArgumentError(
        f"{operation}: this process was forked from one that had used the device",
        notes=["no driver of a device works on in a forked child"],
        state="nothing was computed",
        helps=['start workers by "spawn" or "forkserver": `multiprocessing.get_context("spawn")`'],
    )


def refuse_unkept(operation: str, broken: str, *instead: str) -> None:
    """Raise where nothing on a device keeps the tier of the flags.

    Args:
        operation: for the message.
        broken: why not, as `unkept` says it; "" raises nothing.
        instead: what to do instead of taking a lower tier.

    Raises:
        TierNotKeptError: the tier is not kept.
    """
    if broken:
        raise TierNotKeptError(
            f"{operation}: {broken}",
            state="nothing was computed",
            helps=[*instead, "use a profile of a lower tier"],
        )


def type_of(value: Any) -> str:
    """The type of an array: "torch.Tensor"."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def dtype_of(value: Any) -> str:
    """The dtype of an array as it says it, without "torch."."""
    name = str(getattr(value, "dtype", type(value).__name__))
    return name.removeprefix("torch.")


def place(value: Any) -> str:
    """Where an array is: "cuda:0", or "the CPU"."""
    where = getattr(value, "__dlpack_device__", None)
    if where is not None:
        try:
            kind, index = where()
        except Exception:  # a foreign library's: this is for a message
            return f"`{getattr(value, 'device', 'no device')}`"
        return f"{KINDS[int(kind)]}:{index}" if int(kind) in KINDS else place_named(kind, index)
    if hasattr(value, "__cuda_array_interface__"):
        return "a CUDA device"
    return "the CPU"


def describe(value: Any) -> str:
    """An array in words: "float32 array of shape (3, 5) on cuda:0"."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return type_of(value)
    return f"{dtype_of(value)} array of shape {tuple(shape)} on {place(value)}"


# A library's bits may depend on the device and on how much it computes at once. Our own kernels
# keep these tiers, on the CPU alone.
UNKEPT_TIERS = ("cross-machine", "batch-invariant")


def unkept(tier: str, who: str = "no library on a device keeps") -> str:
    """Why nothing on a device keeps a tier, or "".

    Args:
        tier: as `determinism.tier` says it.
        who: who does not, as the end of the sentence.
    """
    if tier not in UNKEPT_TIERS:
        return ""
    return f"`determinism.tier` promises `{tier}`, which {who}"
