"""The fake of cuBLASLt computes what descriptors say, and refuses what does not fit them."""

import ctypes

import numpy as np
import pytest

TYPES = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5}
NONE, COMPUTE_TYPE, OUTPUT_TYPE = 0, 2, 4
INVALID_VALUE, NOT_SUPPORTED = 7, 15
RELU, BIAS, GELU = 2, 4, 32


class Heuristic(ctypes.Structure):
    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class Lt:
    """Calls of one fake, each asserted to succeed."""

    def __init__(self, fake):
        self.fake = fake
        self.handle = self.made("cublasLtCreate")

    def made(self, name, *arguments):
        place = ctypes.c_void_p()
        assert getattr(self.fake.library, name)(ctypes.byref(place), *arguments) == 0
        return place

    def set(self, name, place, attribute, value):
        call = getattr(self.fake.library, f"{name}SetAttribute")
        return call(place, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def operation(self, compute=68, scale=0, ta=0, tb=0, **more):
        place = self.made("cublasLtMatmulDescCreate", compute, scale)
        values = {3: ctypes.c_int32(ta), 4: ctypes.c_int32(tb), **more.get("attributes", {})}
        for attribute, value in values.items():
            assert self.set("cublasLtMatmulDesc", place, attribute, value) == 0
        return place

    def layout(self, array, dtype=None, order=0, batch=1, stride=0):
        """Of the last two dimensions of an array that is dense in the order."""
        rows, columns = array.shape[-2:]
        leading = columns if order else rows
        place = self.made(
            "cublasLtMatrixLayoutCreate", TYPES[str(dtype or array.dtype)],
            ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(leading),
        )  # fmt: skip
        given = {1: ctypes.c_int32(order), 5: ctypes.c_int32(batch), 6: ctypes.c_int64(stride)}
        for attribute, value in given.items():
            assert self.set("cublasLtMatrixLayout", place, attribute, value) == 0
        return place

    def found(self, operation, layouts, schemes=7, workspace=1 << 20, wanted=4):
        preference = self.made("cublasLtMatmulPreferenceCreate")
        values = {1: ctypes.c_uint64(workspace), 3: ctypes.c_uint32(schemes)}
        for attribute, value in values.items():
            assert self.set("cublasLtMatmulPreference", preference, attribute, value) == 0
        results, count = (Heuristic * wanted)(), ctypes.c_int()
        status = self.fake.library.cublasLtMatmulAlgoGetHeuristic(
            self.handle, operation, *layouts, preference, wanted, results, ctypes.byref(count)
        )
        return status, list(results[: count.value])

    def multiply(self, operation, arrays, layouts, algorithm=None, alpha=1, beta=0, workspace=0):
        scale = "float64" if arrays[3].dtype.itemsize == 8 else "float32"
        if arrays[3].dtype.kind == "c":
            scale = arrays[3].dtype
        scalars = [np.array([value], scale) for value in (alpha, beta)]
        space = np.zeros(workspace + 256, "uint8")
        start = ctypes.c_void_p(space.ctypes.data + -space.ctypes.data % 256)
        at = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *scalars)]
        a, b, c, d, alpha_at, beta_at = at
        return self.fake.library.cublasLtMatmul(
            self.handle, operation, alpha_at, a, layouts[0], b, layouts[1], beta_at,
            c, layouts[2], d, layouts[3], None if algorithm is None else ctypes.byref(algorithm),
            start, ctypes.c_size_t(workspace), ctypes.c_void_p(0x77),
        )  # fmt: skip


@pytest.fixture(params=["libcublasLt.so.12", "libcublasLt.so.13"])
def lt(request, device):
    made = Lt(device(request.param))
    yield made
    made.fake.library.cublasLtDestroy(made.handle)


def whole(generator, *shape, dtype="float32"):
    return np.asfortranarray(generator.integers(-4, 5, shape).astype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_of_every_type_and_order_are_right(lt, dtype, ta, tb):
    generator = np.random.default_rng(2)
    a, b = whole(generator, 4, 3, dtype=dtype), whole(generator, 3, 5, dtype=dtype)
    c, d = whole(generator, 4, 5, dtype=dtype), np.zeros((4, 5), dtype, order="F")
    a_held = np.asfortranarray(a.T) if ta else a
    b_held = np.asfortranarray(b.T) if tb else b
    arrays = (a_held, b_held, c, d)
    scale = {"float16": 0}.get(dtype, TYPES[dtype])
    compute = 70 if dtype in {"float64", "complex128"} else 68
    operation = lt.operation(compute, scale, ta, tb)
    layouts = [lt.layout(array) for array in arrays]
    status, found = lt.found(operation, layouts, schemes=NONE)
    assert (status, len(found)) == (0, 1)
    assert lt.multiply(operation, arrays, layouts, found[0], alpha=2, beta=3) == 0
    np.testing.assert_array_equal(d, 2 * (a @ b) + 3 * c)


def test_rows_may_be_dense_and_batches_strided(lt):
    generator = np.random.default_rng(3)
    a, b, d = (generator.integers(-4, 5, (2, 4, 4)).astype("float32") for _ in range(3))
    layouts = [lt.layout(array, order=1, batch=2, stride=16) for array in (a, b, d, d)]
    assert lt.multiply(lt.operation(), (a, b, d, d), layouts) == 0
    np.testing.assert_array_equal(d, a @ b)


@pytest.mark.parametrize("activation", [0, RELU, GELU])
def test_a_bias_is_added_to_every_column_before_the_activation(lt, activation):
    generator = np.random.default_rng(4)
    a, b, d = whole(generator, 4, 3), whole(generator, 3, 5), np.zeros((4, 5), "float32", order="F")
    bias = whole(generator, 4)
    ending = {
        7: ctypes.c_uint32(BIAS | activation),
        8: ctypes.c_uint64(bias.ctypes.data),
        26: ctypes.c_int32(0),
    }
    layouts = [lt.layout(array) for array in (a, b, d, d)]
    assert lt.multiply(lt.operation(attributes=ending), (a, b, d, d), layouts) == 0
    sums = a.astype("float64") @ b + bias[:, None]
    if activation == RELU:
        sums = np.maximum(sums, 0)
    if activation == GELU:
        sums = 0.5 * sums * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3)))
    np.testing.assert_allclose(d, sums, rtol=1e-6, atol=1e-6)


def test_the_preference_decides_whether_sums_may_be_divided(lt):
    d = np.zeros((1, 1), "float16")
    a, b = np.array([[2048, 1, 2048, 3]], "float16"), np.ones((4, 1), "float16")
    layouts = [lt.layout(array) for array in (a, b, d, d)]
    operation = lt.operation(68, 0)
    lt.fake.set(split_k=2)
    sums = {}
    for schemes in (NONE, COMPUTE_TYPE, OUTPUT_TYPE):
        _, found = lt.found(operation, layouts, schemes=schemes)
        assert lt.multiply(operation, (a, b, d, d), layouts, found[0], workspace=1 << 20) == 0
        sums[schemes] = (len(found), float(d[0, 0]))
    # In float16 2049 is 2048 and 2051 is 2052; in float32 nothing is lost.
    assert sums == {NONE: (1, 4100.0), COMPUTE_TYPE: (2, 4100.0), OUTPUT_TYPE: (2, 4100.0)}
    a[0, 3] = 1
    _, found = lt.found(operation, layouts, schemes=OUTPUT_TYPE)
    assert lt.multiply(operation, (a, b, d, d), layouts, found[0], workspace=1 << 20) == 0
    assert d[0, 0] == 4096
    call = lt.fake.calls("cublasLtMatmul")[-1]
    assert (call["split_k"], call["scheme"], call["stream"]) == (2, OUTPUT_TYPE, 0x77)


def test_an_algorithm_that_needs_more_workspace_than_allowed_is_not_found(lt):
    a = np.ones((2, 2), "float32")
    layouts, operation = [lt.layout(a)] * 4, lt.operation()
    assert len(lt.found(operation, layouts, workspace=65536)[1]) == 2
    _, found = lt.found(operation, layouts, workspace=65535)
    assert [result.workspace for result in found] == [0]


def test_an_algorithm_serves_its_own_problem_and_workspace_only(lt):
    a, wide = np.ones((2, 2), "float32"), np.ones((2, 3), "float32", order="F")
    layouts, operation = [lt.layout(a)] * 4, lt.operation()
    divided = lt.found(operation, layouts)[1][0]
    assert lt.multiply(operation, (a, a, a, a.copy()), layouts, divided) == INVALID_VALUE
    others = [layouts[0], *([lt.layout(wide)] * 3)]
    status = lt.multiply(operation, (a, wide, wide, wide.copy()), others, divided, workspace=65536)
    assert status == INVALID_VALUE


def test_what_the_tables_do_not_have_is_not_supported(lt):
    a = np.ones((2, 2), "float32")
    layouts = [lt.layout(a)] * 4
    assert lt.found(lt.operation(compute=70, scale=1), layouts) == (NOT_SUPPORTED, [])
    assert lt.found(lt.operation(compute=68, scale=1), layouts) == (NOT_SUPPORTED, [])


def test_an_attribute_of_another_size_is_refused(lt):
    operation = lt.operation()
    assert lt.set("cublasLtMatmulDesc", operation, 3, ctypes.c_int64(1)) == INVALID_VALUE
    assert lt.set("cublasLtMatmulDesc", operation, 99, ctypes.c_int32(1)) == INVALID_VALUE


def test_a_record_says_what_the_descriptors_hold(lt):
    a, b, d = (np.ones(shape, "float32", order="F") for shape in ((4, 3), (3, 5), (4, 5)))
    operation = lt.operation(77, 0)
    layouts = [lt.layout(array) for array in (a, b, d, d)]
    lt.fake.fail("cublasLtMatmulAlgoGetHeuristic", 14, count=1)
    assert lt.found(operation, layouts)[0] == 14
    call = lt.fake.calls("cublasLtMatmulAlgoGetHeuristic")[0]
    assert {name: call[name] for name in ("compute_type", "max_workspace", "schemes")} == {
        "compute_type": 77,
        "max_workspace": 1 << 20,
        "schemes": 7,
    }
    said = [call[f"b_{word}"] for word in ("type", "order", "rows", "columns", "leading", "batch")]
    assert said == [0, 0, 3, 5, 3, 1]
