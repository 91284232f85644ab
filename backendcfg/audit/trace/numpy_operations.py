"""The operations of NumPy: its ufuncs, its other functions that compute, and its generators.

Nothing is replaced: the compiled part exchanges the addresses that Python calls them at, and
operators take the same way. A record is one call: of a ufunc (`a @ b` is one), of its methods
(`x.sum()` is `numpy.add.reduce`), of the products and sorts that are no ufuncs, of what draws. The
functions of `numpy.linalg`, `numpy.fft` and `numpy` that Python code makes of these are seen as
what they call.

Not seen: arithmetic of NumPy's scalars, `longdouble`, objects and text, loops that Numba, Cython
(scikit-learn) or other C code runs over memory. They show in the first operation that reads what
they made. A result with elements that `where=` left out has a digest of 0.
"""

from __future__ import annotations

import _frozen_importlib
import atexit
import os
import pickle
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.audit import places
from backendcfg.audit.trace import again
from backendcfg.audit.trace.nested import leaves, mapped
from backendcfg.audit.trace.streams import GENERATOR, LARGEST_KEPT, MOST_SAMPLED
from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import JAX, SCIPY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType, ModuleType

    from backendcfg.audit.trace.streams import Recorder, Stream

MODULES = ("numpy", "numpy.random", "numpy.fft", "scipy.special")
"""Modules with operations that are recorded here."""

OURS = ("numpy", SCIPY.name, "backendcfg", "contextlib", "threading")
"""Packages whose lines are not the program's."""

KEPT = ".pickle"
"""What the files are called that hold the arguments of an operation."""

_FUNCTIONS = {
    "bincount": -1,
    "c_einsum": -1,
    "copyto": 0,
    "correlate": -1,
    "correlate2": -1,
    "dot": -1,
    "inner": -1,
    "interp": -1,
    "interp_complex": -1,
    "lexsort": -1,
    "vdot": -1,
    "zeros": -1,
}
"""Functions of NumPy's compiled module that compute by themselves or fill memory, with the number
of the argument that they write to."""

_METHODS = {
    "dot": -1,
    "sort": 0,
    "argsort": -1,
    "partition": 0,
    "argpartition": -1,
}
"""Methods of arrays that do, with the number of the argument that they write to."""

_OF_UFUNCS = {"reduce": -1, "accumulate": -1, "reduceat": -1, "outer": -1, "at": 1}

# Of generators; what is not here draws. `rand` and `randn` call others that do.
_DRAW_NOTHING = ("bit_generator", "get_state", "rand", "randn", "seed", "set_state", "spawn")
_WRITES = {"shuffle": 1}


@dataclass(frozen=True)
class _Call:
    """What an operation was given, before it ran; nothing where it is only followed.

    Attributes:
        place: where the program calls it.
        inputs: what it reads.
        kept: its arguments, where they are wanted.
        second: what it computed a second time; empty where it cannot be run in float64.
    """

    place: str = ""
    inputs: Sequence[dict[str, Any]] = ()
    kept: Kept | None = None
    second: Sequence[Any] | None = None


@dataclass(frozen=True)
class Target:
    """Something that is recorded.

    Attributes:
        called: a ufunc, a function or a method.
        name: what its operations are called; of a ufunc's method, what follows the ufunc's name.
        written: the number of the argument that it writes to where it returns None, -1 for none.
        draws: whether it draws from a generator, which is its first argument.
    """

    called: Any
    name: str
    written: int = -1
    draws: bool = False


def watch(module: str, recorder: Recorder) -> None:
    """Record one of MODULES, which has been imported, in every thread."""
    observed = observe(module)
    _OBSERVED.update(observed)
    if module == "numpy":
        _begin(recorder)


_OBSERVED: dict[str, Target] = {}


def observe(module: str) -> dict[str, Target]:
    """Have calls told of what is recorded of one of MODULES; by name."""
    _native.set_array_api()
    found = {target.name: target for target in targets(module)}
    for target in found.values():
        _native.observe(target.called, target.name, target.written, target.draws)
    return found


def target_of(name: str, known: Mapping[str, Target]) -> Target:
    """What an operation calls, by its name, which may be that of a ufunc's method."""
    # Not bound: the ufunc is the first of the arguments.
    return known.get(name) or known[name.rpartition(".")[2]]


def targets(module: str) -> Iterator[Target]:
    """What is recorded of one of MODULES."""
    if module == "numpy":
        yield from _of_numpy(sys.modules[module])
    elif module == "numpy.random":
        yield from _of_generators(sys.modules[module])
    elif module == "numpy.fft":
        yield from _ufuncs(sys.modules["numpy.fft._pocketfft_umath"], module)
    else:
        yield from _ufuncs(sys.modules[module], module)


def _of_numpy(np: ModuleType) -> Iterator[Target]:
    compiled = sys.modules["numpy._core._multiarray_umath"]
    for name, written in _OF_UFUNCS.items():
        yield Target(getattr(np.ufunc, name), name, written)
    yield from _ufuncs(compiled, "numpy")
    yield from _ufuncs(sys.modules["numpy.linalg._umath_linalg"], "numpy.linalg")
    for name, written in _FUNCTIONS.items():
        if (function := getattr(compiled, name, None)) is not None:
            yield Target(function, f"numpy.{name.removeprefix('c_')}", written)
    for name, written in _METHODS.items():
        yield Target(getattr(np.ndarray, name), f"numpy.ndarray.{name}", written)


def _of_generators(random: ModuleType) -> Iterator[Target]:
    for kind in (random.Generator, random.RandomState):
        for name, method in vars(kind).items():
            if not name.startswith("_") and name not in _DRAW_NOTHING:
                full = f"numpy.random.{kind.__name__}.{name}"
                yield Target(method, full, _WRITES.get(name, -1), draws=True)


def _ufuncs(module: ModuleType, package: str) -> Iterator[Target]:
    for value in vars(module).values():
        if isinstance(value, sys.modules["numpy"].ufunc):
            yield Target(value, f"{package}.{value.__name__}")


def _begin(recorder: Recorder) -> None:
    """Let calls be told to the streams of the recorder."""
    # What a module computes while it is imported is no step of the program: whoever needs it first
    # imports it, which may be another thread in each run.
    # Python's own locks, of the modules that are being imported.
    locks: dict[str, Any] = vars(_frozen_importlib)["_module_locks"]

    def is_inner() -> bool:
        """Whether it is no step of the program."""
        caller = sys._getframe(2)
        return (bool(locks) and places.is_importing(caller)) or (
            JAX.name in sys.modules and _is_jax(caller)
        )

    def computed(name: str, digest: int, *ignored: Any) -> None:
        if not is_inner():
            recorder.stream().add(name, digest)

    def computing(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _Call | None:
        stream = recorder.stream()
        if is_inner():
            return None
        if stream.again:
            second = _second(stream, name, arguments, keywords)
            return _Call(places.place(OURS, sys._getframe(1)), second=second)
        if not stream.is_in_window():
            return _Call() if stream.is_followed() else None
        named = {key: value for key, value in keywords.items() if key != "out"}
        # With `out`, by which transforms know the length of their result.
        kept = Kept(stream, name, arguments, keywords) if stream.count == stream.keep else None
        with suppress(Exception):  # code of the program's objects that are asked for their memory
            return _call(name, [*arguments, *named.values()], kept, sys._getframe(1))
        return None

    def computed_closely(name: str, digest: int, call: _Call | None, results: Any) -> None:
        if is_inner():
            return
        stream = recorder.stream()
        if call is not None:
            found = results if type(results) is tuple else (results,)
            if stream.again:
                _compare(stream, name, call, found)
            else:
                _detail(stream, name, digest, call, found)
        stream.add(name, digest)

    if recorder.wanted.windows or recorder.wanted.again:
        _native.bind(computing=computing, computed=computed_closely)
    else:
        _native.bind(computed=computed)
    # The interpreter takes itself apart after this, and what the callbacks use with it.
    atexit.register(_native.bind, computing=None, computed=None)


def _is_jax(caller: FrameType) -> bool:
    """Whether JAX computes something for itself: it keeps much of that, and then does not again."""
    frame = places.nearest(("numpy",), caller)
    return frame is not None and places.is_within(places.module_of(frame), (JAX.name,))


def _second(
    stream: Stream, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Sequence[Any] | None:
    """What an operation computes a second time.

    None where it is not run a second time; empty where it cannot be run in float64.
    """
    exact = stream.again == again.FLOAT64
    run = again.in_float64 if exact else again.repeated
    try:
        return run(target_of(name, _OBSERVED), arguments, keywords)
    except Exception as error:  # such as one that the program's own call raises, too
        if again.is_the_programs(error, OURS):
            raise
        return [] if exact else None


def _compare(stream: Stream, name: str, call: _Call, found: Sequence[Any]) -> None:
    """Tell what an operation computed from what it computed a second time."""
    if call.second is None:
        return
    if stream.again == again.FLOAT64:
        np = sys.modules["numpy"]
        with np.errstate(all="ignore"):
            stream.compare(name, call.place, np, found, call.second)
        return
    shapes = [shape(one) for one in found]
    # What a program adds in place to an array of another type it gets in that type.
    if shapes != [shape(one) for one in call.second]:
        return
    stream.repeated += 1
    # In one order: that in memory is the program's choice where it gives the memory.
    rows = sys.modules["numpy"].ascontiguousarray
    if [digest(rows(one)) for one in found] != [digest(rows(one)) for one in call.second]:
        stream.tell_unlike(name, call.place, shapes)


def _detail(stream: Stream, name: str, digest: int, call: _Call, found: Sequence[Any]) -> None:
    """Write more of an operation of which more is wanted, when it has run."""
    if stream.is_followed() and digest:
        stream.sample(b"".join(sample(one, MOST_SAMPLED // len(found)) for one in found))
    if not stream.is_in_window():
        return
    facts: dict[str, Any] = {
        "name": name,
        "place": call.place,
        "inputs": call.inputs,
        "outputs": [shape(one) for one in found],
    }
    if call.kept is not None:
        facts["kept"] = call.kept.finish(found)
    stream.detail(facts)


def sample(result: Any, most: int) -> bytes:
    """At most so many elements of an array or a number, evenly spread, as float64."""
    np = sys.modules["numpy"]
    flat = np.asarray(result).reshape(-1)
    if flat.dtype.kind not in "biufcmM":
        return b""
    some = flat[:: max(1, -(-flat.size // most))]
    if some.dtype.kind in "mM":
        some = some.view(np.int64)
    elif some.dtype.kind == "c":
        some = some.astype(np.complex128).view(np.float64)
    numbers: bytes = some.astype(np.float64).tobytes()
    return numbers


def _call(name: str, given: list[Any], kept: Kept | None, frame: FrameType) -> _Call:
    np = sys.modules["numpy"]
    draws = name.startswith("numpy.random.")
    inputs: list[dict[str, Any]] = []
    numbers: list[Any] = []
    for one in leaves(given[draws:]):
        if type(one) in (bool, int, float, complex, str):
            numbers.append(one)
        elif (array := _as_array(one)) is not None and not array.dtype.hasobject:
            inputs.append({"what": shape(array), "digest": digest(array)})
        elif not isinstance(one, (type(None), type, type(...), slice, np.dtype, np.ufunc)):
            inputs.append({"what": type(one).__name__, "digest": 0, "unread": True})
    if numbers:
        inputs.append({"what": "numbers", "digest": zlib.crc32(repr(numbers).encode())})
    if draws:
        inputs.append({"what": GENERATOR, "digest": _state(given[0])})
    return _Call(places.place(OURS, frame), inputs, kept)


def _as_array(value: Any) -> Any:
    """An array, a number of NumPy's or memory that another library gives away; else None."""
    np = sys.modules["numpy"]
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except (BufferError, TypeError, ValueError):
        return None


def _state(generator: Any) -> int:
    """A digest of the state of a generator."""
    found = 0
    for one in leaves(_bits(generator).state):
        text = one.tobytes() if hasattr(one, "tobytes") else repr(one).encode()
        found = zlib.crc32(text, found)
    return found


def _bits(generator: Any) -> Any:
    return getattr(generator, "bit_generator", None) or generator._bit_generator


def digest(array: Any, seed: int = 0) -> int:
    """A digest of an array's elements, in the order that observed.c takes them in."""
    np = sys.modules["numpy"]
    data = np.asarray(array)
    if not (data.flags.c_contiguous or data.flags.f_contiguous):
        data = np.ascontiguousarray(data)
    return _native.digest(data.ctypes.data, data.nbytes, seed)


def shape(value: Any) -> str:
    """The type and the shape of an array; the type of a number."""
    dtype = getattr(value, "dtype", None)
    return f"{dtype}{list(value.shape)}" if dtype is not None else type(value).__name__


class Kept:
    """The arguments of an operation, kept in a file before it runs.

    Args:
        stream: that it belongs to.
        name: of the operation.
        arguments: by position; a generator is kept as its kind.
        keywords: by name.
    """

    def __init__(
        self, stream: Stream, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        self.path = os.path.join(stream.folder, f"{stream.key}-{stream.count}{KEPT}")
        arrays = map(_as_array, leaves([arguments, keywords]))
        size = sum(one.nbytes for one in arrays if one is not None)
        self.obstacle = f"its arguments have {size} bytes" if size > LARGEST_KEPT else ""
        self.call: dict[str, Any] = {"operation": name}
        if not self.obstacle:
            try:
                self.call |= {
                    "args": mapped(_copy, list(arguments)),
                    "kwargs": mapped(_copy, dict(keywords)),
                }
            except Exception as error:  # the program's own classes, or no memory
                self.obstacle = f"its arguments cannot be kept: {error}"

    def finish(self, outputs: Sequence[Any]) -> dict[str, str]:
        """Write the call and what it gave; the file, or why there is none."""
        if not self.obstacle:
            self.call["outputs"] = [sys.modules["numpy"].asarray(one) for one in outputs]
            try:
                with open(self.path, "wb") as file:
                    pickle.dump(self.call, file)
            except Exception as error:  # arguments that cannot be pickled, a full disk
                self.obstacle = f"its arguments cannot be kept: {error}"
        return {"path": "" if self.obstacle else self.path, "obstacle": self.obstacle}


@dataclass(frozen=True)
class Generator:
    """A generator among the arguments of an operation, without its state.

    Attributes:
        kind: the class of its bits; "" for the one behind the functions of `numpy.random`.
        legacy: whether it is a `RandomState`.
    """

    kind: str
    legacy: bool


def _copy(value: Any) -> Any:
    """A copy that does not change with the original, and that another process can read.

    Raises:
        TypeError: the program's own class is needed for that.
    """
    np = sys.modules["numpy"]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.copy("K") if _is_shared(type(value)) else np.array(value, order="K")
    if imports.is_imported("numpy.random"):
        random = sys.modules["numpy.random"]
        if value is random.mtrand._rand:
            return Generator("", legacy=True)
        if isinstance(value, (random.Generator, random.RandomState)):
            bits = type(_bits(value)).__name__
            return Generator(bits, legacy=isinstance(value, random.RandomState))
    if _is_shared(value if isinstance(value, type) else type(value)):
        return value
    # Such as Cython's views of memory, which no file can hold.
    if (array := _as_array(value)) is None:
        raise TypeError(f"no file can hold a {type(value).__name__}")
    return array.copy("K")


def _is_shared(kind: type) -> bool:
    """Whether a class is there in each process."""
    return kind.__module__.partition(".")[0] in ("builtins", "numpy")
