"""What a program draws that no seed governs, in a process that `backendcfg run --guard` watches.

Generators that nobody gave a seed, where no profile gives them one; and secrets, which no profile
ever seeds. What is wrapped here returns what it returned before.
"""

from __future__ import annotations

import dis
import random
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from backendcfg.audit import places
from backendcfg.bridges import entropy, imports
from backendcfg.catalogue.frameworks import NUMPY, TORCH
from backendcfg.records import record
from backendcfg.session import installed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

MOST = 200
"""Draws that are noted; what makes more, makes them without end."""

_SECRETS = ("random", "secrets", "uuid")
_NUMPYS = (
    "default_rng",
    "SeedSequence",
    "RandomState",
    "PCG64",
    "PCG64DXSM",
    "Philox",
    "SFC64",
    "MT19937",
)


@record(frozen=True)
class Draw:
    """Something drawn that no seed governs.

    Attributes:
        generator: what was drawn from, in words.
        place: where, as in `places.place`; "" where that is not known.
        secret: whether no profile ever seeds it.
    """

    generator: str
    place: str
    secret: bool

    def __str__(self) -> str:
        seedless = "" if self.secret else " without a seed"
        return f"{self.generator}{seedless}" + (f" at {self.place}" if self.place else "")


_seen: dict[Draw, None] = {}
_told: list[Callable[[Draw], None]] = []


def seen() -> tuple[Draw, ...]:
    """What was drawn in this process; nothing where nobody watches."""
    drawn = [module for module, generator in _GLOBALS.items() if generator.has_drawn()]
    return (*_seen, *(Draw(f"the functions of `{module}`", "", secret=False) for module in drawn))


def watch(told: Callable[[Draw], None]) -> None:
    """Note what is drawn from now on.

    Args:
        told: called once with each draw whose place is known, at once; `seen` has the others too.
    """
    _told[:] = [told]
    places.tell({"random": ("Random.seed",)}, _python)
    places.tell({"random": ("_urandom",), "os": ("urandom",)}, _secret)
    places.tell({"numpy.random": ("bit_generator.randbits",)}, _numpy)
    for module, generator in _GLOBALS.items():
        places.tell({module: generator.seeds}, generator.noting)

    def begin(module: str) -> None:
        _GLOBALS[module].begin()

    imports.watch(begin, _GLOBALS)
    for module in filter(imports.is_imported, _GLOBALS):
        begin(module)


def forked() -> None:
    """In a forked child, which draws for itself; Python has given its generator another start."""
    _seen.clear()
    _GLOBALS["random"].seeded = False
    for module in filter(imports.is_imported, _GLOBALS):
        _GLOBALS[module].begin()


def _note(generator: str, place: str, *, secret: bool = False) -> None:
    draw = Draw(generator, place, secret)
    if draw not in _seen and len(_seen) < MOST:
        _seen[draw] = None
        _told[0](draw)


def _python(original: Any) -> Any:
    if hasattr(original, entropy.MARK):
        return original

    def seed(self: Any, a: Any = None, version: int = 2) -> None:
        passed = ("backendcfg.audit", "random")
        frame = places.nearest(passed)
        # Python names temporary files and the like.
        if a is None and frame is not None and not places.is_python(frame):
            _note("random.Random()", places.place(passed))
        original(self, a, version)

    return seed


def _numpy(original: Any) -> Any:
    if hasattr(original, entropy.MARK):
        return original

    def randbits(k: int) -> int:
        passed = ("backendcfg.audit",)
        frame = places.nearest(passed)
        if frame is not None and (name := _called(frame.f_code, frame.f_lasti)):
            _note(f"numpy.random.{name}()", places.place(passed))
        drawn: int = original(k)
        return drawn

    return randbits


@lru_cache(maxsize=256)
def _called(code: CodeType, at: int) -> str:
    """The function of NumPy that is called at an instruction, where it makes a generator unseeded.

    `RandomState` starts as if it had no seed also where it is given one; without arguments it has
    none.
    """
    instructions = [one for one in dis.get_instructions(code) if one.offset <= at]
    names = [one.argval for one in instructions if one.argval in _NUMPYS]
    name = names[-1] if names else ""
    return "" if name == "RandomState" and instructions[-1].arg else name


def _secret(original: Any) -> Any:
    def urandom(size: int) -> bytes:
        caller = sys._getframe(1)
        frame = places.nearest(_SECRETS, caller)
        if frame is not None and not _is_internal(frame):
            _note(_secrets_name(caller), places.place(_SECRETS, caller), secret=True)
        drawn: bytes = original(size)
        return drawn

    return urandom


def _is_internal(frame: FrameType) -> bool:
    """Whether a secret is no doing of the program's.

    Python draws for itself, libraries mark what they are while they are imported, and NumPy draws
    what its generators start from.
    """
    ours = places.is_within(places.module_of(frame), ("backendcfg", NUMPY.name))
    return ours or places.is_python(frame) or places.is_importing(frame)


def _secrets_name(frame: FrameType) -> str:
    """The function that the program called to draw a secret, from the frame that draws it."""
    name = "os.urandom"
    while (module := places.module_of(frame)) in _SECRETS and frame.f_back is not None:
        kind = "SystemRandom." if module == "random" else ""
        name = f"{module}.{kind}{frame.f_code.co_name}"
        frame = frame.f_back
    return f"{name}()"


def _state_of_python() -> Any:
    return None, random.getstate()


def _state_of_numpy() -> Any:
    state = sys.modules["numpy.random"].get_state(legacy=False)
    inner = {
        name: value.tobytes() if hasattr(value, "tobytes") else value
        for name, value in state["state"].items()
    }
    return state["bit_generator"], (inner, state.get("has_gauss"), state.get("gauss"))


def _state_of_torch() -> Any:
    torch = sys.modules[TORCH.name]
    return torch.initial_seed(), bytes(torch.get_rng_state().numpy())


class _Global:
    """The generator behind the functions of a module.

    Args:
        flag: the flag that gives it a seed.
        state: gives what it was seeded with, as far as it tells, and its state.
        seeds: the functions that put it into a state, where it does not tell.
    """

    def __init__(self, flag: str, state: Callable[[], Any], seeds: tuple[str, ...] = ()) -> None:
        self.flag = flag
        self.state = state
        self.seeds = seeds
        self.start: Any = None
        self.seeded = False

    def begin(self) -> None:
        """What it does counts from now on."""
        self.start = self.state()

    def noting(self, original: Any) -> Any:
        """A function that puts it into a state, with a note of that."""

        def seed(*positional: Any, **named: Any) -> Any:
            self.seeded = self.seeded or bool(positional or named)
            return original(*positional, **named)

        return seed

    def has_drawn(self) -> bool:
        """Whether it drew and nobody had seeded it."""
        if self.start is None or self.seeded or _is_governed(self.flag):
            return False
        seed, state = self.state()
        return bool(seed == self.start[0] and state != self.start[1])


_GLOBALS = {
    "random": _Global("seed.python", _state_of_python, ("seed", "setstate")),
    "numpy.random": _Global("seed.numpy", _state_of_numpy, ("seed", "set_state")),
    TORCH.name: _Global("seed.torch", _state_of_torch),
}
"""By module, the generators that need no object."""


def _is_governed(flag: str) -> bool:
    profile = installed.prepared()
    values = {} if profile is None else profile.payload.values
    return values.get("seed.value", "off") != "off" and bool(values.get(flag))
