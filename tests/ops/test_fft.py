"""ops.fft computes the definition by SciPy or NumPy, and refuses by name."""

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import fft, serving
from backendcfg.ops.fft import choice
from backendcfg.transact.compiled import Compiled

assert ops.fft is fft
RANDOM = np.random.default_rng(0)
SINGLE = {"float32": "complex64", "complex64": "complex64"}


def under(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    return Scope(
        Prepared("test", Compiled("test", "none", named, order=("openblas", "reference"))), 0
    )


def served(operation, provider):
    """How many calls a provider has served."""
    return sum(n for key, n in serving.counted().items() if key[:2] == (operation, provider))


@pytest.fixture(params=["scipy", "numpy"])
def library(request, monkeypatch):
    """Which pocketfft serves."""
    if request.param == "scipy":
        pytest.importorskip("scipy")
    monkeypatch.setattr(choice, "has_scipy", lambda: request.param == "scipy")
    return request.param


def random(shape, dtype):
    parts = RANDOM.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if "complex" in dtype else parts[0]).astype(dtype)


def fitted(x, n, axis):
    """Cropped or padded with zeros."""
    kept = x.take(range(min(n, x.shape[axis])), axis)
    sides = [(0, 0)] * x.ndim
    sides[axis] = (0, n - kept.shape[axis])
    return np.pad(kept, sides)


def defined(x, n, axis, sign):
    """The sum of the definition, unscaled, in float64."""
    x = np.moveaxis(fitted(x.astype(np.complex128), n, axis), axis, -1)
    turns = np.outer(np.arange(n), np.arange(n)) % n
    return np.moveaxis(x @ np.exp(sign * 2j * np.pi * turns / n), -1, axis)


def scales(norm, n):
    """What multiplies the way there, and the way back."""
    return {"ortho": (n**-0.5, n**-0.5), "forward": (1 / n, 1)}.get(norm, (1, 1 / n))


@st.composite
def signals(draw):
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    dtype = draw(st.sampled_from(("float32", "float64", "complex64", "complex128")))
    x = random(shape, dtype)
    if draw(st.booleans()):
        x = x.T.copy().T[..., ::-1]
    n = draw(st.none() | st.integers(1, 9))
    return x, axis, n, draw(st.sampled_from((None, "backward", "ortho", "forward")))


def close(got, wanted, dtype):
    """Within what a transform of n numbers may err by."""
    assert got.shape == wanted.shape
    single = dtype in SINGLE
    limit = 60 * np.finfo(np.float32 if single else np.float64).eps
    assert abs(got - wanted).max(initial=0) <= limit * max(1, abs(wanted).max(initial=0))
    assert got.dtype == (
        np.complex64 if single else np.complex128 if got.dtype.kind == "c" else got.dtype
    )


@settings(deadline=None, max_examples=examples(80))
@given(signals())
def test_one_dimension_is_its_definition(signal):
    x, axis, n, norm = signal
    size = n or x.shape[axis]
    there, back = scales(norm, size)
    kept = x.copy()
    close(fft.fft(x, n, axis, norm), there * defined(x, size, axis, -1), x.dtype.name)
    close(fft.ifft(x, n, axis, norm), back * defined(x, size, axis, 1), x.dtype.name)
    real = np.ascontiguousarray(x.real)
    half = range(size // 2 + 1)
    wanted = defined(real, size, axis, -1).take(half, axis)
    close(fft.rfft(real, n, axis, norm), there * wanted, x.dtype.name)
    close(fft.ihfft(real, n, axis, norm), back * wanted.conj(), x.dtype.name)
    again = fft.irfft(fft.rfft(real, n, axis, norm), size, axis, norm)
    assert np.allclose(again, fitted(real, size, axis), atol=1e-5)
    again = fft.hfft(fft.ihfft(real, n, axis, norm), size, axis, norm)
    assert np.allclose(again, fitted(real, size, axis), atol=1e-5)
    assert again.dtype == real.dtype
    assert np.array_equal(x, kept)


def test_both_libraries_are_right(library):
    x = random((3, 4, 5), "complex64")
    before = served("fft.fftn", library)
    assert np.allclose(fft.fftn(x), np.fft.fftn(x.astype("c16")), atol=1e-4)
    assert served("fft.fftn", library) == before + 1
    assert fft.fftn(x).dtype == np.complex64
    assert fft.irfftn(fft.rfftn(x.real), x.shape).dtype == np.float32
    assert fft.hfft(x).dtype == np.float32


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_several_dimensions_are_one_after_another(norm, library):
    x = random((3, 4, 5), "complex128")
    wanted = fft.fft(fft.fft(x, None, 0, norm), 7, 2, norm)
    assert np.allclose(fft.fftn(x, (-1, 7), (0, 2), norm), wanted)
    assert np.allclose(fft.fft2(x, (-1, 7), (0, 2), norm), wanted)
    assert np.allclose(fft.ifftn(wanted, None, (2, 0), norm), fitted(x, 7, 2))
    assert np.allclose(fft.ifft2(wanted, None, (2, 0), norm), fitted(x, 7, 2))
    real = x.real.copy()
    half = fft.rfftn(real, None, (2, 1), norm)
    assert np.allclose(half, fft.fft(fft.rfft(real, None, 1, norm), None, 2, norm))
    assert np.allclose(half, fft.rfft2(real, None, (2, 1), norm))
    assert np.allclose(fft.irfftn(half, (5, 4), (2, 1), norm), real)
    assert np.allclose(fft.irfft2(half, None, (2, 1), norm), real)


def test_sizes_without_dimensions_are_those_of_the_last():
    x = random((3, 4, 5), "float64")
    assert np.array_equal(fft.fftn(x, (6,)), fft.fft(x, 6))
    assert fft.fftn(x).shape == x.shape
    assert np.array_equal(fft.fftn(x, dim=()), x.astype("c16"))
    assert fft.fftn(np.float64(3.0)) == 3


def test_integers_and_bool_become_double():
    assert fft.fft(np.arange(5)).dtype == np.complex128
    assert np.allclose(fft.rfft(np.arange(5)), np.fft.rfft(np.arange(5)))
    assert fft.irfft(np.array([True, False])).dtype == np.float64


def test_an_empty_batch_has_a_result():
    assert fft.rfft(np.ones((0, 6), "f4")).shape == (0, 4)
    assert fft.rfft(np.ones((0, 6), "f4")).dtype == np.complex64
    assert fft.irfftn(np.ones((0, 3, 4)), dim=(1, 2)).shape == (0, 3, 6)


def test_not_a_number_stays_in_its_signal(library):
    x = np.ones((3, 8))
    x[1, 2], x[2, 0] = np.nan, np.inf
    got = fft.rfft(x)
    assert np.isnan(got[1]).all()
    assert not np.isfinite(got[2]).any()
    assert got[0, 0] == 8


def test_what_makes_a_spectrum_hermitian_is_not_read(library):
    x = random((5,), "complex128")
    other = x.copy()
    other[0] += 3j
    other[-1] -= 2j
    assert np.allclose(fft.irfft(x, 8), fft.irfft(other, 8))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_frequencies_and_shifts(n):
    assert np.array_equal(fft.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5) if n else [])
    assert np.array_equal(fft.rfftfreq(n), np.fft.rfftfreq(n) if n else [])
    x = random((n, 3, 4), "float32")
    assert np.array_equal(fft.fftshift(x), np.fft.fftshift(x))
    assert np.array_equal(fft.fftshift(x, 0), np.fft.fftshift(x, 0))
    assert np.array_equal(fft.ifftshift(fft.fftshift(x, (0, -1)), (0, -1)), x)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfftn"])
def test_threads_do_not_change_a_bit(name, library):
    x = random((300, 257), "float32")
    found = set()
    for threads in (1, 2, 3):
        with under(threads__count=threads, determinism__tier="thread-invariant"):
            found.add(getattr(fft, name)(x).tobytes())
    assert len(found) == 1


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(1, 6), st.integers(1, 40), st.sampled_from(("fft", "rfft", "irfft", "ihfft")))
def test_under_batch_invariant_a_signal_does_not_feel_its_neighbours(batch, size, name):
    x = random((batch, size + 1), "float32")
    function = getattr(fft, name)
    with under(determinism__tier="batch-invariant"):
        together = function(x)
        for one, alone in zip(together, x, strict=True):
            assert function(alone).tobytes() == one.tobytes()
        columns = function(np.ascontiguousarray(x.T), dim=0)
        assert np.array_equal(columns.T, together)


def test_check_finite_refuses_a_result_with_its_place():
    with (
        under(ops__check_finite=True),
        pytest.raises(
            InvalidArgumentError, match=r"fft\.rfft: the result is .* at \(1, 0\), which"
        ),
    ):
        fft.rfft(np.array([[1.0, 2.0], [np.inf, 0.0]]))


X, Z = np.ones((4, 6)), np.ones((4, 6), complex)


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("fft", ([1.0],), "`input` must be an array, not list"),
        ("fft", (X.astype("f2"),), "`input` must hold float32, float64, complex64, complex128 or integers, not float16"),
        ("fft", (X.astype("O"),), "`input` must hold float32, float64, complex64, complex128 or integers, not object"),
        ("rfft", (Z,), "`input` must be real, not complex128"),
        ("ihfft", (Z,), "`input` must be real, not complex128"),
        ("rfft2", (Z,), "`input` must be real, not complex128"),
        ("fft", (X, 0), "`n` must be at least 1 for dimension 1, not 0"),
        ("fft", (X, -2), "`n` must be at least 1 for dimension 1, not -2"),
        ("fft", (X, -1), "`n` must be at least 1 for dimension 1, not -1"),
        ("fft", (X, 2.0), "`n` must be whole numbers, not 2.0"),
        ("fft", (X[:, :0],), "`n` must be at least 1 for dimension 1, not 0"),
        ("irfft", (X[:, :1],), "`n` must be at least 1 for dimension 1, not 0"),
        ("fft", (X, None, 2), "`dim` must be from -2 to 1, not 2: `input` has 2"),
        ("fft", (X, None, 1.0), "`dim` must be a whole number, not 1.0"),
        ("fft", (np.array(1.0),), "`dim` must be left out, not -1: `input` has 0"),
        ("fft", (X, None, -1, "big"), '`norm` must be "backward", "ortho" or "forward", not \'big\''),
        ("fftn", (X, (1, 2, 3)), "`s` must have 2 sizes at most, not 3"),
        ("fftn", (X, (2,), (0, 1)), "`s` must have as many sizes as `dim`, 2, not 1"),
        ("fftn", (X, None, (0, -2)), "`dim` must have each dimension once, not (0, -2)"),
        ("fft2", (X[0],), "`dim` must be from -1 to 0, not -2: `input` has 1"),
        ("rfftn", (X, None, ()), "`dim` must have at least one dimension"),
        ("fftn", (X, (2, "3")), "`s` must be whole numbers, not (2, '3')"),
        ("fftshift", (X, 2), "`dim` must be from -2 to 1, not 2: `input` has 2"),
        ("fftfreq", (-1,), "`n` must be a whole number from 0 on, not -1"),
        ("fftfreq", (4, 0.0), "`d` must not be 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(name, arguments, line):
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(fft, name)(*arguments)
    assert caught.value.render().splitlines()[:2] == [
        f"error[invalid-argument]: fft.{name}: {line}",
        "  state: nothing was computed",
    ]


def test_a_size_that_is_an_array_is_read_at_each_call():
    size, dim = np.array(8), np.array(0)
    assert fft.fft(X, size, dim).shape == (8, X.shape[1])
    torch = pytest.importorskip("torch")
    size, dim = torch.tensor(8), torch.tensor(0)
    assert fft.fft(X, size, dim).shape == (8, X.shape[1])
    size.fill_(16)
    assert fft.fft(X, size, dim).shape == (16, X.shape[1])
    dim.fill_(1)
    assert fft.fft(X, size, dim).shape == (X.shape[0], 16)
