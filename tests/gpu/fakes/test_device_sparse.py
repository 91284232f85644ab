"""Products of 2:4 sparse matrices on devices, through a cuSPARSELt that computes on the host."""

import numpy as np
import pytest
from device_arrays import OnDevice, aligned, held, narrowed
from products import under

from backendcfg import ops
from backendcfg.errors import (
    DeviceFailedError,
    InvalidArgumentError,
    MissingLibraryError,
    TierNotKeptError,
)
from backendcfg.gpu import sparse

ELEMENTS = ("float16", "bfloat16", "int8")
TYPES = {"float16": 2, "bfloat16": 14, "int8": 3}


@pytest.fixture(autouse=True)
def _fresh():
    sparse._workspaces.clear()
    yield
    sparse._workspaces.clear()


def on_device(shape, element, seed=0, *, pruned=False):
    """Small whole numbers, which every type holds exactly; at most 2 of every 4 where pruned."""
    random = np.random.default_rng(seed)
    values = random.integers(-3, 4, shape).astype("float32")
    if pruned:
        keep = np.argsort(random.random((*shape[:-1], shape[-1] // 4, 4)), axis=-1) < 2
        values *= keep.reshape(shape)
    memory = aligned(shape, held(element))
    memory[...] = narrowed(values) if element == "bfloat16" else values
    return OnDevice(memory, element)


def wanted(a, b, bias=None):
    total = a.values().astype("float64") @ b.values().astype("float64")
    return total if bias is None else total + bias.values().astype("float64")[:, None]


def view(array, change):
    return OnDevice(change(array.array), array.element, array.place)


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_product_is_that_of_the_matrix_before_it_was_compressed(devices, element):
    a, b = on_device((32, 64), element, pruned=True), on_device((64, 16), element, 1)
    compressed = ops.sparse_compress(a)
    assert (compressed.shape, compressed.dtype, compressed.device) == ((32, 64), element, "cuda:0")
    result = ops.sparse_matmul(compressed, b)
    assert result.element == ("int32" if element == "int8" else element)
    assert np.array_equal(result.values().astype("float64"), wanted(a, b))


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.T.copy().T,
    "longer rows": lambda x: np.pad(x, ((0, 0), (0, 16)))[:, :-16],
    "longer columns": lambda x: np.pad(x.T, ((0, 0), (0, 16)))[:, :-16].T,
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "rows that are not aligned": lambda x: np.pad(x, ((0, 0), (0, 3)))[:, :-3],
    "backwards": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_matrices_are_read_however_they_lie(devices, element, layout):
    a, b = on_device((32, 64), element, pruned=True), on_device((64, 16), element, 1)
    compressed = ops.sparse_compress(view(a, LAYOUTS[layout]))
    result = ops.sparse_matmul(compressed, view(b, LAYOUTS[layout]))
    assert np.array_equal(result.values().astype("float64"), wanted(a, b))


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_a_bias_is_added_to_each_row(devices, new_stream, element):
    a, b = on_device((32, 64), element, pruned=True), on_device((64, 16), element, 1)
    bias = on_device((32,), element, 2)
    result = ops.sparse_matmul(ops.sparse_compress(a), b, bias)
    assert np.array_equal(result.values().astype("float64"), wanted(a, b, bias))
    (call,) = devices.cusparselt.calls("cusparseLtMatmulDescSetAttribute")
    assert (call["attribute"], call["set"]) == (8, bias.array.ctypes.data)


@pytest.mark.parametrize(("element", "compute"), [("float16", 2), ("bfloat16", 2), ("int8", 0)])
def test_each_type_has_its_numbers_at_the_abi(devices, new_stream, element, compute):
    a, b = on_device((32, 64), element, pruned=True), on_device((64, 16), element, 1)
    ops.sparse_matmul(ops.sparse_compress(a), b)
    calls = devices.cusparselt.calls("cusparseLtStructuredDescriptorInit")
    assert {tuple(call.arguments.values()) for call in calls} == {
        (32, 64, 64, 16, TYPES[element], 2, 0)
    }
    right, result = devices.cusparselt.calls("cusparseLtDenseDescriptorInit")
    layout = (16, 64, 64) if element == "int8" else (64, 16, 16)
    assert tuple(right.arguments.values()) == (*layout, 16, TYPES[element], 2)
    number = 10 if element == "int8" else TYPES[element]
    assert tuple(result.arguments.values()) == (32, 16, 16, 16, number, 2)
    (product,) = devices.cusparselt.calls("cusparseLtMatmulDescriptorInit")
    assert product.arguments == {
        "transa": 0,
        "transb": int(element == "int8"),
        "compute_type": compute,
    }


def test_work_goes_onto_the_stream_that_is_current(devices, new_stream):
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    compressed = ops.sparse_compress(a)
    result = ops.sparse_matmul(compressed, b)
    (call,) = devices.cusparselt.calls("cusparseLtMatmul")
    assert call["stream"] == new_stream
    assert (call["a"], call["b"]) == (compressed.memory.array.ctypes.data, b.array.ctypes.data)
    assert call["c"] == call["d"] == result.array.ctypes.data
    for name in ("cusparseLtSpMMAPruneCheck2", "cusparseLtSpMMACompress2"):
        assert devices.cusparselt.calls(name)[0]["stream"] == new_stream


def test_a_plan_is_kept_and_called_again_by_one_function(devices, new_stream):
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    compressed = ops.sparse_compress(a)
    ops.sparse_matmul(compressed, b)
    devices.cusparselt.reset()
    ops.sparse_matmul(compressed, b)
    assert [call.function for call in devices.cusparselt.calls()] == ["cusparseLtMatmul"]


def test_more_plans_than_are_kept_replace_the_oldest(devices, new_stream):
    a = on_device((32, 64), "float16", pruned=True)
    compressed = ops.sparse_compress(a)
    for columns in range(8, 8 * 41, 8):
        b = on_device((64, columns), "float16", columns)
        result = ops.sparse_matmul(compressed, b)
        assert np.array_equal(result.values().astype("float64"), wanted(a, b))
    assert len(devices.cusparselt.calls("cusparseLtMatmulPlanInit")) == 40
    for name, count in (("MatmulPlan", 8), ("MatmulAlgSelection", 8), ("MatDescriptor", 24)):
        ended = devices.cusparselt.calls(f"cusparseLt{name}Destroy")
        # Of a matrix that is compressed, each step describes it and ends that.
        assert len(ended) == count + (3 if name == "MatDescriptor" else 0)


def test_a_search_finds_what_a_product_then_uses(devices):
    devices.cusparselt.set(fastest=4, splits=2, most=7)
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    compressed = ops.sparse_compress(a)
    found = ops.sparse_search(compressed, b)
    assert found == ops.SparseAlgorithm(4, 2, 1, 7)
    result = ops.sparse_matmul(compressed, b, algorithm=found)
    assert np.array_equal(result.values().astype("float64"), wanted(a, b))
    (call,) = devices.cusparselt.calls("cusparseLtMatmul")
    assert (call["algorithm"], call["split_k"], call["split_k_mode"]) == (4, 2, 1)
    ops.sparse_matmul(compressed, b, algorithm=5)
    assert devices.cusparselt.calls("cusparseLtMatmul")[1]["algorithm"] == 5


def test_a_product_that_needs_no_memory_gets_none(devices):
    devices.cusparselt.set(work=0, buffer=0)
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    result = ops.sparse_matmul(ops.sparse_compress(a), b)
    assert devices.cusparselt.calls("cusparseLtMatmul")[0]["workspace"] is None
    assert np.array_equal(result.values().astype("float64"), wanted(a, b))


def refused(call, kind=InvalidArgumentError):
    with pytest.raises(kind) as caught:
        call()
    return caught.value.render().splitlines()[0].partition(": ")[2]


def test_a_matrix_that_is_not_2_to_4_is_refused(devices):
    a = on_device((32, 64), "float16", pruned=True)
    a.array[3, 4:7] = 1
    with pytest.raises(InvalidArgumentError) as caught:
        ops.sparse_compress(a)
    assert caught.value.render() == (
        "error[invalid-argument]: sparse_compress: `a` must have at most 2 numbers other than 0 in "
        "every 4 of a row\n"
        "  note: a: float16 array of shape (32, 64) on cuda:0\n"
        "  state: nothing was computed\n"
        "  help: prune it first: keep the 2 largest of every 4"
    )
    assert not devices.cusparselt.calls("cusparseLtSpMMACompress2")


def test_what_does_not_fit_is_refused_by_name(devices):
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    compressed = ops.sparse_compress(a)
    bias = on_device((32,), "float16")
    for call, message in (
        (
            lambda: ops.sparse_compress(on_device((30, 64), "float16")),
            (
                "sparse_compress: `a` must have rows and columns in multiples of 16 for float16, "
                "not (30, 64)"
            ),
        ),
        (
            lambda: ops.sparse_compress(on_device((16, 32), "int8")),
            (
                "sparse_compress: `a` must have rows and columns in multiples of 32 for int8, "
                "not (16, 32)"
            ),
        ),
        (
            lambda: ops.sparse_compress(on_device((32, 32), "float32")),
            "sparse_compress: `a` must hold float16, bfloat16 or int8, not float32",
        ),
        (
            lambda: ops.sparse_compress(on_device((32,), "float16")),
            "sparse_compress: `a` must have 2 dimensions, not 1",
        ),
        (
            lambda: ops.sparse_compress(a.array),
            "sparse_compress: `a` must be an array on an NVIDIA device",
        ),
        (
            lambda: ops.sparse_matmul(a, b),
            "sparse_matmul: `compressed` must come from `ops.sparse_compress`, not OnDevice",
        ),
        (
            lambda: ops.sparse_matmul(compressed, on_device((64, 16), "int8")),
            "sparse_matmul: `b` must hold float16, as the compressed matrix does",
        ),
        (
            lambda: ops.sparse_matmul(compressed, on_device((32, 16), "float16")),
            "sparse_matmul: `b` must have 64 rows, as the compressed matrix has columns, not 32",
        ),
        (
            lambda: ops.sparse_matmul(compressed, on_device((64, 9), "float16")),
            "sparse_matmul: `b` must have columns in multiples of 8 for float16, not 9",
        ),
        (
            lambda: ops.sparse_matmul(compressed, b, on_device((16,), "float16")),
            "sparse_matmul: `bias` must hold 32 numbers of float16, one for each row",
        ),
        (
            lambda: ops.sparse_matmul(compressed, b, view(bias, lambda x: np.repeat(x, 2)[::2])),
            "sparse_matmul: `bias` must be dense and aligned to 16 bytes",
        ),
        (
            lambda: ops.sparse_matmul(compressed, b, algorithm=-1),
            (
                "sparse_matmul: `algorithm` must be a number from 0 on, or from `sparse_search`, "
                "not -1"
            ),
        ),
    ):
        assert refused(call) == message
    whole = ops.sparse_compress(on_device((32, 64), "int8", pruned=True))
    assert (
        refused(lambda: ops.sparse_matmul(whole, on_device((64, 16), "int8"), bias))
        == "sparse_matmul: `bias` must be left out for int8"
    )


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        ("cusparseLtInit", "sparse_compress"),
        ("cusparseLtStructuredDescriptorInit", "sparse_compress"),
        ("cusparseLtSpMMAPruneCheck2", "sparse_compress"),
        ("cusparseLtSpMMACompressedSize2", "sparse_compress"),
        ("cusparseLtSpMMACompress2", "sparse_compress"),
        ("cusparseLtStructuredDescriptorInit", "sparse_matmul"),
        ("cusparseLtDenseDescriptorInit", "sparse_matmul"),
        ("cusparseLtMatmulDescriptorInit", "sparse_matmul"),
        ("cusparseLtMatmulDescSetAttribute", "sparse_matmul"),
        ("cusparseLtMatmulAlgSelectionInit", "sparse_matmul"),
        ("cusparseLtMatmulAlgSetAttribute", "sparse_matmul"),
        ("cusparseLtMatmulPlanInit", "sparse_matmul"),
        ("cusparseLtMatmulGetWorkspace", "sparse_matmul"),
        ("cusparseLtMatmul", "sparse_matmul"),
        ("cusparseLtMatmulSearch", "sparse_search"),
        ("cusparseLtMatmulAlgGetAttribute", "sparse_search"),
    ],
)
def test_a_failing_function_is_named_and_the_next_call_works(
    devices, new_stream, function, operation
):
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    bias = on_device((32,), "float16", 2)
    library, compressed = devices.cusparselt, None
    if operation != "sparse_compress":
        compressed = ops.sparse_compress(a)
    library.fail(function, 7, count=1)

    def call():
        if compressed is None:
            return ops.sparse_compress(a)
        return getattr(ops, operation)(compressed, b, bias)

    assert refused(call, DeviceFailedError) == (
        f"{operation}: cuSPARSELt failed: {function} returned CUSPARSE_STATUS_INTERNAL_ERROR (7)"
    )
    again = ops.sparse_compress(a)
    result = ops.sparse_matmul(again, b, bias)
    assert np.array_equal(result.values().astype("float64"), wanted(a, b, bias))
    # All that was made is ended, but for the one plan that is kept.
    made = {
        "MatDescriptor": "cusparseLtDenseDescriptorInit cusparseLtStructuredDescriptorInit",
        "MatmulPlan": "cusparseLtMatmulPlanInit",
        "MatmulAlgSelection": "cusparseLtMatmulAlgSelectionInit",
    }
    for name, makers in made.items():
        count = len(library.calls(*makers.split())) - (function in makers.split())
        kept = 3 if name == "MatDescriptor" else 1
        assert count - len(library.calls(f"cusparseLt{name}Destroy")) == kept


def test_where_it_cannot_be_served_that_is_said(devices):
    a = on_device((32, 64), "float16", pruned=True)
    compressed = ops.sparse_compress(a)
    far = OnDevice(a.array, "float16", (10, 0))
    assert (
        refused(lambda: ops.sparse_compress(far), MissingLibraryError)
        == "sparse_compress: no library can multiply 2:4 sparse matrices on rocm:0"
    )
    for tier in ("cross-machine", "batch-invariant"):
        with under(determinism__tier=tier):
            assert (
                refused(lambda: ops.sparse_compress(a), TierNotKeptError)
                == f"sparse_compress: `determinism.tier` promises `{tier}`, "
                "which cuSPARSELt does not keep"
            )
    b = on_device((64, 16), "float16")
    with under(determinism__tier="run-to-run"):
        ops.sparse_matmul(compressed, b)
        split = ops.SparseAlgorithm(0, 2)
        assert (
            refused(lambda: ops.sparse_matmul(compressed, b, algorithm=split), TierNotKeptError)
            == "sparse_matmul: `determinism.tier` promises `run-to-run`, "
            "and `algorithm` splits sums"
        )
    devices.without("cusparselt")
    assert (
        refused(lambda: ops.sparse_compress(a), MissingLibraryError)
        == "sparse_compress: no library can multiply 2:4 sparse matrices on cuda:0"
    )


def test_it_is_counted_traced_and_explained(devices):
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    with ops.trace() as calls:
        ops.sparse_matmul(ops.sparse_compress(a), b)
    assert [(call.operation, call.provider) for call in calls] == [
        ("sparse_compress", "cusparselt"),
        ("sparse_matmul", "cusparselt"),
    ]
    told = ops.explain("sparse_matmul", ((32, 64), (64, 16)), "float16")
    assert (told.provider, told.because) == ("cusparselt", "it multiplies 2:4 sparse matrices")
    told = ops.explain("sparse_compress", [(32, 64)], "float16", device="cpu")
    assert [one.why for one in told.reasons] == ["the CPU has no sparse products"]
    devices.without("cusparselt")
    told = ops.explain("sparse_matmul", ((32, 64), (64, 16)), "int8", device="cuda:0")
    assert [one.why for one in told.reasons] == ["cuSPARSELt: no libcusparseLt.so.0 was found"]


def test_a_result_that_is_not_finite_is_refused_where_that_is_asked(devices, monkeypatch):
    from backendcfg.gpu import own_library

    looked = []
    monkeypatch.setattr(own_library, "check_finite", lambda *call: looked.append(call))
    a, b = on_device((32, 64), "float16", pruned=True), on_device((64, 16), "float16", 1)
    with under(**{"ops.check_finite": True}):
        result = ops.sparse_matmul(ops.sparse_compress(a), b)
    assert looked == [("sparse_matmul", result)]
