"""The fakes of HIP, hipBLAS and hipBLASLt compute by AMD's numbers, and refuse NVIDIA's."""

import ctypes

import numpy as np
import pytest

TYPES = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5}
INVALID_VALUE, NOT_SUPPORTED, NULL_HANDLE, INVALID_ENUM = 3, 7, 9, 10
N, T, C = 111, 112, 113
COMPUTE_16F, COMPUTE_32F, FAST_TF32, COMPUTE_64F = 0, 2, 6, 7
i64 = ctypes.c_int64


def at(array):
    return ctypes.c_void_p(array.ctypes.data)


def whole(generator, shape, dtype):
    real = generator.integers(-4, 5, shape).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        real = real + (1j * generator.integers(-4, 5, shape)).astype(dtype)
    return np.asfortranarray(real)


@pytest.fixture(
    params=[("libhipblas.so.2", "hipblasGemmEx_v2_64"), ("libhipblas.so.3", "hipblasGemmEx_64")]
)
def hipblas(request, device):
    """A fake and the name of its GemmEx with HIP's numbers."""
    name, function = request.param
    return device(name), function


@pytest.fixture
def handle(hipblas):
    handle = ctypes.c_void_p()
    assert hipblas[0].library.hipblasCreate(ctypes.byref(handle)) == 0
    yield handle
    hipblas[0].library.hipblasDestroy(handle)


def product(hipblas, handle, a, b, c, compute, ta=N, tb=N, alpha=1, beta=0):
    fake, function = hipblas
    scale = "float32" if c.dtype == "float16" else c.dtype
    scalars = [np.array([value], scale) for value in (alpha, beta)]
    k = a.shape[1] if ta == N else a.shape[0]
    return getattr(fake.library, function)(
        handle, ta, tb, i64(c.shape[0]), i64(c.shape[1]), i64(k), at(scalars[0]),
        at(a), TYPES[str(a.dtype)], i64(a.shape[0]), at(b), TYPES[str(b.dtype)], i64(b.shape[0]),
        at(scalars[1]), at(c), TYPES[str(c.dtype)], i64(c.shape[0]), compute, 160,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("ta", "tb"), [(N, N), (T, N), (N, C), (C, T)])
def test_hipblas_multiplies_every_type_in_every_order(hipblas, handle, dtype, ta, tb):
    generator = np.random.default_rng(5)
    a, b = whole(generator, (3, 4), dtype), whole(generator, (4, 5), dtype)
    c = whole(generator, (3, 5), dtype)
    expected = 2 * (a @ b) + 3 * c
    held = {N: lambda x: x, T: lambda x: x.T, C: lambda x: x.conj().T}
    a, b = (np.asfortranarray(held[how](x)) for how, x in ((ta, a), (tb, b)))
    compute = COMPUTE_64F if dtype in {"float64", "complex128"} else COMPUTE_32F
    assert product(hipblas, handle, a, b, c, compute, ta, tb, alpha=2, beta=3) == 0
    np.testing.assert_array_equal(c, expected)


def test_hipblas_refuses_the_numbers_of_cublas(hipblas, handle):
    a = np.ones((2, 2), "float32")
    assert product(hipblas, handle, a, a, a.copy(), COMPUTE_32F, ta=0) == INVALID_ENUM
    assert product(hipblas, handle, a, a, a.copy(), 68) == INVALID_ENUM
    assert product(hipblas, handle, a, a, a.copy(), FAST_TF32) == NOT_SUPPORTED
    assert product(hipblas, None, a, a, a.copy(), COMPUTE_32F) == NULL_HANDLE


def test_xf32_comes_by_the_math_mode(hipblas, handle):
    a, one = np.array([[1 + 2.0**-11]], "float32"), np.ones((1, 1), "float32")
    c = np.zeros((1, 1), "float32")
    assert product(hipblas, handle, a, one, c, COMPUTE_32F) == 0
    assert c == a
    hipblas[0].library.hipblasSetMathMode(handle, 1)
    assert product(hipblas, handle, a, one, c, COMPUTE_32F) == 0
    assert c == 1
    assert hipblas[0].calls(hipblas[1])[-1]["math_mode"] == 1


def test_atomics_are_allowed_until_they_are_not(hipblas, handle):
    mode = ctypes.c_int()
    hipblas[0].library.hipblasGetAtomicsMode(handle, ctypes.byref(mode))
    assert mode.value == 1


def test_the_older_meaning_is_refused_and_seen(device):
    fake = device("libhipblas.so.2")
    assert fake.library.hipblasGemmEx_64(None) == INVALID_ENUM
    assert [call.function for call in fake.calls()] == ["hipblasGemmEx_64"]


@pytest.mark.parametrize("name", ["libhipblaslt.so.0", "libhipblaslt.so.1"])
def test_hipblaslt_multiplies_by_descriptors_of_its_own_numbers(device, name):
    library = device(name).library

    def made(function, *arguments):
        place = ctypes.c_void_p()
        assert getattr(library, function)(ctypes.byref(place), *arguments) == 0
        return place

    def put(kind, place, attribute, value):
        function = getattr(library, f"hipblasLt{kind}SetAttribute")
        return function(
            place, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )

    generator = np.random.default_rng(6)
    a, b = whole(generator, (4, 3), "float32"), whole(generator, (4, 5), "float32")
    bias, d = whole(generator, 3, "float32"), np.zeros((3, 5), "float32", order="F")
    handle = made("hipblasLtCreate")
    operation = made("hipblasLtMatmulDescCreate", COMPUTE_32F, 0)
    layouts = [
        made("hipblasLtMatrixLayoutCreate", 0, *map(ctypes.c_uint64, x.shape), i64(x.shape[0]))
        for x in (a, b, d, d)
    ]
    one, zero = np.array([1], "float32"), np.array([0], "float32")

    def multiply():
        return library.hipblasLtMatmul(
            handle, operation, at(one), at(a), layouts[0], at(b), layouts[1], at(zero),
            at(d), layouts[2], at(d), layouts[3], None, None, ctypes.c_size_t(0), None,
        )  # fmt: skip

    assert put("MatmulDesc", operation, 0, ctypes.c_int32(1)) == 0
    assert multiply() == INVALID_VALUE  # 1 is cuBLAS's transpose
    assert put("MatmulDesc", operation, 0, ctypes.c_int32(T)) == 0
    assert put("MatmulDesc", operation, 2, ctypes.c_uint32(4)) == 0
    assert put("MatmulDesc", operation, 3, ctypes.c_uint64(bias.ctypes.data)) == 0
    assert put("MatmulDesc", operation, 7, ctypes.c_uint32(4)) == INVALID_VALUE
    assert multiply() == 0
    np.testing.assert_array_equal(d, a.T @ b + bias[:, None])
    assert library.hipblasLtDestroy(handle) == 0


@pytest.mark.parametrize("name", ["libamdhip64.so.6", "libamdhip64.so.7"])
def test_hip_keeps_a_device_for_each_thread_and_knows_its_streams(device, name):
    fake = device(name)
    fake.set(devices=2)
    hip, stream, number = fake.library, ctypes.c_void_p(), ctypes.c_int()
    assert hip.hipSetDevice(1) == 0
    assert hip.hipStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
    assert hip.hipSetDevice(0) == 0
    assert hip.hipStreamGetDevice(stream, ctypes.byref(number)) == 0
    assert number.value == 1
    assert hip.hipSetDevice(2) == 101
    assert hip.hipStreamSynchronize(ctypes.c_void_p(0x1234)) == 400
    assert hip.hipStreamDestroy(stream) == 0
    place = ctypes.c_void_p()
    assert hip.hipMalloc(ctypes.byref(place), ctypes.c_size_t(1 << 40)) == 2
    assert hip.hipMalloc(ctypes.byref(place), ctypes.c_size_t(64)) == 0
    assert hip.hipMemsetAsync(place, 7, ctypes.c_size_t(64), None) == 0
    assert ctypes.string_at(place, 64) == b"\7" * 64
    assert hip.hipFree(place) == 0
