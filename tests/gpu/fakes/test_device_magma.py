"""What linear algebra on devices says to MAGMA: its numbers, memory of the host, and when it waits."""

import ctypes
import warnings

import device_arrays
import numpy as np
import pytest
from linalg_on_device import ELEMENTS, Matrix, matrices, positive, there
from products import under

from backendcfg.errors import DeviceFailedError
from backendcfg.gpu import linalg as linalg_calls
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.linalg.steps import DEFAULTS, EIGH, LU, MAKERS, SVD, Stack, Step, choose, order
from backendcfg.ops import explain, linalg
from backendcfg.ops.devices import CUDA, ROCM

LIBRARY = "cuda.preferred_linalg_library"
LETTERS = dict(zip(ELEMENTS, "sdcz", strict=True))
PREFERRED = {**DEFAULTS, LIBRARY: "magma"}
DEVICE_ALLOC, UNKNOWN = -113, -116


@pytest.fixture
def magma(devices, monkeypatch):
    monkeypatch.setattr(device_arrays, "OnDevice", Matrix)
    monkeypatch.setattr(Matrix, "stream", 0)
    linalg_calls.forget()
    devices.bring("magma", "magma_hip")
    with under(**{LIBRARY: "magma"}):
        yield devices.magma
    linalg_calls.forget()


def square(element="float64", n=4, seed=0):
    return there(positive((n, n), element, seed))


def steps(fake):
    """The calls that compute, without those that ask for sizes."""
    calls = [call for call in fake.calls() if "lda" in call.arguments]
    return [call for call in calls if call.arguments.get("lwork") != -1]


def names(fake):
    """Every call but those of a new stream's queue."""
    made = ("magma_init", "magma_getdevice", "magma_queue_create_from_cuda_internal")
    return [call.function for call in fake.calls() if call.function not in made]


def at(array):
    return array.array.ctypes.data


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_step_is_the_function_of_its_type(magma, element):
    a = square(element)
    linalg.cholesky(a)
    linalg.solve(a, a)
    linalg.qr(a)
    linalg.eigh(a)
    linalg.svd(a)
    q, eigen = ("ungqr2", "heevd") if element.startswith("complex") else ("orgqr2", "syevd")
    assert [call.function for call in steps(magma)] == [
        f"magma_{LETTERS[element]}{name}"
        for name in (
            "potrf_gpu",
            "getrf_gpu",
            "getrs_gpu",
            "geqrf2_gpu",
            q,
            f"{eigen}_gpu",
            "gesdd",
        )
    ]
    assert {call["lda"] for call in steps(magma)} == {4}


def test_the_numbers_are_those_of_magma(magma):
    a = square()
    linalg.eigvalsh(a, "U")
    linalg.eigh(a)
    assert [(call["jobz"], call["uplo"]) for call in steps(magma)] == [(301, 122), (302, 121)]
    magma.reset()
    factors, pivots = linalg.lu_factor(a)
    assert pivots.element == "int32"
    linalg.lu_solve(factors, pivots, a)
    linalg.lu_solve(factors, pivots, a, adjoint=True)
    linalg.lu_solve(factors, pivots, a, left=False)
    complex_ = linalg.lu_factor(square("complex128"))
    linalg.lu_solve(*complex_, square("complex128"), adjoint=True)
    how = [call["trans"] for call in steps(magma) if "trans" in call.arguments]
    assert how == [111, 113, 112, 113]
    magma.reset()
    linalg.svd(a)
    linalg.svd(a, full_matrices=False)
    linalg.svdvals(a)
    assert [call["jobz"] for call in steps(magma)] == [304, 305, 301]


def test_pivots_lie_on_the_host_and_results_on_the_device(magma):
    factors, pivots = linalg.lu_factor(square())
    (factored,) = steps(magma)
    stored = magma.calls("magma_setvector_internal")
    assert factored["pivots"] != at(pivots)
    assert [(call["n"], call["size"], call["to"]) for call in stored[:1]] == [(4, 4, at(pivots))]
    assert stored[0]["from"] == factored["pivots"]
    linalg.lu_solve(factors, pivots, square())
    (fetched,) = magma.calls("magma_getvector_internal")
    assert (fetched["n"], fetched["size"]) == (4, 4)


@pytest.mark.parametrize("element", ["float32", "complex128"])
def test_a_solution_by_a_cholesky_factor_waits_for_nothing(magma, element):
    a, b = positive((4, 4), element), matrices((4, 2), element, 2)
    factor = np.linalg.cholesky(a)
    solved = linalg.cholesky_solve(there(b), there(factor))
    assert np.allclose(solved.array, np.linalg.solve(a, b), atol=1e-3)
    trsm = f"magma_{LETTERS[element]}trsm"
    assert names(magma) == [trsm, trsm]
    first, second = magma.calls(trsm)
    assert {first["side"], first["diagonal"], second["side"]} == {141, 131}
    assert first["uplo"] == second["uplo"]
    assert {first["trans"], second["trans"]} == {111, 113}


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.inv, linalg.eigh, linalg.svd])
def test_the_stream_is_waited_for_before_magma_computes_on_its_own(magma, new_stream, function):
    function(square())
    calls = magma.calls()
    computes = next(place for place, call in enumerate(calls) if call == steps(magma)[0])
    waits = next(place for place, call in enumerate(calls) if "sync" in call.function)
    assert waits < computes
    assert calls[waits]["stream"] == new_stream
    assert {call["stream"] for call in magma.calls("magma_setvector_internal")} == {new_stream}


def test_a_queue_is_made_once_for_a_stream(magma, new_stream):
    for _ in range(3):
        linalg.cholesky(square())
    (made,) = magma.calls("magma_queue_create_from_cuda_internal")
    assert (made["stream"], made["blas"], made["sparse"]) == (new_stream, None, None)
    assert len(magma.calls("magma_init")) == 1


# The last two are asked for sizes twice before they compute.
FAILING = [
    ("cholesky", "magma_dpotrf_gpu", 0),
    ("inv", "magma_dgetrf_gpu", 0),
    ("lu", "magma_dgetrs_gpu", 0),
    ("qr", "magma_dgeqrf2_gpu", 0),
    ("qr", "magma_dorgqr2", 0),
    *(("eigh", "magma_dsyevd_gpu", skip) for skip in range(2)),
    *(("svd", "magma_dgesdd", skip) for skip in range(2)),
]


@pytest.mark.parametrize(("name", "failing", "skip"), FAILING)
def test_a_function_that_fails_is_named_and_the_next_call_works(magma, name, failing, skip):
    call = getattr(linalg, name)
    magma.fail(failing, DEVICE_ALLOC, skip=skip, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        call(square())
    assert caught.value.render() == (
        f"error[device-failed]: linalg.{name}: MAGMA failed: {failing} returned "
        "MAGMA_ERR_DEVICE_ALLOC (-113)\n"
        "  note: A: float64 array of shape (4, 4) on cuda:0\n"
        "  state: the result was not computed; the next call starts anew\n"
        "  help: free memory on the device: MAGMA takes its own, beside the framework's"
    )
    call(square())


def test_an_argument_that_magma_refuses_has_no_name(magma):
    magma.fail("magma_dpotrf_gpu", -4, count=1)
    with pytest.raises(DeviceFailedError, match=r"magma_dpotrf_gpu returned status \(-4\)"):
        linalg.cholesky(square())


def test_a_magma_that_cannot_start_is_named(magma, new_stream):
    magma.fail("magma_init", UNKNOWN, count=1)
    with pytest.raises(DeviceFailedError, match=r"magma_init returned MAGMA_ERR_UNKNOWN"):
        linalg.cholesky(square())
    magma.fail("magma_queue_create_from_cuda_internal", 1, count=1)
    with pytest.raises(DeviceFailedError, match=r"create_from_cuda returned MAGMA_ERR_HOST_ALLOC"):
        linalg.cholesky(square())
    magma.set(unusable=1)  # MAGMA prints that a handle of cuBLAS failed, and goes on
    with pytest.raises(DeviceFailedError, match=r"create_from_cuda returned MAGMA_ERR_UNKNOWN"):
        linalg.cholesky(square())
    assert len(magma.calls("magma_queue_destroy_internal")) == 1
    magma.set(unusable=0)
    linalg.cholesky(square())


@pytest.mark.parametrize(
    ("kind", "m", "n", "served"),
    [
        (LU, 46340, 46340, True),
        (LU, 46341, 46341, False),
        (EIGH, 32000, 32000, True),
        (EIGH, 32768, 32768, False),
        (SVD, 20000, 20000, True),
        (SVD, 23171, 23171, False),
        (SVD, 1 << 31, 1, False),
    ],
)
def test_sizes_that_overflow_its_integers_are_not_tried(devices, magma, kind, m, n, served):
    step = Step(devices.find("magma"), kind, "float32", False, "N", "S", 0, 1, m, n, 0, Stack(0))
    assert MAKERS["magma"].supports(step) == served


def test_the_order_of_libraries():
    assert order(CUDA, "default") == order(CUDA, "cusolver") == ("cusolver", "magma")
    assert order(CUDA, "magma") == ("magma", "cusolver")
    assert order(ROCM, "magma") == ("magma", "hipsolver")


def test_where_magma_is_absent_another_serves_and_says_so_once(devices, monkeypatch):
    monkeypatch.setattr(device_arrays, "OnDevice", Matrix)
    monkeypatch.setattr(Matrix, "stream", 0)
    linalg_calls.forget()
    # They are in the process: who serves is asked anew once something was loaded.
    for fake in (devices.cuda, devices.cusolver, devices.cublas):
        fake.reset()
    expected = (
        "linalg.cholesky is served by cuSOLVER, not by `magma`, which "
        "`cuda.preferred_linalg_library` prefers: MAGMA: no libmagma.so was found"
    )
    with under(**{LIBRARY: "magma"}):
        with pytest.warns(UserWarning, match="served by cuSOLVER") as caught:
            linalg.cholesky(square())
        assert [str(one.message) for one in caught] == [expected]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            linalg.cholesky(square())
    linalg_calls.forget()
    assert devices.cusolver.calls("cusolverDnXpotrf")


@pytest.mark.parametrize(
    "flags", [{"determinism.algorithms": "deterministic"}, {"determinism.tier": "run-to-run"}]
)
def test_it_serves_nobody_who_was_promised_the_same_bits(magma, flags):
    chosen = choose({**PREFERRED, **flags}, CUDA, "float64")
    assert (chosen.recipe.provider, chosen.passed_over) == ("cusolver", "magma")
    assert chosen.reasons["magma"] == (
        "it does not promise the same bits, as `determinism.algorithms` or `determinism.tier` asks"
    )


def test_explain_says_who_serves(magma):
    told = explain("linalg.solve", ((4, 4), (4, 2)), "float32", device="cuda:0")
    assert told.provider == "magma"
    assert told.path == magma.path
    assert told.because == ("the first of the order: a part is computed on the host, which waits")
    assert {reason.provider: reason.why for reason in told.reasons} == {
        "cusolver": "behind `magma`"
    }


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("definition", "library", "reason"),
    [
        ("WIDE", "magma", "is built with 64-bit integers (MAGMA_ILP64), which are not served"),
        ("HIP", "magma", "has no symbol magma_queue_create_from_cuda_internal"),
        ("VERSION=21000", "magma_hip", "has no symbol magma_queue_create_from_hip_internal"),
        ("VERSION=10700", "magma", "has version 1.7; 2 is the oldest that is served"),
        ("VERSION=30000", "magma", "has version 3.0; 2 is the newest whose interface is known"),
    ],
)
def test_a_build_that_cannot_be_called_is_refused(device_file, definition, library, reason):
    path = device_file("libmagma.so", definition)
    found = opening.DeviceFile(path, library, -1, "system")
    assert opening._open(found) == f"{path} {reason}"


def test_its_version_is_asked_without_a_device(device_file):
    path = device_file("libmagma.so", "VERSION=20903")
    opened = opening._open(opening.DeviceFile(path, "magma", -1, "system"))
    assert opened.version == (2, 9, 3)
    fake = ctypes.CDLL(path)
    fake.fake_record.restype = ctypes.c_char_p
    assert fake.fake_record() == b"[]"
