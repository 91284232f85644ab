"""NVIDIA devices and driver, by NVML in a child process; no CUDA context is made."""

from __future__ import annotations

import glob
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.probe import inspection, ldcache, text_of
from backendcfg.probe.gpus import Devices, visible_indices
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
    source = environ.current() if environment is None else environment
    driver = _driver_version(root)
    path = library or _library(root, source.get("LD_LIBRARY_PATH", ""))
    if path is None:
        if not driver and not os.path.exists(os.path.join(root, "dev/nvidiactl")):
            return Devices(probes=(Absent(probe="nvidia", reason=f"no {_NAME} and no driver"),))
        reason = f"the driver is loaded, and {_NAME} is not on the loader path"
        return _from_proc(root, driver, reason, source)
    request = inspection.Request("drivers", path, "nvml")
    answer = inspection.ask([[request]], timeout=timeout, environment=source).get(request)
    if answer is None or answer.facts is None:
        reason = answer.error if answer is not None else "no answer"
        if not driver:
            # The library without a driver: an image made for machines that have one.
            return Devices(probes=(Broken(probe="nvidia", path=path, reason=reason),))
        return _from_proc(root, driver, reason, source, path)
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


def _from_proc(
    root: str, driver: str, reason: str, source: Mapping[str, str], path: str = ""
) -> Devices:
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
    return Devices(gpus, drivers, (Broken(probe="nvidia", path=path, reason=reason),))


def _library(root: str, search: str) -> str | None:
    """The file that the loader would open, or where vendors hide it."""
    if not sys.platform.startswith("linux"):
        return None
    directories = [entry for entry in search.split(os.pathsep) if os.path.isabs(entry)]
    for directory in directories:
        if os.path.exists(path := os.path.join(directory, _NAME)):
            return path
    try:
        if found := ldcache.installed(root).get(_NAME):
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
