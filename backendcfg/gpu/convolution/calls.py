"""`conv2d` of arrays on CUDA devices, by cuDNN, on their stream.

As PyTorch does it: an array that lies neither as (batch, channels, height, width) nor with its
channels last is copied by its own library; the bias is added by that, too. The engine is chosen
once for each problem under a profile, and kept.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg._native import current
from backendcfg.errors import DeviceFailedError, TierNotKeptError
from backendcfg.flags import FlagsInForce
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import Arguments, Held
from backendcfg.gpu.convolution import graph as rules
from backendcfg.gpu.convolution.graph import Problem
from backendcfg.gpu.cudnn import search as device_graphs
from backendcfg.gpu.cudnn.graph import alignment
from backendcfg.gpu.cudnn.search import Found, NoEngineError, Search, Tensors
from backendcfg.gpu.libraries.opening import require_device
from backendcfg.gpu.products import calls as device_products
from backendcfg.gpu.products.gemm import CUDA
from backendcfg.ops.convolution import shapes as convolution_shapes
from backendcfg.ops.convolution.shapes import Operand
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from typing import NoReturn

    from backendcfg.gpu.arrays import Work
    from backendcfg.gpu.cudnn.graph import Engine
    from backendcfg.ops.convolution.shapes import Geometry

OPERATION = "conv2d"
NAMES = ("input", "weight", "bias")
REMEMBERED = 512
"""Problems whose engine is remembered; the one that was not asked for longest is forgotten."""

_NHWC, _NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class Chosen(NamedTuple):
    """What is known of all calls of one kind.

    Attributes:
        found: the engine, and why no other.
        engines: all that cuDNN named.
        because: why that one, without numbers of its own.
        is_checked: whether a result that is not finite is refused.
    """

    found: Found
    engines: tuple[Engine, ...]
    because: str
    is_checked: bool


# The second by what `explain` knows of a call, which has no memory.
_chosen: OrderedDict[Hashable, Chosen] = OrderedDict()
_latest: OrderedDict[Hashable, Chosen] = OrderedDict()
_lock = threading.Lock()


def _after_fork() -> None:
    # A thread that the child does not have may have been keeping something.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Kind(NamedTuple):
    """What follows from shapes and strides alone.

    Attributes:
        channels_last: how all tensors lie for cuDNN.
        lies: whether x and w do so; else they are copied. An x that lacks zeros below or at the
            right is copied with them: few engines of cuDNN take more there than above and left.
        sizes, strides: of x, w and y as cuDNN takes them.
    """

    channels_last: bool
    lies: tuple[bool, bool]
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


_kinds: dict[Hashable, Kind] = {}


class Call(NamedTuple):
    """One call, its arrays as cuDNN takes them; `keeps` holds copies until it was run."""

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
        TierNotKeptError: no engine keeps what the profile promises.
        DeviceFailedError: the device failed, or is full.
    """
    given = Arguments(OPERATION, dict(zip(NAMES, arrays, strict=True)))
    x, w = given.take("input"), given.take("weight")
    b = given.take("bias") if arrays[2] is not None else None
    operands = [
        Operand(each.shape, _element(each, value)) if each is not None else None
        for each, value in zip((x, w, b), arrays, strict=True)
    ]
    geometry = convolution_shapes.geometry(operands[0], operands[1], operands[2], *options)  # type: ignore[arg-type]  # only the bias may be None
    kind = _kind(given, geometry, x, w)
    out, y = _memory(given, geometry.shape, geometry.element, channels_last=kind.channels_last)
    if b is not None:
        device_products.can_add(OPERATION, out, arrays[2])
    if 0 not in geometry.shape:
        call = _call(given, geometry, kind, (x, w, y))
        chosen = _serve(call)
        if b is not None:
            device_products.add(OPERATION, out, arrays[2].reshape((-1, 1, 1)))
        if chosen.is_checked:
            device_products.finite(OPERATION, out)
        served(OPERATION, "cudnn", chosen.because, geometry.shape, geometry.element)
    return out if len(x.shape) == 4 else out.reshape(out.shape[1:])


def _element(held: Held, value: Any) -> str:
    return held.element or str(getattr(value, "dtype", "")).rpartition(".")[2]


def _check(given: Arguments, geometry: Geometry, x: Held) -> None:
    if geometry.element not in rules.ARITHMETIC:
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
    if broken := rules.unkept(flags):
        raise TierNotKeptError(
            f"{OPERATION}: {broken}",
            state="nothing was computed",
            helps=["compute on the CPU: our own kernels keep it", "use a profile of a lower tier"],
        )


def flags_in_force() -> tuple[Mapping[str, Any], frozenset[str]]:
    """The flags that are looked at, and which somebody set."""
    flags = FlagsInForce()
    return {flag: flags[flag] for flag in rules.FLAGS}, frozenset(flags.asked)


def _four(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
    return sizes if len(sizes) == 4 else (first, *sizes)


def _lies(held: Held, *, channels_last: bool) -> bool:
    shape = _four(held.shape, 1)
    wanted = rules.packed(shape, channels_last=channels_last)
    found = _four(held.strides, 0)
    return all(
        size <= 1 or have == want for size, have, want in zip(shape, found, wanted, strict=True)
    )


def _kind(given: Arguments, geometry: Geometry, x: Held, w: Held) -> Kind:
    """What follows from the shapes, once the call is checked."""
    key = geometry, x.steps, w.steps, x.kind, current()
    known = _kinds.get(key)
    if known is not None:
        return known
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
    kind = Kind(
        last,
        (
            x_size == geometry.input and _lies(x, channels_last=last),
            _lies(w, channels_last=last),
        ),
        sizes,
        (
            rules.packed(x_size, channels_last=last),
            rules.packed(w_size, channels_last=last),
            rules.packed(y_size, channels_last=last),
        ),
    )
    if len(_kinds) >= REMEMBERED:
        _kinds.clear()
    if current() is key[-1]:  # see `_serve`
        _kinds[key] = kind
    return kind


def _laid(given: Arguments, name: str, held: Held, *, channels_last: bool) -> tuple[Any, Held]:
    """A copy of an argument in the order that is wanted."""
    if not channels_last:
        return given.dense(name, given.given[name])
    axes = _NHWC if len(held.shape) == 4 else (1, 2, 0)
    back = _NCHW if len(held.shape) == 4 else (2, 0, 1)
    copy = own_library.turned(given.given[name], axes)
    copy = own_library.turned(device_products.dense(OPERATION, name, copy), back)
    return copy, given.hold(name, copy)


def _memory(
    given: Arguments, shape: tuple[int, ...], element: str, *, channels_last: bool
) -> tuple[Any, Held]:
    """Memory in the order that is wanted, always with a batch."""
    if not channels_last:
        return given.make(shape, element)
    made, held = given.make(tuple(shape[axis] for axis in _NHWC), element)
    return own_library.turned(made, _NCHW), held


def _extended(
    given: Arguments, x: Held, shape: tuple[int, ...], *, channels_last: bool
) -> tuple[Any, Held]:
    """A copy of the input with zeros below and at the right, as PyTorch makes it."""
    value = given.given["input"]
    if not own_library.is_known(value):
        given.refuse(
            "`input` must be PyTorch's or CuPy's where more zeros are below or right than above",
            helps=["pass it as one of theirs, or with these zeros in it"],
        )
    copy, held = _memory(given, shape, x.element, channels_last=channels_last)
    own_library.fill(copy, value.reshape(_four(x.shape, 1)), zero=True)
    return copy, held


def _call(
    given: Arguments, geometry: Geometry, kind: Kind, arrays: tuple[Held, Held, Held]
) -> Call:
    """A call with its arrays in the order that is wanted; the last is the result."""
    x, w, y = arrays
    keeps = []
    if kind.sizes[0] != geometry.input:
        copy, x = _extended(given, x, kind.sizes[0], channels_last=kind.channels_last)
        keeps.append(copy)
    elif not kind.lies[0]:
        copy, x = _laid(given, "input", x, channels_last=kind.channels_last)
        keeps.append(copy)
    if not kind.lies[1]:
        copy, w = _laid(given, "weight", w, channels_last=kind.channels_last)
        keeps.append(copy)
    problem = Problem(
        geometry.element,
        kind.sizes,
        kind.strides,
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
        Tensors((rules.X, rules.W, rules.Y), (x.address, w.address, y.address)),
        given.work(library.handle, driver.handle, x, w, y),
        tuple(keeps),
    )


def _serve(call: Call) -> Chosen:
    """Compute it, by the engine that is known or one that is now chosen."""
    key = call.problem, call.place, call.work[0], current()
    with _lock:
        chosen = _chosen.get(key)
        if chosen is not None:
            _chosen.move_to_end(key)
    if chosen is not None:
        try:
            device_graphs.run(call.given, call.work, chosen.found.plan, call.tensors)
        except Exception as error:
            if not device_graphs.is_full(error):
                raise
        else:
            return chosen
    found = _search(call)
    if current() is not key[-1]:  # another thread has put a profile in force: which chose it?
        return found
    with _lock:
        _keep(_chosen, key, found)
        _keep(_latest, (call.geometry, call.place, key[-1]), found)
    return found


def _keep(known: OrderedDict[Hashable, Chosen], key: Hashable, chosen: Chosen) -> None:
    known[key] = chosen
    known.move_to_end(key)
    while len(known) > REMEMBERED:
        known.popitem(last=False)


def _search(call: Call) -> Chosen:
    flags, asked = flags_in_force()
    notes = rules.refused(flags, asked, call.problem.element)
    search = Search(call.given, call.work, rules.describe(call.problem), call.tensors)
    engines = search.engines()

    def unmet(engine: Engine) -> str:
        return rules.unmet(engine, notes)

    try:
        if rules.unmeasured(flags):
            found, because = search.first(engines, unmet), "the first engine that takes it"
        else:
            found = search.fastest(engines, unmet, flags["cudnn.benchmark_limit"])
            because = "the fastest engine when it was measured"
    except NoEngineError as nothing:
        _refuse(call, nothing)
    return Chosen(found, tuple(engines), because, bool(flags["ops.check_finite"]))


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


def latest(geometry: Geometry, place: tuple[int, int]) -> Chosen | None:
    """What was last chosen for calls of a kind on a device under the flags in force, or None.

    Arrays of these shapes that lie otherwise may have been served by another engine.
    """
    with _lock:
        return _latest.get((geometry, place, current()))


def forget() -> None:
    """Choose the engine of every problem again."""
    with _lock:
        _chosen.clear()
        _latest.clear()
        _kinds.clear()
