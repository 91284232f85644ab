"""The fakes compute, refuse and record, so that what is tested with them means something."""

import ctypes

import numpy as np
import pytest

TYPES = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5}
COMPUTE = {"float32": 68, "float64": 70, "float16": 68, "complex64": 68, "complex128": 70}
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 7, 15
i64 = ctypes.c_int64


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def numbers(generator, shape, dtype):
    """Small whole numbers, whose products every type holds exactly."""
    real = generator.integers(-4, 5, shape).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        real = real + (1j * generator.integers(-4, 5, shape)).astype(dtype)
    return np.asfortranarray(real)


def applied(matrix, operation):
    return matrix if operation == 0 else matrix.T if operation == 1 else matrix.conj().T


@pytest.fixture(params=["libcublas.so.12", "libcublas.so.13"])
def cublas(request, device):
    return device(request.param)


@pytest.fixture
def handle(cublas):
    handle = ctypes.c_void_p()
    assert cublas.library.cublasCreate_v2(ctypes.byref(handle)) == SUCCESS
    yield handle
    cublas.library.cublasDestroy_v2(handle)


def product(cublas, handle, a, b, c, ta=0, tb=0, alpha=1, beta=0, compute=None, scale=None):
    name = str(c.dtype)
    m, n = c.shape
    k = a.shape[0] if ta else a.shape[1]
    scale = scale or ("float32" if name == "float16" else name)
    scalars = [np.array([value], scale) for value in (alpha, beta)]
    compute = COMPUTE[name] if compute is None else compute
    code, result = TYPES[str(a.dtype)], TYPES[name]
    return cublas.library.cublasGemmEx_64(
        handle, ta, tb, i64(m), i64(n), i64(k),
        pointer(scalars[0]), pointer(a), code, i64(a.shape[0]), pointer(b), code, i64(b.shape[0]),
        pointer(scalars[1]), pointer(c), result, i64(c.shape[0]), compute, -1,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ta", [0, 1, 2])
@pytest.mark.parametrize("tb", [0, 1, 2])
def test_cublas_multiplies_every_type_in_every_order(cublas, handle, dtype, ta, tb):
    generator = np.random.default_rng(0)
    a = numbers(generator, (4, 3) if ta else (3, 4), dtype)
    b = numbers(generator, (5, 4) if tb else (4, 5), dtype)
    c = numbers(generator, (3, 5), dtype)
    expected = 2 * (applied(a, ta) @ applied(b, tb)) + 3 * c
    assert product(cublas, handle, a, b, c, ta, tb, alpha=2, beta=3) == SUCCESS
    np.testing.assert_array_equal(c, expected)


def test_cublas_multiplies_batches_by_their_strides(cublas, handle):
    generator = np.random.default_rng(1)
    a, b, c = (generator.integers(-4, 5, (2, 8, 8)).astype("float32") for _ in range(3))
    expected = a.copy()
    for at in range(2):  # 3 by 2 times 2 by 4, each in the corner of its block, column-major
        expected = c if at == 0 else expected
        left, right = a[at].T[:3, :2], b[at].T[:2, :4]
        expected[at].T[:3, :4] = left @ right
    result = c.copy()
    one, zero = np.array([1], "float32"), np.array([0], "float32")
    status = cublas.library.cublasGemmStridedBatchedEx_64(
        handle, 0, 0, i64(3), i64(4), i64(2), pointer(one), pointer(a), 0, i64(8), i64(64),
        pointer(b), 0, i64(8), i64(64), pointer(zero), pointer(result), 0, i64(8), i64(64),
        i64(2), 68, -1,
    )  # fmt: skip
    assert status == SUCCESS
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("compute", "mode", "bits"),
    [(68, 0, 24), (69, 3, 24), (68, 3, 11), (77, 0, 11), (75, 0, 8), (74, 0, 11)],
)
def test_a_compute_type_shows_in_the_bits_that_operands_keep(cublas, handle, compute, mode, bits):
    cublas.library.cublasSetMathMode(handle, mode)
    a = np.array([[1 + 2.0 ** -(bits - 1)]], "float32")
    less = np.array([[1 + 2.0**-bits]], "float32")
    one, c = np.ones((1, 1), "float32"), np.zeros((1, 1), "float32")
    assert product(cublas, handle, a, one, c, compute=compute) == SUCCESS
    assert c == a
    assert product(cublas, handle, less, one, c, compute=compute) == SUCCESS
    assert c == 1


def test_a_sum_in_float16_stops_growing_where_float16_ends(cublas, handle):
    a, b = np.ones((1, 4096), "float16"), np.ones((4096, 1), "float16")
    c = np.zeros((1, 1), "float16")
    assert product(cublas, handle, a, b, c) == SUCCESS
    assert c == 4096
    assert product(cublas, handle, a, b, c, compute=64, scale="float16") == SUCCESS
    assert c == 2048


def test_a_reduced_reduction_rounds_its_parts_unless_that_is_disallowed(cublas, handle):
    cublas.set(split_k=2)
    # Either half of the sum rounds to 2048 in float16; together they are 4098.
    a = np.array([[2048, 1, 2048, 1]], "float16")
    b, c = np.ones((4, 1), "float16"), np.zeros((1, 1), "float32").astype("float16")
    assert product(cublas, handle, a, b, c) == SUCCESS
    assert c == 4096
    a[0, 3] = 3
    cublas.library.cublasSetMathMode(handle, 16)
    assert product(cublas, handle, a, b, c) == SUCCESS
    assert c == 4100


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"compute": 64}, NOT_SUPPORTED),
        ({"compute": 70}, NOT_SUPPORTED),
        ({"ta": 3}, INVALID_VALUE),
    ],
)
def test_cublas_refuses_what_its_tables_do_not_have(cublas, handle, change, status):
    a, c = np.ones((3, 3), "float32"), np.zeros((3, 3), "float32")
    assert product(cublas, handle, a, a, c, **change) == status
    assert not c.any()


def test_cublas_refuses_a_handle_that_is_none(cublas):
    a = np.ones((3, 3), "float32")
    assert product(cublas, ctypes.c_void_p(8), a, a, a.copy()) == NOT_INITIALIZED


def test_a_call_is_recorded_with_its_arguments_and_the_state_of_its_handle(cublas, handle):
    library = cublas.library
    workspace = np.zeros(1024, "uint8")
    start = workspace.ctypes.data + -workspace.ctypes.data % 256
    library.cublasSetStream_v2(handle, ctypes.c_void_p(0x77))
    library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(start), ctypes.c_size_t(512))
    a, c = np.ones((2, 2), "float32", order="F"), np.zeros((2, 2), "float32", order="F")
    cublas.fail("cublasGemmEx_64", 13, skip=1, count=1)
    assert [product(cublas, handle, a, a, c, ta=1, alpha=0.5) for _ in range(3)] == [0, 13, 0]
    first, *others = cublas.calls("cublasGemmEx_64")
    assert first.arguments == {
        "handle": handle.value, "transa": 1, "transb": 0, "m": 2, "n": 2, "k": 2,
        "alpha": [0.5], "a": a.ctypes.data, "a_type": 0, "lda": 2,
        "b": a.ctypes.data, "b_type": 0, "ldb": 2, "beta": [0.0],
        "c": c.ctypes.data, "c_type": 0, "ldc": 2, "compute_type": 68, "algorithm": -1,
        "stream": 0x77, "math_mode": 0, "atomics": 0,
        "workspace": start, "workspace_bytes": 512,
    }  # fmt: skip
    assert len(others) == 2


@pytest.mark.parametrize("alpha", [0.1, float("inf"), float("-inf")])
def test_a_scalar_is_recorded_as_it_is_read(cublas, handle, alpha):
    a = np.ones((1, 1), "float32")
    assert product(cublas, handle, a, a, a.copy(), alpha=alpha, beta=float("nan")) == SUCCESS
    call = cublas.calls("cublasGemmEx_64")[0]
    assert call["alpha"] == [float(np.float32(alpha))]
    assert np.isnan(call["beta"])


def test_a_new_stream_takes_the_workspace_away(cublas, handle):
    cublas.library.cublasSetWorkspace_v2(handle, ctypes.c_void_p(1 << 20), ctypes.c_size_t(512))
    cublas.library.cublasSetStream_v2(handle, None)
    a = np.ones((1, 1), "float32")
    product(cublas, handle, a, a, a.copy())
    assert cublas.calls("cublasGemmEx_64")[0]["workspace"] is None


def test_the_driver_keeps_a_stack_of_contexts_and_knows_its_streams(device):
    cuda = device("libcuda.so.1").library
    context, current, stream, made_in = (ctypes.c_void_p() for _ in range(4))
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 0) == 0
    assert cuda.cuCtxPopCurrent_v2(ctypes.byref(current)) == 0
    assert current.value == context.value
    assert cuda.cuStreamGetCtx(stream, ctypes.byref(made_in)) == 0
    assert made_in.value == context.value
    assert cuda.cuStreamSynchronize(ctypes.c_void_p(0x1234)) == 400
    assert cuda.cuStreamDestroy_v2(stream) == 0
    assert cuda.cuStreamSynchronize(stream) == 400
    assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0


def test_the_driver_runs_out_of_memory(device):
    fake = device("libcuda.so.1")
    cuda, place, context = fake.library, ctypes.c_uint64(), ctypes.c_void_p()
    cuda.fake_used.restype = ctypes.c_int64
    fake.set(memory=cuda.fake_used() + 1000)  # what other tests keep is theirs
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxPushCurrent_v2(context)
    assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(600)) == 0
    other = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(600)) == 2
    assert cuda.cuMemFree_v2(place) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(600)) == 0
    assert cuda.cuMemFree_v2(other) == 0
    cuda.cuCtxPopCurrent_v2(None)
    cuda.cuDevicePrimaryCtxRelease_v2(0)
