"""What linear algebra on AMD's devices says to hipSOLVER: its functions, its numbers, its sizes."""

import ctypes

import device_arrays
import pytest
from linalg_on_device import ELEMENTS, Matrix, matrices, positive, there
from products import under

from backendcfg.errors import DeviceFailedError
from backendcfg.gpu import linalg as linalg_calls
from backendcfg.gpu.arrays import Arguments
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.libraries.calling import Fault, Session
from backendcfg.gpu.linalg.steps import (
    CHOLESKY,
    DEFAULTS,
    MAKERS,
    PROVIDERS,
    Stack,
    Step,
    choose,
    order,
)
from backendcfg.gpu.linalg.vendors import Room
from backendcfg.ops import explain, linalg
from backendcfg.ops.devices import ROCM

PLACE = (10, 0)
LETTERS = dict(zip(ELEMENTS, "SDCZ", strict=True))
NOT_SUPPORTED, ALLOC_FAILED = 7, 2


@pytest.fixture
def hipsolver(devices, monkeypatch):
    monkeypatch.setattr(device_arrays, "OnDevice", Matrix)
    monkeypatch.setattr(Matrix, "stream", 0)
    linalg_calls.forget()
    yield devices.hipsolver
    linalg_calls.forget()


def square(element="float64", n=4, seed=0):
    return there(positive((n, n), element, seed), PLACE)


def steps(fake):
    """The calls that compute."""
    calls = [call for call in fake.calls() if "bytes" in call.arguments]
    return [call for call in calls if not call.function.endswith("_bufferSize")]


CALLS = {
    "cholesky": (lambda a: linalg.cholesky(a), ("potrf",), ("potrf",)),
    "cholesky_solve": (lambda a: linalg.cholesky_solve(a, a), ("potrs",), ("potrs",)),
    "solve": (lambda a: linalg.solve(a, a), ("getrf", "getrs"), ("getrf", "getrs")),
    "qr": (lambda a: linalg.qr(a), ("geqrf", "orgqr"), ("geqrf", "ungqr")),
    "eigh": (lambda a: linalg.eigh(a), ("syevd",), ("heevd",)),
    "svd": (lambda a: linalg.svd(a), ("gesvd",), ("gesvd",)),
}


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("function", CALLS)
def test_a_step_is_the_function_of_its_type_with_as_many_bytes_as_it_said(
    hipsolver, function, element
):
    call, real, complex_ = CALLS[function]
    call(square(element))
    names = complex_ if element.startswith("complex") else real
    assert [one.function for one in steps(hipsolver)] == [
        f"hipsolver{LETTERS[element]}{name}" for name in names
    ]
    for one in steps(hipsolver):
        assert (one["n"], one["lda"]) == (4, 4)
        assert one["bytes"] > 0
        assert hipsolver.calls(f"{one.function}_bufferSize")


def test_the_numbers_are_those_of_hipsolver(hipsolver):
    a = square("complex128")
    linalg.cholesky(a)
    linalg.cholesky(a, upper=True)
    linalg.eigvalsh(a, "U")
    linalg.eigh(a)
    assert [call["uplo"] for call in steps(hipsolver)] == [121, 122, 121, 122]
    assert [call["jobz"] for call in steps(hipsolver)[2:]] == [201, 202]
    hipsolver.reset()
    factors, pivots = linalg.lu_factor(a)
    assert pivots.element == "int32"
    linalg.lu_solve(factors, pivots, a)
    linalg.lu_solve(factors, pivots, a, adjoint=True)
    linalg.lu_solve(factors, pivots, a, left=False)
    assert [call["trans"] for call in steps(hipsolver)[1:]] == [111, 113, 112]
    hipsolver.reset()
    linalg.svd(there(matrices((5, 3)), PLACE), full_matrices=False)
    linalg.svdvals(a)
    assert [chr(call["jobu"]) for call in steps(hipsolver)] == ["S", "N"]
    assert steps(hipsolver)[0]["rwork"] is None


def test_work_is_put_on_the_stream_of_the_array(devices, hipsolver):
    stream = ctypes.c_void_p()
    devices.hip.library.hipStreamCreateWithFlags(ctypes.byref(stream), 1)
    Matrix.stream = stream.value
    linalg.cholesky(square())
    assert [call["stream"] for call in steps(hipsolver)] == [stream.value]


def test_a_handle_is_told_to_be_deterministic_and_told_once(hipsolver):
    linalg.cholesky(square())
    linalg.cholesky(square())
    assert {call["deterministic"] for call in steps(hipsolver)} == {241}
    assert len(hipsolver.calls("hipsolverSetDeterministicMode")) <= 1


@pytest.mark.parametrize(
    ("version", "flags", "mode"),
    [
        ((1, 0, 0), {}, 241),
        ((0, 0, 0), {}, 0),
        ((0, 0, 0), {"determinism.algorithms": "deterministic"}, 241),
        ((0, 0, 0), {"determinism.tier": "run-to-run"}, 241),
    ],
)
def test_an_older_one_is_told_where_that_is_promised(version, flags, mode):
    recipe = PROVIDERS["hipsolver"]({**DEFAULTS, **flags}, "float32", version)
    assert (recipe.deterministic, recipe.pivots) == (mode, "int32")


def factorised(opened, devices, mode):
    """What comes of a Cholesky factor under a mode: None, or what failed."""
    given = Arguments("linalg.cholesky", {"A": square()})
    view = given.take("A")
    _, info = given.make((1,), "int32")
    step = Step(opened, CHOLESKY, "float64", False, "N", "N", mode, 1, 4, 4, 0, Stack(0),
                info=Stack(1))  # fmt: skip
    maker, bases = MAKERS["hipsolver"], {0: view.address, 1: info.address}
    work = given.work(opened, devices.find("hip").handle, view)
    try:
        with Session(work, maker.handle) as handle:
            size, _ = maker.sizes(handle, step, step.here(bases))
            memory, room = given.make((size,), "uint8")
            maker.compute(handle, step, bases, Room(room.address, size, None, 0))
            del memory
    except Fault as fault:
        return fault.args
    return None


def test_one_that_has_no_modes_says_so(devices, hipsolver, device_file):
    path = device_file("libhipsolver.so.0", "OLD")
    old = opening._open(opening.DeviceFile(path, "hipsolver", 0, "loaded"))
    assert old.version == (0, 0, 0)
    assert factorised(old, devices, 241) == (
        "hipsolverSetDeterministicMode",
        NOT_SUPPORTED,
        "HIPSOLVER_STATUS_NOT_SUPPORTED",
    )
    assert factorised(old, devices, 0) is None


def test_a_handle_is_as_it_was_made_where_nothing_is_promised_any_more(hipsolver, devices, device):
    fake = device("libhipsolver.so.0")
    found = opening.DeviceFile(fake.path, "hipsolver", 0, "loaded")
    opened = opening._open(found)
    for mode in (0, 241, 241, 0, 241, 0):
        assert factorised(opened, devices, mode) is None
    told = [call["mode"] for call in fake.calls("hipsolverSetDeterministicMode")]
    assert told == [241, 242, 241, 242]


@pytest.mark.parametrize("preferred", ["default", "cusolver", "hipsolver"])
def test_it_is_what_cusolver_means_on_amds_devices(hipsolver, preferred):
    assert order(ROCM, preferred) == ("hipsolver", "magma")
    flags = {**DEFAULTS, "cuda.preferred_linalg_library": preferred}
    assert choose(flags, ROCM, "float32").passed_over == ""


def test_explain_says_who_serves(hipsolver):
    told = explain("linalg.solve", ((4, 4), (4, 2)), "float32", device="rocm:0")
    assert told.provider == "hipsolver"
    assert told.because == "the first of the order: mode HIPSOLVER_DETERMINISTIC_RESULTS"
    reasons = {reason.provider: reason.why for reason in told.reasons}
    assert reasons["magma"] == "behind `hipsolver`"


FUNCTIONS = {
    "cholesky": ("hipsolverDpotrf_bufferSize", "hipsolverDpotrf"),
    "solve": ("hipsolverDgetrf", "hipsolverDgetrs_bufferSize", "hipsolverDgetrs"),
    "qr": ("hipsolverDgeqrf", "hipsolverDorgqr_bufferSize", "hipsolverDorgqr"),
    "eigh": ("hipsolverDsyevd_bufferSize", "hipsolverDsyevd"),
    "svd": ("hipsolverDgesvd_bufferSize", "hipsolverDgesvd"),
}


@pytest.mark.parametrize(("name", "failing"), [(n, f) for n, fs in FUNCTIONS.items() for f in fs])
def test_a_function_that_fails_is_named_and_the_next_call_works(hipsolver, name, failing):
    hipsolver.fail(failing, ALLOC_FAILED, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        CALLS[name][0](square())
    first, *_ = str(caught.value).splitlines()
    assert first == (
        f"linalg.{name}: hipSOLVER failed: {failing} returned HIPSOLVER_STATUS_ALLOC_FAILED (2)"
    )
    CALLS[name][0](square())


@pytest.mark.parametrize(
    ("failing", "made", "destroyed"),
    [
        ("hipsolverCreate", 2, 0),
        ("hipsolverSetStream", 2, 1),
        ("hipsolverSetDeterministicMode", 1, 0),
    ],
)
def test_a_handle_that_cannot_be_made_leaves_nothing(devices, hipsolver, failing, made, destroyed):
    stream = ctypes.c_void_p()
    devices.hip.library.hipStreamCreateWithFlags(ctypes.byref(stream), 1)
    Matrix.stream = stream.value
    hipsolver.fail(failing, ALLOC_FAILED, count=1)
    with pytest.raises(DeviceFailedError, match=rf"{failing} returned HIPSOLVER_STATUS_ALLOC"):
        linalg.cholesky(square())
    linalg.cholesky(square())
    assert len(hipsolver.calls("hipsolverCreate")) == made
    assert len(hipsolver.calls("hipsolverDestroy")) == destroyed


def test_tiers_that_no_library_keeps_are_refused(hipsolver):
    from backendcfg.errors import TierNotKeptError

    with under(**{"determinism.tier": "cross-machine"}), pytest.raises(TierNotKeptError):
        linalg.cholesky(square())
    assert not steps(hipsolver)
