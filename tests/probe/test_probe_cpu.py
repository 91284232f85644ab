"""The processor, from trees that look like /proc and /sys of other machines."""

from __future__ import annotations

import archspec.cpu
import pytest

from backendcfg.probe import first_processor
from backendcfg.probe.cpu import Microarchitecture, describe_cpu, identify
from backendcfg.probe.limits import Cores, Limits

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: fpu sse2 avx512f amx_tile

processor\t: 1
vendor_id\t: GenuineIntel
flags\t\t: never read
"""
GRACE = """processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd sve2 bf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd4f
"""
SAPPHIRE = Microarchitecture("sapphirerapids", ("sapphirerapids", "icelake", "x86_64_v4"))
NEOVERSE = Microarchitecture("neoverse_v2", ("neoverse_v2", "neoverse_n1"), ("asimd",))


def topology(pairs):
    return {
        f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list": siblings
        for number, siblings in enumerate(pairs)
    }


def test_an_intel_machine_is_described(tree):
    root = tree({"proc/cpuinfo": INTEL, **topology(["0,2", "1,3", "0,2", "1,3"])})
    cpu = describe_cpu(Limits(4, 2), Cores(2), root, microarchitecture=SAPPHIRE)
    assert (cpu.vendor, cpu.name) == ("intel", "Intel(R) Xeon(R) Platinum 8480C")
    assert cpu.features == ("amx_tile", "avx512f", "fpu", "sse2")
    assert (cpu.logical, cpu.physical, cpu.usable) == (4, 2, 2)
    assert cpu.limits == ("affinity: 2 of 4",)
    assert cpu.lineage == ("sapphirerapids", "icelake", "x86_64_v4")


def test_an_arm_machine_is_named_by_its_implementer(tree):
    cpu = describe_cpu(
        Limits(72, 72), Cores(72), tree({"proc/cpuinfo": GRACE}), microarchitecture=NEOVERSE
    )
    assert (cpu.vendor, cpu.microarchitecture) == ("arm", "neoverse_v2")
    assert cpu.features == ("asimd", "bf16", "fp", "sve2")
    assert (cpu.logical, cpu.physical) == (72, 72)


@pytest.mark.parametrize(
    ("line", "vendor"),
    [
        ("vendor_id : AuthenticAMD", "amd"),
        ("vendor_id : HygonGenuine", "amd"),
        ("CPU implementer : 0x4e", "nvidia"),
        ("CPU implementer : 0x61", "apple"),
        ("cpu : POWER10, altivec supported", "ibm"),
        ("vendor_id : CentaurHauls", "other"),
    ],
)
def test_vendors_are_told_apart(tree, line, vendor):
    root = tree({"proc/cpuinfo": f"processor : 0\n{line}\n"})
    assert describe_cpu(Limits(1, 1), Cores(1), root, microarchitecture=NEOVERSE).vendor == vendor


def test_only_the_first_processor_is_read(tree):
    assert first_processor(tree({"proc/cpuinfo": INTEL}))["flags"] == "fpu sse2 avx512f amx_tile"


def test_a_machine_without_proc_takes_archspecs_features(tree):
    cpu = describe_cpu(Limits(8, 8), Cores(8), tree({"x": ""}), microarchitecture=NEOVERSE)
    assert (cpu.features, cpu.physical) == (("asimd",), 8)


def test_offline_processors_are_no_cores(tree):
    root = tree({**topology(["0", "1"]), "sys/devices/system/cpu/cpu2/online": "0\n"})
    assert describe_cpu(Limits(2, 2), Cores(2), root, microarchitecture=NEOVERSE).physical == 2


def test_the_lineage_is_archspecs_nearest_first():
    found = identify()
    host = archspec.cpu.host()
    assert found.lineage[0] == found.name == host.name
    assert set(found.lineage) == {host.name, *(target.name for target in host.ancestors)}
    depth = [len(archspec.cpu.TARGETS[name].ancestors) for name in found.lineage]
    assert depth == sorted(depth, reverse=True)
