"""Apple's GPU, by Metal in a child process; only on macOS."""

from __future__ import annotations

import platform
import re
import sys

from backendcfg.probe import inspection
from backendcfg.probe.nvidia import Devices
from backendcfg.schema.host import Absent, Broken, Found, Gpu


def probe_apple(system: str = sys.platform, *, timeout: float = inspection.TIMEOUT) -> Devices:
    """Apple's device.

    Args:
        system: as `sys.platform`.
        timeout: seconds that Metal may take to answer.
    """
    if system != "darwin":
        return Devices(probes=(Absent(probe="apple", reason="not macOS"),))
    request = inspection.Request("metal", "/System/Library/Frameworks/Metal.framework/Metal")
    answer = inspection.ask([[request]], timeout=timeout).get(request)
    if answer is None or answer.facts is None:
        reason = answer.error if answer is not None else "no answer"
        return Devices(probes=(Broken(probe="apple", path=request.path, reason=reason),))
    return device(str(answer.facts["name"]), int(answer.facts["memory"]), platform.machine())


def device(name: str, memory: int, machine: str) -> Devices:
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
