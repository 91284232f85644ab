"""An operation run again by itself, from the arguments that a recorded run kept.

What is below `main` runs in a child: an interpreter of the program's, under the profile and with
the surroundings that are in question.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from backendcfg import childprocess
from backendcfg.audit.trace.nested import mapped
from backendcfg.audit.trace.numpy_operations import KEPT as NUMPYS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPEATS = 5
"""How often a child runs the operation with its arguments at each place."""

PLACES = (0, 16, 32, 48)
"""Bytes beyond a multiple of 64 at which arguments are placed: NumPy's memory begins at such."""


@dataclass(frozen=True)
class Replayed:
    """What an operation gave, run again by itself.

    Attributes:
        by_place: the digests of what it computed, by where its arguments were placed.
    """

    by_place: dict[int, tuple[int, ...]]

    @property
    def digests(self) -> frozenset[int]:
        """All that it gave."""
        return frozenset(each for found in self.by_place.values() for each in found)

    @property
    def parts_by_place(self) -> bool:
        """Whether it gives something else at another place, and the same each time at one."""
        steady = all(len(set(found)) == 1 for found in self.by_place.values())
        return steady and len(self.digests) > 1


@dataclass(frozen=True)
class Apart:
    """How far the results of an operation are apart in two runs.

    Attributes:
        elements: how many it has.
        differing: how many of them differ.
        apart: the largest difference, as a part of the larger of the two; None where one of them
            is not finite.
    """

    elements: int
    differing: int
    apart: float | None


def replayed(run: Callable[[Sequence[str]], str], python: str, path: str) -> Replayed:
    """Run a kept operation again, in a child.

    Args:
        run: runs a command and gives what it printed.
        python: the interpreter of the program.
        path: of the file with its arguments.

    Raises:
        BackendCfgError: the child could not be started, or failed.
    """
    found = _asked(run, python, "again", path)
    return Replayed({int(place): tuple(each) for place, each in found["digests"].items()})


def apart(run: Callable[[Sequence[str]], str], python: str, one: str, other: str) -> Apart:
    """How far the results are apart that two runs kept with the arguments."""
    return Apart(**_asked(run, python, "apart", one, other))


def _asked(run: Callable[[Sequence[str]], str], python: str, *words: str) -> dict[str, Any]:
    text = run(childprocess.command(["-m", __spec__.name, *words], python=python))
    answer: dict[str, Any] = json.loads(text.splitlines()[-1])
    return answer


def main() -> None:
    """In the child: do what the arguments say, and print it as JSON."""
    what, *paths = sys.argv[1:]
    answer = _of_numpy if paths[0].endswith(NUMPYS) else _of_torch
    print(json.dumps(answer(what, paths)))


def _of_numpy(what: str, paths: Sequence[str]) -> dict[str, Any]:
    from backendcfg.audit.trace import numpy_replay

    kept = [numpy_replay.load(path) for path in paths]
    if what == "again":
        return {"digests": numpy_replay.again(kept[0], PLACES, REPEATS)}
    return numpy_replay.apart(*(one["outputs"] for one in kept))


def _of_torch(what: str, paths: Sequence[str]) -> dict[str, Any]:
    import torch

    kept = [torch.load(path, weights_only=False) for path in paths]
    if what == "again":
        return _again(torch, kept[0])
    from backendcfg.audit.trace.numpy_replay import apart

    return apart(*([_as_array(torch, each) for each in one["outputs"]] for one in kept))


def _again(torch: Any, kept: dict[str, Any]) -> dict[str, Any]:
    from backendcfg.audit.trace.torch_operations import known_operation, outcome

    function = torch.ops
    for part in kept["operation"].split("."):
        function = getattr(function, part)
    about = known_operation(torch, function)
    found: dict[int, list[int]] = {}
    # What draws has another state of its generator at each call.
    for place in PLACES[:1] if about.draws else PLACES:
        for _ in range(1 if about.draws else REPEATS):
            args, kwargs = mapped(partial(_placed, torch, place), (kept["args"], kept["kwargs"]))
            out = function(*args, **kwargs)
            found.setdefault(place, []).append(outcome(torch, about, out, args, kwargs))
    return {"digests": found}


def _placed(torch: Any, place: int, value: Any) -> Any:
    """An argument; the elements of a dense tensor so many bytes beyond a multiple of 64."""
    if not hasattr(value, "data_ptr"):
        return value
    is_dense = value.layout is torch.strided and value.device.type == "cpu"
    copy = value.clone(memory_format=torch.preserve_format)
    if not is_dense or not value.numel() or place % value.element_size():
        return copy
    size = copy.untyped_storage().nbytes() // copy.element_size()
    beyond = place // copy.element_size()
    room = torch.empty(size + beyond, dtype=copy.dtype)  # begins at a multiple of 64
    return room.as_strided(copy.shape, copy.stride(), beyond).copy_(copy)


def _as_array(torch: Any, tensor: Any) -> Any:
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    numbers = dense.to("cpu", torch.complex128 if dense.is_complex() else torch.float64)
    return numbers.resolve_conj().resolve_neg().numpy()


if __name__ == "__main__":
    main()
