"""AMD devices by the kernel's compute driver (KFD): text files only, no library is opened.

/sys/class/kfd/kfd/topology/nodes/N/properties, as libhsakmt reads it (topology.c).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.probe import text_of
from backendcfg.probe.nvidia import Devices
from backendcfg.probe.visible import visible_indices
from backendcfg.schema.host import Absent, Broken, Found, Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.host import Probe

_NODES = "sys/class/kfd/kfd/topology/nodes"
_VIDEO_MEMORY = {"1", "2"}  # HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE


def probe_amd(root: str = "/", *, environment: Mapping[str, str] | None = None) -> Devices:
    """AMD's devices.

    Args:
        root: where /sys and /opt are found.
        environment: instead of this process's.
    """
    source = environ.current() if environment is None else environment
    drivers = {}
    rocm = text_of(os.path.join(source.get("ROCM_PATH") or f"{root}/opt/rocm", ".info/version"))
    if rocm:
        # "6.4.1-83": the build number says nothing about what it can do.
        drivers["rocm"] = rocm.strip().partition("-")[0]
    if module := text_of(os.path.join(root, "sys/module/amdgpu/version")).strip():
        drivers["amdgpu"] = module
    nodes = os.path.join(root, _NODES)
    try:
        numbers = sorted((name for name in os.listdir(nodes) if name.isdigit()), key=int)
    except OSError:
        absent = Absent(probe="amd", reason="no /sys/class/kfd: the amdgpu driver is not loaded")
        return Devices(drivers=drivers, probes=(absent,))
    gpus: list[Gpu] = []
    probes: list[Probe] = []
    for number in numbers:
        path = os.path.join(nodes, number, "properties")
        try:
            with open(path, encoding="utf-8") as file:
                properties = dict(line.split()[:2] for line in file if len(line.split()) >= 2)
        except PermissionError:
            continue  # another container's device
        except OSError as error:
            probes.append(Broken(probe="amd", path=path, reason=error.strerror or str(error)))
            continue
        if int(properties.get("simd_count", 0)):
            gpus.append(_gpu(root, os.path.join(nodes, number), len(gpus), properties))
    visible = _visible([gpu.uuid for gpu in gpus], source)
    shown = tuple(gpu.model_copy(update={"visible": gpu.index in visible}) for gpu in gpus)
    if shown:
        names = ", ".join(f"{gpu.name} ({gpu.architecture})" for gpu in shown)
        probes.insert(0, Found(probe="amd", detail=names))
    elif not probes:
        probes.append(Absent(probe="amd", reason="the compute driver lists no device"))
    return Devices(shown, drivers, tuple(probes))


def _gpu(root: str, node: str, index: int, properties: Mapping[str, str]) -> Gpu:
    architecture = _architecture(int(properties.get("gfx_target_version", 0)))
    minor = properties.get("drm_render_minor", "")
    device = os.path.join(root, f"sys/class/drm/renderD{minor}/device")
    marketing = text_of(os.path.join(device, "product_name")).strip()
    identity = int(properties.get("unique_id", 0))
    return Gpu(
        index=index,
        vendor="amd",
        name=marketing or f"AMD {architecture}",
        architecture=architecture,
        memory=_memory(node),
        uuid=f"GPU-{identity:016x}" if identity else "",
    )


def _architecture(version: int) -> str:
    """90402 is gfx942 and 90010 is gfx90a: the last two digits are hexadecimal in the name."""
    if not version:
        return ""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory(node: str) -> int:
    """Bytes of the device's own memory."""
    banks = os.path.join(node, "mem_banks")
    total = 0
    try:
        numbers = os.listdir(banks)
    except OSError:
        return 0
    for number in numbers:
        text = text_of(os.path.join(banks, number, "properties"))
        bank = dict(line.split()[:2] for line in text.splitlines() if len(line.split()) >= 2)
        if bank.get("heap_type") in _VIDEO_MEMORY:
            total += int(bank.get("size_in_bytes", 0))
    return total


def _visible(uuids: list[str], source: Mapping[str, str]) -> list[int]:
    """The runtime filters by ROCR_VISIBLE_DEVICES, then HIP counts in what is left."""
    left = visible_indices(source.get("ROCR_VISIBLE_DEVICES"), uuids)
    # HIP reads CUDA's variable when its own is not set.
    value = source.get("HIP_VISIBLE_DEVICES", source.get("CUDA_VISIBLE_DEVICES"))
    chosen = visible_indices(value, [uuids[index] for index in left])
    return [left[index] for index in chosen]
