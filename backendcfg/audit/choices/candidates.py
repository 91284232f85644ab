"""The choices that `backendcfg tune -- CMD` measures, and which of them there are here.

A choice sets one flag over a profile, and is safe for any program: none computes with fewer bits
than the profile does. Switches of precision are no choice, however fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.audit.evidence.sides import effective
from backendcfg.errors import BackendCfgError
from backendcfg.resolve.words import assignment, literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from backendcfg.transact.compiled import Compiled

    Planned = Callable[[Mapping[str, str]], Compiled]


@dataclass(frozen=True)
class Candidate:
    """A value of a flag that may make a program faster.

    Attributes:
        flag: its name.
        value: what it is set to.
        why: what a program gains by it, as a comment in a profile says it.
        takes_back: whether it does nothing but take back what the profile sets.
    """

    flag: str
    value: Any
    why: str
    takes_back: bool = False

    def __str__(self) -> str:
        return assignment(self.flag, self.value)


CANDIDATES = (
    Candidate("memory.keep_freed", "auto", "Pages of freed arrays are not cleared anew."),
    Candidate("memory.keep_freed", 0, "Freed memory goes back as glibc has it.", takes_back=True),
    Candidate("route.numpy.elementwise", "threads", "NumPy computes large arrays on all threads."),
    Candidate("route.numpy.elementwise", "keep", "NumPy computes on one thread.", takes_back=True),
    Candidate("route.numpy.matmul", "native", "Our kernels of NumPy's products are often faster."),
    Candidate("route.numpy.matmul", "keep", "NumPy's own products.", takes_back=True),
    Candidate("route.torch.attention", "native", "Our kernels of attention are often faster."),
    Candidate("route.torch.attention", "keep", "PyTorch's own attention.", takes_back=True),
    Candidate("route.torch.dropout", "native", "Our kernel draws for dropout faster."),
    Candidate("route.torch.dropout", "keep", "PyTorch's own drawing.", takes_back=True),
    Candidate("route.torch.matmul", "float32", "Our kernels of float32 products may be faster."),
    Candidate("route.torch.matmul", "native", "Our kernels of 16-bit products may be faster."),
    Candidate("route.torch.matmul", "keep", "PyTorch's own products.", takes_back=True),
    Candidate("threads.count", 1, "Small operations cost less than waking threads for them."),
    Candidate("threads.count", "auto", "One thread for each core that may be used."),
    Candidate("threads.interop", 1, "Operations that run side by side compete for cores."),
    Candidate(
        "blas.openblas.thread_timeout", 14, "Idle threads of OpenBLAS leave cores to others."
    ),
    Candidate(
        "blas.openblas.thread_timeout",
        0,
        "Threads of OpenBLAS that spin for longer are there at once.",
        takes_back=True,
    ),
)
"""What is tried everywhere; half of the cores is added where that is another number than 1."""


def candidates(cores: int) -> Iterator[Candidate]:
    """Every candidate on a machine of so many cores."""
    yield from CANDIDATES
    if cores > 3:
        why = "Half of the cores may have all of the memory's speed."
        yield Candidate("threads.count", cores // 2, why)


@dataclass(frozen=True)
class Choice:
    """A candidate that has an effect here.

    Attributes:
        candidate: the flag and its value.
        plan: the profile with it.
    """

    candidate: Candidate
    plan: Compiled

    @property
    def name(self) -> str:
        """As a profile has it: `threads.count = 1`."""
        return str(self.candidate)


def choices(base: Compiled, planned: Planned) -> tuple[list[Choice], dict[str, str]]:
    """The choices that there are over a profile here, and why others are none, by their names.

    Args:
        base: the plan of the profile.
        planned: its plan with flags set over it, which are given as TOML text.
    """
    found: list[Choice] = []
    left_out: dict[str, str] = {}
    for candidate in candidates(_cores(base, planned)):
        try:
            plan = planned({candidate.flag: literal(candidate.value)})
        except BackendCfgError as error:
            left_out[str(candidate)] = error.each[0].message
            continue
        if because := _no_choice(candidate, base, plan):
            left_out[str(candidate)] = because
        else:
            found.append(Choice(candidate, plan))
    return found, left_out


def _cores(base: Compiled, planned: Planned) -> int:
    """The cores of this process, which `threads.count = "auto"` stands for."""
    try:
        return int(planned({"threads.count": '"auto"'}).values["threads.count"])
    except BackendCfgError:  # the profile needs a number, which is what its user chose
        return int(base.values["threads.count"])


def _no_choice(candidate: Candidate, base: Compiled, plan: Compiled) -> str:
    """Why a plan is not worth a measurement, or ""."""
    flag = candidate.flag
    if because := plan.dormant.get(flag):
        return because
    is_same = plan.values[flag] == base.values[flag]
    if effective(plan) == effective(base) or (candidate.takes_back and is_same):
        return f"as under {base.name}"
    return ""
