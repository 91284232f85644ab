"""The plans that cuFFT keeps: `cufft_plan_cache`, and `cufft_plan_cache[device]`.

A PyTorch with CUDA that is loaded answers for its own caches; without one the plans are those of
`backendcfg.ops.fft`, and `max_size` is what a profile says. Not run on a GPU.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from backendcfg.backends import base
from backendcfg.backends.base import assign, read, refuse_unknown
from backendcfg.errors import InvalidArgumentError, InvalidValueError, UnknownAttributeError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SIZE = "cuda.cufft_plan_cache.max_size"
MOST_ON_ROCM = 1023

_SIZE_IS_READ_ONLY = (
    ".size is a read-only property showing the number of plans currently in the cache. "
    "To change the cache capacity, set cufft_plan_cache.max_size."
)


class cuFFTPlanCacheAttrContextProp:  # noqa: N801 - PyTorch's name
    """An attribute that is read and set for the device of its owner.

    Args:
        getter: takes the device's index.
        setter: takes the index and the value; or why there is none.
    """

    def __init__(
        self, getter: Callable[[int], Any], setter: Callable[[int, Any], object] | str
    ) -> None:
        self.getter = getter
        self.setter = setter

    def __get__(self, obj: Any, objtype: type | None = None) -> Any:
        return self.getter(obj.device_index)

    def __set__(self, obj: Any, val: Any) -> None:
        if isinstance(self.setter, str):
            raise UnknownAttributeError(self.setter)
        self.setter(obj.device_index, val)


def _size(index: int) -> int:
    found = _ask(lambda torch: torch._cufft_get_plan_cache_size(index))
    if found is not None:
        return int(found)
    ours = _ours(index)
    return ours.size if ours is not None else 0


def _max_size(index: int) -> int:
    found = _ask(lambda torch: torch._cufft_get_plan_cache_max_size(index))
    return int(found) if found is not None else int(read(MAX_SIZE))


def _set_max_size(_index: int, value: int) -> None:
    """One flag governs the caches of all devices."""
    if type(value) is int and value > MOST_ON_ROCM and _only_amd():
        raise InvalidValueError(
            f"cuFFT plan cache size can not be larger than {MOST_ON_ROCM}, but got {value}"
        )
    assign({MAX_SIZE: value})


class cuFFTPlanCache:  # noqa: N801 - PyTorch's name
    """The cache of one device.

    Attributes:
        size: the plans in it; read-only.
        max_size: the most that it keeps; 0 keeps none. Setting it sets it for every device.
    """

    __slots__ = ("device_index",)

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    size = cuFFTPlanCacheAttrContextProp(_size, _SIZE_IS_READ_ONLY)
    max_size = cuFFTPlanCacheAttrContextProp(_max_size, _set_max_size)

    def clear(self) -> None:
        """Forget every plan, PyTorch's and ours; where there is none there is nothing to forget."""
        _ask(lambda torch: torch._cufft_clear_plan_cache(self.device_index))
        if (ours := _ours(self.device_index)) is not None:
            ours.clear()

    def __getattr__(self, name: str) -> Any:
        _refuse(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("device_index", *dir(self)):
            _refuse(self, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return ["clear", "max_size", "size"]


class PlanCaches:
    """`cufft_plan_cache`: the current device's cache, and by index that of any device."""

    __slots__ = ()

    def __getitem__(self, device: Any) -> cuFFTPlanCache:
        index, count = _index(device), _count()
        if not 0 <= index < count:
            raise InvalidArgumentError(
                f"cufft_plan_cache: expected 0 <= device index < {count}, but got device with "
                f"index {index}"
            )
        return cuFFTPlanCache(index)

    def __getattr__(self, name: str) -> Any:
        return getattr(_current(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_current(), name, value)

    def __dir__(self) -> list[str]:
        return ["clear", "max_size", "size"]


def _refuse(cache: cuFFTPlanCache, name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)
    refuse_unknown(cache, "backendcfg.backends.cuda.cufft_plan_cache", name)


def _current() -> cuFFTPlanCache:
    found = _ask(lambda torch: torch.cuda.current_device())
    return cuFFTPlanCache(int(found) if found is not None else 0)


def _ours(index: int) -> Any:
    """The cache of `backendcfg.ops.fft`; None where nobody has imported that."""
    plans = sys.modules.get("backendcfg.ops.fft.plans")
    return plans.plan_cache[index] if plans is not None else None


def _ask(question: Callable[[Any], Any]) -> Any:
    """What a PyTorch with a GPU answers; None without one."""

    def with_gpu(torch: Any) -> Any:
        return question(torch) if torch._C._has_cuda and torch.cuda.is_available() else None

    return base.ask_torch(with_gpu)


def _count() -> int:
    found = _ask(lambda torch: torch.cuda.device_count())
    return int(found) if found is not None else len(base.gpus("nvidia", "amd"))


def _only_amd() -> bool:
    return bool(base.gpus("amd")) and not base.gpus("nvidia")


def _index(device: Any) -> int:
    """The index that an integer, "cuda:1" or a `torch.device` names.

    Raises:
        InvalidArgumentError: it names no CUDA device, or no index.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    text = str(device) if isinstance(device, str) or hasattr(device, "type") else ""
    kind, _, number = text.partition(":")
    if kind and kind != "cuda":
        raise InvalidArgumentError(f"Expected a cuda device, but got: {text}")
    if not number.isdecimal():
        raise InvalidArgumentError(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    return int(number)
