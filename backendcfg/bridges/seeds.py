"""The seeds of random generators: Python's, NumPy's legacy one, PyTorch's and TensorFlow's.

A seed is set once, when the profile is applied or the moment that the library is imported; what the
program draws from then on is its own affair. Taking the profile back puts the generator into the
state that it had before. A child process that `multiprocessing` started has seeds of its own,
derived from the profile's and from which child it is, so that workers differ from each other and
are the same in every run.

What a generator was seeded with can be read from PyTorch and TensorFlow. From the other two only
their state can be, and it has moved with the first draw; for them the seed is remembered, and was
compared with a fresh generator when it was set. JAX has no generator: its keys are arguments.

What generator objects of Python and NumPy start from, where nobody gives them a seed, are switches
of their own. `secrets`, `SystemRandom`, `uuid4` and `tempfile` keep secrets, and are never touched.
"""

from __future__ import annotations

import os
import sys
from itertools import count

from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import TENSORFLOW, TORCH
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any, Self

FRAMEWORK: str | None = None
SCOPED_FLAGS: frozenset[str] = frozenset()
"""None: what a scope draws belongs to the stream of the program around it."""

_identity: list[int] = []
_seeded: dict[str, int] = {}
"""By switch, the seed that it was given here."""


class Seed(int):
    """A seed that a generator had, with the state that it was in."""

    state: Any

    @classmethod
    def at(cls, seed: int, state: Any) -> Self:
        """A seed and a state."""
        made = cls(seed)
        made.state = state
        return made

    def __deepcopy__(self, memo: object) -> int:
        return int(self)


class Unseeded(str):
    """A generator that was not seeded by a profile: a digest of its state, and the state."""

    __slots__ = ("state",)
    state: Any

    @classmethod
    def at(cls, state: Any, data: bytes) -> Self:
        """A state, and the same in bytes."""
        # _sha1 rather than hashlib, whose import opens OpenSSL.
        from _sha1 import sha1  # type: ignore[import-not-found]

        made = cls(f"unseeded, state {sha1(data).hexdigest()[:12]}")
        made.state = state
        return made

    def __deepcopy__(self, memo: object) -> str:
        return str(self)


def become(identity: Collection[int]) -> None:
    """This process is a child: the how many-th of its parent, after its parent's own identity."""
    _identity[:] = identity


def _who() -> tuple[int, ...]:
    """Which child this process is; a child that is being unpickled is not yet told otherwise."""
    module = sys.modules.get("multiprocessing.process")
    if _identity or module is None:
        return tuple(_identity)
    return tuple(module.current_process()._identity)


def derived(seed: int, identity: Collection[int]) -> int:
    """The seed of a child process: the first 32 bits of SHA-1 of `seed/1/2`, for its 1st's 2nd.

    The process that was started first has the profile's own.
    """
    if not identity:
        return seed
    from _sha1 import sha1

    text = "/".join(map(str, (seed, *identity)))
    return int.from_bytes(sha1(text.encode()).digest()[:4], "big")


class _Generator(AnytimeSwitch):
    """What the switches have in common."""

    name: str
    flag: str
    module: str

    @property
    def library(self) -> Any:
        return sys.modules[self.module]

    def read(self) -> Seed | Unseeded:
        """What it was seeded with, with its state; a seed compares equal to the number."""
        state = self.state()
        seed = self.seed(_seeded.get(self.name))
        return Unseeded.at(state, self.data(state)) if seed is None else Seed.at(seed, state)

    def write(self, value: int | str) -> None:
        """Seed it; or, with a value that was read, put it back into the state of then."""
        if isinstance(value, (Seed, Unseeded)):
            self.put_back(value.state)
        else:
            self.start(int(value))
        if isinstance(value, int):
            _seeded[self.name] = int(value)
        else:
            _seeded.pop(self.name, None)

    def unsupported(self) -> str:
        """Why the generator takes no seed, or ""."""
        return ""

    def writer(self) -> str:
        """Who seeded it, when it was not the profile."""
        return "the program seeded it itself, after the profile did"

    def seed(self, given: int | None) -> int | None:
        """What it was seeded with, None for nothing of ours; `given` is what is remembered."""
        return given

    def state(self) -> Any:
        raise NotImplementedError

    def data(self, state: Any) -> bytes:
        return repr(state).encode()

    def start(self, seed: int) -> None:
        raise NotImplementedError

    def put_back(self, state: Any) -> None:
        raise NotImplementedError

    def _check(self, expected: bool) -> None:
        if not expected:
            raise RuntimeError(f"{self.name}: its state is not that of a generator just seeded")


class Python(_Generator):
    """`random.seed`: the functions of the module, not `random.Random` objects."""

    name, flag, module = "random.seed", "seed.python", "random"

    def state(self) -> Any:
        return self.library.getstate()

    def start(self, seed: int) -> None:
        self.library.seed(seed)
        self._check(self.state() == self.library.Random(seed).getstate())

    def put_back(self, state: Any) -> None:
        self.library.setstate(state)


class NumPy(_Generator):
    """`numpy.random.seed`: the functions of the module, not `numpy.random.Generator` objects."""

    name, flag, module = "numpy.random.seed", "seed.numpy", "numpy.random"

    def state(self) -> Any:
        return self.library.get_state(legacy=False)

    def start(self, seed: int) -> None:
        self.library.seed(seed)
        fresh = self.library.RandomState(seed).get_state(legacy=False)
        self._check(self.data(self.state()) == self.data(fresh))

    def put_back(self, state: Any) -> None:
        self.library.set_state(state)

    def data(self, state: Any) -> bytes:
        inner = state["state"]
        words = inner["key"].tobytes() if "key" in inner else b""
        rest = [inner.get("pos"), state.get("has_gauss"), state.get("gauss")]
        return words + repr(rest if words else inner).encode()

    def unsupported(self) -> str:
        kind = type(self.library.get_bit_generator()).__name__
        return "" if kind == "MT19937" else f"the program put a {kind} there, which takes no seed"


class SeededBits:
    """What stands for the system's randomness: the same numbers in the same order in every run.

    Attributes:
        seed: what the numbers follow from.
        path: which forks of which forks this process is, where nobody gave it a seed of its own.
        count: how many numbers were drawn.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        self.path: tuple[int | str, ...] = (name,)
        self.count = count()

    def __call__(self, bits: int) -> int:
        from _sha1 import sha1

        start = "/".join(map(str, (self.seed, *self.path, next(self.count))))
        parts = range(0, bits, 160)
        data = b"".join(sha1(f"{start}/{part}".encode()).digest() for part in parts)
        return int.from_bytes(data, "big") >> (len(data) * 8 - bits)


_bits: dict[str, SeededBits] = {}
"""By switch, what its generators start from that are made without a seed."""

_originals: dict[str, Any] = {}
_forks = [0]


class _Entropy(AnytimeSwitch):
    """Where generators that are made without a seed take theirs: a name that is replaced."""

    name: str
    flag: str
    module: str
    attribute: str

    def read(self) -> int | str:
        mine = _bits.get(self.name)
        return mine.seed if mine is not None and self._is_replaced() else "system"

    def write(self, value: int | str) -> None:
        owner = self.owner()
        if not self._is_replaced():
            _originals[self.name] = getattr(owner, self.attribute)
        original = _originals[self.name]
        if isinstance(value, str):
            setattr(owner, self.attribute, original)
            _bits.pop(self.name, None)
        else:
            _bits[self.name] = bits = SeededBits(self.name, value)
            setattr(owner, self.attribute, self.replacement(bits, original))

    def unsupported(self) -> str:
        """Why the library takes its entropy in another way, or ""."""
        if hasattr(self.owner(), self.attribute):
            return ""
        return f"this release of `{self.module}` takes entropy in another way"

    def owner(self) -> Any:
        """What has the name."""
        raise NotImplementedError

    def replacement(self, bits: SeededBits, original: Any) -> Any:
        """What is put there."""
        raise NotImplementedError

    def _is_replaced(self) -> bool:
        return hasattr(getattr(self.owner(), self.attribute, None), _MARK)


_MARK = "_backendcfg_seeds_it"


class EntropyOfPython(_Entropy):
    """`random.Random()` objects, but for those that name temporary files."""

    name, flag, module, attribute = "random.Random", "seed.python", "random", "seed"

    def owner(self) -> Any:
        return sys.modules[self.module].Random

    def replacement(self, bits: SeededBits, original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: int = 2) -> None:
            original(self, bits(256) if a is None and not _names_files() else a, version)

        setattr(seed, _MARK, True)
        return seed


def _names_files() -> bool:
    """Whether `tempfile` makes the generator that is being seeded."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "random":
        frame = frame.f_back
    return frame.f_globals.get("__name__") == "tempfile"


class EntropyOfNumPy(_Entropy):
    """`default_rng()`, `SeedSequence()`, `PCG64()` and `RandomState()`, also inside libraries.

    They call `secrets.randbits` by a name of one module of NumPy. `secrets` is as it was.
    """

    name, flag, module = "numpy.random.default_rng", "seed.numpy", "numpy.random"
    attribute = "randbits"

    def owner(self) -> Any:
        return sys.modules.get(f"{self.module}.bit_generator")

    def replacement(self, bits: SeededBits, original: Any) -> Any:
        def randbits(k: int) -> int:
            return bits(k)

        setattr(randbits, _MARK, True)
        return randbits


class Torch(_Generator):
    """`torch.manual_seed`: the default generators of every device, and `initial_seed` to read it.

    The parts for CUDA were read in PyTorch's sources, not run.
    """

    name, flag, module = "torch.manual_seed", "seed.torch", TORCH.name

    def seed(self, given: int | None) -> int | None:
        return None if given is None else int(self.library.initial_seed())

    def state(self) -> Any:
        cuda = self.library.cuda
        devices = cuda.get_rng_state_all() if cuda.is_initialized() else None
        return self.library.get_rng_state(), devices

    def data(self, state: Any) -> bytes:
        return b"".join(bytes(part.numpy()) for part in (state[0], *(state[1] or ())))

    def start(self, seed: int) -> None:
        self.library.manual_seed(seed)

    def put_back(self, state: Any) -> None:
        cpu, devices = state
        cuda = self.library.cuda
        self.library.set_rng_state(cpu)
        if devices is not None:
            cuda.set_rng_state_all(devices)
        elif not cuda._is_in_bad_fork():
            # It was not initialised then, and would have taken a random seed.
            cuda.seed_all()

    def writer(self) -> str:
        worker = sys.modules.get("torch.utils.data._utils.worker")
        if worker is not None and worker.get_worker_info() is not None:
            return "PyTorch seeds the workers of a DataLoader from the main process's generator"
        return super().writer()


class TensorFlow(_Generator):
    """`tf.random.set_seed`: the seed that every random operation without one takes part of."""

    name, flag, module = "tensorflow.random.seed", "seed.tensorflow", TENSORFLOW.name

    @property
    def context(self) -> Any:
        return sys.modules["tensorflow.python.eager.context"].context()

    def seed(self, given: int | None) -> int | None:
        found = self.context._seed
        return None if given is None or found is None else int(found)

    def state(self) -> Any:
        seed = self.context._seed
        # Where there is no seed, operations take theirs from the system, and not from here.
        return seed, None if seed is None else self.context._rng.getstate()

    def start(self, seed: int) -> None:
        self.library.random.set_seed(seed)

    def put_back(self, state: Any) -> None:
        seed, internal = state
        self.library.random.set_seed(seed)
        if internal is not None:
            self.context._rng.setstate(internal)


_GENERATORS = (Python, EntropyOfPython, NumPy, EntropyOfNumPy, Torch, TensorFlow)


def settings(
    values: Mapping[str, Any], asked: Collection[str], name: str = "PROFILE"
) -> list[Setting]:
    """The seeds of the generators that are loaded, if the profile asks for one."""
    if "seed.value" not in asked or values["seed.value"] == "off":
        return []
    seed = derived(values["seed.value"], _who())
    return [
        Setting(generator(), seed, "seed.value")
        for generator in _GENERATORS
        if values[generator.flag] and imports.is_imported(generator.module)
    ]


def _before_fork() -> None:
    _forks[0] += 1


def _after_fork() -> None:
    """In the child: Python has seeded its own generator anew, from the system's randomness."""
    _seeded.pop(Python.name, None)
    for bits in _bits.values():
        # Else it would draw what its parent draws.
        bits.path, bits.count = (*bits.path, _forks[0]), count()
    _forks[0] = 0


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
