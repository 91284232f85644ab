"""Tensors of a PyTorch without DLPack's table of functions: what their interface leaves unsaid."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from device_arrays import aligned
from linalg_on_device import Matrix, matrices, positive

from backendcfg import ops
from backendcfg.ops import linalg


class Tensor(Matrix):
    """One with `__cuda_array_interface__` alone, which as PyTorch's says neither of its stream nor
    that its numbers stand for their conjugates."""

    __dlpack_c_exchange_api__ = None

    def __init__(self, array, element=None, place=(2, 0), *, conjugate=False):
        super().__init__(array, element, place)
        self.conjugate = conjugate

    def _with(self, array):
        return Tensor(array, array.dtype.name, self.place)

    @property
    def __cuda_array_interface__(self):
        data = (self.array.ctypes.data, False)
        return {"shape": self.array.shape, "typestr": self.array.dtype.str, "data": data,
                "strides": self.array.strides, "version": 2}  # fmt: skip

    @property
    def device(self):
        return self.place

    def is_conj(self):
        return self.conjugate

    def is_neg(self):
        return False

    def resolve_conj(self):
        return self._with(self.array.conj()) if self.conjugate else self

    def resolve_neg(self):
        return self

    def copy_(self, source):
        values = source.resolve_conj().array
        self.array[...] = values.conj() if self.conjugate else values


def there(array):
    memory = aligned(array.shape, array.dtype)
    memory[...] = array
    return Tensor(memory)


@pytest.fixture
def stream(solver, new_stream, monkeypatch):
    """The stream on which this PyTorch works."""
    torch = ModuleType("torch")
    torch.Tensor = Tensor
    for name in ("float32", "float64", "complex128", "int32", "int64", "uint8"):
        setattr(torch, name, np.dtype(name))
    torch.empty = lambda shape, dtype, device: Tensor(aligned(shape, dtype), dtype.name, device)
    asked = SimpleNamespace(cuda_stream=new_stream)
    torch.cuda = SimpleNamespace(current_stream=lambda index: asked if index == 0 else None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return new_stream


def test_all_is_put_on_the_stream_of_the_copies_and_nothing_waits(solver, devices, stream):
    a, b = positive((4, 4)), matrices((4, 2))
    solved = linalg.solve(there(a), there(b))
    assert np.allclose(solved.array, np.linalg.solve(a, b))
    used = {call["stream"] for call in solver.calls() if "stream" in call.arguments}
    assert used == {stream}
    assert devices.cuda.calls("cuStreamSynchronize") == []


def test_products_are_put_on_it_too(devices, stream):
    a = positive((4, 4))
    assert np.allclose(ops.matmul(there(a), there(a)).array, a @ a)
    assert devices.cuda.calls("cuStreamSynchronize") == []


def test_a_lazy_conjugate_is_read_as_what_it_stands_for(stream):
    a = matrices((4, 4), "complex128")
    lazy, plain = there(a), there(a)
    lazy.conjugate = True
    assert np.allclose(ops.matmul(lazy, plain).array, a.conj() @ a)
    factor = there(np.linalg.cholesky(positive((4, 4), "complex128")).T.copy().T)
    wanted = linalg.cholesky_solve(a, factor.array.conj())
    factor.conjugate = True
    assert np.allclose(linalg.cholesky_solve(plain, factor).array, wanted)
    out = there(np.zeros((4, 4), "complex128"))
    out.conjugate = True
    assert ops.matmul(plain, plain, out=out) is out
    assert np.allclose(out.array.conj(), a @ a)
