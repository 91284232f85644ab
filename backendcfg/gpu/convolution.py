"""`conv2d` of arrays on CUDA devices by cuDNN, on the arrays' stream.

What the flags ask of cuDNN's engines, the convolution as a graph, and the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg._native import current
from backendcfg.cache import BoundedCache, ProfileCache
from backendcfg.errors import DeviceFailedError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.gpu import messages, own_library
from backendcfg.gpu.arrays import Arguments, DeviceView
from backendcfg.gpu.cudnn import Tensors
from backendcfg.gpu.cudnn import search as cudnn
from backendcfg.gpu.cudnn.graph import DATA, Graph, alignment
from backendcfg.gpu.cudnn.search import Found, NoEngineError, Search
from backendcfg.gpu.libraries.calling import OpenLibrary
from backendcfg.gpu.libraries.opening import open_device, require_device
from backendcfg.ops.convolution import shapes as convolution_shapes
from backendcfg.ops.convolution.shapes import ARITHMETIC
from backendcfg.ops.devices import CUDA
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping
    from typing import NoReturn

    from backendcfg.gpu.arrays import Work
    from backendcfg.gpu.cudnn.graph import Description, Engine
    from backendcfg.ops.convolution.shapes import Geometry


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


OPERATION = "conv2d"
NAMES = ("input", "weight", "bias")
_NHWC, _NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class ChosenEngine(NamedTuple):
    """The engine for all calls of one kind.

    Attributes:
        found: the engine with its plan, and why the others do not serve.
        engines: all that cuDNN named for it.
        because: why this one serves, in words that many calls share.
        is_checked: whether a result that is not finite is refused.
    """

    found: Found
    engines: tuple[Engine, ...]
    because: str
    is_checked: bool


class Layout(NamedTuple):
    """How the tensors of a call lie for cuDNN; follows from shapes and strides alone.

    Attributes:
        channels_last: whether the channels of all tensors come last in memory.
        lies: whether x and w lie so already; else they are copied. An x that needs more zeros below
            or right than above or left is copied with them: few engines of cuDNN take that.
        sizes, strides: of x, w and y as cuDNN takes them.
    """

    channels_last: bool
    lies: tuple[bool, bool]
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


# By the views of a call; by its problem, device and library; and by what `explain` knows of a call.
# The profile is in every key.
_layouts: ProfileCache[Hashable, Layout] = ProfileCache(512)
_engines: BoundedCache[Hashable, ChosenEngine] = BoundedCache(512)
_latest: BoundedCache[Hashable, ChosenEngine] = BoundedCache(512)


class Call(NamedTuple):
    """One call, its arrays as cuDNN takes them; `keeps` holds copies until it has run."""

    given: Arguments
    geometry: Geometry
    problem: Problem
    place: tuple[int, int]
    tensors: Tensors
    work: Work
    keeps: tuple[Any, ...]


def convolve(arrays: tuple[Any, Any, Any], options: tuple[Any, Any, Any, Any]) -> Any:
    """The operation for arrays of which one is on a device; see `conv2d`.

    Args:
        arrays: input, weight, and bias or None.
        options: stride, padding, dilation and groups.

    Raises:
        InvalidArgumentError: an argument does not fit, or no engine can serve.
        MissingLibraryError: cuDNN or the driver cannot be opened.
        TierNotKeptError: no engine keeps the profile's tier.
        DeviceFailedError: the device failed, or is full.
    """
    given = Arguments(OPERATION, dict(zip(NAMES, arrays, strict=True)))
    x, w = given.take("input"), given.take("weight")
    b = given.take("bias") if arrays[2] is not None else None
    bias = None if b is None else given.facts("bias", b)
    geometry = convolution_shapes.geometry(
        given.facts("input", x), given.facts("weight", w), bias, *options
    )
    layout = _layouts.find(
        (geometry, x.byte_strides, w.byte_strides, x.kind), lambda: _layout(given, geometry, x, w)
    )
    out, y = _memory(given, geometry.shape, geometry.element, channels_last=layout.channels_last)
    if b is not None:
        own_library.can_add(OPERATION, out, arrays[2])
    if 0 not in geometry.shape:
        call = _call(given, geometry, layout, (x, w, y))
        chosen = _serve(call)
        if b is not None:
            own_library.add(OPERATION, out, arrays[2].reshape((-1, 1, 1)))
        if chosen.is_checked:
            own_library.check_finite(OPERATION, out)
        served(OPERATION, "cudnn", chosen.because, geometry.shape, geometry.element)
    return out if len(x.shape) == 4 else out.reshape(out.shape[1:])


def _check(given: Arguments, geometry: Geometry, x: DeviceView) -> None:
    if geometry.is_complex:
        given.refuse(
            f"cuDNN convolves no {geometry.element}", helps=["convolve its parts by themselves"]
        )
    if x.kind != CUDA:
        given.refuse(f"nothing convolves on {x.place} yet", helps=["copy the arrays to the host"])
    if 0 in geometry.weight[1:]:
        given.refuse("`input` must have channels: cuDNN computes nothing of none")
    flags, _ = flags_in_force()
    if not flags["cudnn.enabled"]:
        given.refuse(
            "`cudnn.enabled` is off, and nothing else convolves on a device",
            helps=["turn it on, or copy the arrays to the host"],
        )
    broken = messages.unkept(flags["determinism.tier"])
    messages.refuse_unkept(OPERATION, broken, "compute on the CPU: our own kernels keep it")


def flags_in_force() -> tuple[Mapping[str, Any], frozenset[str]]:
    """The flags that are looked at, and which somebody set."""
    flags = FlagsInForce()
    return {flag: flags[flag] for flag in FLAGS}, frozenset(flags.asked)


def _four(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
    return sizes if len(sizes) == 4 else (first, *sizes)


def _lies(view: DeviceView, *, channels_last: bool) -> bool:
    shape = _four(view.shape, 1)
    wanted = packed(shape, channels_last=channels_last)
    found = _four(view.strides, 0)
    return all(
        size <= 1 or have == want for size, have, want in zip(shape, found, wanted, strict=True)
    )


def _layout(given: Arguments, geometry: Geometry, x: DeviceView, w: DeviceView) -> Layout:
    """How the tensors of a call lie, once the call is checked."""
    _check(given, geometry, x)
    # As PyTorch decides it.
    last = geometry.element != "float64" and any(
        _lies(each, channels_last=True) and not _lies(each, channels_last=False) for each in (x, w)
    )
    x_size, w_size, y_size = sizes = (
        convolution_shapes.padded(geometry),
        geometry.weight,
        geometry.shape,
    )
    return Layout(
        last,
        (
            x_size == geometry.input and _lies(x, channels_last=last),
            _lies(w, channels_last=last),
        ),
        sizes,
        (
            packed(x_size, channels_last=last),
            packed(w_size, channels_last=last),
            packed(y_size, channels_last=last),
        ),
    )


def _laid(
    given: Arguments, name: str, view: DeviceView, *, channels_last: bool
) -> tuple[Any, DeviceView]:
    """A copy of an argument in the order that is wanted."""
    if not channels_last:
        return given.dense(name, given.given[name])
    axes = _NHWC if len(view.shape) == 4 else (1, 2, 0)
    back = _NCHW if len(view.shape) == 4 else (2, 0, 1)
    copy = own_library.turned(given.given[name], axes)
    copy = own_library.turned(own_library.dense(OPERATION, name, copy), back)
    return copy, given.hold(name, copy)


def _memory(
    given: Arguments, shape: tuple[int, ...], element: str, *, channels_last: bool
) -> tuple[Any, DeviceView]:
    """Memory in the order that is wanted, always with a batch."""
    if not channels_last:
        return given.make(shape, element)
    made, view = given.make(tuple(shape[axis] for axis in _NHWC), element)
    return own_library.turned(made, _NCHW), view


def _extended(
    given: Arguments, x: DeviceView, shape: tuple[int, ...], *, channels_last: bool
) -> tuple[Any, DeviceView]:
    """A copy of the input with zeros below and at the right, as PyTorch makes it."""
    value = given.given["input"]
    if not own_library.is_known(value):
        given.refuse(
            "`input` must be PyTorch's or CuPy's where more zeros are below or right than above",
            helps=["pass it as one of theirs, or with these zeros in it"],
        )
    copy, view = _memory(given, shape, x.element, channels_last=channels_last)
    own_library.fill(copy, value.reshape(_four(x.shape, 1)), zero=True)
    return copy, view


def _call(
    given: Arguments,
    geometry: Geometry,
    layout: Layout,
    arrays: tuple[DeviceView, DeviceView, DeviceView],
) -> Call:
    """A call with its arrays as its layout wants them; the last of them is the result."""
    x, w, y = arrays
    keeps = []
    if layout.sizes[0] != geometry.input:
        copy, x = _extended(given, x, layout.sizes[0], channels_last=layout.channels_last)
        keeps.append(copy)
    elif not layout.lies[0]:
        copy, x = _laid(given, "input", x, channels_last=layout.channels_last)
        keeps.append(copy)
    if not layout.lies[1]:
        copy, w = _laid(given, "weight", w, channels_last=layout.channels_last)
        keeps.append(copy)
    problem = Problem(
        geometry.element,
        layout.sizes,
        layout.strides,
        (alignment(x.address), alignment(w.address), alignment(y.address)),
        geometry.padding,
        geometry.stride,
        geometry.dilation,
    )
    library, driver = require_device("cudnn"), require_device("cuda")
    return Call(
        given,
        geometry,
        problem,
        (x.kind, x.ordinal),
        Tensors((X, W, Y), (x.address, w.address, y.address)),
        given.work(library, driver.handle, x, w, y),
        tuple(keeps),
    )


def _serve(call: Call) -> ChosenEngine:
    """Compute it, by the engine in the cache or one that is chosen now."""
    in_force = current()
    key = in_force, call.problem, call.place, call.work[0]
    chosen = _engines.get(key)
    if chosen is not None:
        try:
            cudnn.run(call.given, call.work, chosen.found.plan, call.tensors)
        except Exception as error:
            if not cudnn.is_full(error):
                raise
        else:
            return chosen
    # Also where the engine that served before has no room to work in any more.
    found = _search(call)
    if current() is in_force:  # else another thread replaced the profile: nobody knows which chose
        _engines.put(key, found)
        _latest.put((in_force, call.geometry, call.place), found)
    return found


def _search(call: Call) -> ChosenEngine:
    flags, asked = flags_in_force()
    notes = refused(flags, asked, call.problem.element)
    search = Search(call.given, call.work, describe(call.problem), call.tensors)
    engines = search.engines()

    def unusable(engine: Engine) -> str:
        return unmet(engine, notes)

    try:
        if unmeasured(flags):
            found, because = search.first(engines, unusable), "the first engine that takes it"
        else:
            found = search.fastest(engines, unusable, flags["cudnn.benchmark_limit"])
            because = "the fastest engine when it was measured"
    except NoEngineError as nothing:
        _refuse(call, nothing)
    return ChosenEngine(found, tuple(engines), because, bool(flags["ops.check_finite"]))


def _refuse(call: Call, nothing: NoEngineError) -> NoReturn:
    where = f"cuda:{call.place[1]}"
    reasons = nothing.reasons or ("cuDNN names no engine for it",)
    if nothing.full:
        raise DeviceFailedError(
            f"{OPERATION}: {where} is full: no engine of cuDNN that may serve has room to work in",
            notes=[*call.given.described(), *reasons],
            state="nothing was computed",
            helps=["free memory on the device"],
        )
    call.given.refuse(
        f"no engine of cuDNN can serve it on {where}",
        reasons,
        ["allow what the notes name, or copy the arrays to the host: all is computed there"],
    )


def explain(
    geometry: Geometry, place: tuple[int, int], what: str, others: tuple[str, ...]
) -> Answer:
    """What `explain` says of a convolution on a device; engines are known once it was computed.

    Args:
        geometry: the call.
        place: the device, as DLPack numbers it.
        what: the call in words, without the device.
        others: the ways of the CPU.
    """
    flags, asked = flags_in_force()
    opened, driver = open_device("cudnn"), open_device("cuda")
    against = ""
    if place[0] != CUDA:
        against = "it is NVIDIA's"
    elif geometry.is_complex:
        against = f"it convolves no {geometry.element}"
    elif not flags["cudnn.enabled"]:
        against = "`cudnn.enabled` is off"
    else:
        against = messages.unkept(flags["determinism.tier"])
    for each in (opened, driver):
        if not against and not isinstance(each, OpenLibrary):
            against = "; ".join(each.reasons)
    reasons = [Reason(name, "", "it is of the CPU") for name in others]
    if against or not isinstance(opened, OpenLibrary):
        reasons.insert(0, Reason("cudnn", "", against))
        return Answer(OPERATION, what, geometry.shape, reasons=tuple(reasons), flags=FLAGS)
    known = _latest.get((current(), geometry, place))
    notes = refused(flags, asked, geometry.element)
    if known is None:
        because = "its engines are asked for by the first call of this shape"
        said = [Reason(note, "", f"no engine with this note: {why}") for note, why in notes.items()]
    else:
        because = f"{known.because}: {known.found.plan.engine}"
        lines = cudnn.told(known.engines, known.found.said)
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
        FLAGS,
    )


def forget() -> None:
    """Choose the engine of every problem again."""
    _layouts.clear()
    _engines.clear()
    _latest.clear()
