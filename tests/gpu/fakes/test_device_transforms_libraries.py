"""Transforms of arrays of PyTorch, by its own table of functions, and of CuPy, by a small one of it."""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from programs import run
from transforms import forget, signals

from backendcfg import ops

PROGRAM = Path(__file__).with_name("torch_transforms_on_device.py")
HELD = """\
fft
ifft
hfft
irfft
rfft
ihfft
padded
several
fake
whole numbers
bool
a conjugate
a conjugate's real numbers
a negative
a view
expanded
with gradients
five dimensions
shifted
shifted back
whole numbers in double
"""


@pytest.fixture(autouse=True)
def _fresh():
    forget()
    yield
    forget()


@pytest.mark.torch
def test_tensors_of_pytorch_are_transformed_through_their_own_table(device_file):
    files = [device_file(f) for f in ("libexchange.so", "libcuda.so.1", "libcufft.so.12")]
    assert run(PROGRAM, *files) == HELD


class Array:
    """What is used of `cupy.ndarray`, over memory of the host."""

    def __init__(self, array):
        self.array = array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __dlpack_device__(self):
        return (2, 0)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            "data": (self.array.ctypes.data, False),
            "strides": self.array.strides,
            "stream": 1,
            "version": 3,
        }

    def __getitem__(self, index):
        return Array(self.array[index])

    def __setitem__(self, index, value):
        self.array[index] = value.array

    def fill(self, value):
        self.array.fill(value)

    def transpose(self, order):
        return Array(self.array.transpose(order))


@pytest.fixture
def cupy(monkeypatch):
    module = ModuleType("cupy")
    module.ndarray = Array
    module.cuda = SimpleNamespace(Device=lambda index: nullcontext())
    module.empty = lambda shape, dtype: Array(signals(shape, dtype))
    module.multiply = lambda a, b, out: np.multiply(a.array, b, out=out.array)
    module.conj = lambda a, out: np.conj(a.array, out=out.array)
    module.roll = lambda a, shift, axis: Array(np.roll(a.array, shift, axis))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.parametrize(
    ("operation", "dtype", "arguments"),
    [
        ("fft", "complex128", ()),
        ("fft", "float64", (9, 0)),
        ("ifft", "complex128", (None, 1, "forward")),
        ("rfft", "float64", (None, 0)),
        ("irfft", "complex128", (3, 1)),
        ("hfft", "complex128", ()),
        ("ihfft", "float64", (5,)),
        ("fftn", "complex128", ((3, 8), (2, 0), "ortho")),
        ("irfftn", "complex128", ()),
        ("fftshift", "float64", ((0, 2),)),
        ("ifftshift", "complex128", ()),
    ],
)
def test_arrays_of_cupy_are_transformed(devices, cupy, operation, dtype, arguments):
    array = signals((4, 6, 5), dtype)
    before = array.copy()
    result = getattr(ops.fft, operation)(Array(array), *arguments)
    wanted = getattr(np.fft, operation)(array, *arguments)
    assert type(result) is Array
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(result.array, wanted, atol=1e-12)
    np.testing.assert_array_equal(array, before)
