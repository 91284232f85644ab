"""What the tests on a GPU share: arrays, errors against float64, and calls under flags."""

from __future__ import annotations

import contextlib

import torch

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.schema.profile import defaults
from backendcfg.transact.compiled import Compiled

DTYPES = ("float32", "float64", "complex64", "complex128", "bfloat16", "float16")
PREFER = "cuda.preferred_blas_library"
FP32 = "cuda.matmul.fp32_precision"
PROVIDERS = ("cublas", "cublaslt")
CYCLES = 200_000_000  # about a tenth of a second
# Of a sum of many products, relative to the sum of their sizes. Parts of sums may be rounded to 16
# bits before they are added up, unless a flag forbids it.
ROUNDING = {
    "float32": 2e-6,
    "float64": 1e-14,
    "complex64": 3e-6,
    "complex128": 1e-14,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
}


def under(**flags):
    """A scope with flags, all others as nobody set them."""
    values = {**defaults(), **flags}
    return Scope(Prepared("test", Compiled("test", values["determinism.tier"], values)))


def served(function, *arguments, **keywords):
    """What a call returns, and who served it as `trace` says."""
    with ops.trace() as calls:
        result = function(*arguments, **keywords)
    return result, calls.calls[-1].provider


class Cuda:
    """The GPU.

    Attributes:
        device: where arrays are made, as PyTorch names it.
        place: the same as `explain` is asked.
        size: of the matrices, so that a product is worth a kernel with tensor cores.
        deep: an inner size that libraries divide among blocks.
        times: how often a call is repeated to see whether its bits stay.
        is_real: whether streams and graphs are a driver's own.
    """

    device = "cuda"
    place = "cuda:0"
    size = 256
    deep = 16384
    times = 100
    is_real = True

    @property
    def capability(self):
        """The compute capability."""
        return torch.cuda.get_device_capability()

    def seed(self, number):
        """Let random numbers start anew."""
        torch.manual_seed(number)

    def wait(self):
        """Until all work is done."""
        torch.cuda.synchronize()

    def random(self, *shape, dtype="float32"):
        """Normally distributed numbers, rounded to a type."""
        kind = getattr(torch, dtype)
        wide = torch.complex128 if kind.is_complex else torch.float64
        return torch.randn(shape, dtype=wide, device=self.device).to(kind)

    def full(self, *shape, value, dtype="float32"):
        """One number everywhere."""
        return torch.full(shape, value, dtype=getattr(torch, dtype), device=self.device)

    def mask(self, *shape):
        """Which keys a query sees: most of them, and the first always."""
        seen = self.random(*shape) < 0.5
        seen[..., 0] = True
        return seen

    @contextlib.contextmanager
    def busy(self):
        """Another stream multiplies all the while."""
        other, a = torch.cuda.Stream(), self.random(2048, 2048)
        stop = torch.cuda.Event()
        with torch.cuda.stream(other):
            for _ in range(200):
                torch.matmul(a, a)
            stop.record()
        yield lambda: stop.query()
        other.synchronize()


def wide(array):
    """In float64 or complex128, where sums are exact enough to compare with."""
    return array.to(torch.complex128 if array.dtype.is_complex else torch.float64)


def error(result, a, b, added=None):
    """The largest error, relative to the sizes of what was added up."""
    wanted, most = wide(a) @ wide(b), wide(a).abs() @ wide(b).abs()
    if added is not None:
        wanted, most = wanted + wide(added), most + wide(added).abs()
    return float(((wide(result) - wanted).abs() / most).max())
