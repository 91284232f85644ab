"""Where libraries of devices are found, and in which order: layouts made in a directory."""

import sys
import types

import pytest

from backendcfg.gpu.libraries.files import BY_NAME, UNKNOWN, World, find, framework_toolkits


@pytest.fixture
def machine(tmp_path):
    """`machine("site/nvidia/cublas/lib/libcublas.so.12")`: empty files, and a World of them."""

    def made(*files, mapped=(), toolkit=None, **environment):
        for name in files:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return World(
            root=str(tmp_path / "root"),
            entries=("", str(tmp_path / "site"), str(tmp_path / "none")),
            prefix=str(tmp_path / "environment"),
            environment={name: str(tmp_path / place) for name, place in environment.items()},
            mapped=[str(tmp_path / name) for name in mapped],
            toolkit=toolkit or {},
        )

    return made


def found(name, world, tmp_path):
    return [
        (file.path.removeprefix(f"{tmp_path}/"), file.major, file.found)
        for file in find(name, world)
    ]


CUBLAS_12 = "site/nvidia/cublas/lib/libcublas.so.12"
CUBLAS_13 = "site/nvidia/cu13/lib/libcublas.so.13"


def test_nothing_is_found_where_nothing_is(machine):
    assert [find(name, machine()) for name in BY_NAME] == [[] for _ in BY_NAME]


def test_places_are_tried_from_the_nearest_to_the_farthest(machine, tmp_path):
    world = machine(
        "root/usr/local/cuda-13.0/lib64/libcublas.so.13",
        "toolkit/lib64/libcublas.so.12",
        "path/libcublas.so.13",
        "environment/conda-meta/history",
        "environment/lib/libcublas.so.12",
        CUBLAS_12,
        CUBLAS_13,
        LD_LIBRARY_PATH="path",
        CUDA_PATH="toolkit",
    )
    assert found("cublas", world, tmp_path) == [
        (CUBLAS_13, 13, "wheel"),
        (CUBLAS_12, 12, "wheel"),
        ("environment/lib/libcublas.so.12", 12, "conda"),
        ("path/libcublas.so.13", 13, "LD_LIBRARY_PATH"),
        ("toolkit/lib64/libcublas.so.12", 12, "CUDA_PATH"),
        ("root/usr/local/cuda-13.0/lib64/libcublas.so.13", 13, "system"),
    ]


def test_an_environment_that_is_not_condas_is_not_searched(machine):
    assert find("cublas", machine("environment/lib/libcublas.so.12")) == []


def test_what_is_in_the_process_comes_first_whatever_its_name(machine, tmp_path):
    loaded = "elsewhere/libcublas-0a1b2c3d.so.12.9.1.4"
    world = machine(CUBLAS_13, CUBLAS_12, loaded, mapped=["elsewhere/libc.so.6", loaded])
    assert found("cublas", world, tmp_path) == [
        (loaded, 12, "loaded"),
        (CUBLAS_12, 12, "wheel"),
        (CUBLAS_13, 13, "wheel"),
    ]


def test_another_library_of_the_process_says_which_major_version_fits(machine, tmp_path):
    world = machine(CUBLAS_13, CUBLAS_12, mapped=["elsewhere/libcublasLt.so.12"])
    assert [major for _, major, _ in found("cublas", world, tmp_path)] == [12, 13]


def test_two_major_versions_in_the_process_leave_the_word_to_the_framework(machine, tmp_path):
    loaded = ["a/libcublas.so.13", "b/libcublas.so.12"]
    world = machine(*loaded, mapped=loaded)
    assert [major for _, major, _ in found("cublas", world, tmp_path)] == [13, 12]
    world = machine(*loaded, mapped=loaded, toolkit={"nvidia": 12})
    assert [major for _, major, _ in found("cublas", world, tmp_path)] == [12, 13]


def test_an_imported_pytorch_says_which_toolkit_it_is_built_for(monkeypatch):
    torch = types.ModuleType("torch")
    torch.version = types.SimpleNamespace(cuda="12.8", hip=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert framework_toolkits() == {"nvidia": 12}
    torch.version.cuda = None
    assert framework_toolkits() == {}


def test_a_file_under_two_names_is_one(machine, tmp_path):
    world = machine(
        "root/usr/local/cuda-13.0/lib64/libcublas.so.13.0.2", CUDA_HOME="root/usr/local/cuda"
    )
    places = tmp_path / "root/usr/local"
    (places / "cuda-13.0/lib64/libcublas.so.13").symlink_to("libcublas.so.13.0.2")
    (places / "cuda").symlink_to("cuda-13.0")
    real = "root/usr/local/cuda-13.0/lib64/libcublas.so.13.0.2"
    assert found("cublas", world, tmp_path) == [(real, 13, "CUDA_HOME")]


def test_the_loaders_list_is_searched(machine, tmp_path, monkeypatch):
    place = "root/opt/blas/libcublas.so.13"
    listed = {"libcublas.so.13": str(tmp_path / place), "libc.so.6": "/lib/libc.so.6"}
    monkeypatch.setattr("backendcfg.gpu.libraries.files.loader_cache", lambda root: listed)
    assert found("cublas", machine(place), tmp_path) == [(place, 13, "system")]


def test_without_a_list_of_the_loaders_the_rest_is_searched(machine, tmp_path, monkeypatch):
    def installed(root):
        raise ValueError("/etc/ld.so.cache ends too early")

    monkeypatch.setattr("backendcfg.gpu.libraries.files.loader_cache", installed)
    assert found("cublas", machine(CUBLAS_13), tmp_path) == [(CUBLAS_13, 13, "wheel")]


def test_the_driver_is_never_taken_from_a_wheel_or_a_toolkit(machine, tmp_path):
    world = machine(
        "site/nvidia/cu13/lib/libcuda.so.1",
        "toolkit/lib64/libcuda.so.1",
        "root/usr/lib/wsl/lib/libcuda.so.1",
        CUDA_PATH="toolkit",
    )
    assert found("cuda", world, tmp_path) == [("root/usr/lib/wsl/lib/libcuda.so.1", 1, "system")]


def test_the_drivers_file_may_carry_the_drivers_own_version(machine, tmp_path):
    world = machine("lib/libcuda.so.580.65.06", mapped=["lib/libcuda.so.580.65.06"])
    assert found("cuda", world, tmp_path) == [("lib/libcuda.so.580.65.06", 1, "loaded")]


def test_amds_libraries_are_found_in_wheels_in_pytorch_and_below_rocm(machine, tmp_path):
    world = machine(
        "root/opt/rocm-6.3.0/lib/libhipblas.so.2",
        "rocm/lib/libhipblas.so.3",
        "rocm/lib/libhipblas.so",
        "site/torch/lib/libhipblas.so",
        "site/_rocm_sdk_libraries_gfx94X_dcgpu/lib/libhipblas.so.3",
        ROCM_PATH="rocm",
    )
    assert found("hipblas", world, tmp_path) == [
        ("site/_rocm_sdk_libraries_gfx94X_dcgpu/lib/libhipblas.so.3", 3, "wheel"),
        ("site/torch/lib/libhipblas.so", UNKNOWN, "wheel"),
        ("rocm/lib/libhipblas.so.3", 3, "ROCM_PATH"),
        ("root/opt/rocm-6.3.0/lib/libhipblas.so.2", 2, "system"),
    ]


def test_the_toolkit_says_which_major_version_of_each_interface_fits(machine, tmp_path):
    files = ["site/torch/lib/libhipblaslt.so.1", "site/torch/lib/libhipblaslt.so.0"]
    world = machine(*files, toolkit={"amd": 6})
    assert [major for _, major, _ in found("hipblaslt", world, tmp_path)] == [0, 1]
    runtime = "lib/libamdhip64.so.6.3.60301"
    world = machine(*files, runtime, mapped=[runtime])
    assert found("hip", world, tmp_path) == [(runtime, 6, "loaded")]
    assert [major for _, major, _ in found("hipblaslt", world, tmp_path)] == [0, 1]


def test_names_that_only_begin_alike_are_others(machine):
    world = machine(
        "site/nvidia/cu13/lib/libcublasLt.so.13",
        mapped=["lib/libcublasLt.so.12", "lib/libcublas.a"],
    )
    assert find("cublas", world) == []


def test_magma_is_found_where_users_have_it_with_and_without_a_number(machine, tmp_path):
    world = machine(
        "root/usr/local/magma/lib/libmagma.so",
        "root/usr/local/magma-2.9/lib/libmagma.so",
        "mine/lib/libmagma.so",
        "path/libmagma.so",
        "path/libmagma.so.2",
        "environment/conda-meta/history",
        "environment/lib/libmagma.so",
        LD_LIBRARY_PATH="path",
        MAGMA_HOME="mine",
    )
    expected = [
        ("environment/lib/libmagma.so", UNKNOWN, "conda"),
        ("path/libmagma.so.2", 2, "LD_LIBRARY_PATH"),
        ("path/libmagma.so", UNKNOWN, "LD_LIBRARY_PATH"),
        ("mine/lib/libmagma.so", UNKNOWN, "MAGMA_HOME"),
        ("root/usr/local/magma/lib/libmagma.so", UNKNOWN, "system"),
        ("root/usr/local/magma-2.9/lib/libmagma.so", UNKNOWN, "system"),
    ]
    assert found("magma", world, tmp_path) == expected
    assert found("magma_hip", world, tmp_path) == expected  # which build it is, its symbols say


def test_magma_of_a_rocm_is_found_for_amds_devices_only(machine, tmp_path):
    world = machine("root/opt/rocm-6.3.0/lib/libmagma.so")
    assert found("magma", world, tmp_path) == []
    assert found("magma_hip", world, tmp_path) == [
        ("root/opt/rocm-6.3.0/lib/libmagma.so", UNKNOWN, "system")
    ]


def test_a_library_with_versions_is_not_taken_by_its_bare_name(machine):
    assert find("hipsolver", machine("path/libhipsolver.so", LD_LIBRARY_PATH="path")) == []
