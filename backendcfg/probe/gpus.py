"""Devices: which of them a program sees, of NVIDIA, AMD and Apple.

The management interfaces list every device whatever CUDA_VISIBLE_DEVICES and its AMD siblings say,
so their rules are applied here: CUDA C++ Programming Guide, "CUDA Environment Variables"; where the
guide is silent, what PyTorch does (torch/cuda/__init__.py, `_parse_visible_devices`).

NVIDIA's devices and driver are asked for by NVML in a child process; no CUDA context is made. AMD's
are read from the kernel's compute driver (KFD), text files only:
/sys/class/kfd/kfd/topology/nodes/N/properties, as libhsakmt reads it (topology.c). Apple's is asked
for by Metal in a child process, only on macOS.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import sys
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.probe import inspection, installed, text_of
from backendcfg.records import field, record
from backendcfg.schema.host import Absent, Broken, Found, Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.schema.host import Probe


_NAME = "libnvidia-ml.so.1"
# Windows' Linux, Colab and Google's Kubernetes keep the driver's libraries off the loader path.
_ELSEWHERE = ("usr/lib/wsl/lib", "usr/lib64-nvidia", "usr/local/nvidia/lib64")
_DRIVER = "proc/driver/nvidia/version"


def probe_nvidia(
    root: str = "/",
    *,
    library: str | None = None,
    timeout: float = inspection.TIMEOUT,
    environment: Mapping[str, str] | None = None,
) -> Devices:
    """NVIDIA's devices.

    Args:
        root: where /proc, /dev and the system's libraries are found.
        library: the NVML file, instead of searching it.
        timeout: seconds that the driver may take to answer.
        environment: instead of this process's.
    """
    source = environ.copy() if environment is None else environment
    driver = _driver_version(root)
    path = library or _library(root, source.get("LD_LIBRARY_PATH", ""))
    if path is None:
        if not driver and not os.path.exists(os.path.join(root, "dev/nvidiactl")):
            return Devices(probes=(Absent(probe="nvidia", reason=f"no {_NAME} and no driver"),))
        reason = f"the driver is loaded, and {_NAME} is not on the loader path"
        return _from_proc(root, driver, Broken(probe="nvidia", reason=reason), source)
    request = inspection.Request("drivers", path, "nvml")
    asked = inspection.ask([[request]], timeout=timeout, environment=source)
    answer = asked.get(request, inspection.UNASKED)
    if answer.facts is None:
        broken = answer.broken("nvidia", path)
        # The library without a driver: an image made for machines that have one.
        return _from_proc(root, driver, broken, source) if driver else Devices(probes=(broken,))
    return _from_nvml(path, answer.facts, source)


def _from_nvml(path: str, facts: Mapping[str, Any], source: Mapping[str, str]) -> Devices:
    devices: Sequence[Mapping[str, Any]] = facts["gpus"]
    # A device that cannot be read keeps its number; no identifier means it.
    uuids: list[str] = [""] * facts["count"]
    instances: list[list[str]] = [[]] * facts["count"]
    for device in devices:
        uuids[device["index"]] = device["uuid"]
        instances[device["index"]] = device["instances"]
    visible = visible_indices(source.get("CUDA_VISIBLE_DEVICES"), uuids, instances)
    gpus = tuple(
        Gpu(
            index=device["index"],
            vendor="nvidia",
            name=device["name"],
            compute_capability=device["compute_capability"],
            architecture=f"sm_{device['compute_capability'].replace('.', '')}",
            memory=device["memory"],
            uuid=device["uuid"],
            # A divided device without parts cannot run anything.
            visible=device["index"] in visible and bool(device["instances"] or not device["mig"]),
        )
        for device in devices
    )
    drivers = {"nvidia": facts["driver"], "cuda": facts["cuda"]}
    probes: list[Probe] = [
        Broken(probe="nvidia", path=path, reason=reason) for reason in facts["broken"]
    ]
    if gpus:
        detail = f"driver {facts['driver']}, {_names(gpus)}"
        parts = sum(len(device["instances"]) for device in devices)
        if parts:
            detail += f", divided into {parts} MIG instances"
        if _order_differs(gpus, source):
            detail += "; CUDA_VISIBLE_DEVICES counts the fastest first, the order here is by bus"
        probes.insert(0, Found(probe="nvidia", detail=detail))
    elif not probes:
        probes.append(Absent(probe="nvidia", reason=f"driver {facts['driver']} has no device"))
    return Devices(gpus, {name: text for name, text in drivers.items() if text}, tuple(probes))


def _from_proc(root: str, driver: str, broken: Broken, source: Mapping[str, str]) -> Devices:
    """What the kernel module says when its library does not: names and identifiers only."""
    found = []
    for place in sorted(glob.glob(os.path.join(glob.escape(root), "proc/driver/nvidia/gpus/*"))):
        text = text_of(os.path.join(place, "information"))
        fields = dict(line.partition(":")[::2] for line in text.splitlines())
        found.append((fields.get("Model", "").strip(), fields.get("GPU UUID", "").strip()))
    visible = visible_indices(source.get("CUDA_VISIBLE_DEVICES"), [uuid for _, uuid in found])
    gpus = tuple(
        Gpu(index=index, vendor="nvidia", name=name, uuid=uuid, visible=index in visible)
        for index, (name, uuid) in enumerate(found)
    )
    drivers = {"nvidia": driver} if driver else {}
    return Devices(gpus, drivers, (broken,))


def _library(root: str, search: str) -> str | None:
    """The file that the loader would open, or where vendors hide it."""
    if not sys.platform.startswith("linux"):
        return None
    directories = [entry for entry in search.split(os.pathsep) if os.path.isabs(entry)]
    for directory in directories:
        if os.path.exists(path := os.path.join(directory, _NAME)):
            return path
    try:
        if found := installed.loader_cache(root).get(_NAME):
            return found
    except (OSError, ValueError):
        pass  # `libraries` reports a cache that cannot be read
    places = (*_ELSEWHERE, "usr/lib64", "usr/lib", "run/opengl-driver/lib")
    for place in places:
        if os.path.exists(path := os.path.join(root, place, _NAME)):
            return path
    return None


def _driver_version(root: str) -> str:
    """From "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  ..."."""
    found = re.search(r"Kernel Module\D*?(\d+(?:\.\d+)+)", text_of(os.path.join(root, _DRIVER)))
    return found.group(1) if found else ""


def _order_differs(gpus: Sequence[Gpu], source: Mapping[str, str]) -> bool:
    """Whether indices in CUDA_VISIBLE_DEVICES may mean other devices than NVML's indices."""
    value = source.get("CUDA_VISIBLE_DEVICES", "")
    mixed = len({gpu.name for gpu in gpus}) > 1
    return mixed and value[:1].isdigit() and source.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _names(gpus: Sequence[Gpu]) -> str:
    """As "2 x Tesla T4"."""
    names = [gpu.name for gpu in gpus]
    counted = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" for name, count in counted.items())


_NUMBER = re.compile(r"\s*([+-]?\d+)")


@record(frozen=True)
class Devices:
    """What one vendor's probe found.

    Attributes:
        gpus: in the order of the vendor's indices.
        drivers: versions by name.
        probes: found, absent or broken.
    """

    gpus: tuple[Gpu, ...] = ()
    drivers: dict[str, str] = field(default_factory=dict)
    probes: tuple[Probe, ...] = ()


def visible_indices(
    value: str | None, uuids: Sequence[str], instances: Sequence[Sequence[str]] = ()
) -> list[int]:
    """Indices of the devices that a program sees, in the order in which it sees them.

    Args:
        value: of the variable; None when it is not set, which shows every device. Indices, "GPU-"
            or "MIG-" identifiers or an unambiguous beginning of one, separated by commas. The
            first that names no device ends the list; naming one twice empties it.
        uuids: each device's identifier.
        instances: identifiers of the parts of each device that is divided by MIG.
    """
    if value is None:
        return list(range(len(uuids)))
    seen: list[int] = []
    words: list[str] = []
    for word in (part.strip() for part in value.split(",")):
        if word.startswith("MIG-"):
            found = _device_of_part(word, uuids, instances)
        elif word.startswith("GPU-"):
            found = _only_beginning(word, uuids)
        else:
            number = _NUMBER.match(word)
            index = int(number.group(1)) if number else -1
            found = index if 0 <= index < len(uuids) else None
        if found is None:
            break
        # Two parts of one device are two devices to a program and one here.
        if word in words or (found in seen and not word.startswith("MIG-")):
            return []
        words.append(word)
        if found not in seen:
            seen.append(found)
    return seen


def _only_beginning(word: str, identifiers: Sequence[str]) -> int | None:
    """The one identifier that begins so; none when several do."""
    found = [
        index
        for index, identifier in enumerate(identifiers)
        if identifier.lower().startswith(word.lower())
    ]
    return found[0] if len(found) == 1 else None


def _device_of_part(
    word: str, uuids: Sequence[str], instances: Sequence[Sequence[str]]
) -> int | None:
    # Drivers before R470 name a part by its device: MIG-GPU-<identifier>/<gpu part>/<compute part>.
    if word.startswith("MIG-GPU-"):
        return _only_beginning(word.removeprefix("MIG-").partition("/")[0], uuids)
    owners = [
        device
        for device, parts in enumerate(instances)
        for part in parts
        if part.lower().startswith(word.lower())
    ]
    return owners[0] if len(owners) == 1 else None


_NODES = "sys/class/kfd/kfd/topology/nodes"
_VIDEO_MEMORY = {"1", "2"}  # HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE


def probe_amd(root: str = "/", *, environment: Mapping[str, str] | None = None) -> Devices:
    """AMD's devices.

    Args:
        root: where /sys and /opt are found.
        environment: instead of this process's.
    """
    source = environ.copy() if environment is None else environment
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


def probe_apple(system: str = sys.platform, *, timeout: float = inspection.TIMEOUT) -> Devices:
    """Apple's device.

    Args:
        system: as `sys.platform`.
        timeout: seconds that Metal may take to answer.
    """
    if system != "darwin":
        return Devices(probes=(Absent(probe="apple", reason="not macOS"),))
    request = inspection.Request(
        "drivers", "/System/Library/Frameworks/Metal.framework/Metal", "metal"
    )
    answer = inspection.ask([[request]], timeout=timeout).get(request, inspection.UNASKED)
    if answer.facts is None:
        return Devices(probes=(answer.broken("apple", request.path),))
    return apple_device(str(answer.facts["name"]), int(answer.facts["memory"]), platform.machine())


def apple_device(name: str, memory: int, machine: str) -> Devices:
    """The device that Metal describes; Macs with Intel processors have other vendors' GPUs.

    Args:
        name: Metal's, as "Apple M3 Max".
        memory: bytes that Metal recommends to use at most.
        machine: as `platform.machine()`.
    """
    if machine != "arm64":
        reason = f"{name} is not Apple's own GPU"
        return Devices(probes=(Absent(probe="apple", reason=reason),))
    family = re.search(r"\b[MA]\d+", name)
    architecture = f"apple-{family.group().lower()}" if family else ""
    gpu = Gpu(index=0, vendor="apple", name=name, architecture=architecture, memory=memory)
    return Devices((gpu,), probes=(Found(probe="apple", detail=name),))
