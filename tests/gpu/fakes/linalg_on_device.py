"""Arrays on a device with the methods of PyTorch's tensors that linear algebra asks for."""

from __future__ import annotations

import numpy as np
from device_arrays import OnDevice, aligned

ELEMENTS = ("float32", "float64", "complex64", "complex128")
TOLERANCES = {"float32": 2e-4, "float64": 1e-10, "complex64": 2e-4, "complex128": 1e-10}


class Matrix(OnDevice):
    """`OnDevice`, with what only a tensor's own library can do."""

    def _with(self, array):
        return Matrix(array, array.dtype.name, self.place)

    def reshape(self, *shape):
        return self._with(self.array.reshape(*shape))

    def swapaxes(self, first, second):
        return self._with(self.array.swapaxes(first, second))

    def __getitem__(self, index):
        return self._with(self.array[index])

    def __ne__(self, other):
        return self._with(self.array != other)

    def __eq__(self, other):
        return self._with(self.array == other)

    __hash__ = None

    def triu(self, offset):
        return self._with(np.triu(self.array, offset))

    def tril(self, offset):
        return self._with(np.tril(self.array, offset))

    def triu_(self):
        self.array[...] = np.triu(self.array)

    def tril_(self):
        self.array[...] = np.tril(self.array)

    def diagonal(self, offset, first, second):
        view = self.array.diagonal(offset, first, second)
        view.flags.writeable = True  # as a tensor's is
        return self._with(view)

    def fill_(self, value):
        self.array[...] = value
        return self

    def zero_(self):
        return self.fill_(0)

    def cumsum_(self, axis):
        self.array[...] = self.array.cumsum(axis)

    def add_(self, number):
        self.array += number

    def clamp_(self, least, most):
        np.clip(self.array, least, most, out=self.array)

    def conj_physical_(self):
        np.conj(self.array, out=self.array)

    def masked_fill_(self, mask, value):
        np.copyto(self.array, value, where=mask.array)

    def isfinite(self):
        return self._with(np.isfinite(self.array))

    def all(self, axis):
        return self._with(self.array.all(axis))

    def tolist(self):
        return self.array.tolist()


def matrices(shape, element="float64", seed=0):
    """Well-conditioned values, in the host's memory."""
    made = np.random.default_rng(seed).normal(size=shape)
    if element.startswith("complex"):
        made = made + 1j * np.random.default_rng(seed + 1).normal(size=shape)
    return made.astype(element)


def positive(shape, element="float64", seed=0):
    """Hermitian matrices with eigenvalues above one."""
    made = matrices(shape, element, seed)
    product = made @ made.conj().swapaxes(-1, -2)
    return (product + np.eye(shape[-1])).astype(element)


def there(array, place=(2, 0)):
    """The same, on a device, each row behind the other."""
    array = np.asarray(array)
    memory = aligned(array.shape, array.dtype)
    memory[...] = array
    return Matrix(memory, array.dtype.name, place)


def viewed(array, change):
    """A view of what is on a device, as `change` makes it of NumPy's."""
    return Matrix(change(array.array), array.element, array.place)


LAYOUTS = {
    "by rows": lambda x: x,
    "by columns": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "with longer rows": lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3)])[..., :-3],
    "backwards": lambda x: x[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
}
