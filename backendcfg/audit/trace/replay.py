"""An operation run again by itself, from the arguments that a recorded run kept.

What is below `main` runs in a child: an interpreter of the program's, under the profile and with
the surroundings that are in question.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg import childprocess
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
    if paths[0].endswith(NUMPYS):
        from backendcfg.audit.trace import numpy_replay

        one, *others = [numpy_replay.load(path) for path in paths]
        if what == "again":
            print(json.dumps({"digests": numpy_replay.again(one, PLACES, REPEATS)}))
        else:
            print(json.dumps(numpy_replay.apart(one, *others)))
        return
    import torch

    kept = [torch.load(path, weights_only=False) for path in paths]
    answer = _again(torch, kept[0]) if what == "again" else _apart(torch, *kept)
    print(json.dumps(answer))


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
            args, kwargs = _placed(torch, (kept["args"], kept["kwargs"]), place)
            out = function(*args, **kwargs)
            found.setdefault(place, []).append(outcome(torch, about, out, args, kwargs))
    return {"digests": found}


def _placed(torch: Any, value: Any, place: int) -> Any:
    """Arguments with the elements of dense tensors so many bytes beyond a multiple of 64."""
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(torch, one, place) for one in value)
    if isinstance(value, dict):
        return {key: _placed(torch, one, place) for key, one in value.items()}
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


def _apart(torch: Any, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    elements, differing, largest = 0, 0, 0.0
    for first, second in zip(one["outputs"], other["outputs"], strict=False):
        elements += first.numel()
        if first.shape != second.shape:
            return {"elements": elements, "differing": elements, "apart": None}
        a, b = (_as_numbers(torch, each) for each in (first, second))
        odd = (a != b) & ~((a != a) & (b != b))  # noqa: PLR0124 - whether both are NaN
        differing += int(odd.sum())
        if bool(odd.any()):
            scale = torch.maximum(a[odd].abs(), b[odd].abs())
            largest = max(largest, float(((a[odd] - b[odd]).abs() / scale).max()))
    finite = largest == largest and largest != float("inf")  # noqa: PLR0124 - not NaN
    return {"elements": elements, "differing": differing, "apart": largest if finite else None}


def _as_numbers(torch: Any, tensor: Any) -> Any:
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64)


if __name__ == "__main__":
    main()
