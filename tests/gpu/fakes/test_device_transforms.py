"""Fourier transforms of arrays on devices, through a cuFFT that computes by the definition."""

import itertools

import numpy as np
import pytest
from device_arrays import OnDevice
from transforms import forget, signals

from backendcfg import ops

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
NARROW = {"float64": "float32", "complex128": "complex64"}


@pytest.fixture(autouse=True)
def _fresh():
    forget()
    yield
    forget()


def signal_of(operation, shape, *, single=False):
    real = operation.startswith(("rfft", "ihfft"))
    dtype = "float64" if real else "complex128"
    return signals(shape, NARROW[dtype] if single else dtype)


def held(result, wanted, *, single=False):
    """The numbers of a result on a device are those wanted, in single or double precision."""
    dtype = NARROW[wanted.dtype.name] if single else wanted.dtype.name
    assert type(result) is OnDevice
    assert result.element == dtype
    assert result.shape == wanted.shape
    tolerance = 1e-5 if single else 1e-12
    np.testing.assert_allclose(result.array, wanted, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("operation", ONE)
def test_a_transform_along_one_dimension_is_numpys(devices, operation, norm, single):
    for shape, dim in (((12,), -1), ((3, 8), -1), ((5, 4), 0), ((2, 5, 3), 1), ((2, 3, 4), 0)):
        array = signal_of(operation, shape, single=single)
        wanted = getattr(np.fft, operation)(
            array.astype(np.result_type(array, "f8")), None, dim, norm
        )
        before = array.copy()
        held(getattr(ops.fft, operation)(OnDevice(array), None, dim, norm), wanted, single=single)
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("operation", ONE)
def test_a_signal_is_cropped_or_padded_with_zeros(devices, operation):
    for n, dim in itertools.product((1, 2, 5, 9), (0, 1, 2)):
        array = signal_of(operation, (3, 6, 4))
        wanted = getattr(np.fft, operation)(array, n, dim)
        held(getattr(ops.fft, operation)(OnDevice(array), n, dim), wanted)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("operation", SEVERAL)
def test_a_transform_along_several_dimensions_is_numpys(devices, operation, norm):
    for dims in ((0,), (1, 2), (0, 2), (2, 0), (0, 1, 2), (1, 0), (2, 1, 0), (-1, -3)):
        array = signal_of(operation, (4, 3, 5))
        wanted = getattr(np.fft, operation)(array, axes=dims, norm=norm)
        held(getattr(ops.fft, operation)(OnDevice(array), dim=dims, norm=norm), wanted)


@pytest.mark.parametrize("operation", SEVERAL)
def test_sizes_crop_and_pad_each_dimension(devices, operation):
    array = signal_of(operation, (4, 3, 5))
    wanted = getattr(np.fft, operation)(array, (6, 2), (0, 2))
    held(getattr(ops.fft, operation)(OnDevice(array), (6, 2), (0, 2)), wanted)
    two = f"{operation[:-1]}2"
    wanted = getattr(np.fft, two)(array, (2, 7))
    held(getattr(ops.fft, two)(OnDevice(array), (2, 7)), wanted)


@pytest.mark.parametrize("operation", SEVERAL)
def test_more_than_three_dimensions_are_transformed_in_passes(devices, operation):
    for shape, dims in (
        ((2, 3, 2, 4), None),
        ((3, 2, 3, 2, 4), (0, 2, 3, 4)),
        ((2, 3, 2, 2, 3, 2, 2), None),
        ((2, 2, 3, 2, 2), (4, 3, 2, 1)),
    ):
        array = signal_of(operation, shape)
        wanted = getattr(np.fft, operation)(array, axes=dims)
        held(getattr(ops.fft, operation)(OnDevice(array), dim=dims), wanted)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a[::2],
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[:, 1:4],
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a[:, :1],
    ],
)
@pytest.mark.parametrize("operation", ["fft", "rfft", "irfft"])
def test_arrays_are_transformed_however_they_lie(devices, operation, view):
    for dim in (0, 1):
        array = view(signal_of(operation, (6, 8)))
        n = 4
        wanted = getattr(np.fft, operation)(array, n, dim)
        held(getattr(ops.fft, operation)(OnDevice(array), n, dim), wanted)
        if array.shape[dim] > 1:
            wanted = getattr(np.fft, operation)(array, None, dim)
            held(getattr(ops.fft, operation)(OnDevice(array), None, dim), wanted)


def test_real_numbers_integers_and_bool_are_widened(devices):
    real = signals((3, 8), "float64")
    held(ops.fft.fft(OnDevice(real)), np.fft.fft(real))
    held(ops.fft.ifft(OnDevice(real.astype("float32"))), np.fft.ifft(real), single=True)
    whole = np.arange(12, dtype=np.int64).reshape(3, 4)
    held(ops.fft.fft(OnDevice(whole)), np.fft.fft(whole))
    held(ops.fft.rfft(OnDevice(whole)), np.fft.rfft(whole))
    truth = whole % 3 == 0
    held(ops.fft.rfft(OnDevice(truth)), np.fft.rfft(truth))


def test_nothing_and_no_dimensions_are_as_on_the_cpu(devices):
    array = signals((0, 4), "complex128")
    held(ops.fft.fft(OnDevice(array)), np.fft.fft(array))
    held(ops.fft.rfft(OnDevice(signals((0, 4), "float64"))), np.fft.rfft(np.zeros((0, 4))))
    empty = signals((3, 0), "complex128")
    held(ops.fft.fft(OnDevice(empty), 4), np.fft.fft(empty, 4))
    array = signals((2, 3), "complex128")
    held(ops.fft.fftn(OnDevice(array), dim=()), array)
    assert not devices.cufft.calls("cufftXtExec")[1:]


def test_frequencies_are_shifted_by_the_arrays_own_library(devices):
    array = signals((4, 5), "float64")
    for dim in (None, 0, (0, 1), -1):
        held(ops.fft.fftshift(OnDevice(array), dim), np.fft.fftshift(array, dim))
        held(ops.fft.ifftshift(OnDevice(array), dim), np.fft.ifftshift(array, dim))
