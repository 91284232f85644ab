"""Products of arrays on AMD's devices by hipBLAS, on fakes of it and of HIP."""

import ctypes

import numpy as np
import pytest
from device_arrays import OnDevice
from products import on_device, under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.products.gemm import ELEMENTS

PLACE = (10, 0)
GEMMS = ("hipblasGemmEx_64", "hipblasGemmStridedBatchedEx_64")


def on_amd(shape, element="float32", seed=0, index=0):
    return on_device(shape, element, seed, (10, index))


def multiply(element="float32", index=0):
    return ops.matmul(on_amd((3, 5), element, 0, index), on_amd((5, 4), element, 1, index))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 5), (5, 4)), ((5,), (5, 4)), ((6, 3, 5), (6, 5, 4)), ((6, 3, 5), (5, 4))],
)
def test_a_product_on_amd_is_right(devices, element, left, right):
    a, b = on_amd(left, element), on_amd(right, element, 1)
    result = ops.matmul(a, b)
    assert (result.element, result.place) == (element, PLACE)
    wanted = np.matmul(a.values().astype("complex128"), b.values().astype("complex128"))
    assert np.array_equal(result.values().astype("complex128"), wanted)
    assert devices.cublas.calls() == []


@pytest.mark.parametrize("transposed", [False, True])
def test_transposes_have_the_numbers_of_hipblas(devices, transposed):
    a, b = on_amd((4, 4)), on_amd((4, 4), seed=1)
    if transposed:
        a, b = (OnDevice(each.array.T, each.element, PLACE) for each in (a, b))
    result = ops.matmul(a, b)
    assert np.array_equal(result.array, a.array @ b.array)
    (call,) = devices.hipblas.calls(*GEMMS)
    assert (call["transa"], call["transb"]) == ((112, 112) if transposed else (111, 111))


def test_explain_says_what_a_call_told_once_there_was_one(devices):
    with under(**{"cuda.matmul.fp32_precision": "tf32"}):
        multiply()
        said = ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="rocm:0")
    (call,) = devices.hipblas.calls(*GEMMS)
    assert call["math_mode"] == 1  # the fake is a gfx94
    assert "math HIPBLAS_XF32_XDL_MATH, atomics allowed, workspace 134217728" in said.because


def test_hipblas_is_told_what_the_flags_say(devices):
    multiply()
    with under(**{"cuda.matmul.fp32_precision": "tf32"}):
        multiply()
    with under(**{"determinism.algorithms": "deterministic"}):
        multiply("float16")
    told = [
        [call[name] for name in ("compute_type", "algorithm", "math_mode", "atomics")]
        for call in devices.hipblas.calls(*GEMMS)
    ]
    assert told == [[2, 160, 0, 1], [2, 160, 1, 1], [2, 160, 0, 0]]


def test_the_device_of_the_thread_is_what_it_was(devices):
    devices.hip.set(devices=2)
    now = ctypes.c_int(-1)
    result = multiply(index=1)
    assert result.place == (10, 1)
    devices.hip.library.hipGetDevice(ctypes.byref(now))
    assert now.value == 0
    assert [call["device"] for call in devices.hip.calls("hipSetDevice")] == [1, 0]


def test_a_sum_and_a_product_of_nothing_are_right(devices):
    a, b, added = on_amd((3, 5)), on_amd((5, 4), seed=1), on_amd((4,), seed=2)
    result = ops.addmm(added, a, b, beta=2, alpha=3)
    assert np.array_equal(result.array, 2 * added.array + 3 * (a.array @ b.array))
    assert (ops.matmul(on_amd((3, 0)), on_amd((0, 4))).array == 0).all()


def test_a_failure_is_said_by_name(devices):
    multiply()
    devices.hipblas.fail("hipblasGemmEx_64", 7)
    with pytest.raises(DeviceFailedError) as caught:
        multiply()
    assert "hipblas failed: hipblasGemmEx returned HIPBLAS_STATUS_NOT_SUPPORTED (7)" in str(
        caught.value
    )
    devices.reset()
    multiply()


def test_explain_and_stats_name_hipblas(devices):
    multiply()
    ((served),) = [one for one in ops.stats().operations if one.provider == "hipblas"]
    assert (served.operation, served.calls) == ("sgemm", 1)
    said = ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="rocm:0")
    assert said.provider == "hipblas"
    assert said.because.startswith(
        "the first of the order: compute HIPBLAS_COMPUTE_32F, math HIPBLAS_DEFAULT_MATH, "
        "atomics allowed, workspace "
    )


def test_a_library_before_version_3_keeps_its_own_workspace(devices, device_file, monkeypatch):
    from backendcfg.gpu.libraries import opening
    from backendcfg.gpu.products import recipes

    path = device_file("libhipblas.so.2")
    fake = type(devices.hipblas)(path)
    fake.reset()
    older = opening._open(opening.DeviceFile(path, "hipblas", 2, "loaded"))
    hip = recipes.open_device("hip")
    monkeypatch.setattr(recipes, "open_device", lambda name: older if name == "hipblas" else hip)
    with under(**{"cuda.cublas_workspace_size": 768}):  # a snapshot of its own
        a, b = on_amd((3, 5)), on_amd((5, 4), seed=1)
        assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)
    assert [c.function for c in fake.calls() if "Gemm" in c.function]
    assert not [c for c in fake.calls() if "Workspace" in c.function]
