"""Our own kernels on CUDA devices: what they need of a device, and each loaded once.

facts, driver = device(kind=2, index=0)
kernel = attention(driver, 0, facts.sm, chosen)     # a capsule, for `_native.device_launch`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.dispatch.attention_facts import Device
from backendcfg.errors import MissingLibraryError
from backendcfg.gpu.kernels import sources
from backendcfg.gpu.kernels import sources as cuda_compiler
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.gpu.libraries.opening import Unusable, open_device
from backendcfg.locks import ProcessLock
from backendcfg.ops.devices import CUDA
from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.gpu.kernels.sources import Kernel

_loaded: dict[tuple[int, int, Kernel], Any] = {}
_process = ProcessLock()


@record(frozen=True)
class Driver:
    """The driver of a device.

    Attributes:
        path: its file; "" where there is none.
        handle: its address in C.
    """

    path: str = ""
    handle: int = 0


def device(kind: int, index: int, *, start: bool = True) -> tuple[Device, Driver]:
    """What the choice of an attention kernel looks at, and the driver to call.

    Args:
        kind: of the device, with DLPack's number.
        index: of the device.
        start: initialise the driver if nobody has.
    """
    if kind != CUDA:
        return Device("amd"), Driver()
    opened = open_device("cuda")
    if isinstance(opened, Unusable):
        why = f"NVIDIA's driver cannot be used: {'; '.join(opened.reasons)}"
        return Device("nvidia", no_driver=why, no_compiler=_no_compiler(None)), Driver()
    capability = device_driver.capability(opened.path, index, start=start)
    known = capability if capability != (0, 0) else None
    version, no_cudnn = cudnn()
    facts = Device(
        "nvidia",
        known,
        cudnn=version,
        no_compiler=_no_compiler(known),
        no_cudnn=no_cudnn,
    )
    return facts, Driver(opened.path, opened.handle)


def cudnn() -> tuple[int, str]:
    """The version of cuDNN, as it writes it, and why it cannot be used, or ""."""
    opened = open_device("cudnn")
    if isinstance(opened, Unusable):
        return 0, f"cuDNN cannot be used: {'; '.join(opened.reasons)}"
    major, minor, patch = opened.version
    return major * 10000 + minor * 100 + patch, ""


def _no_compiler(capability: tuple[int, int] | None) -> str:
    """Why no compiler compiles for a device, or ""; without a capability, why there is none."""
    try:
        compiler = cuda_compiler.compiler()
        if capability is not None and capability >= sources.OLDEST:
            compiler.architecture(capability)
    except MissingLibraryError as error:
        said = "; ".join((error.message, *error.notes))
        return f"It is compiled by NVRTC when it is needed: {said}"
    return ""


def attention(
    driver: Driver,
    index: int,
    capability: tuple[int, int],
    chosen: Kernel,
) -> Any:
    """A variant of an attention kernel on a device: loaded once, compiled where it is not on disk.

    Returns:
        A capsule, for `_native.device_launch`; or what failed: (function, status, its name).

    Raises:
        InternalError: it does not compile.
    """
    key = driver.handle, index, chosen
    with _process.lock:
        if (known := _loaded.get(key)) is not None:
            return known
    # Without the lock: compiling takes seconds, and loaded kernels need not wait for it.
    code = sources.attention(chosen, capability)
    with _process.lock:
        if (known := _loaded.get(key)) is not None:
            return known
        made = _native.device_kernel(driver.handle, index, code, chosen.name, chosen.shared_bytes)
        if not isinstance(made, tuple):
            _loaded[key] = made
        return made


def forget() -> None:
    """Drop the cache of loaded kernels; their code stays on the device."""
    with _process.lock:
        _loaded.clear()
