"""A convolution on a device, as C makes the next one of its kind: cuDNN's plan, then the bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.gpu import replay

if TYPE_CHECKING:
    from backendcfg.gpu.convolution.calls import Call, Chosen, Kind

_LAST_BACK = ("permute", (0, 3, 1, 2))
_ONE_IMAGE = ("__getitem__", 0)
_OF_CHANNELS = ("reshape", (-1, 1, 1))


def remember(
    call: Call, kind: Kind, options: tuple[Any, ...], chosen: Chosen, about: tuple[Any, ...]
) -> None:
    """Let C make calls of a kind, whose input and weight are read where they lie.

    Args:
        call: one that was made.
        kind: what follows from its shapes.
        options: the operation and its arguments beside the arrays.
        chosen: the engine.
        about: what the call was counted as.
    """
    images, weight, shift = arrays = tuple(call.given.given.values())
    del weight
    batch, channels, height, width = shape = call.geometry.shape
    views: replay.Views = ()
    if kind.channels_last:
        shape, views = (batch, height, width, channels), (_LAST_BACK,)
    if len(images.shape) == 3:
        views = (*views, _ONE_IMAGE)
    out = len(arrays)
    operands = (0, 1, out)
    steps = [replay.graph(call.work[:2], chosen.found.plan, call.tensors.numbers, operands)]
    if shift is not None:
        seen = (*replay.PLAIN, _OF_CHANNELS)
        steps.append(replay.method_of(out, "add_", 2, source_seen=seen))
    made = call.geometry.element, shape, views, call.problem.alignments[2]
    _native.device_remember(arrays, options, True, tuple(steps), (made,), about)
