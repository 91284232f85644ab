"""Where random generators start: the `[seed]` table.

A seed is set once, when the profile is applied or the moment that the library is imported; what the
program draws from then on is its own affair. Taking the profile back puts the generator into the
state that it had before. A child process that `multiprocessing` started has seeds of its own,
derived from the profile's and from which child it is, so that workers differ from each other and
are the same in every run. So has each task of a pool, whichever worker takes it: generators start
anew with it.

The switches are in `generators`, and in `entropy` for generator objects that nobody seeds.
"""

from __future__ import annotations

from backendcfg import log
from backendcfg.bridges import entropy, imports, lineage
from backendcfg.bridges.entropy import EntropyOfNumPy, EntropyOfPython
from backendcfg.bridges.generators import (
    Generator,
    Numba,
    NumPy,
    Python,
    TensorFlow,
    Torch,
    digest,
)
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = None
SCOPED_FLAGS: frozenset[str] = frozenset()
"""None: what a scope draws belongs to the stream of the program around it."""

_left_alone: set[str] = set()
"""The generators that the program seeded itself in this worker of a pool, by switch."""

_SWITCHES = (
    *(Python(), EntropyOfPython(), NumPy(), EntropyOfNumPy()),
    *(Numba(), Torch(), TensorFlow()),
)


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The seeds of the generators that are loaded, if the profile asks for one."""
    if "seed.value" not in asked or values["seed.value"] == "off":
        return []
    seed = lineage.derived(values["seed.value"], lineage.process())
    return [
        Setting(switch, seed, "seed.value")
        for switch in _SWITCHES
        if values[switch.flag] and imports.is_imported(switch.module)
    ]


def own() -> tuple[str, ...]:
    """What seeds of children and tasks follow from beside the profile's, as part of their path.

    Nothing, unless the program seeded a generator of this process itself.
    """
    told = [f"{each.name} {word}" for each in _given() if (word := each.own())]
    return (digest("\n".join(told).encode()),) if told else ()


def worker_begins() -> None:
    """A worker of a pool begins with tasks: what its initializer seeded stays as it is."""
    _left_alone.clear()
    _left_alone.update(each.name for each in _given() if each.own())


def begin_task(path: lineage.Path, seed: int | None) -> None:
    """A task of a pool begins: under a seed every generator starts where the task's says."""
    lineage.begin(path, seed)
    if (number := lineage.task_seed()) is None:
        return
    entropy.begin_task(number)
    for each in _given():
        if each.name not in _left_alone and not each.unsupported():
            try:
                each.begin(number)
            except Exception as error:
                _left_alone.add(each.name)
                log.error("%s: the tasks of this worker are not seeded: %s", each.name, error)


def _given() -> list[Generator]:
    """The generators that were given a seed here."""
    return [each for each in _SWITCHES if isinstance(each, Generator) and each.name in each.seeded]
