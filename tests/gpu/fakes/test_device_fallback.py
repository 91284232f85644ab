"""What cuBLASLt has no algorithm for, cuBLAS computes, and is said to; vectors are added by cuBLASLt."""

import threading

import numpy as np
import pytest
from device_arrays import OnDevice, aligned
from products import GEMMS, PREFER, on_device, under, view

from backendcfg import ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.products.gemm import ELEMENTS

HEURISTIC = "cublasLtMatmulAlgoGetHeuristic"
REAL = [element for element in ELEMENTS if not element.startswith("complex")]
WHOLE_K = {
    "cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k": False,
}


def served(devices):
    return [call.function for call in devices.calls(*GEMMS)]


def operands(m, element="float32", k=5, n=4):
    return on_device((m, k), element), on_device((k, n), element, 1)


def expected(a, b):
    return np.matmul(a.values().astype("complex128"), b.values().astype("complex128"))


@pytest.fixture
def preferred(devices, new_stream):
    """On a stream of its own, whose handle knows no algorithm yet."""
    with under(**{PREFER: "cublaslt"}):
        yield devices


@pytest.mark.parametrize("element", ELEMENTS)
def test_what_has_no_algorithm_is_computed_by_cublas(preferred, element):
    preferred.cublaslt.fail(HEURISTIC, 15)
    a, b = operands(3, element)
    assert np.array_equal(ops.matmul(a, b).values().astype("complex128"), expected(a, b))
    assert served(preferred) == ["cublasGemmEx_64"]


def test_no_answer_at_all_is_no_algorithm(preferred):
    preferred.cublaslt.set(algorithms=0)
    a, b = operands(3)
    assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)
    assert served(preferred) == ["cublasGemmEx_64"]


def test_an_algorithm_that_turns_out_to_be_none_is_no_algorithm(preferred):
    preferred.cublaslt.fail("cublasLtMatmul", 15, count=1)
    a, b = operands(3)
    assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)
    assert served(preferred) == ["cublasGemmEx_64", "cublasLtMatmul"]
    preferred.reset()
    ops.matmul(a, b)
    assert served(preferred) == ["cublasLtMatmul"]


def test_that_there_is_none_is_asked_once(preferred):
    preferred.cublaslt.fail(HEURISTIC, 15)
    a, b = operands(3)
    ops.matmul(a, b)
    preferred.reset()
    ops.matmul(a, b)
    assert preferred.cublaslt.calls() == []
    assert served(preferred) == ["cublasGemmEx_64"]
    other, b = operands(9)
    ops.matmul(other, b)
    assert served(preferred)[1:] == ["cublasLtMatmul"]


def test_trace_and_stats_say_who_took_over(preferred):
    preferred.cublaslt.fail(HEURISTIC, 15)
    with ops.trace() as calls:
        ops.matmul(*operands(3))
    assert str(calls) == "matmul  3x4x5  float32  cublas  those before it in the order cannot"
    said = {(one.operation, one.provider): one for one in ops.stats().operations}
    assert said["sgemm", "cublas"].calls == 1
    assert said["sgemm", "cublas"].because == "those before it in the order cannot"
    assert ("sgemm", "cublaslt") not in said


def test_explain_says_who_would_take_over(preferred):
    said = ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="cuda:0")
    assert said.provider == "cublaslt"
    assert [(reason.provider, reason.why) for reason in said.reasons] == [
        ("cublas", "behind `cublaslt`, and takes over where that has no algorithm")
    ]


def test_a_flag_that_cublas_cannot_keep_is_not_broken(preferred):
    preferred.cublaslt.fail(HEURISTIC, 15)
    a, b = operands(3, "float16")
    with under(**{PREFER: "cublaslt"}, **WHOLE_K), pytest.raises(DeviceFailedError) as caught:
        ops.matmul(a, b)
    assert caught.value.render() == (
        "error[device-failed]: matmul: cublaslt failed: cublasLtMatmulAlgoGetHeuristic returned "
        "CUBLAS_STATUS_NOT_SUPPORTED (15)\n"
        "  note: float16 product of (3, 5) and (5, 4)\n"
        "  state: the result was not computed; the next call starts anew\n"
        "  help: the library has no kernel for this: set `cuda.preferred_blas_library`"
    )
    assert served(preferred) == []


@pytest.mark.parametrize("status", [1, 3, 7, 8, 13, 14])
def test_every_other_failure_stays_one(preferred, status):
    preferred.cublaslt.fail("cublasLtMatmul", status)
    with pytest.raises(DeviceFailedError, match=rf"cublasLtMatmul returned .* \({status}\)"):
        ops.matmul(*operands(3))
    assert "cublasGemmEx_64" not in served(preferred)


def test_who_takes_over_goes_on_where_the_other_stopped(preferred):
    preferred.cublaslt.fail("cublasLtMatmul", 15, skip=1)
    a, b = on_device((2, 3, 3, 5)), on_device((3, 5, 4), seed=1)
    assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)
    assert served(preferred) == [
        "cublasGemmStridedBatchedEx_64",
        "cublasLtMatmul",
        "cublasLtMatmul",
    ]
    counts = {one.provider: one.calls for one in ops.stats().operations}
    assert counts == {"cublaslt": 3, "cublas": 3}


@pytest.mark.parametrize("prefer", ["default", "cublas", "cublaslt"])
@pytest.mark.parametrize("element", REAL)
@pytest.mark.parametrize("m", [1, 3])
def test_a_vector_is_added_without_a_copy(devices, prefer, element, m, monkeypatch):
    monkeypatch.setattr(OnDevice, "copy_", None)
    a, b = operands(m, element)
    added = on_device((4,), element, 2)
    with under(**{PREFER: prefer}):
        result = ops.addmm(added, a, b, alpha=2)
    wanted = 2 * expected(a, b) + added.values()
    assert np.array_equal(result.values().astype("complex128"), wanted)
    (call,) = devices.calls(*GEMMS)
    types = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
    assert call.function == "cublasLtMatmul"
    assert (call["epilogue"], call["bias"]) == (4, added.array.ctypes.data)
    assert (call["bias_type"], call["alpha"], call["beta"]) == (types[element], [2], [0])


def test_another_vector_of_the_same_kind_asks_nothing_again(devices):
    a, b = operands(3)
    first, second = on_device((4,), seed=2), on_device((4,), seed=3)
    out = on_device((3, 4))
    ops.addmm(first, a, b, out=out)
    devices.reset()
    ops.addmm(second, a, b, out=out)
    assert np.array_equal(out.array, second.array + a.array @ b.array)
    assert [call.function for call in devices.cublaslt.calls()] == [
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatmul",
    ]


def test_a_product_after_a_sum_has_no_epilogue(devices):
    a, b = operands(3)
    with under(**{PREFER: "cublaslt"}):
        ops.addmm(on_device((4,), seed=2), a, b)
        assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)
    assert [call["epilogue"] for call in devices.calls("cublasLtMatmul")] == [4, 1]


NOT_SO = {
    "another factor": lambda: (on_device((4,)), *operands(3), {"beta": 2}),
    "one row": lambda: (on_device((1, 4)), *operands(3), {}),
    "a column": lambda: (on_device((3, 1)), *operands(3), {}),
    "one number": lambda: (on_device((1,)), *operands(3), {}),
    "with gaps": lambda: (view(on_device((8,)), lambda x: x[::2]), *operands(3), {}),
    "complex": lambda: (on_device((4,), "complex64"), *operands(3, "complex64"), {}),
    "one inside": lambda: (on_device((4,)), *operands(3, k=1), {}),
    "one column": lambda: (on_device((1,)), *operands(3, n=1), {}),
    "out by columns": lambda: (
        on_device((4,)),
        *operands(3),
        {"out": view(on_device((3, 4)), lambda x: np.array(x, order="F"))},
    ),
    "out with longer rows": lambda: (
        on_device((4,)),
        *operands(3),
        {"out": view(on_device((3, 7)), lambda x: x[:, :4])},
    ),
}


@pytest.mark.parametrize("kind", NOT_SO)
@pytest.mark.parametrize("prefer", ["cublas", "cublaslt"])
def test_other_sums_are_copied_first_as_pytorch_does(devices, kind, prefer):
    added, a, b, keywords = NOT_SO[kind]()
    with under(**{PREFER: prefer}):
        result = ops.addmm(added, a, b, **keywords)
    wanted = keywords.get("beta", 1) * added.array + a.array @ b.array
    assert np.allclose(result.array, wanted)
    (call,) = devices.calls(*GEMMS)
    assert call.function == ("cublasGemmEx_64" if prefer == "cublas" else "cublasLtMatmul")
    assert call.arguments.get("epilogue", 1) == 1
    assert call["beta"][0] != 0


@pytest.mark.parametrize("prefer", ["cublas", "cublaslt"])
def test_a_sum_without_an_algorithm_is_a_copy_and_a_product_by_cublas(devices, new_stream, prefer):
    devices.cublaslt.fail(HEURISTIC, 15)
    a, b = operands(3)
    added = on_device((4,), seed=2)
    with under(**{PREFER: prefer}), ops.trace() as calls:
        result = ops.addmm(added, a, b)
    assert np.array_equal(result.array, added.array + a.array @ b.array)
    assert served(devices) == ["cublasGemmEx_64"]
    because = {"cublas": "the first of the order"}.get(
        prefer, "those before it in the order cannot"
    )
    assert str(calls) == f"addmm  3x4x5  float32  cublas  {because}"


def test_the_heuristic_hears_of_a_vector_that_lies_badly(devices, new_stream):
    memory = aligned((5,), "float32")
    memory[...] = range(5)
    a, b = operands(3)
    result = ops.addmm(OnDevice(memory[1:]), a, b)
    assert np.array_equal(result.array, memory[1:] + a.array @ b.array)
    told = {
        call["attribute"]: call["value"]
        for call in devices.cublaslt.calls("cublasLtMatmulPreferenceSetAttribute")
    }
    assert (told[7], told[8]) == (256, 4)


def test_a_sum_that_fails_is_a_failure_of_who_adds(devices):
    devices.cublaslt.fail("cublasLtMatmul", 13)
    with pytest.raises(DeviceFailedError, match="addmm: cublaslt failed: cublasLtMatmul returned"):
        ops.addmm(on_device((4,)), *operands(3))
    devices.reset()
    ops.addmm(on_device((4,)), *operands(3))


def test_what_is_told_of_a_sum_is_what_happens(devices):
    with ops.trace() as calls:
        ops.addmm(on_device((4,)), *operands(3))
    assert str(calls) == "addmm  3x4x5  float32  cublaslt  those before it in the order cannot"
    said = ops.explain("addmm", ((4,), (3, 5), (5, 4)), "float32", device="cuda:0")
    assert said.provider == "cublaslt"
    assert said.because == (
        "those before it in the order cannot: compute CUBLAS_COMPUTE_32F, "
        "reduction CUBLASLT_REDUCTION_SCHEME_MASK, workspace 1048576, "
        "epilogue CUBLASLT_EPILOGUE_BIAS"
    )
    assert [(reason.provider, reason.why) for reason in said.reasons] == [
        (
            "cublas",
            (
                "it cannot add a vector in the call that multiplies, and takes over where there "
                "is no algorithm that does"
            ),
        )
    ]
    for shapes, dtype in (
        (((3, 4), (3, 5), (5, 4)), "float32"),
        (((4,), (3, 1), (1, 4)), "float32"),
        (((4,), (3, 5), (5, 4)), "complex64"),
    ):
        assert ops.explain("addmm", shapes, dtype, device="cuda:0").provider == "cublas"


def test_the_bias_pointer_is_that_of_the_call_on_every_thread(devices):
    """A description is kept and its pointer changed: nobody else may use it meanwhile."""
    wrong = []

    def work(seed):
        a, b = operands(3)
        added = on_device((4,), seed=seed)
        wanted = added.array + a.array @ b.array
        results = [ops.addmm(added, a, b).array for _ in range(50)]
        wrong.extend(seed for result in results if not np.array_equal(result, wanted))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
