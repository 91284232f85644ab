"""Einstein's summation of arrays on a device: its products by the device's library."""

import numpy as np
import pytest
from device_arrays import ByInterface, OnDevice
from products import on_device, under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError, TierNotKeptError

EQUATIONS = [
    ("ij,jk->ik", [(3, 5), (5, 4)]),
    ("ij,kj->ki", [(3, 5), (4, 5)]),
    ("bij,bjk->bik", [(6, 3, 5), (6, 5, 4)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 5), (6, 5, 4)]),
    ("bi,bi->b", [(6, 5), (6, 5)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i->", [(5,), (5,)]),
    ("ijk->ki", [(3, 4, 5)]),
    ("ij->", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("iji->j", [(4, 3, 4)]),
    ("iijj,jk->ki", [(3, 3, 4, 4), (4, 2)]),
    ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
    ("abc,cd,ebd->ae", [(2, 3, 4), (4, 5), (6, 3, 5)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,jk->ik", [(3, 1), (5, 4)]),
]


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "bfloat16", "float16"])
@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_an_equation_of_arrays_on_a_device_is_computed_there(devices, equation, shapes, element):
    operands = [on_device(shape, element, seed) for seed, shape in enumerate(shapes)]
    result = ops.einsum(equation, *operands)
    wanted = np.einsum(equation, *(each.values() for each in operands))
    assert type(result) is OnDevice
    assert (result.element, result.place, result.shape) == (element, (2, 0), wanted.shape)
    if element in ("bfloat16", "float16"):
        assert np.allclose(result.values().astype(float), wanted, rtol=2e-2)
    else:
        assert np.array_equal(result.values(), wanted)


def test_lists_of_labels_and_a_result_that_repeats_are_computed_there(devices):
    a, b = on_device((3, 1), "float32"), on_device((5, 4), "float32", 1)
    result = ops.einsum(a, [0, 1], b, [1, 2], [0, 2])
    assert np.array_equal(result.array, np.einsum("ij,jk->ik", a.array.repeat(5, 1), b.array))
    spread = ops.einsum("ij,kj->j", on_device((1, 1), "float32"), on_device((1, 4), "float32"))
    assert spread.shape == (4,)


def test_a_pair_is_one_product_of_the_library(devices):
    ops.einsum("bij,bjk->bik", on_device((6, 3, 5), "float32"), on_device((6, 5, 4), "float32"))
    (call,) = devices.calls("cublasGemmEx_64", "cublasGemmStridedBatchedEx_64")
    assert (call.function, call["batch"]) == ("cublasGemmStridedBatchedEx_64", 6)


def test_a_trace_tells_the_order_and_the_product(devices):
    with ops.trace() as calls:
        ops.einsum("ij,jk->ik", on_device((3, 5), "float32"), on_device((5, 4), "float32"))
    assert [(call.operation, call.provider) for call in calls] == [
        ("matmul", "cublas"),
        ("einsum", "one pair"),
    ]


def test_explain_says_who_multiplies(devices):
    shapes = ((3, 5), (5, 4))
    said = str(
        ops.explain("einsum", shapes, "float32", equation="ij,jk->ik", device="cuda:0")
    ).splitlines()
    assert said[:2] == [
        "einsum ij,jk->ik of (3, 5), (5, 4) on cuda:0 under no profile",
        (
            "  one pair  serves: there is no order to choose; products by cublas, all else by the "
            "arrays' own library"
        ),
    ]
    assert "cuda.matmul.fp32_precision" in said[2]


def test_explain_says_why_nobody_can_multiply(devices):
    devices.without("cublas", "cublaslt")
    shapes = ((3, 5), (5, 4))
    said = ops.explain("einsum", shapes, "float32", equation="ij,jk->ik", device="cuda:0")
    assert said.provider == ""
    assert {reason.provider for reason in said.reasons} == {"cublas", "cublaslt"}


def refusal(*arguments):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.einsum(*arguments)
    return caught.value.message


def test_what_does_not_fit_is_refused_by_name(devices):
    a, b = on_device((3, 5), "float32"), on_device((5, 4), "float32")
    pair = "ij,jk->ik"
    assert refusal(pair, a, b.array) == (
        "einsum: `operand 1` must be an array on cuda:0, as `operand 0` is"
    )
    assert refusal(pair, a, on_device((5, 4), "float64")) == (
        "einsum: `operand 1` must hold float32, as `operand 0` does"
    )
    assert refusal(pair, a, OnDevice(np.zeros((5, 4), "int64"))) == (
        "einsum: `operand 1` must hold float32, float64, bfloat16, float16, complex64 or "
        "complex128, not int64"
    )
    assert refusal(pair, a, on_device((4, 4), "float32")) == (
        "einsum: operand 1 has size 4 for `j`, which does not broadcast with the size 5 of "
        "operand 0"
    )
    alone = ByInterface(np.zeros((5, 4), "float32"), 0, place=(2, 0))
    assert refusal(pair, a, alone) == (
        "einsum: `operand 1` must be of a library that reorders and sums: PyTorch, CuPy or JAX"
    )
    assert a.array.shape == (3, 5)


def test_a_label_is_no_truth_value():
    a = np.ones((2, 3))
    assert refusal(a, [True, 0]) == (
        "einsum: operand 0 must have labels from 0 to 51 or `...`, not True"
    )


def test_a_tier_that_no_library_keeps_is_refused_where_nothing_is_multiplied_too(devices):
    with under(**{"determinism.tier": "cross-machine"}), pytest.raises(TierNotKeptError) as caught:
        ops.einsum("ij->", on_device((3, 5), "float32"))
    assert caught.value.message == (
        "einsum: `determinism.tier` promises `cross-machine`, which no library on a device keeps"
    )


def test_a_failing_product_is_told_and_the_next_one_works(devices):
    a, b = on_device((3, 5), "float32"), on_device((5, 4), "float32")
    devices.cublas.fail("cublasGemmEx_64", 13, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        ops.einsum("ij,jk->ik", a, b)
    assert caught.value.message == (
        "matmul: cublas failed: cublasGemmEx returned CUBLAS_STATUS_EXECUTION_FAILED (13)"
    )
    assert np.array_equal(ops.einsum("ij,jk->ik", a, b).array, a.array @ b.array)


def test_a_result_that_is_not_finite_is_refused(devices):
    a = OnDevice(np.full((2, 2), np.inf, "float32"))
    with under(**{"ops.check_finite": True}):
        message = refusal("ij,jk->ik", a, a)
    assert "`ops.check_finite`" in message
