"""What the flags ask of cuDNN's engines for a convolution, and the convolution as a graph.

Engines say by notes how they compute. As in PyTorch, none that narrows what it reads is taken;
float32 without TF32 goes to none that uses tensor cores; where something asks for the same bits in
each run, none whose bits may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu import messages
from backendcfg.gpu.cudnn.graph import DATA, Graph
from backendcfg.ops.convolution.shapes import ARITHMETIC

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from backendcfg.gpu.cudnn.graph import Description, Engine

PRECISION = "cudnn.conv.fp32_precision"
_PARENTS = ("cudnn.fp32_precision", "fp32_precision")

FLAGS = (
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.benchmark_limit",
    "cudnn.deterministic",
    PRECISION,
    "cudnn.fp32_precision",
    "fp32_precision",
    "determinism.algorithms",
    "determinism.tier",
    "ops.check_finite",
)
"""Every flag that is looked at."""

CROSS_CORRELATION = 1  # cudnnConvolutionMode_t
X, W, Y = 1, 2, 3  # the numbers of the tensors


def tf32(flags: Mapping[str, Any], asked: Collection[str]) -> bool:
    """Whether float32 may be computed in TF32: as the nearest of three flags says, else it may.

    Args:
        flags: a value for each of `FLAGS`.
        asked: the flags that somebody set: the first of the three starts at "tf32", but for a
            parent that is set.
    """
    own = flags[PRECISION]
    if own != "none" and PRECISION in asked:
        return bool(own == "tf32")
    for parent in _PARENTS:
        if flags[parent] != "none":
            return bool(flags[parent] == "tf32")
    return bool(own == "tf32")


def fixed_by(flags: Mapping[str, Any]) -> str:
    """What asks for the same bits in each run, or ""."""
    if flags["cudnn.deterministic"]:
        return "`cudnn.deterministic` is on"
    if flags["determinism.algorithms"] == "deterministic":
        return "`determinism.algorithms` is deterministic"
    tier = flags["determinism.tier"]
    return f"the tier is {tier}" if tier != "none" else ""


def unmeasured(flags: Mapping[str, Any]) -> str:
    """Why the engines are not timed, or "": what wins may differ from run to run."""
    return fixed_by(flags) or ("" if flags["cudnn.benchmark"] else "`cudnn.benchmark` is off")


def refused(flags: Mapping[str, Any], asked: Collection[str], element: str) -> dict[str, str]:
    """The notes whose engines are not taken, each with the reason."""
    notes = {"DOWN_CONVERT_INPUTS": "it narrows what it reads"}
    if element == "float32" and not tf32(flags, asked):
        notes["TENSOR_CORE"] = "it computes in TF32, which the flags do not allow"
    if fixed := fixed_by(flags):
        notes["NONDETERMINISTIC"] = f"its bits may differ from run to run, and {fixed}"
    return notes


def unmet(engine: Engine, notes: Mapping[str, str]) -> str:
    """Why an engine is not taken, or ""."""
    return "; ".join(f"{note}: {why}" for note, why in notes.items() if note in engine.notes)


def unkept(flags: Mapping[str, Any]) -> str:
    """Why no engine keeps the tier of the flags, or ""."""
    return messages.unkept(flags["determinism.tier"])


class Problem(NamedTuple):
    """A convolution as cuDNN is told it.

    Attributes:
        element: of all three tensors.
        sizes, strides: of x, w and y; strides in numbers.
        alignments: of their memory in bytes.
        padding: zeros above and below, and at the left and right.
        steps, dilations: of the window.
    """

    element: str
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    alignments: tuple[int, int, int]
    padding: tuple[int, int]
    steps: tuple[int, int]
    dilations: tuple[int, int]


def describe(problem: Problem) -> Description:
    """The graph of a convolution. Groups follow from the channels of x and w."""
    graph = Graph()
    x, w, y = (
        graph.tensor(number, problem.element, sizes, strides, alignment)
        for number, sizes, strides, alignment in zip(
            (X, W, Y), problem.sizes, problem.strides, problem.alignments, strict=True
        )
    )
    how = graph.add(
        "CONVOLUTION",
        CONVOLUTION_COMP_TYPE=DATA[ARITHMETIC[problem.element]],
        CONVOLUTION_CONV_MODE=CROSS_CORRELATION,
        CONVOLUTION_SPATIAL_DIMS=2,
        CONVOLUTION_DILATIONS=problem.dilations,
        CONVOLUTION_FILTER_STRIDES=problem.steps,
        CONVOLUTION_PRE_PADDINGS=problem.padding,
        CONVOLUTION_POST_PADDINGS=problem.padding,
    )
    operation = graph.add(
        "OPERATION_CONVOLUTION_FORWARD",
        OPERATION_CONVOLUTION_FORWARD_CONV_DESC=how,
        OPERATION_CONVOLUTION_FORWARD_X=x,
        OPERATION_CONVOLUTION_FORWARD_W=w,
        OPERATION_CONVOLUTION_FORWARD_Y=y,
        OPERATION_CONVOLUTION_FORWARD_ALPHA=1.0,
        OPERATION_CONVOLUTION_FORWARD_BETA=0.0,
    )
    return graph.done(operation)


def packed(shape: tuple[int, ...], *, channels_last: bool) -> tuple[int, ...]:
    """The strides of (batch, channels, height, width) without gaps, in numbers."""
    batch, channels, height, width = shape
    del batch
    if channels_last:
        return height * width * channels, 1, width * channels, channels
    return channels * height * width, height * width, width, 1
