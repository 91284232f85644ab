"""Fourier transforms, as `torch.fft` and `numpy.fft`, by the library that the profile chooses.

    from backendcfg.ops import fft

    spectrum = fft.rfft(signal)
    again = fft.irfft(spectrum, n=signal.shape[-1])

`norm` is "backward" (or None: 1/n on the way back), "ortho" (1/sqrt(n) each way) or "forward" (1/n
on the way there). `n` and `s` crop or pad with zeros; a size of -1 leaves its dimension as it is.
float32 and complex64 stay single; integers and bool become the framework's default real type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.ops.arrays import give
from backendcfg.ops.fft import device
from backendcfg.ops.fft.arguments import (
    DEVICE,
    flipped,
    one,
    refuse,
    several,
    shape_of,
    whole_numbers,
)
from backendcfg.ops.fft.arguments import taken as _taken
from backendcfg.ops.fft.choice import transform
from backendcfg.ops.fft.plans import plan_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "plan_cache",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The discrete Fourier transform along one dimension: complex, of size `n`."""
    return transform(one("fft", "fft", input, n, dim, norm))


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The inverse of `fft`."""
    return transform(one("ifft", "ifft", input, n, dim, norm))


def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """`fft` of a real input, without its redundant half: n // 2 + 1 numbers."""
    return transform(one("rfft", "rfft", input, n, dim, norm))


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The inverse of `rfft`: `n` real numbers, 2 (m - 1) where `n` is not given."""
    return transform(one("irfft", "irfft", input, n, dim, norm))


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """`fft` of a Hermitian signal that is given as its first half: `n` real numbers."""
    request = one("hfft", "irfft", input, n, dim, norm)
    return transform(request._replace(conjugates=True, norm=flipped(request.norm)))


def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The inverse of `hfft`: the first n // 2 + 1 numbers of a Hermitian signal."""
    request = one("ihfft", "rfft", input, n, dim, norm)
    return transform(request._replace(norm=flipped(request.norm)), conjugate=True)


def fft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """`fftn` along two dimensions."""
    return transform(several("fft2", "fft", input, s, dim, norm))


def ifft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """The inverse of `fft2`."""
    return transform(several("ifft2", "ifft", input, s, dim, norm))


def rfft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """`rfftn` along two dimensions."""
    return transform(several("rfft2", "rfft", input, s, dim, norm))


def irfft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """The inverse of `rfft2`."""
    return transform(several("irfft2", "irfft", input, s, dim, norm))


def fftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """The transform along several dimensions: `dim`, else the last as many as `s` has, else all."""
    return transform(several("fftn", "fft", input, s, dim, norm))


def ifftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """The inverse of `fftn`."""
    return transform(several("ifftn", "ifft", input, s, dim, norm))


def rfftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """`fftn` of a real input, without the redundant half of the last of its dimensions."""
    return transform(several("rfftn", "rfft", input, s, dim, norm))


def irfftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """The inverse of `rfftn`."""
    return transform(several("irfftn", "irfft", input, s, dim, norm))


def fftfreq(n: int, d: float = 1.0) -> NDArray[Any]:
    """The frequencies of the numbers of `fft`, samples being `d` apart: cycles per unit of `d`."""
    size, apart = _frequencies("fftfreq", n, d)
    return np.fft.fftfreq(size, apart) if size else np.empty(0)


def rfftfreq(n: int, d: float = 1.0) -> NDArray[Any]:
    """The frequencies of the numbers of `rfft`."""
    size, apart = _frequencies("rfftfreq", n, d)
    return np.fft.rfftfreq(size, apart) if size else np.empty(0)


def fftshift(input: Any, dim: int | Sequence[int] | None = None) -> Any:  # noqa: A002
    """The numbers in ascending order of frequency: the zero in the middle of each of `dim`."""
    return _shifted("fftshift", input, dim, forth=True)


def ifftshift(input: Any, dim: int | Sequence[int] | None = None) -> Any:  # noqa: A002
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", input, dim, forth=False)


def _shifted(operation: str, value: Any, dim: int | Sequence[int] | None, *, forth: bool) -> Any:
    came = _taken(operation, value, everything=True)
    dims = shape_of(operation, len(came.array.shape), whole_numbers(operation, "dim", dim))
    if came.framework == DEVICE:
        return device.shifted(came, dims, forth=forth)
    shift = np.fft.fftshift if forth else np.fft.ifftshift
    return give(np.asarray(shift(came.array, axes=dims)), came)


def _frequencies(operation: str, n: int, d: float) -> tuple[int, float]:
    if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 0:
        refuse(operation, f"`n` must be a whole number from 0 on, not {n!r}")
    if isinstance(d, bool) or not isinstance(d, (int, float, np.integer, np.floating)):
        refuse(operation, f"`d` must be a number, not {d!r}")
    apart = float(d)
    if not apart:
        refuse(operation, "`d` must not be 0")
    return n.__index__(), apart
