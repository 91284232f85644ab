"""Each operation of a run a second time: as it is, which shows races, or in float64.

The second time comes before the program's own call, which may write to its arguments. How many bits
of a result are right is told from its distance to that in float64, from the same inputs: it says
how exact one operation is, not how errors have added up by then.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg.audit import places
from backendcfg.audit.trace.nested import leaves, mapped
from backendcfg.catalogue.frameworks import NUMPY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.audit.trace.numpy_operations import Target

TWICE, FLOAT64 = "twice", "float64"
"""How operations may be run a second time."""

MOST_BITS = 53
"""Of a float64: a result that is the same counts as this many."""

LEAST_NUMBERS = 16
"""Of a result that is compared: one of a few numbers has more bits right, or fewer, by luck."""

_WIDER = {
    "bfloat16": "float64",
    "float16": "float64",
    "float32": "float64",
    "complex32": "complex128",
    "complex64": "complex128",
}

# Where `out` is among the arguments of NumPy's functions. Not of ufuncs: C gives only their inputs.
_OUT = {"reduce": 4, "accumulate": 4, "reduceat": 5, "numpy.dot": 2, "numpy.ndarray.dot": 2}


@dataclass
class Exactness:
    """How many bits of its results an operation has right.

    Attributes:
        calls: how many had so many bits, from 0 to MOST_BITS.
        place: where the program makes the call with the fewest.
        failed: how many calls do not run in float64.
    """

    calls: list[int] = field(default_factory=lambda: [0] * (MOST_BITS + 1))
    place: str = ""
    failed: int = 0

    def add(self, error: float, place: str) -> None:
        """Count a call.

        Args:
            error: the distance of its result to the one in float64, as a part of the latter.
            place: where the program makes it.
        """
        bits = bits_of(error)
        if not any(self.calls[: bits + 1]):
            self.place = place
        self.calls[bits] += 1


def bits_of(error: float) -> int:
    """How many bits are right of a result with this relative error; 0 where it is not finite."""
    if not error:
        return MOST_BITS
    return min(MOST_BITS, max(0, round(-math.log2(error)))) if math.isfinite(error) else 0


def error(library: Any, found: Sequence[Any], exact: Sequence[Any]) -> float | None:
    """How far results are from those in float64, as a part of these, in the 2-norm.

    Args:
        library: NumPy or PyTorch.
        found: what an operation computed.
        exact: what it computes in float64. Elements that are not finite there are passed over.

    Returns:
        The largest of all results, infinite for one that is not finite; None where there are none
        of fewer bits to compare.
    """
    errors = []
    for one, wide in zip(found, exact, strict=False):
        if not is_narrow(one) or is_narrow(wide) or one.shape != wide.shape:
            continue
        given, right = one.reshape(-1), wide.reshape(-1)
        if len(right) < LEAST_NUMBERS:
            continue
        size = apart = 0.0
        for begin in range(0, len(right), _PIECE):
            some, other = (each[begin : begin + _PIECE] for each in (right, given))
            counts = library.isfinite(some)
            some, other = (library.where(counts, each, 0) for each in (some, other))
            size += float((abs(some) ** 2).sum())
            apart += float((abs(other - some) ** 2).sum())
        relative = (apart / size) ** 0.5 if size else math.inf
        errors.append(0.0 if not apart else relative if math.isfinite(relative) else math.inf)
    return max(errors, default=None)


_PIECE = 1 << 20
"""Numbers that are compared at a time, so that this takes little memory."""


def is_narrow(value: Any) -> bool:
    """Whether an array, a tensor or its type has numbers of fewer bits than float64."""
    return _name(getattr(value, "dtype", value)) in _WIDER


def _name(kind: Any) -> str:
    return getattr(kind, "name", "") or str(kind).removeprefix("torch.")


def is_the_programs(error: Exception, packages: Sequence[str]) -> bool:
    """Whether code of the program raised an error: that of a signal, which came meanwhile.

    Args:
        error: from a second run.
        packages: whose errors it is to meet itself, when it makes its own call.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    inside = (*packages, "backendcfg")
    return trace is not None and not places.is_within(places.module_of(trace.tb_frame), inside)


def repeated(
    target: Target, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> list[Any] | None:
    """What an operation of NumPy computes; None where running it would change something.

    Args:
        target: what is called.
        arguments: by position; those that a ufunc writes to are left out.
        keywords: by name.
    """
    if target.draws or target.written >= 0 or not _is_plain(arguments, keywords):
        return None
    given, named = list(arguments), dict(keywords)
    at = _OUT.get(target.name, _OUT.get(target.name.rpartition(".")[2], len(given)))
    given[at : at + 1] = map(_another, given[at : at + 1])
    if "out" in named:
        named["out"] = _another(named["out"])
    return _results(target, given, named)


def _another(out: Any) -> Any:
    """Memory in the place of that which the program wants results in."""
    if type(out) is tuple:
        return tuple(map(_another, out))
    return None if out is None else sys.modules[NUMPY.name].empty_like(out)


def in_float64(
    target: Target, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> list[Any] | None:
    """What an operation of NumPy computes in float64; None where nothing that it reads has less.

    Args:
        target: what is called.
        arguments: as for `repeated`.
        keywords: by name.
    """
    if target.draws or not _is_plain(arguments, keywords):
        return None
    if not any(map(is_narrow, leaves([arguments, keywords]))):
        return None
    library = sys.modules[NUMPY.name]

    def wide(value: Any) -> Any:
        if isinstance(value, library.dtype) or _is_type(value):
            return library.dtype(_WIDER.get(library.dtype(value).name, value))
        if not hasattr(value, "dtype"):
            return value
        return value.astype(_WIDER.get(_name(value.dtype), value.dtype))

    return _results(target, mapped(wide, list(arguments)), mapped(wide, dict(keywords)))


def _is_type(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, sys.modules[NUMPY.name].generic)


def _is_plain(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether nothing of the program's runs where these are given, and all results are written."""
    library = sys.modules[NUMPY.name]
    if keywords.get("where", True) is not True:
        return False
    plain = (type(None), bool, int, float, complex, str, type(...), slice)
    numpys = (library.generic, library.dtype, library.ufunc, type(library._NoValue))
    return all(
        type(one) in plain
        or isinstance(one, numpys)
        or _is_type(one)
        or (type(one) is library.ndarray and not one.dtype.hasobject)
        for one in leaves([arguments, keywords])
    )


def _results(target: Target, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
    with sys.modules[NUMPY.name].errstate(all="ignore"):
        found = target.called(*arguments, **keywords)
    if found is None and target.written >= 0:
        found = arguments[target.written]
    return list(found) if type(found) is tuple else [found]


def tensors_in_float64(torch: Any, given: Any) -> Any:
    """Arguments of an operation of PyTorch, copied and in float64; None where none has less."""
    tensors = [one for one in leaves(given) if hasattr(one, "data_ptr")]
    if not any(map(is_narrow, tensors)):
        return None
    copies: dict[int, Any] = {}

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.dtype) and not hasattr(value, "data_ptr"):
            return value
        name = _name(getattr(value, "dtype", value))
        kind = getattr(torch, _WIDER.get(name, name))
        if isinstance(value, torch.dtype):
            return kind
        # An operation may write to a tensor that it is given twice.
        if id(value) not in copies:
            copies[id(value)] = value.detach().to(kind, copy=True)
        return copies[id(value)]

    return mapped(wide, given)
