"""The generators that a seed is given: Python's, NumPy's, Numba's, PyTorch's and TensorFlow's.

What a generator was seeded with can be read from PyTorch and TensorFlow. From the others only
their state can be, and it has moved with the first draw; for them the seed is remembered, and was
compared with a fresh generator when it was set. JAX has no generator: its keys are arguments.

In a task of a pool a generator starts at the task's seed. As a switch it has the seed of the
process all the same.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import lru_cache

from backendcfg.bridges import lineage
from backendcfg.catalogue.frameworks import NUMBA, TENSORFLOW, TORCH
from backendcfg.transact.switch import AnytimeSwitch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

_seeded: dict[str, int] = {}
"""By switch, the seed that it was given here."""

_started: dict[str, int] = {}
"""By switch, what its generator started from last: its seed, or that of a task."""

NEAR = 64
"""How often the words of a Mersenne Twister are made anew while a look still tells that they are
its seed's: some 40,000 draws."""


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
        made = cls(f"unseeded, state {digest(data)}")
        made.state = state
        return made

    def __deepcopy__(self, memo: object) -> str:
        return str(self)


def digest(data: bytes) -> str:
    """Twelve digits that tell states apart."""
    # _sha1 rather than hashlib, whose import opens OpenSSL.
    from _sha1 import sha1  # type: ignore[import-not-found]

    return str(sha1(data).hexdigest()[:12])


class Generator(AnytimeSwitch):
    """What the switches have in common."""

    name: str
    flag: str
    module: str
    seeded = _seeded
    started = _started

    @property
    def library(self) -> Any:
        return sys.modules[self.module]

    def read(self) -> Seed | Unseeded:
        """What it was seeded with, with its state; a seed compares equal to the number."""
        state = self.state()
        seed = self.seed(self.seeded.get(self.name))
        return Unseeded.at(state, self.data(state)) if seed is None else Seed.at(seed, state)

    def write(self, value: int | str) -> None:
        """Seed it; or, with a value that was read, put it back into the state of then."""
        if isinstance(value, (Seed, Unseeded)):
            self.put_back(value.state)
        else:
            self.begin(int(value))
            self.check(self.started[self.name])
        if isinstance(value, int):
            self.seeded[self.name] = int(value)
        else:
            self.seeded.pop(self.name, None)

    def begin(self, seed: int) -> None:
        """Start it at a seed of the process, or at that of the task that runs here."""
        task = lineage.task_seed()
        here = lineage.of_fork(seed if task is None else task)
        self.started[self.name] = number = self.of_thread(here)
        self.start(number)

    def of_thread(self, seed: int) -> int:
        """The seed of this thread, for generators that each thread has for itself."""
        return seed

    def unsupported(self) -> str:
        """Why the generator takes no seed, or ""."""
        return ""

    def writer(self) -> str:
        """Who seeded it, when it was not the profile."""
        return "the program seeded it itself, after the profile did"

    def seed(self, given: int | None) -> int | None:
        """What it was seeded with, None for nothing of ours; `given` is what is remembered."""
        return given

    def of_process(self, given: int | None, found: int | None) -> int | None:
        """The seed of the process, for a generator that says what it started from."""
        if given is None or found is None:
            return None
        return given if found == self.started[self.name] else int(found)

    def own(self) -> str:
        """What says where the program itself started it; "" while it goes on from our seed."""
        given = self.seeded.get(self.name)
        found = self.seed(given)
        return "" if found == given else str(found)

    def state(self) -> Any:
        raise NotImplementedError

    def data(self, state: Any) -> bytes:
        return repr(state).encode()

    def start(self, seed: int) -> None:
        raise NotImplementedError

    def check(self, seed: int) -> None:
        """Fail where it did not start at the seed."""

    def put_back(self, state: Any) -> None:
        raise NotImplementedError


class _Twister(Generator):
    """A Mersenne Twister: its state is 624 words, made anew for every 624 draws."""

    def check(self, seed: int) -> None:
        if any(words != self.fresh(seed) for words in self.words()):
            raise RuntimeError(f"{self.name}: its state is not that of a generator just seeded")

    def own(self) -> str:
        start = self.fresh(self.started[self.name])
        near = all(_is_near(start, words) for words in self.words())
        return "" if near else digest(self.data(self.state()))

    def words(self) -> list[tuple[int, ...]]:
        """Of each such generator the words, without how many of them were drawn."""
        raise NotImplementedError

    def fresh(self, seed: int) -> tuple[int, ...]:
        """The words of a generator that just started at a seed."""
        raise NotImplementedError


@lru_cache(maxsize=4)
def _first_words(seed: int) -> tuple[int, ...]:
    """What NumPy and Numba make of a number, as the Mersenne Twister's authors do."""
    words = [seed]
    for at in range(1, 624):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + at) & 0xFFFFFFFF)
    return tuple(words)


def _is_near(start: tuple[int, ...], words: tuple[int, ...]) -> bool:
    from _random import Random

    walker = Random()
    walker.setstate((*start, len(start)))
    for _ in range(NEAR):
        if walker.getstate()[:-1] == words:
            return True
        walker.getrandbits(32 * len(start))
    return False


class Python(_Twister):
    """`random.seed`: the functions of the module, not `random.Random` objects."""

    name, flag, module = "random.seed", "seed.python", "random"

    def state(self) -> Any:
        return self.library.getstate()

    def start(self, seed: int) -> None:
        _reseed_forks()
        self.library.seed(seed)

    def words(self) -> list[tuple[int, ...]]:
        return [self.state()[1][:-1]]

    def fresh(self, seed: int) -> tuple[int, ...]:
        return tuple(self.library.Random(seed).getstate()[1][:-1])

    def put_back(self, state: Any) -> None:
        self.library.setstate(state)


class NumPy(_Twister):
    """`numpy.random.seed`: the functions of the module, not `numpy.random.Generator` objects."""

    name, flag, module = "numpy.random.seed", "seed.numpy", "numpy.random"

    def state(self) -> Any:
        return self.library.get_state(legacy=False)

    def start(self, seed: int) -> None:
        self.library.seed(seed)

    def words(self) -> list[tuple[int, ...]]:
        return [tuple(self.state()["state"]["key"].tolist())]

    def fresh(self, seed: int) -> tuple[int, ...]:
        return _first_words(seed)

    def own(self) -> str:
        return self.unsupported() or super().own()

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


class _OfThread(threading.local):
    """The seeds of generators that each thread has for itself, by switch."""

    def __init__(self) -> None:
        self.seeded: dict[str, int] = {}
        self.started: dict[str, int] = {}


_of_thread = _OfThread()


class Numba(_Twister):
    """`random` and `numpy.random` inside compiled functions: two generators of each thread.

    The main thread has the seed, and others seeds that follow from their names. The threads of a
    parallel loop are not Python's, and are not reached.
    """

    name, flag, module = "numba.random.seed", "seed.numba", NUMBA.name
    reach, latch = "thread", "each-thread"

    @property
    def seeded(self) -> dict[str, int]:  # type: ignore[override]
        return _of_thread.seeded

    @property
    def started(self) -> dict[str, int]:  # type: ignore[override]
        return _of_thread.started

    @property
    def library(self) -> Any:
        return sys.modules[f"{self.module}._helperlib"]

    def unsupported(self) -> str:
        names = ("rnd_seed", "rnd_get_state", "rnd_set_state", *self._pointers)
        if all(hasattr(self.library, name) for name in names):
            return ""
        return f"this release of {NUMBA.title} has its generators elsewhere"

    _pointers = ("rnd_get_py_state_ptr", "rnd_get_np_state_ptr")

    def _states(self) -> list[int]:
        return [getattr(self.library, name)() for name in self._pointers]

    def of_thread(self, seed: int) -> int:
        thread = threading.current_thread()
        if thread is threading.main_thread():
            return seed
        return lineage.derived(seed, lineage.thread(thread.name))

    def state(self) -> Any:
        return [self.library.rnd_get_state(pointer) for pointer in self._states()]

    def data(self, state: Any) -> bytes:
        from struct import pack

        return b"".join(pack("=625I", at, *words) for at, words in state)

    def check(self, seed: int) -> None:
        if threading.current_thread() is threading.main_thread():
            super().check(seed)  # other threads shall not wait for it

    def start(self, seed: int) -> None:
        for pointer in self._states():
            self.library.rnd_seed(pointer, seed)

    def words(self) -> list[tuple[int, ...]]:
        return [tuple(words) for _, words in self.state()]

    def fresh(self, seed: int) -> tuple[int, ...]:
        return _first_words(seed)

    def put_back(self, state: Any) -> None:
        for pointer, one in zip(self._states(), state, strict=True):
            self.library.rnd_set_state(pointer, one)


class Torch(Generator):
    """`torch.manual_seed`: the default generators of every device, and `initial_seed` to read it.

    The parts for CUDA were read in PyTorch's sources, not run.
    """

    name, flag, module = "torch.manual_seed", "seed.torch", TORCH.name

    def seed(self, given: int | None) -> int | None:
        return self.of_process(given, self.library.initial_seed())

    def state(self) -> Any:
        cuda = self.library.cuda
        devices = cuda.get_rng_state_all() if cuda.is_initialized() else None
        return self.library.get_rng_state(), devices

    def data(self, state: Any) -> bytes:
        return b"".join(bytes(part.numpy()) for part in (state[0], *(state[1] or ())))

    def start(self, seed: int) -> None:
        cuda = self.library.cuda
        if lineage.task_seed() is None or cuda.is_initialized():
            self.library.manual_seed(seed)
            return
        # For each task: `manual_seed` would note the call stack for devices, which takes 0.4 ms.
        self.library.default_generator.manual_seed(seed)
        if cuda._is_compiled() and not self._told_devices:
            self._told_devices.append(True)
            cuda._lazy_call(self._start_devices, seed_all=True)

    _told_devices: ClassVar[list[bool]] = []

    def _start_devices(self) -> None:
        """In the task that is the first of its worker to use a device."""
        for generator in self.library.cuda.default_generators:
            generator.manual_seed(self.started[self.name])

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


class TensorFlow(Generator):
    """`tf.random.set_seed`: the seed that every random operation without one takes part of."""

    name, flag, module = "tensorflow.random.seed", "seed.tensorflow", TENSORFLOW.name

    @property
    def context(self) -> Any:
        return sys.modules["tensorflow.python.eager.context"].context()

    def seed(self, given: int | None) -> int | None:
        return self.of_process(given, self.context._seed)

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


@lru_cache(maxsize=1)
def _reseed_forks() -> None:
    """From now on, seed Python's generator in the child of a fork.

    Python seeds it there from the system's randomness, in a hook of `random` that runs before this
    one: hooks run in the order in which they were registered.
    """
    os.register_at_fork(after_in_child=_reseed)


def _reseed() -> None:
    if Python.name in _seeded:
        Python().begin(_seeded[Python.name])


def _after_fork() -> None:
    """In the child: Numba has seeded its own anew, from the system's randomness."""
    _seeded.pop(Numba.name, None)
    _of_thread.seeded.pop(Numba.name, None)


os.register_at_fork(after_in_child=_after_fork)
