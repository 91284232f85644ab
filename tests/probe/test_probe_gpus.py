"""AMD's devices from trees that look like sysfs, Apple's from what Metal says."""

from __future__ import annotations

import sys

import pytest

from backendcfg.probe.gpus import _architecture, apple_device, probe_amd, probe_apple
from backendcfg.schema.host import Absent, Broken, Found, Gpu

NODES = "sys/class/kfd/kfd/topology/nodes"
CPU_NODE = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n"


def gpu_node(unique, minor, version=90402):
    return (
        f"cpu_cores_count 0\nsimd_count 1216\ngfx_target_version {version}\nvendor_id 4098\n"
        f"drm_render_minor {minor}\nunique_id {unique}\n"
    )


BANK = "heap_type 1\nsize_in_bytes 206141652992\nflags 0\nwidth 8192\n"
SYSTEM_BANK = "heap_type 0\nsize_in_bytes 1081101107200\n"


@pytest.fixture
def mi300x(tree):
    files = {
        f"{NODES}/0/properties": CPU_NODE,
        f"{NODES}/0/mem_banks/0/properties": SYSTEM_BANK,
        "opt/rocm/.info/version": "6.4.1-83\n",
        "sys/module/amdgpu/version": "6.12.12\n",
    }
    for index in range(3):
        node = f"{NODES}/{index + 1}"
        files[f"{node}/properties"] = gpu_node(0xA0 + index, 128 + index)
        files[f"{node}/mem_banks/0/properties"] = BANK
        files[f"sys/class/drm/renderD{128 + index}/device/product_name"] = (
            "AMD Instinct MI300X OAM\n"
        )
    return tree(files)


def visible(root, **environment):
    return [gpu.index for gpu in probe_amd(root, environment=environment).gpus if gpu.visible]


def test_devices_memory_and_versions_are_read(mi300x):
    found = probe_amd(mi300x, environment={})
    assert found.gpus[1] == Gpu(
        index=1,
        vendor="amd",
        name="AMD Instinct MI300X OAM",
        architecture="gfx942",
        memory=206141652992,
        uuid="GPU-00000000000000a1",
    )
    assert len(found.gpus) == 3
    assert found.drivers == {"rocm": "6.4.1", "amdgpu": "6.12.12"}
    names = ", ".join(["AMD Instinct MI300X OAM (gfx942)"] * 3)
    assert found.probes == (Found(probe="amd", detail=names),)


@pytest.mark.parametrize(
    ("environment", "seen"),
    [
        ({}, [0, 1, 2]),
        ({"HIP_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "0,9"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [0]),
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, [1, 2]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000a2"}, [2]),
    ],
)
def test_the_runtime_filters_first_and_hip_counts_in_what_is_left(mi300x, environment, seen):
    assert visible(mi300x, **environment) == seen


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (90006, "gfx906"),
        (90500, "gfx950"),
        (110000, "gfx1100"),
        (120001, "gfx1201"),
        (100306, "gfx1036"),
        (0, ""),
    ],
)
def test_versions_of_architectures_are_spelled_as_compilers_do(version, name):
    assert _architecture(version) == name


def test_a_device_without_a_name_is_called_by_its_architecture(tree):
    root = tree({f"{NODES}/1/properties": gpu_node(0, 128, 110000)})
    (gpu,) = probe_amd(root, environment={}).gpus
    assert (gpu.name, gpu.uuid, gpu.memory) == ("AMD gfx1100", "", 0)


def test_a_broken_node_hides_no_other(tree, tmp_path):
    root = tree({f"{NODES}/1/properties/x": "", f"{NODES}/2/properties": gpu_node(7, 128)})
    found = probe_amd(root, environment={})
    assert len(found.gpus) == 1
    assert found.probes[1] == Broken(
        probe="amd", path=f"{root}/{NODES}/1/properties", reason="Is a directory"
    )


def test_a_machine_with_processors_only_has_no_device(tree):
    root = tree({f"{NODES}/0/properties": CPU_NODE})
    assert probe_amd(root, environment={}).probes == (
        Absent(probe="amd", reason="the compute driver lists no device"),
    )


def test_a_machine_without_the_driver_is_absent(tree):
    assert probe_amd(tree({"sys/x": ""}), environment={}).probes == (
        Absent(probe="amd", reason="no /sys/class/kfd: the amdgpu driver is not loaded"),
    )


def test_the_place_of_rocm_can_be_said(tree, tmp_path):
    (tmp_path / "rocm" / ".info").mkdir(parents=True)
    (tmp_path / "rocm" / ".info" / "version").write_text("7.0.0-12\n")
    environment = {"ROCM_PATH": str(tmp_path / "rocm")}
    assert probe_amd(tree({"sys/x": ""}), environment=environment).drivers == {"rocm": "7.0.0"}


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("Apple M3 Max", "apple-m3"), ("Apple M1", "apple-m1"), ("Apple Paravirtual device", "")],
)
def test_apples_device_is_named_by_its_family(name, architecture):
    found = apple_device(name, 38654705664, "arm64")
    assert found.gpus == (
        Gpu(index=0, vendor="apple", name=name, architecture=architecture, memory=38654705664),
    )
    assert found.probes == (Found(probe="apple", detail=name),)


def test_the_gpu_of_an_intel_mac_is_not_apples():
    assert apple_device("AMD Radeon Pro 5500M", 8 << 30, "x86_64").probes == (
        Absent(probe="apple", reason="AMD Radeon Pro 5500M is not Apple's own GPU"),
    )


def test_another_system_has_no_metal_and_no_child_is_started(monkeypatch):
    monkeypatch.setattr("backendcfg.probe.inspection.ask", lambda *_, **__: pytest.fail("asked"))
    assert probe_apple("linux").probes == (Absent(probe="apple", reason="not macOS"),)


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has Metal")
def test_a_mac_whose_metal_cannot_be_opened_is_broken():
    (probe,) = probe_apple("darwin").probes
    assert probe.outcome == "broken"
    assert probe.reason.endswith("cannot open shared object file: No such file or directory")
