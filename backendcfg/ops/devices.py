"""The one way from the operations to `backendcfg.gpu`, which serves arrays on devices.

    if type(a) is not np.ndarray and _native.device_holds(a):
        return devices.gpu().conv2d(...)

`backendcfg.gpu` is large, and a process without arrays on a device needs none of it. So it is
imported when the first of them comes, or when `explain` is asked about a device.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from backendcfg.ops.explanation import Answer, Question

CUDA, ROCM = 2, 10
KINDS = {CUDA: "cuda", ROCM: "rocm"}
"""The kinds of devices that are served, by DLPack's number."""

_NUMBERS = {name: kind for kind, name in KINDS.items()}

# What C asks of Python for products on a device.
_CALLBACKS = ("refuse", "failed", "place", "recipe", "make", "dense", "copy", "finite", "stream")


@lru_cache(maxsize=1)
def gpu() -> ModuleType:
    """The functions of `backendcfg.gpu`; the first call imports it."""
    from backendcfg.gpu import families

    families.bind()
    return families


def bind() -> None:
    """Hand C callbacks that import `backendcfg.gpu` when the first of them is called."""
    _native.device_bind(**{name: _importing(name) for name in _CALLBACKS})


def _importing(name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return gpu().CALLBACKS[name](*arguments)

    return call


def explainer(name: str) -> Callable[[Question], Answer]:
    """A function of `backendcfg.gpu.families` that answers `explain`, imported when it is asked."""

    def explain(question: Question) -> Answer:
        answer: Answer = getattr(gpu(), name)(question)
        return answer

    return explain


def place_of(device: Any) -> tuple[int, int] | None:
    """A device as DLPack numbers it, (kind, index); None for the CPU.

    Args:
        device: "cpu", "cuda", "cuda:1", "rocm:0", or a `torch.device`.

    Raises:
        InvalidArgumentError: it is no such device.
    """
    text = str(device)
    if text == "cpu":
        return None
    match = re.fullmatch(r"(\w+?)(?::(\d+))?", text)
    if match is None or match.group(1) not in _NUMBERS:
        raise InvalidArgumentError(
            f"explain: `device` must be a device, not {device!r}",
            helps=['write "cpu", "cuda:0" or "rocm:0"'],
        )
    return _NUMBERS[match.group(1)], int(match.group(2) or 0)


def place_named(place: tuple[int, int]) -> str:
    """A device for people: "cuda:0"."""
    kind, index = place
    return f"{KINDS[kind]}:{index}"
