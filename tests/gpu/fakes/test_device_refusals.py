"""What products on devices refuse and how failures of the libraries are said; the next call works."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import device_arrays
import numpy as np
import pytest
from device_arrays import ByCapsule, ByInterface, OnDevice
from products import GEMMS, PREFER, numbers, on_device, under, view

from backendcfg import ops
from backendcfg.errors import (
    DeviceFailedError,
    InvalidArgumentError,
    MissingLibraryError,
    TierNotKeptError,
)
from backendcfg.gpu import families
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.gpu.products import recipes

A, B = (3, 5), (5, 4)


def refused(function, *arguments, kind=InvalidArgumentError, **keywords):
    with pytest.raises(kind) as caught:
        function(*arguments, **keywords)
    return caught.value.render()


def first_line(*arguments, **keywords):
    return refused(*arguments, **keywords).splitlines()[0].removeprefix("error[invalid-argument]: ")


@pytest.fixture(autouse=True)
def _devices(devices):
    yield
    devices.reset()
    a, b = on_device(A), on_device(B)
    assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)


def test_an_array_on_the_host_is_refused_with_its_name_and_place():
    assert refused(ops.matmul, on_device(A), numbers(B, "float32")) == (
        "error[invalid-argument]: matmul: `b` must be an array on cuda:0, as `a` is\n"
        "  note: a: float32 array of shape (3, 5) on cuda:0\n"
        "  note: b: float32 array of shape (5, 4) on the CPU\n"
        "  state: nothing was computed\n"
        "  help: move it to where the others are"
    )
    line = first_line(ops.matmul, numbers(A, "float32"), on_device(B))
    assert line == "matmul: `a` must be an array on cuda:0, as `b` is"


@pytest.mark.parametrize(
    ("place", "name"), [((2, 1), "cuda:1"), ((10, 0), "rocm:0"), ((10, 3), "rocm:3")]
)
def test_arrays_at_two_places_are_refused_by_name(place, name):
    line = first_line(ops.matmul, on_device(A), on_device(B, place=place))
    assert line == f"matmul: `b` must be on cuda:0, as `a` is, not on {name}"
    line = first_line(ops.addmm, on_device((4,), place=place), on_device(A), on_device(B))
    assert line == f"addmm: `input` must be on cuda:0, as `mat1` is, not on {name}"
    line = first_line(ops.matmul, on_device(A), on_device(B), out=on_device((3, 4), place=place))
    assert line == f"matmul: `out` must be on cuda:0, as `a` is, not on {name}"


def test_an_out_on_the_host_is_refused():
    out = numbers((3, 4), "float32")
    line = first_line(ops.bmm, on_device((1, *A)), on_device((1, *B)), out=out)
    assert line == "bmm: `out` must be an array on cuda:0, as `input` is"


def test_other_element_types_are_refused():
    whole = OnDevice(np.ones(A, "int64"))
    line = first_line(ops.matmul, whole, on_device(B))
    types = "float32, float64, bfloat16, float16, complex64 or complex128"
    assert line == f"matmul: `a` must hold {types}, not int64"


def test_two_element_types_are_refused_because_nothing_is_converted():
    assert refused(ops.matmul, on_device(A), on_device(B, "float64")) == (
        "error[invalid-argument]: matmul: `b` must hold float32, as `a` does\n"
        "  note: a: float32 array of shape (3, 5) on cuda:0\n"
        "  note: b: float64 array of shape (5, 4) on cuda:0\n"
        "  state: nothing was computed\n"
        "  help: convert one of them: nothing is converted on a device"
    )


SHAPES = [
    ("matmul", (A, A), "`a` and `b` must fit: the columns of one are the rows of the other"),
    ("matmul", ((), B), "`a` must have at least one dimension"),
    ("matmul", ((2, *A), (3, *B)), "the leading dimensions of `a` and `b` must fit"),
    ("bmm", (A, B), "`input` must have 3 dimensions"),
    ("bmm", ((2, *A), (1, *B)), "the leading dimensions of `input` and `mat2` must fit"),
    ("addmm", ((4,), (1, *A), B), "`mat1` must have 2 dimensions"),
    ("addmm", ((5,), A, B), "`input` must broadcast to the shape of the product"),
    ("addmm", ((1, 3, 4), A, B), "`input` must broadcast to the shape of the product"),
    ("baddbmm", ((4,), (2, *A), B), "`batch2` must have 3 dimensions"),
]


@pytest.mark.parametrize(("operation", "shapes", "line"), SHAPES)
def test_shapes_that_do_not_fit_are_refused(operation, shapes, line):
    arrays = [on_device(shape) for shape in shapes]
    assert first_line(getattr(ops, operation), *arrays) == f"{operation}: {line}"


def test_an_out_of_another_shape_is_refused():
    line = first_line(ops.matmul, on_device(A), on_device(B), out=on_device((4, 3)))
    assert line == "matmul: `out` must have the shape of the product"


def test_an_out_that_shares_memory_is_refused():
    a, b = on_device((4, 4)), on_device((4, 4))
    assert first_line(ops.matmul, a, b, out=b) == "matmul: `out` must share no memory with `b`"
    added = on_device((6, 4))
    out, shifted = view(added, lambda x: x[:4]), view(added, lambda x: x[1:5])
    line = first_line(ops.addmm, shifted, a, b, out=out)
    assert line == "addmm: `out` must share no memory with `input`"


def test_an_out_that_repeats_an_element_is_refused():
    out = view(on_device((1, 4)), lambda x: np.broadcast_to(x, (3, 4)))
    line = first_line(ops.matmul, on_device(A), on_device(B), out=out)
    assert line == "matmul: `out` must not repeat an element"


@pytest.mark.parametrize("factor", ["1", None, True, 1j, [1], np.complex64(1j)])
def test_a_factor_that_is_no_number_is_refused(factor):
    line = first_line(ops.addmm, on_device((4,)), on_device(A), on_device(B), alpha=factor)
    assert line == f"addmm: `alpha` must be a number that float32 can hold, not {factor!r}"


def test_memory_that_is_none_is_refused():
    class Broken(ByInterface):
        @property
        def __cuda_array_interface__(self):
            return {"shape": (3, 5), "typestr": "<f4", "version": 3}

    broken = Broken(numbers(A, "float32"), place=(2, 0))
    assert first_line(ops.matmul, broken, on_device(B)) == (
        "matmul: `a` cannot be read: its `__cuda_array_interface__` has a mask, or lacks an entry"
    )


# What cuBLAS cannot keep, so that nobody takes over from cuBLASLt.
WHOLE_K = {
    "cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k": False,
}

FAULTS = [
    ("cublas", "cublasGemmEx_64", 3, "cublasGemmEx", "CUBLAS_STATUS_ALLOC_FAILED"),
    ("cublas", "cublasGemmEx_64", 7, "cublasGemmEx", "CUBLAS_STATUS_INVALID_VALUE"),
    ("cublas", "cublasGemmEx_64", 8, "cublasGemmEx", "CUBLAS_STATUS_ARCH_MISMATCH"),
    ("cublas", "cublasGemmEx_64", 13, "cublasGemmEx", "CUBLAS_STATUS_EXECUTION_FAILED"),
    ("cublas", "cublasGemmEx_64", 14, "cublasGemmEx", "CUBLAS_STATUS_INTERNAL_ERROR"),
    ("cublas", "cublasGemmEx_64", 15, "cublasGemmEx", "CUBLAS_STATUS_NOT_SUPPORTED"),
    ("cublaslt", "cublasLtMatmul", 15, "cublasLtMatmul", "CUBLAS_STATUS_NOT_SUPPORTED"),
]


@pytest.mark.parametrize(("provider", "symbol", "status", "function", "name"), FAULTS)
def test_what_a_library_answers_is_said_by_name(devices, provider, symbol, status, function, name):
    getattr(devices, provider).fail(symbol, status)
    element, flags = ("float16", WHOLE_K) if provider == "cublaslt" else ("float32", {})
    with under(**{PREFER: provider}, **flags):
        a, b = on_device(A, element), on_device(B, element)
        said = refused(ops.matmul, a, b, kind=DeviceFailedError)
    head, *lines = said.splitlines()
    assert head == (
        f"error[device-failed]: matmul: {provider} failed: {function} returned {name} ({status})"
    )
    assert lines[:2] == [
        f"  note: {element} product of (3, 5) and (5, 4)",
        "  state: the result was not computed; the next call starts anew",
    ]
    helps = {
        3: "free memory on the device, or make the workspace smaller",
        15: "the library has no kernel for this: set `cuda.preferred_blas_library`",
        8: "the library has no code for this device: install another release of it",
    }
    if status in helps:
        assert lines[2] == f"  help: {helps[status]}"


STEPS = [
    ("cublas", "cublasCreate_v2", 1, "cublasCreate returned CUBLAS_STATUS_NOT_INITIALIZED (1)"),
    ("cublas", "cublasSetStream_v2", 1, "cublasSetStream returned"),
    ("cublas", "cublasSetWorkspace_v2", 7, "cublasSetWorkspace returned"),
    ("cublas", "cublasSetMathMode", 7, "cublasSetMathMode returned"),
    ("cublas", "cublasSetAtomicsMode", 7, "cublasSetAtomicsMode returned"),
    ("cublaslt", "cublasLtCreate", 3, "cublasLtCreate returned"),
    ("cublaslt", "cublasLtMatmulDescCreate", 3, "cublasLtMatmulDescCreate returned"),
    ("cublaslt", "cublasLtMatmulDescSetAttribute", 7, "cublasLtMatmulDescSetAttribute returned"),
    ("cublaslt", "cublasLtMatrixLayoutCreate", 3, "cublasLtMatrixLayoutCreate returned"),
    ("cublaslt", "cublasLtMatmulPreferenceCreate", 3, "cublasLtMatmulPreferenceCreate returned"),
    ("cublaslt", "cublasLtMatmulAlgoGetHeuristic", 7, "cublasLtMatmulAlgoGetHeuristic returned"),
    ("cuda", "cuCtxGetCurrent", 3, "cuCtxGetCurrent returned CUDA_ERROR_NOT_INITIALIZED (3)"),
    ("cuda", "cuCtxPushCurrent_v2", 201, "cuCtxPushCurrent returned"),
]


@pytest.mark.parametrize(("fake", "symbol", "status", "said"), STEPS)
def test_every_step_that_fails_is_named_and_leaves_nothing_behind(
    devices, new_stream, fake, symbol, status, said
):
    getattr(devices, fake).fail(symbol, status)
    provider = "cublaslt" if fake == "cublaslt" else "cublas"
    m = new_stream % 1000 + 3  # a size that no plan is kept for
    a, b = on_device((m, 5)), on_device(B)
    with under(**{PREFER: provider}):
        assert said in refused(ops.matmul, a, b, kind=DeviceFailedError)
        devices.reset()
        assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)
    current = device_driver.ctypes.c_void_p()
    device_driver._driver(devices.cuda.path).cuCtxGetCurrent(device_driver.ctypes.byref(current))
    assert current.value is None


def test_a_driver_that_cannot_start_in_a_forked_child_says_why(devices):
    from backendcfg.gpu import products

    fault = ("cuInit", 3, "CUDA_ERROR_NOT_INITIALIZED")
    with pytest.raises(DeviceFailedError) as caught:
        products.failed("matmul", "cublas", fault, (3, 4, 5), "float32")
    assert caught.value.render().splitlines()[-1] == (
        "  help: in a child of a process that had used the device, none works: use `spawn`"
    )


def test_a_full_device_is_said_by_its_allocator_and_passes(new_stream):
    OnDevice.full = True
    with pytest.raises(MemoryError, match="the device is full"):
        ops.matmul(on_device(A), on_device(B))
    assert "the allocator of its workspace returned OUT_OF_MEMORY (2)" in refused(
        ops.matmul, on_device(A), on_device(B), out=on_device((3, 4)), kind=DeviceFailedError
    )
    OnDevice.full = False


def test_a_promise_that_no_library_keeps_is_not_broken(devices):
    with under(**{"determinism.tier": "batch-invariant"}):
        said = refused(ops.matmul, on_device(A), on_device(B), kind=TierNotKeptError)
        explained = ops.explain("matmul", (A, B), "float32", device="cuda:0")
    assert said == (
        "error[tier-not-kept]: matmul: `determinism.tier` promises `batch-invariant`, which no "
        "library on a device keeps\n"
        "  state: nothing was computed\n"
        "  help: compute on the CPU: our own kernels keep it\n"
        "  help: use a profile of a lower tier"
    )
    assert explained.provider == ""
    assert devices.calls(*GEMMS) == []


def test_a_result_that_is_not_finite_is_refused_where_the_flag_says(monkeypatch):
    seen = []
    monkeypatch.setitem(
        families.CALLBACKS, "finite", lambda operation, result: seen.append(operation)
    )
    families.bind()
    try:
        with under(**{"ops.check_finite": True}):
            ops.matmul(on_device(A), on_device(B))
        ops.matmul(on_device(A), on_device(B))
    finally:
        monkeypatch.undo()
        families.bind()
    assert seen == ["matmul"]


def test_without_a_library_each_is_named_with_the_reason(monkeypatch):
    missing = opening.Unusable("cublas", ("cuBLAS: no libcublas.so.13 was found",))
    driver = recipes.open_device("cuda")
    monkeypatch.setattr(recipes, "open_device", lambda name: driver if name == "cuda" else missing)
    with under(**{"cuda.cublas_workspace_size": 512}):  # a snapshot of its own
        said = refused(ops.matmul, on_device(A), on_device(B), kind=MissingLibraryError)
    monkeypatch.undo()
    assert said.splitlines()[1:3] == [
        "  note: cublas: cuBLAS: no libcublas.so.13 was found",
        "  note: cublaslt: cuBLAS: no libcublas.so.13 was found",
    ]


FORKS = """
import os, sys
sys.path.insert(0, {tests!r})
from device_arrays import OnDevice
from products import on_device
import conftest
fakes = [conftest.Fake(path) for path in {paths!r}]
from backendcfg import ops
from backendcfg.errors import InvalidArgumentError
a, b = on_device((3, 5)), on_device((5, 4))
ops.matmul(a, b)
child = os.fork()
if child == 0:
    try:
        ops.matmul(a, b)
    except InvalidArgumentError as error:
        print(error.render(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
ops.matmul(a, b)
print(ops.stats().operations[0].calls, [one.provider for one in ops.stats() if one.calls])
"""


def test_a_forked_child_is_told_and_the_parent_goes_on(device_file):
    """In a process of its own, which finds the fakes as it would find a framework's libraries."""
    paths = [device_file(f) for f in ("libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13")]
    code = FORKS.format(tests=str(Path(__file__).parent), paths=paths)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout == (
        "error[invalid-argument]: matmul: this process was forked from one that had used the device\n"
        "  note: no driver of a device works on in a forked child\n"
        "  state: nothing was computed\n"
        '  help: start workers by "spawn" or "forkserver": '
        '`multiprocessing.get_context("spawn")`\n'
        "2 ['cublas']\n"
    ), done.stderr


def test_an_array_without_memory_is_refused_before_anything_is_called(devices):
    class Wrapper(ByInterface):
        @property
        def __cuda_array_interface__(self):
            return {**super().__cuda_array_interface__, "data": (0, False)}

    wrapper = Wrapper(numbers(A, "float32"), 1, place=(2, 0))
    line = first_line(ops.matmul, wrapper, on_device(B), out=on_device((3, 4)))
    assert line == "matmul: `a` cannot be read: it has no memory"
    assert devices.calls(*GEMMS) == []
    empty = Wrapper(numbers((0, 5), "float32"), 1, place=(2, 0))
    assert ops.matmul(empty, on_device(B), out=on_device((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"shape": (-3, 5)}, "its shape is negative"),
        ({"shape": (2**40, 2**40), "strides": None}, "its size does not fit 64 bits"),
        ({"strides": (2**60, 4)}, "it reaches beyond all memory"),
        ({"strides": (20,)}, "its strides do not fit its shape"),
    ],
)
def test_an_interface_that_cannot_be_true_is_refused(devices, changed, text):
    class Liar(ByInterface):
        @property
        def __cuda_array_interface__(self):
            return super().__cuda_array_interface__ | changed

    liar = Liar(numbers(A, "float32"), 1, place=(2, 0))
    assert first_line(ops.matmul, liar, on_device(B)) == f"matmul: `a` cannot be read: {text}"
    assert devices.calls(*GEMMS) == []


UNTRUE = [
    ({"shape": None}, "it has dimensions and no shape"),
    ({"shape": (-3, 5)}, "its shape is negative"),
    ({"shape": (2**40, 2**40), "strides": None}, "its size does not fit 64 bits"),
    ({"strides": (2**62, 1)}, "its strides do not fit 64 bits"),
    ({"strides": (2**60, 1)}, "it reaches beyond all memory"),
    ({"offset": 2**64 - 1}, "it reaches beyond all memory"),
]
ELSEWHERE = {"index": 1}, "its DLPack capsule is of another device than `__dlpack_device__` says"


@pytest.mark.parametrize(
    ("kind", "changed", "text"),
    [
        *((OnDevice, *each) for each in UNTRUE),
        *((ByCapsule, *each) for each in [*UNTRUE, ELSEWHERE]),
    ],
)
def test_a_tensor_of_dlpack_that_cannot_be_true_is_refused(
    devices, monkeypatch, kind, changed, text
):
    liar, whole = kind(numbers(A, "float32")), on_device(B)
    fill = device_arrays.fill
    kept = []  # what the tensor points to, which does not own it

    def lie(tensor, owner):
        fill(tensor, owner)
        if owner is not (liar.owner if kind is ByCapsule else liar):
            return
        for name, value in changed.items():
            if isinstance(value, tuple):
                value = (ctypes.c_int64 * len(value))(*value)
                kept.append(value)
            setattr(tensor, name, value)

    monkeypatch.setattr(device_arrays, "fill", lie)
    assert first_line(ops.matmul, liar, whole) == f"matmul: `a` cannot be read: {text}"
    assert devices.calls(*GEMMS) == []


def test_an_array_of_another_vendor_s_device_is_not_said_to_be_on_the_host():
    said = refused(ops.matmul, on_device(A), on_device(B, place=(8, 1)))
    assert "  note: b: float32 array of shape (5, 4) on Metal:1\n" in said


def test_what_one_library_cannot_copy_of_another_is_refused():
    added = ByInterface(numbers((3, 4), "float32"), 1, place=(2, 0))
    assert refused(ops.addmm, added, on_device(A), on_device(B)) == (
        "error[invalid-argument]: addmm: arrays of device_arrays.ByInterface cannot be copied into "
        "those of device_arrays.OnDevice on a device from here\n"
        "  state: nothing was computed\n"
        "  help: pass PyTorch's alone or CuPy's, or add to the product of `matmul` yourself"
    )


def test_a_failure_after_work_was_put_on_the_stream_waits_for_it(devices, new_stream):
    a = ByInterface(numbers(A, "float32"), 1, place=(2, 0))
    b = ByInterface(numbers(B, "float32", 1), new_stream, place=(2, 0))
    out = ByInterface(numbers((3, 4), "float32"), 1, place=(2, 0))
    devices.cuda.fail("cuEventRecord", 719, 1)
    said = refused(ops.matmul, a, b, out=out, kind=DeviceFailedError)
    assert "the device's driver failed: cuEventRecord returned CUDA_ERROR_LAUNCH_FAILED" in said
    assert len(devices.calls(*GEMMS)) == 1
    # What `b` frees on its own stream would else be read by the product that still runs.
    assert [call["stream"] for call in devices.cuda.calls("cuStreamSynchronize")] == [1]


def test_protocols_without_a_table_are_taken_on_their_stream(devices, new_stream):
    place = (2, 0)
    a = ByInterface(numbers(A, "float32"), new_stream, place=place)
    b = ByInterface(numbers(B, "float32", 1), new_stream, place=place)
    out = ByInterface(numbers((3, 4), "float32", 2), new_stream, place=place)
    assert ops.matmul(a, b, out=out) is out
    assert np.array_equal(out.array, a.array @ b.array)
    assert devices.calls(*GEMMS)[-1]["stream"] == new_stream
    assert devices.cuda.calls("cuStreamSynchronize") == []


def test_arrays_of_two_streams_are_put_in_order(devices, new_stream):
    a = ByInterface(numbers(A, "float32"), 1, place=(2, 0))
    b = ByInterface(numbers(B, "float32", 1), new_stream, place=(2, 0))
    out = ByInterface(numbers((3, 4), "float32"), 1, place=(2, 0))
    ops.matmul(a, b, out=out)
    records = [call["stream"] for call in devices.cuda.calls("cuEventRecord")]
    waits = [call["stream"] for call in devices.cuda.calls("cuStreamWaitEvent")]
    assert (records, waits) == ([new_stream, 1], [1, new_stream])
    created, destroyed = (
        len(devices.cuda.calls(name)) for name in ("cuEventCreate", "cuEventDestroy_v2")
    )
    assert created == destroyed == 2


def test_an_array_that_names_no_stream_makes_the_call_wait(devices):
    a, b = (ByInterface(numbers(s, "float32"), None, place=(2, 0)) for s in (A, B))
    out = ByInterface(numbers((3, 4), "float32"), None, place=(2, 0))
    ops.matmul(a, b, out=out)
    assert len(devices.cuda.calls("cuStreamSynchronize")) == 1


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_a_capsule_is_asked_for_with_the_stream_and_given_back(devices, element):
    a, b = ByCapsule(numbers(A, element), element), ByCapsule(numbers(B, element, 1), element)
    out = on_device((3, 4), element)
    ops.matmul(a, b, out=out)
    wanted = ops.matmul(on_device(A, element), on_device(B, element, 1))
    assert np.array_equal(out.array, wanted.array)
    assert a.asked == (1, (1, 0))


def test_the_place_of_a_pointer_is_asked_of_the_driver(devices, monkeypatch):
    pointers = []
    monkeypatch.setitem(families.CALLBACKS, "place", lambda p: pointers.append(p) or 0)
    families.bind()
    a, b = (ByInterface(numbers(s, "float32"), 1) for s in (A, B))
    out = ByInterface(numbers((3, 4), "float32"), 1)
    ops.matmul(a, b, out=out)
    monkeypatch.undo()
    families.bind()
    assert pointers == [array.array.ctypes.data for array in (a, b, out)]
