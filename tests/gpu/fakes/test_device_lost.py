"""A device that disappears, memory that runs out anywhere, two toolkits in one process, an old driver."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from device_arrays import ByInterface, OnDevice
from products import PREFER, numbers, on_device, under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.libraries import files as device_files
from backendcfg.gpu.products import recipes

DRIVER = (
    *("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxGetDevice", "cuDevicePrimaryCtxRetain"),
    *("cuStreamSynchronize", "cuStreamWaitEvent", "cuEventCreate", "cuEventRecord"),
    *("cuMemAlloc_v2", "cuMemsetD8Async"),
)
LIBRARY = (
    *("cublasCreate_v2", "cublasSetStream_v2", "cublasSetMathMode", "cublasSetWorkspace_v2"),
    *("cublasGemmEx_64", "cublasGemmStridedBatchedEx_64"),
)


def multiply(m=3):
    a, b = on_device((m, 5)), on_device((5, 4), seed=1)
    result = ops.matmul(a, b)
    assert np.array_equal(result.array, a.array @ b.array)


def refused(function, *arguments):
    with pytest.raises(DeviceFailedError) as caught:
        function(*arguments)
    return caught.value.render().splitlines()


@pytest.mark.parametrize(
    ("status", "name", "advice"),
    [
        (
            100,
            "CUDA_ERROR_NO_DEVICE",
            "the device may be gone: see `nvidia-smi` and the system's log",
        ),
        (
            999,
            "CUDA_ERROR_UNKNOWN",
            "the device may be gone: see `nvidia-smi` and the system's log",
        ),
        (
            719,
            "CUDA_ERROR_LAUNCH_FAILED",
            "an earlier kernel may have failed: see `compute-sanitizer`",
        ),
    ],
)
def test_a_device_that_disappears_fails_every_call_and_crashes_none(devices, status, name, advice):
    multiply()
    for function in DRIVER:
        devices.cuda.fail(function, status)
    for function in LIBRARY:
        devices.cublas.fail(function, 13)
    said = f"cuCtxGetCurrent returned {name} ({status})"
    for _ in range(3):
        assert refused(multiply) == [
            f"error[device-failed]: matmul: the device's driver failed: {said}",
            "  note: float32 product of (3, 5) and (5, 4)",
            "  state: the result was not computed; the next call starts anew",
            f"  help: {advice}",
        ]
    devices.reset()
    multiply()


@pytest.mark.parametrize("lasts", range(len(DRIVER)))
def test_it_may_disappear_between_any_two_calls_of_the_driver(devices, new_stream, lasts):
    """From the n-th function of the driver on; what came before succeeds."""
    for function in DRIVER[lasts:]:
        devices.cuda.fail(function, 999)
    for function in LIBRARY:
        devices.cublas.fail(function, 14)
    other = ByInterface(numbers((3, 5), "float32"), new_stream or 1, place=(2, 0))
    OnDevice.stream = 0
    with pytest.raises(DeviceFailedError):
        ops.matmul(on_device((3, 5)), on_device((5, 4)), out=on_device((3, 4)))
    with pytest.raises(DeviceFailedError):
        ops.matmul(other, on_device((5, 4)), out=on_device((3, 4)))
    devices.reset()
    multiply()


def test_a_library_that_fails_from_now_on_says_so_each_time(devices):
    multiply()
    for function in LIBRARY:
        devices.cublas.fail(function, 14)
    for _ in range(3):
        assert "CUBLAS_STATUS_INTERNAL_ERROR (14)" in refused(multiply)[0]
    devices.reset()
    multiply()


MEMORY = "  help: free memory on the device, or make the workspace smaller"
CREATE = {"cublas": "cublasCreate_v2", "cublaslt": "cublasLtCreate"}
ALLOCATIONS = [
    ("cublas", "cublasCreate_v2", 3, 0),
    ("cublaslt", "cublasLtCreate", 3, 0),
    ("cublaslt", "cublasLtMatmulDescCreate", 3, 0),
    ("cublaslt", "cublasLtMatrixLayoutCreate", 3, 0),
    ("cublaslt", "cublasLtMatrixLayoutCreate", 3, 1),
    ("cublaslt", "cublasLtMatrixLayoutCreate", 3, 2),
    ("cublaslt", "cublasLtMatmulPreferenceCreate", 3, 0),
    ("cublaslt", "cublasLtMatmul", 3, 0),
]


@pytest.mark.parametrize(("provider", "function", "status", "skip"), ALLOCATIONS)
def test_no_memory_in_any_allocation_is_said_and_nothing_leaks(
    devices, new_stream, provider, function, status, skip
):
    library = getattr(devices, provider)
    library.fail(function, status, skip)
    with under(**{PREFER: provider}):
        lines = refused(multiply, 11)
        assert f"{function.removesuffix('_v2')} returned CUBLAS_STATUS_ALLOC_FAILED" in lines[0]
        assert lines[-1] == MEMORY
        if function != "cublasLtMatmul":  # whose plan is sound, and kept
            called = [each.function for each in library.calls()]
            # Before it, the handle of another stream may be ended, with what is kept for it.
            called = called[called.index(CREATE[provider]) :]
            for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
                made = called.count(f"cublasLt{kind}Create")
                failed = made and f"cublasLt{kind}Create" == function
                assert called.count(f"cublasLt{kind}Destroy") == made - bool(failed)
        devices.reset()
        multiply(11)


def test_no_memory_of_the_driver_for_a_workspace_is_said(devices, new_stream):
    """Arrays whose library lends no memory: the driver's is used."""
    OnDevice.stream = 0
    arrays = [
        ByInterface(numbers(s, "float32"), new_stream, place=(2, 0))
        for s in ((3, 5), (5, 4), (3, 4))
    ]
    devices.cuda.fail("cuMemAlloc_v2", 2)

    def call():
        return ops.matmul(*arrays[:2], out=arrays[2])

    lines = refused(call)
    assert (
        "the device's driver failed: cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY (2)" in lines[0]
    )
    assert lines[-1] == MEMORY
    devices.reset()
    assert np.array_equal(call().array, arrays[0].array @ arrays[1].array)


def test_no_memory_for_an_event_is_said(devices, new_stream):
    OnDevice.stream = 0
    other = ByInterface(numbers((3, 5), "float32"), new_stream, place=(2, 0))
    devices.cuda.fail("cuEventCreate", 2)
    lines = refused(lambda: ops.matmul(other, on_device((5, 4)), out=on_device((3, 4))))
    assert "cuEventCreate returned CUDA_ERROR_OUT_OF_MEMORY (2)" in lines[0]
    assert lines[-1] == MEMORY


def test_two_toolkits_in_one_process_are_said(devices, monkeypatch):
    monkeypatch.setattr(device_files, "loaded_toolkits", lambda vendor: {13, 12})
    monkeypatch.setattr(device_files, "framework_toolkits", dict)
    said = ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="cuda:0")
    assert said.because.endswith(
        "; CUDA 12 and 13 are both in this process: the nearest is used, and no framework says which"
    )
    monkeypatch.setattr(device_files, "framework_toolkits", lambda: {"nvidia": 12})
    assert recipes.mixed(2) == ("CUDA 12 and 13 are both in this process: PyTorch's is 12")
    assert recipes.mixed(10).startswith("ROCm 12 and 13 are both in this process: the nearest")


PROGRAM = """
import sys, types
sys.path.insert(0, {tests!r})
from products import on_device
import conftest
for path in {paths!r}:
    fake = conftest.Fake(path)
    if "libcuda.so" in path:
        fake.set(version={driver})
torch = types.ModuleType("torch")
torch.version = types.SimpleNamespace(cuda={framework!r}, hip=None)
if {framework!r}:
    sys.modules["torch"] = torch
from backendcfg import ops
from backendcfg.errors import MissingLibraryError
try:
    ops.matmul(on_device((3, 5)), on_device((5, 4)))
except MissingLibraryError as error:
    print(error.render())
print(ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="cuda:0").path)
"""


def found(device_file, files, driver=13000, framework=None):
    """What a process of its own prints that has these fakes in it."""
    paths = [device_file(file) for file in ("libcuda.so.1", *files)]
    code = PROGRAM.format(
        tests=str(Path(__file__).parent), paths=paths, driver=driver, framework=framework
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


BOTH = ("libcublas.so.12", "libcublasLt.so.12", "libcublas.so.13", "libcublasLt.so.13")


@pytest.mark.slow
@pytest.mark.parametrize("major", [12, 13])
def test_of_two_toolkits_the_framework_s_computes(device_file, major):
    (path,) = found(device_file, BOTH, framework=f"{major}.0")
    assert path == device_file(f"libcublas.so.{major}")


def test_a_driver_that_is_too_old_is_said_with_both_versions(device_file):
    said = found(device_file, BOTH[2:], driver=12040)
    assert said[0] == "error[missing-library]: matmul: no library can multiply float32 on cuda:0"
    for line, name in zip(said[1:3], ("cublas", "cublaslt"), strict=True):
        file = device_file({"cublas": BOTH[2], "cublaslt": BOTH[3]}[name])
        assert line.startswith(
            f"  note: {name}: {file} is of CUDA 13, and the driver here serves CUDA 12.4 at most"
        )
    assert said[-1] == ""
