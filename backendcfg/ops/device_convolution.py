"""`conv2d` of arrays on CUDA devices, by cuDNN, on their stream.

As PyTorch does it: an array that lies neither as (batch, channels, height, width) nor with its
channels last is copied by its own library; the bias is added by that, too. The engine is chosen
once for each problem under a profile, and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg._native import current
from backendcfg.dispatch import device_convolution as rules
from backendcfg.dispatch.device_convolution import Problem
from backendcfg.dispatch.device_cudnn import alignment
from backendcfg.dispatch.device_gemm import CUDA
from backendcfg.dispatch.device_opening import OpenLibrary, open_device, require_device
from backendcfg.errors import DeviceFailedError, TierNotKeptError
from backendcfg.ops import convolution_shapes, device_graphs, device_products
from backendcfg.ops.convolution_shapes import Operand
from backendcfg.ops.device_arrays import Arguments, Held
from backendcfg.ops.device_graphs import Found, NoEngineError, Search, Tensors
from backendcfg.ops.families import Answer, Reason
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from backendcfg.dispatch.device_cudnn import Engine
    from backendcfg.ops.convolution_shapes import Geometry
    from backendcfg.ops.device_arrays import Work

OPERATION = "conv2d"
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


class _Call(NamedTuple):
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
    given = Arguments(OPERATION, dict(zip(("input", "weight", "bias"), arrays, strict=True)))
    x, w = given.take("input"), given.take("weight")
    b = given.take("bias") if arrays[2] is not None else None
    operands = [
        Operand(each.shape, _element(each, value)) if each is not None else None
        for each, value in zip((x, w, b), arrays, strict=True)
    ]
    geometry = convolution_shapes.geometry(operands[0], operands[1], operands[2], *options)  # type: ignore[arg-type]  # only the bias may be None
    _check(given, geometry, x)
    channels_last = _is_last(x, w)
    out, y, address = _result(given, geometry, channels_last=channels_last)
    if 0 not in geometry.shape:
        call = _call(given, geometry, (x, w, y), address, channels_last=channels_last)
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
    flags, _ = _flags()
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


def _flags() -> tuple[Mapping[str, Any], frozenset[str]]:
    """The flags that are looked at, and which somebody set."""
    in_force = current()
    if in_force is None:
        return rules.DEFAULTS, frozenset()
    values = in_force.payload.values
    return {**rules.DEFAULTS, **{flag: values[flag] for flag in rules.FLAGS if flag in values}}, (
        frozenset(in_force.payload.asked)
    )


def _four(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
    return sizes if len(sizes) == 4 else (first, *sizes)


def _lies(held: Held, *, channels_last: bool) -> bool:
    shape = _four(held.shape, 1)
    wanted = rules.packed(shape, channels_last=channels_last)
    found = _four(held.strides, 0)
    return all(
        size <= 1 or have == want for size, have, want in zip(shape, found, wanted, strict=True)
    )


def _is_last(*operands: Held) -> bool:
    """Whether the result has its channels last, as PyTorch decides it."""
    if operands[0].element == "float64":
        return False
    return any(
        _lies(each, channels_last=True) and not _lies(each, channels_last=False)
        for each in operands
    )


def _laid(given: Arguments, name: str, held: Held, *, channels_last: bool) -> tuple[Any, Held]:
    """An argument as it lies, or a copy of it in the order that is wanted."""
    value = given.given[name]
    if _lies(held, channels_last=channels_last):
        return value, held
    if not channels_last:
        return given.dense(name, value)
    axes = _NHWC if len(held.shape) == 4 else (1, 2, 0)
    back = _NCHW if len(held.shape) == 4 else (2, 0, 1)
    copy = device_products.dense(OPERATION, name, device_products.permuted(value, axes))
    copy = device_products.permuted(copy, back)
    return copy, given.hold(name, copy)


def _result(given: Arguments, geometry: Geometry, *, channels_last: bool) -> tuple[Any, Held, int]:
    """Memory for the result, always with a batch; the address is of its first number."""
    shape = geometry.shape
    if not channels_last:
        made, held = given.make(shape, geometry.element)
        return made, held, held.address
    made, held = given.make(tuple(shape[axis] for axis in _NHWC), geometry.element)
    return device_products.permuted(made, _NCHW), held, held.address


def _after(geometry: Geometry) -> tuple[int, int]:
    """Zeros below and right: as many as above and left, but for an odd "same"."""
    both = [
        geometry.padding[d]
        if (
            geometry.input[2 + d]
            + 2 * geometry.padding[d]
            - (geometry.weight[2 + d] - 1) * geometry.dilation[d]
            - 1
        )
        // geometry.stride[d]
        + 1
        == geometry.out[d]
        else geometry.padding_after[d]
        for d in range(2)
    ]
    return both[0], both[1]


def _call(
    given: Arguments,
    geometry: Geometry,
    arrays: tuple[Held, Held, Held],
    address: int,
    *,
    channels_last: bool,
) -> _Call:
    x_value, x = _laid(given, "input", arrays[0], channels_last=channels_last)
    w_value, w = _laid(given, "weight", arrays[1], channels_last=channels_last)
    sizes = (geometry.input, geometry.weight, geometry.shape)
    addresses = (x.address, w.address, address)
    problem = Problem(
        geometry.element,
        sizes,
        tuple(rules.packed(each, channels_last=channels_last) for each in sizes),  # type: ignore[arg-type]  # three, as `sizes` are
        tuple(map(alignment, addresses)),  # type: ignore[arg-type]  # the same
        geometry.padding,
        _after(geometry),
        geometry.stride,
        geometry.dilation,
    )
    library, driver = require_device("cudnn"), require_device("cuda")
    return _Call(
        given,
        geometry,
        problem,
        (x.kind, x.ordinal),
        Tensors((rules.X, rules.W, rules.Y), addresses),
        given.work(library.handle, driver.handle, x, w, arrays[2]),
        (x_value, w_value),
    )


def _serve(call: _Call) -> Chosen:
    """Compute it, by the engine that is known or one that is now chosen."""
    key = call.problem, call.place, call.work[0], current()
    chosen = _chosen.get(key)
    if chosen is not None:
        try:
            device_graphs.run(call.given, call.work, chosen.found.plan, call.tensors)
        except Exception as error:
            if not device_graphs.is_full(error):
                raise
        else:
            _chosen.move_to_end(key)
            return chosen
    chosen = _search(call)
    _keep(_chosen, key, chosen)
    _keep(_latest, (call.geometry, call.place, current()), chosen)
    return chosen


def _keep(known: OrderedDict[Hashable, Chosen], key: Hashable, chosen: Chosen) -> None:
    known[key] = chosen
    known.move_to_end(key)
    while len(known) > REMEMBERED:
        known.popitem(last=False)


def _search(call: _Call) -> Chosen:
    flags, asked = _flags()
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


def _refuse(call: _Call, nothing: NoEngineError) -> None:
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


def forget() -> None:
    """Choose the engine of every problem again."""
    _chosen.clear()
    _latest.clear()


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
    flags, asked = _flags()
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
    known = _latest.get((geometry, place, current()))
    notes = rules.refused(flags, asked, geometry.element)
    if known is None:
        because = "its engines are asked for by the first call of this shape"
        said = [Reason(note, "", f"no engine with this note: {why}") for note, why in notes.items()]
    else:
        because = f"{known.because}: {known.found.plan.engine}"
        lines = device_graphs.told(known.engines, known.found.said)
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
