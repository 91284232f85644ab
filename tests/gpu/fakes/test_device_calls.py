"""What reaches the library and the driver: flags, streams, workspaces, contexts; who is told."""

import threading

import numpy as np
import pytest
from device_arrays import OnDevice
from products import GEMMS, PREFER, on_device, under

from backendcfg import _native, ops
from backendcfg.gpu import families
from backendcfg.gpu.libraries import opening as device_driver

MATMUL = "cuda.matmul"
MIB = 1 << 20


def multiply(element="float32"):
    return ops.matmul(on_device((3, 5), element), on_device((5, 4), element, 1))


# Flags, an element, and what cuBLAS must have been told when it multiplies.
TOLD = [
    ({}, "float32", {"compute_type": 68, "math_mode": 0, "atomics": 0, "algorithm": -1}),
    ({"fp32_precision": "ieee"}, "float32", {"compute_type": 68, "math_mode": 0}),
    ({"fp32_precision": "tf32"}, "float32", {"compute_type": 77, "math_mode": 3}),
    ({"fp32_precision": "tf32"}, "complex64", {"compute_type": 77, "math_mode": 3}),
    ({"fp32_precision": "tf32"}, "float64", {"compute_type": 70, "math_mode": 0}),
    ({"fp32_precision": "tf32"}, "float16", {"compute_type": 68, "math_mode": 0}),
    ({}, "float16", {"compute_type": 68, "math_mode": 0, "algorithm": 99, "alpha": [1]}),
    ({"allow_fp16_reduced_precision_reduction": False}, "float16", {"math_mode": 16}),
    ({"allow_fp16_reduced_precision_reduction": False}, "bfloat16", {"math_mode": 0}),
    ({"allow_bf16_reduced_precision_reduction": False}, "bfloat16", {"math_mode": 16}),
    ({"allow_fp16_accumulation": True}, "float16", {"compute_type": 64, "math_mode": 0}),
    ({"allow_fp16_accumulation": True}, "bfloat16", {"compute_type": 68}),
]


@pytest.mark.parametrize(("flags", "element", "told"), TOLD)
def test_cublas_is_told_what_the_flags_say(devices, flags, element, told):
    with under(**{f"{MATMUL}.{name}": value for name, value in flags.items()}):
        multiply(element)
        ops.bmm(on_device((2, 3, 3), element), on_device((2, 3, 3), element))
    for call in devices.cublas.calls(*GEMMS):
        assert {name: call[name] for name in told} == told
    assert len(devices.cublas.calls(*GEMMS)) == 2


@pytest.mark.parametrize(
    ("element", "told"), [("float32", (78, 4)), ("complex64", (78, 4)), ("float64", (70, 0))]
)
def test_cublas_is_told_to_emulate_float32(devices, element, told):
    with under(ops__float32_emulation="bf16x9"):
        multiply(element)
    (call,) = devices.cublas.calls(*GEMMS)
    assert (call["compute_type"], call["math_mode"]) == told


MASKS = [
    ({}, "float16", 7),
    ({"allow_fp16_reduced_precision_reduction": False}, "float16", 2),
    ({"allow_fp16_reduced_precision_reduction": False}, "bfloat16", 7),
    (
        {
            "allow_bf16_reduced_precision_reduction": False,
            "allow_bf16_reduced_precision_reduction_split_k": False,
        },
        "bfloat16",
        0,
    ),
]


@pytest.mark.parametrize(("flags", "element", "mask"), MASKS)
def test_the_heuristic_of_cublaslt_is_told_which_sums_are_allowed(devices, flags, element, mask):
    values = {f"{MATMUL}.{name}": value for name, value in flags.items()}
    with under(**{PREFER: "cublaslt"}, **values):
        ops.matmul(on_device((7, 5), element), on_device((5, 4), element))
    told = {
        call["attribute"]: call["value"]
        for call in devices.cublaslt.calls("cublasLtMatmulPreferenceSetAttribute")
    }
    assert told.get(3, mask) == mask
    assert devices.cublas.calls(*GEMMS) == []


def test_what_cublas_cannot_keep_is_left_to_cublaslt(devices):
    flags = {
        f"{MATMUL}.allow_fp16_reduced_precision_reduction": False,
        f"{MATMUL}.allow_fp16_reduced_precision_reduction_split_k": False,
    }
    with under(**flags):
        multiply("float16")
        multiply("float32")
        explained = ops.explain("matmul", ((3, 5), (5, 4)), "float16", device="cuda:0")
    assert [call.function for call in devices.calls(*GEMMS)] == [
        "cublasGemmEx_64",
        "cublasLtMatmul",
    ]
    assert explained.provider == "cublaslt"
    assert explained.because.startswith("those before it in the order cannot: ")
    assert {reason.provider: reason.why for reason in explained.reasons} == {
        "cublas": "it cannot be told not to split K, as "
        "`cuda.matmul.allow_fp16_reduced_precision_reduction_split_k` asks"
    }


def test_a_switch_of_flags_is_one_call_to_the_handle_and_no_more(devices):
    multiply()
    devices.reset()
    with under(**{f"{MATMUL}.fp32_precision": "tf32"}):
        multiply()
        multiply()
    multiply()
    assert [
        (call.function, call["mode"]) for call in devices.cublas.calls("cublasSetMathMode")
    ] == [
        ("cublasSetMathMode", 3),
        ("cublasSetMathMode", 0),
    ]


def test_the_second_call_of_a_kind_asks_no_heuristic(devices):
    a, b, out = on_device((9, 5)), on_device((5, 8)), on_device((9, 8))
    with under(**{PREFER: "cublaslt"}):
        ops.matmul(a, b, out=out)
        devices.reset()
        ops.matmul(a, b, out=out)
    assert [call.function for call in devices.cublaslt.calls()] == ["cublasLtMatmul"]


def test_work_is_put_on_the_stream_that_is_current_and_nobody_waits(devices, new_stream):
    multiply()
    with under(**{PREFER: "cublaslt"}):
        multiply()
    assert [call["stream"] for call in devices.calls(*GEMMS)] == [new_stream, new_stream]
    waits = ("cuStreamSynchronize", "cuStreamWaitEvent", "cuEventRecord")
    assert devices.cuda.calls(*waits) == []


def test_each_stream_has_a_workspace_of_its_own_from_the_arrays_library(devices, new_stream):
    before = list(OnDevice.allocated)
    multiply()
    multiply()
    sizes = [size for size in OnDevice.allocated[len(before) :] if size >= MIB]
    assert sizes == [32 * MIB]  # the fake is a Hopper
    first, second = (call["workspace"] for call in devices.cublas.calls(*GEMMS))
    assert first == second
    assert devices.cuda.calls("cuMemAlloc_v2") == []
    OnDevice.stream = 0
    multiply()
    assert devices.cublas.calls(*GEMMS)[-1]["workspace"] != first


def test_a_workspace_has_the_size_that_the_flag_says(devices, new_stream):
    with under(**{"cuda.cublas_workspace_size": 4096}):
        multiply()
    multiply()
    sizes = [call["workspace_bytes"] for call in devices.cublas.calls(*GEMMS)]
    assert sizes == [4096, 32 * MIB]
    with under(**{PREFER: "cublaslt", "cuda.cublaslt_workspace_size": 8192}):
        multiply()
    (call,) = devices.cublaslt.calls("cublasLtMatmul")
    assert call["workspace_bytes"] == 8192


def test_the_context_of_the_caller_is_what_it_was(devices):
    driver, byref = device_driver._driver(devices.cuda.path), device_driver.ctypes.byref
    other, now = device_driver.ctypes.c_void_p(), device_driver.ctypes.c_void_p()
    multiply()
    assert driver.cuDevicePrimaryCtxRetain(byref(other), 0) == 0
    driver.cuCtxGetCurrent(byref(now))
    assert now.value is None
    driver.cuCtxPushCurrent_v2(other)
    devices.reset()
    multiply()
    assert devices.cuda.calls("cuCtxPushCurrent_v2") == []
    driver.cuCtxGetCurrent(byref(now))
    assert now.value == other.value
    driver.cuCtxPopCurrent_v2(byref(now))


def test_a_second_device_is_entered_and_left(devices):
    devices.cuda.set(devices=2)
    a = on_device((3, 5), place=(2, 1))
    result = ops.matmul(a, on_device((5, 4), seed=1, place=(2, 1)))
    assert result.place == (2, 1)
    pushes = devices.cuda.calls("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    assert [call.function for call in pushes] == ["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"]


def test_threads_multiply_at_once_and_each_under_its_own_flags(devices):
    wrong = []

    def work(precision):
        with under(**{f"{MATMUL}.fp32_precision": precision}):
            for _ in range(50):
                a, b = on_device((3, 5)), on_device((5, 4), seed=1)
                if not np.array_equal(ops.matmul(a, b).array, a.array @ b.array):
                    wrong.append(precision)

    threads = [threading.Thread(target=work, args=(each,)) for each in ("tf32", "ieee") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for call in devices.cublas.calls(*GEMMS):
        assert (call["compute_type"], call["math_mode"]) in ((77, 3), (68, 0))


def test_stats_count_each_matrix_by_who_served(devices):
    multiply()
    ops.bmm(on_device((6, 3, 5)), on_device((6, 5, 4)))
    with under(**{PREFER: "cublaslt"}):
        multiply("bfloat16")
    said = {(one.operation, one.provider): one for one in ops.stats().operations}
    assert said["sgemm", "cublas"].calls == 7
    assert said["sgemm", "cublas"].because == "the first of the order"
    assert said["bgemm", "cublaslt"].calls == 1
    served = {one.provider: one for one in ops.stats() if one.provider == "cublas"}
    assert served["cublas"].path == devices.cublas.path
    ops.reset_stats()
    assert ops.stats().operations == ()


def test_a_trace_lists_calls_on_a_device_as_any_other(devices):
    with ops.trace() as calls:
        ops.bmm(on_device((2, 3, 5)), on_device((2, 5, 4)))
        ops.matmul(on_device((0, 5), "float64"), on_device((5, 4), "float64"))
    assert str(calls) == (
        "bmm     2x3x4x5  float32  cublas  the first of the order\n"
        "matmul  0x4x5    float64  -       there is nothing to multiply"
    )


def test_explain_says_what_the_library_would_be_told(devices):
    multiply()
    with under(**{f"{MATMUL}.fp32_precision": "tf32"}):
        said = ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="cuda:0")
    assert said.provider == "cublas"
    assert said.path == devices.cublas.path
    assert said.because == (
        "the first of the order: compute CUBLAS_COMPUTE_32F_FAST_TF32, "
        "math CUBLAS_TF32_TENSOR_OP_MATH, workspace 33554432"
    )
    assert [(reason.provider, reason.why) for reason in said.reasons] == [
        ("cublaslt", "behind `cublas`")
    ]
    assert said.flags["cuda.matmul.fp32_precision"] == "tf32"
    assert str(said).startswith("sgemm of (3, 5) and (5, 4) on cuda:0 under profile `test`\n")


def test_explain_starts_no_driver(devices, monkeypatch):
    monkeypatch.setattr(device_driver, "_driver", lambda path: pytest.fail("asked the driver"))
    monkeypatch.setattr(device_driver, "_capability", lambda path, index, kind: (0, 0))
    said = ops.explain("addmm", ((4,), (3, 5), (5, 4)), "float64", device="cuda:3")
    assert said.provider == "cublaslt"


def test_explain_refuses_a_device_that_is_none(devices):
    with pytest.raises(ops.products.InvalidArgumentError) as caught:
        ops.explain("matmul", ((3, 5), (5, 4)), device="tpu")
    assert caught.value.render() == (
        "error[invalid-argument]: explain: `device` must be a device, not 'tpu'\n"
        "  state: nothing was changed\n"
        '  help: write "cpu", "cuda:0" or "rocm:0"'
    )


def test_a_recipe_is_made_once_and_kept_with_its_snapshot(devices, monkeypatch):
    with under(**{f"{MATMUL}.fp32_precision": "ieee"}):
        multiply()
        known = _native.device_recipes()
        _native.device_bind(recipe=lambda *asked: pytest.fail("asked again"))
        try:
            multiply()
        finally:
            families.bind()
    assert len(_native.device_recipes()) == len(known)
