"""What generator objects of Python and NumPy start from where nobody gives them a seed.

`random.Random()`, `default_rng()` and the like ask the system for a number. Under a seed they get
numbers that follow from it, in the order in which they ask, in each process and in each task of a
pool anew. `secrets`, `SystemRandom`, `uuid4` and `tempfile` keep secrets, and are never touched.
"""

from __future__ import annotations

import os
import sys
from itertools import count

from backendcfg.bridges import lineage
from backendcfg.transact.switch import AnytimeSwitch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARK = "_backendcfg_seeds_it"
"""What functions have that were put in the place of others."""


class SeededBits:
    """What stands for the system's randomness: the same numbers in the same order in every run.

    Attributes:
        seed: the seed of this process.
        path: where the numbers start: the seed of the task or the process, and the library.
        count: how many numbers were drawn.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.start(lineage.task_seed())

    def start(self, task: int | None) -> None:
        """Start at the seed of a task, or at that of the process."""
        seed = lineage.of_fork(self.seed if task is None else task)
        self.path: lineage.Path = (seed, self.name)
        self.count = count()

    def __call__(self, bits: int) -> int:
        from _sha1 import sha1  # type: ignore[import-not-found]

        start = "/".join(map(str, (*self.path, next(self.count))))
        parts = range(0, bits, 160)
        data = b"".join(sha1(f"{start}/{part}".encode()).digest() for part in parts)
        return int.from_bytes(data, "big") >> (len(data) * 8 - bits)


_bits: dict[str, SeededBits] = {}
"""By switch, what its generators start from that are made without a seed."""

_originals: dict[str, Any] = {}


def begin_task(seed: int) -> None:
    """A task of a pool begins here, with this seed."""
    for bits in _bits.values():
        bits.start(seed)


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
        return hasattr(getattr(self.owner(), self.attribute, None), MARK)


class EntropyOfPython(_Entropy):
    """`random.Random()` objects, but for those that name temporary files."""

    name, flag, module, attribute = "random.Random", "seed.python", "random", "seed"

    def owner(self) -> Any:
        return sys.modules[self.module].Random

    def replacement(self, bits: SeededBits, original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: int = 2) -> None:
            original(self, bits(256) if a is None and not _names_files() else a, version)

        setattr(seed, MARK, True)
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

        setattr(randbits, MARK, True)
        return randbits


def _after_fork() -> None:
    """In the child, which would else draw what its parent draws."""
    for bits in _bits.values():
        bits.start(lineage.task_seed())


os.register_at_fork(after_in_child=_after_fork)
