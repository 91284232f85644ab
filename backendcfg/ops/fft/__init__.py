"""Fourier transforms, as `torch.fft` and `numpy.fft`, by the library that the profile chooses.

    from backendcfg.ops import fft

    spectrum = fft.rfft(signal)
    again = fft.irfft(spectrum, n=signal.shape[-1])

`norm` is "backward" (or None: 1/n on the way back), "ortho" (1/sqrt(n) each way) or "forward" (1/n
on the way there). `n` and `s` crop or pad with zeros; -1 in `s` leaves its dimension as it is.
float32 and complex64 stay single; integers and bool become the framework's default real type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.ops import devices
from backendcfg.ops.arrays import give
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
    return _along("fft", "fft", input, n, dim, norm)


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The inverse of `fft`."""
    return _along("ifft", "ifft", input, n, dim, norm)


def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """`fft` of a real input, without its redundant half: n // 2 + 1 numbers."""
    return _along("rfft", "rfft", input, n, dim, norm)


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The inverse of `rfft`: `n` real numbers, 2 (m - 1) where `n` is not given."""
    return _along("irfft", "irfft", input, n, dim, norm)


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """`fft` of a Hermitian signal that is given as its first half: `n` real numbers."""
    return _along("hfft", "irfft", input, n, dim, norm)


def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """The inverse of `hfft`: the first n // 2 + 1 numbers of a Hermitian signal."""
    return _along("ihfft", "rfft", input, n, dim, norm)


def fft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """`fftn` along two dimensions."""
    return _along_several("fft2", "fft", input, s, dim, norm)


def ifft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """The inverse of `fft2`."""
    return _along_several("ifft2", "ifft", input, s, dim, norm)


def rfft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """`rfftn` along two dimensions."""
    return _along_several("rfft2", "rfft", input, s, dim, norm)


def irfft2(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Any:
    """The inverse of `rfft2`."""
    return _along_several("irfft2", "irfft", input, s, dim, norm)


def fftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """The transform along several dimensions: `dim`, else the last as many as `s` has, else all."""
    return _along_several("fftn", "fft", input, s, dim, norm)


def ifftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """The inverse of `fftn`."""
    return _along_several("ifftn", "ifft", input, s, dim, norm)


def rfftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """`fftn` of a real input, without the redundant half of the last of its dimensions."""
    return _along_several("rfftn", "rfft", input, s, dim, norm)


def irfftn(
    input: Any,  # noqa: A002
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """The inverse of `rfftn`."""
    return _along_several("irfftn", "irfft", input, s, dim, norm)


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


def _along(  # noqa: PLR0917
    operation: str, kind: str, value: Any, n: int | None, dim: int, norm: str | None
) -> Any:
    request = one(operation, kind, value, n, dim, norm)
    if operation in ("hfft", "ihfft"):
        request = request._replace(conjugates=kind == "irfft", norm=flipped(request.norm))
    return transform(request, conjugate=operation == "ihfft")


def _along_several(  # noqa: PLR0917
    operation: str,
    kind: str,
    value: Any,
    s: Sequence[int] | None,
    dim: Sequence[int] | None,
    norm: str | None,
) -> Any:
    return transform(several(operation, kind, value, s, dim, norm))


def _shifted(operation: str, value: Any, dim: int | Sequence[int] | None, *, forth: bool) -> Any:
    came = _taken(operation, value, everything=True)
    dims = shape_of(operation, len(came.array.shape), whole_numbers(operation, "dim", dim))
    if came.framework == DEVICE:
        return devices.gpu().shifted(came, dims, forth=forth)
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
