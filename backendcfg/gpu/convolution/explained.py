"""Who would serve `conv2d` on a device: what `explain` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.gpu.convolution import graph as rules
from backendcfg.gpu.convolution.calls import OPERATION, flags_in_force, latest
from backendcfg.gpu.cudnn import search
from backendcfg.gpu.libraries.opening import OpenLibrary, open_device
from backendcfg.gpu.products.gemm import CUDA
from backendcfg.ops.explanation import Answer, Reason

if TYPE_CHECKING:
    from backendcfg.ops.convolution.shapes import Geometry


def explained(
    geometry: Geometry, place: tuple[int, int], what: str, others: tuple[str, ...]
) -> Answer:
    """Who would serve a convolution on a device. Engines are known of problems that were computed.

    Args:
        geometry: the call.
        place: the device, as DLPack numbers it.
        what: the call in words.
        others: the ways of the CPU.
    """
    flags, asked = flags_in_force()
    opened, driver = open_device("cudnn"), open_device("cuda")
    against = ""
    if place[0] != CUDA:
        against = "it is NVIDIA's"
    elif geometry.element not in rules.ARITHMETIC:
        against = f"it convolves no {geometry.element}"
    elif not flags["cudnn.enabled"]:
        against = "`cudnn.enabled` is off"
    else:
        against = rules.unkept(flags)
    for each in (opened, driver):
        if not against and not isinstance(each, OpenLibrary):
            against = "; ".join(each.reasons)
    reasons = [Reason(name, "", "it is of the CPU") for name in others]
    if against or not isinstance(opened, OpenLibrary):
        reasons.insert(0, Reason("cudnn", "", against))
        return Answer(OPERATION, what, geometry.shape, reasons=tuple(reasons), flags=rules.FLAGS)
    known = latest(geometry, place)
    notes = rules.refused(flags, asked, geometry.element)
    if known is None:
        because = "its engines are asked for by the first call of this shape"
        said = [Reason(note, "", f"no engine with this note: {why}") for note, why in notes.items()]
    else:
        because = f"{known.because}: {known.found.plan.engine}"
        lines = search.told(known.engines, known.found.said)
        parts = (line.partition(": ") for line in lines)
        said = [Reason(engine, "", why) for engine, _, why in parts]
    return Answer(
        OPERATION,
        what,
        geometry.shape,
        "cudnn",
        opened.path,
        because,
        (*said, *reasons),
        rules.FLAGS,
    )
