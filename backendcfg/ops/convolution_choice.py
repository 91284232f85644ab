"""Which way computes a convolution: a fixed rule, or what was measured to be fastest.

`cudnn.benchmark` measures, as it does on a GPU: the ways that may serve are tried once for each
shape, `cudnn.benchmark_limit` of them at most, and the fastest is remembered. Where something asks
for the same bits in each run, nothing is measured, because what wins may differ from run to run.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.ops.convolution_ways import WAYS
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.flags import FlagsInForce
    from backendcfg.ops.convolution_shapes import Geometry
    from backendcfg.ops.convolution_ways import Convolution

FLAGS = (
    *("cudnn.benchmark", "cudnn.benchmark_limit", "cudnn.enabled", "cudnn.deterministic"),
    *("mkldnn.enabled", "mkldnn.deterministic", "determinism.tier", "determinism.algorithms"),
)
"""The flags that the choice looks at."""

REMEMBERED = 512
"""Shapes whose fastest way is remembered; the one that was not asked for longest is forgotten."""

_fastest: OrderedDict[tuple[Any, ...], str] = OrderedDict()
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def fixed_by(flags: FlagsInForce) -> str:
    """What forbids to measure, or ""."""
    if flags.tier != "none":
        return f"the tier is {flags.tier}"
    if flags["determinism.algorithms"] == "deterministic":
        return "`determinism.algorithms` is deterministic"
    for flag in ("cudnn.deterministic", "mkldnn.deterministic"):
        if flags[flag]:
            return f"`{flag}` is on"
    if not flags["cudnn.enabled"]:
        return "`cudnn.enabled` is off"
    return "" if flags["cudnn.benchmark"] else "`cudnn.benchmark` is off"


def unmet(way: str, call: Geometry, flags: FlagsInForce) -> str:
    """Why a way cannot serve a call, or ""."""
    if way == "pointwise":
        return "" if call.is_pointwise else "the kernel is not 1 by 1 at stride 1 without padding"
    if way == "im2col":
        return "a 1 by 1 kernel needs no columns" if call.is_pointwise else ""
    return _onednn_unmet(call, flags) if way == "onednn" else ""


def _onednn_unmet(call: Geometry, flags: FlagsInForce) -> str:
    if not flags["mkldnn.enabled"]:
        return "`mkldnn.enabled` is off"
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return "PyTorch, which brings it, is not loaded"
    if not (torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()):
        return "PyTorch does not compute with it"
    if call.dtype != "float32":
        return "PyTorch gives it no float64"
    return "there is nothing to compute" if 0 in call.input + call.weight else ""


def candidates(call: Geometry, flags: FlagsInForce) -> list[str]:
    """The ways that may serve, the fixed rule's first."""
    return [way for way in WAYS if not unmet(way, call, flags)]


def _choose(call: Geometry, flags: FlagsInForce, *, used: bool) -> tuple[str, str]:
    """The way that serves, and why; "" where the ways are to be measured.

    Args:
        call: what is to be computed.
        flags: the flags.
        used: whether the call is made, which keeps its shape from being forgotten.
    """
    if fixed := fixed_by(flags):
        return "direct", fixed
    key = _key(call, candidates(call, flags))
    with _lock:
        known = _fastest.get(key)
        if known is not None and used:
            _fastest.move_to_end(key)
    return (known, "the fastest when it was measured") if known is not None else ("", "")


def compute(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """The result, by the way that the flags and the shape choose."""
    how = call.geometry
    way, because = _choose(how, flags, used=True)
    if not way:
        return _measure(call, flags)
    result = WAYS[way](call, flags)
    served("conv2d", way, because, how.shape, how.dtype)
    return result


def foreseen(call: Geometry, flags: FlagsInForce) -> tuple[str, str]:
    """The way that would serve, and why; the first one where the call would measure."""
    way, because = _choose(call, flags, used=False)
    if way:
        return way, because
    return candidates(call, flags)[0], "not measured yet: a call of this shape measures"


def _measure(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """The result of the fastest of the ways, each tried twice: the first wakes threads."""
    how = call.geometry
    ways = candidates(how, flags)
    key = _key(how, ways)
    tried: dict[str, tuple[float, NDArray[Any]]] = {}
    limit = flags["cudnn.benchmark_limit"] or len(WAYS)
    for way in ways[:limit]:
        spent = []
        for _ in range(2):
            start = time.perf_counter()
            result = WAYS[way](call, flags)
            spent.append(time.perf_counter() - start)
        tried[way] = (min(spent), result)
    fastest = min(tried, key=lambda way: tried[way][0])
    with _lock:
        fastest = _fastest.setdefault(key, fastest)  # another thread may have measured meanwhile
        while len(_fastest) > REMEMBERED:
            _fastest.popitem(last=False)
    because = f"the fastest of {', '.join(tried)}"
    served("conv2d", fastest, because, how.shape, how.dtype)
    return tried[fastest][1] if fastest in tried else WAYS[fastest](call, flags)


def remembered() -> dict[tuple[Any, ...], str]:
    """The fastest way by shape, the one that was asked for last at the end."""
    with _lock:
        return dict(_fastest)


def forget() -> None:
    """Measure every shape again."""
    with _lock:
        _fastest.clear()


def _key(call: Geometry, ways: list[str]) -> tuple[Any, ...]:
    """What decides how fast a way is: shapes, arithmetic, window, what may serve, and the profile.

    Not the element: float16 and bfloat16 are computed as float32.
    """
    return (call._replace(element=""), *ways, _native.snapshot())
