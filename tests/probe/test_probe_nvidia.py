"""NVIDIA's devices through a small libnvidia-ml.so.1, and the rules of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os

import pytest

from backendcfg.probe.gpus import probe_nvidia, visible_indices
from backendcfg.schema.host import Absent, Broken, Found, Gpu

T4 = "Tesla T4|7|5|15360|GPU-11111111-aaaa"
H100 = "NVIDIA H100 80GB HBM3|9|0|81559|GPU-22222222-bbbb"
DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024\n"
    "GCC version:  gcc version 12.2.0\n"
)


@pytest.fixture
def library(compiled):
    return compiled("libnvidia-ml.so.1", source="probe_nvml")


def probe(library, devices="", **variables):
    environment = {**os.environ, "PROBE_NVML_DEVICES": devices, **variables}
    return probe_nvidia(library=library, environment=environment, timeout=20)


def visible(found):
    return [gpu.index for gpu in found.gpus if gpu.visible]


def test_devices_and_versions_are_read(library):
    found = probe(library, f"{T4};{H100}")
    assert found.gpus == (
        Gpu(
            index=0,
            vendor="nvidia",
            name="Tesla T4",
            compute_capability="7.5",
            architecture="sm_75",
            memory=15360 << 20,
            uuid="GPU-11111111-aaaa",
        ),
        Gpu(
            index=1,
            vendor="nvidia",
            name="NVIDIA H100 80GB HBM3",
            compute_capability="9.0",
            architecture="sm_90",
            memory=81559 << 20,
            uuid="GPU-22222222-bbbb",
        ),
    )
    assert found.drivers == {"nvidia": "550.144.03", "cuda": "12.4"}
    assert found.probes == (
        Found(probe="nvidia", detail="driver 550.144.03, 1 x Tesla T4, 1 x NVIDIA H100 80GB HBM3"),
    )


def test_hidden_devices_are_listed_and_not_visible(library):
    assert visible(probe(library, f"{T4};{H100}", CUDA_VISIBLE_DEVICES="1")) == [1]
    assert visible(probe(library, f"{T4};{H100}", CUDA_VISIBLE_DEVICES="")) == []


def test_a_mixed_machine_says_that_the_orders_differ(library):
    found = probe(library, f"{T4};{H100}", CUDA_VISIBLE_DEVICES="0")
    assert found.probes[0].detail.endswith(
        "; CUDA_VISIBLE_DEVICES counts the fastest first, the order here is by bus"
    )
    ordered = probe(
        library, f"{T4};{H100}", CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID"
    )
    assert "fastest" not in ordered.probes[0].detail


def test_a_part_of_a_divided_device_makes_the_device_visible(library):
    divided = f"{H100}|MIG-c6d4f1ef,MIG-cba663e8"
    found = probe(library, f"{T4};{divided}", CUDA_VISIBLE_DEVICES="MIG-cba6")
    assert visible(found) == [1]
    assert ", divided into 2 MIG instances" in found.probes[0].detail


def test_a_divided_device_without_parts_runs_nothing(library):
    assert visible(probe(library, f"{T4};{H100}|")) == [0]


def test_memory_that_cannot_be_asked_is_unknown(library):
    found = probe(library, "NVIDIA GB10|12|1|0|GPU-33333333")
    assert [(gpu.architecture, gpu.memory) for gpu in found.gpus] == [("sm_121", 0)]


def test_one_lost_device_hides_no_other(library):
    found = probe(library, f"gone|0|0|0|GPU-9;{T4}")
    assert [(gpu.index, gpu.name) for gpu in found.gpus] == [(1, "Tesla T4")]
    assert found.probes == (
        Found(probe="nvidia", detail="driver 550.144.03, 1 x Tesla T4"),
        Broken(
            probe="nvidia",
            path=library,
            reason="device 0: nvmlDeviceGetCudaComputeCapability: GPU is lost",
        ),
    )


def test_indices_count_every_device_beside_a_lost_one(library):
    found = probe(library, f"gone|0|0|0|GPU-9;{T4};{H100}", CUDA_VISIBLE_DEVICES="2")
    assert visible(found) == [2]


def test_a_driver_without_devices_is_absent(library):
    assert probe(library).probes == (
        Absent(probe="nvidia", reason="driver 550.144.03 has no device"),
    )


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PROBE_NVML_INIT": "9"}, "nvmlInit_v2: Driver Not Loaded"),
        ({"PROBE_NVML_DO": "segfault"}, "killed the process that opened it (SIGSEGV)"),
    ],
)
def test_a_driver_that_does_not_answer_is_broken(library, tree, variables, reason):
    environment = {**os.environ, **variables}
    found = probe_nvidia(tree({"proc/x": ""}), library=library, environment=environment)
    assert found.probes == (Broken(probe="nvidia", path=library, reason=reason),)
    assert (found.gpus, found.drivers) == ((), {})


def test_a_driver_that_hangs_is_given_up(library, tree):
    environment = {**os.environ, "PROBE_NVML_DO": "hang"}
    root = tree({"proc/x": ""})
    found = probe_nvidia(root, library=library, environment=environment, timeout=0.5)
    assert found.probes[0].reason == "no answer within 0.5 s of being opened"


def test_the_kernel_module_speaks_when_the_library_does_not(tree):
    root = tree(
        {
            "proc/driver/nvidia/version": DRIVER,
            "proc/driver/nvidia/gpus/0000:01:00.0/information": (
                "Model: \t\t Tesla T4\nIRQ: 35\nGPU UUID: \t GPU-11111111-aaaa\n"
            ),
        }
    )
    found = probe_nvidia(root, environment={})
    assert [(gpu.name, gpu.uuid) for gpu in found.gpus] == [("Tesla T4", "GPU-11111111-aaaa")]
    assert found.drivers == {"nvidia": "550.144.03"}
    assert found.probes == (
        Broken(
            probe="nvidia",
            reason="the driver is loaded, and libnvidia-ml.so.1 is not on the loader path",
        ),
    )


def test_a_machine_without_nvidia_is_absent_and_no_child_is_started(tree, monkeypatch):
    monkeypatch.setattr("backendcfg.probe.inspection.ask", lambda *_, **__: pytest.fail("asked"))
    assert probe_nvidia(tree({"proc/x": ""}), environment={}).probes == (
        Absent(probe="nvidia", reason="no libnvidia-ml.so.1 and no driver"),
    )


def test_the_library_is_searched_as_the_loader_does(compiled, tree, tmp_path):
    path = compiled("search/libnvidia-ml.so.1", source="probe_nvml")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"/nowhere:{tmp_path / 'search'}",
        "PROBE_NVML_DEVICES": T4,
    }
    found = probe_nvidia(tree({"proc/x": ""}), environment=environment)
    assert [gpu.name for gpu in found.gpus] == ["Tesla T4"]
    assert os.path.exists(path)


def test_the_library_of_windows_linux_is_found(compiled, tmp_path):
    compiled("root/usr/lib/wsl/lib/libnvidia-ml.so.1", source="probe_nvml")
    environment = {**os.environ, "PROBE_NVML_DEVICES": T4}
    found = probe_nvidia(str(tmp_path / "root"), environment=environment)
    assert [gpu.name for gpu in found.gpus] == ["Tesla T4"]


UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("-1", []),
        ("0,-1,2", [0]),
        ("0,7,2", [0]),
        ("1gpu2,2ampere", [1, 2]),
        ("none", []),
        ("NoDevFiles", []),
        ("0,0", []),
        ("GPU-bb", [2]),
        ("gpu-bb", []),
        ("GPU-BB33,GPU-aa1", [2, 0]),
        ("GPU-aa", []),
        ("GPU-bb,GPU-cc,GPU-aa1", [2]),
        ("GPU-bb,GPU-bb33", []),
        ("MIG-11", [0]),
        ("MIG-11,MIG-12", [0]),
        ("MIG-1", []),
        ("MIG-11,MIG-11", []),
        ("MIG-GPU-bb33/1/0", [2]),
        ("MIG-zz", []),
    ],
)
def test_the_variable_means_what_cuda_takes_it_for(value, seen):
    assert visible_indices(value, UUIDS, [["MIG-11", "MIG-12"], [], []]) == seen
