"""Each operation of a run a second time: as it is, which shows races, or in float64.

The second time comes before the program's own call, which may write to its arguments. How many bits
of a result are right is told from its distance to that in float64, from the same inputs: it says
how exact one operation is, not how far errors have come until there.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg.audit.trace.nested import leaves, mapped
from backendcfg.catalogue.frameworks import NUMPY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.audit.trace.numpy_operations import Target

TWICE, FLOAT64 = "twice", "float64"
"""How operations may be run a second time."""

MOST_BITS = 53
"""Of a float64: a result that is the same counts as this many."""

_WIDER = {
    "bfloat16": "float64",
    "float16": "float64",
    "float32": "float64",
    "complex32": "complex128",
    "complex64": "complex128",
}

# The number of `out` among the arguments of NumPy's functions. Those of a ufunc end before it.
_OUT = {"reduce": 4, "accumulate": 4, "reduceat": 5, "numpy.dot": 2, "numpy.ndarray.dot": 2}


@dataclass
class Exactness:
    """How many bits of its results an operation has right.

    Attributes:
        told: how many calls had so many bits, from 0 to MOST_BITS.
        place: where the program makes the call with the fewest.
        failed: how many calls do not run in float64.
    """

    told: list[int] = field(default_factory=lambda: [0] * (MOST_BITS + 1))
    place: str = ""
    failed: int = 0

    def add(self, error: float, place: str) -> None:
        """Count a call.

        Args:
            error: the distance of its result to the one in float64, as a part of the latter.
            place: where the program makes it.
        """
        bits = bits_of(error)
        if not any(self.told[: bits + 1]):
            self.place = place
        self.told[bits] += 1


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
        The largest of all results; None where there are none of fewer bits to compare.
    """
    errors = []
    for one, wide in zip(found, exact, strict=False):
        if not (is_narrow(one) and one.shape == wide.shape and not is_narrow(wide)):
            continue
        counts = library.isfinite(wide)
        right, given = (library.where(counts, each, 0) for each in (wide, one))
        size, apart = (float((abs(each) ** 2).sum()) ** 0.5 for each in (right, given - right))
        errors.append(0.0 if not apart else apart / size if size else math.inf)
    return max(errors, default=None)


def is_narrow(value: Any) -> bool:
    """Whether an array, a tensor or its type has numbers of fewer bits than float64."""
    return _name(getattr(value, "dtype", value)) in _WIDER


def _name(kind: Any) -> str:
    return str(kind).removeprefix("torch.")


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
    given[at : at + 1] = map(_unwritten, given[at : at + 1])
    if "out" in named:
        named["out"] = _unwritten(named["out"])
    return _results(target, given, named)


def _unwritten(out: Any) -> Any:
    """In the place of memory that the program wants results in."""
    if type(out) is tuple:
        return tuple(map(_unwritten, out))
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
    library = sys.modules[NUMPY.name]
    met: list[str] = []

    def wide(value: Any) -> Any:
        if isinstance(value, library.dtype) or _is_type(value):
            wider = _WIDER.get(library.dtype(value).name)
            return value if wider is None else library.dtype(wider)
        if not hasattr(value, "dtype"):
            return value
        if (name := value.dtype.name) not in _WIDER:
            return value.copy()
        met.append(name)
        return value.astype(_WIDER[name])

    given, named = mapped(wide, list(arguments)), mapped(wide, dict(keywords))
    return _results(target, given, named) if met else None


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
    met: list[str] = []

    def wide(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return getattr(torch, _WIDER.get(_name(value), _name(value)))
        if not hasattr(value, "data_ptr"):
            return value
        if (name := _name(value.dtype)) not in _WIDER:
            return value.detach().clone()
        met.append(name)
        return value.detach().to(getattr(torch, _WIDER[name]))

    found = mapped(wide, given)
    return found if met else None
