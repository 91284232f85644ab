"""One explainer for each operation: the registry behind `explain`.

A family of operations explains itself by the code that makes its choice. It registers each of its
operations once, when `backendcfg.ops` is imported:

    families.register("linalg.cholesky", explain_linalg)

An explainer is a function from a `Question` to an `Answer`:

- It asks the same function that its operation asks, so that the two cannot disagree, and computes
  nothing.
- `Question.options` holds what else was passed to `explain`. It takes what it knows with
  `Question.option` and leaves the rest: whatever nobody took is refused by name.
- It names every provider that does not serve, with the reason, and the flags it looked at.
- What is wrong with the question it raises as InvalidArgumentError, with a message that begins
  `explain: ` and names the argument.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.refusal import is_flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Reason:
    """Why a provider does not serve; `path` is its file when it is open."""

    provider: str
    path: str
    why: str


@dataclass(frozen=True)
class Question:
    """What `explain` was asked.

    Attributes:
        operation: as it was registered: "matmul", "linalg.cholesky".
        shapes: of the operands, as they were given.
        dtype: of the operands, as it was given: a name, a NumPy dtype or a type of a framework.
        options: the other arguments by name.
        values: the flags in force, by name; without a profile, their defaults.
    """

    operation: str
    shapes: Any
    dtype: Any
    options: Mapping[str, Any]
    values: Mapping[str, Any]
    _taken: set[str] = field(default_factory=set, repr=False, compare=False)

    def option(self, name: str, default: Any = None) -> Any:
        """An option, or its default where it was not given."""
        self._taken.add(name)
        return self.options.get(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        """An option that is True or False.

        Raises:
            InvalidArgumentError: it is neither.
        """
        value = self.option(name, default)
        if not is_flag(value):
            raise InvalidArgumentError(f"explain: `{name}` must be a bool, not {value!r}")
        return bool(value)

    def read_shapes(self) -> tuple[tuple[int, ...], ...] | None:
        """The shapes as numbers; None where they are no shapes."""
        return read_shapes(self.shapes)

    def left_over(self) -> list[str]:
        """The options that nobody took."""
        return [name for name in self.options if name not in self._taken]


@dataclass(frozen=True)
class Answer:
    """What an explainer says.

    Attributes:
        operation: what would be called: "sgemm", "flash attention".
        what: the same with its sizes, for the first line: "sgemm of (2, 3) and (3, 4)".
        sizes: of the call, as the family counts them: m, n, k of a product.
        provider: who would serve, or "" when nobody can.
        path: its file; "" for what has none of its own.
        because: why that one.
        reasons: one for each other provider.
        flags: the names of the flags that the choice looked at.
        calibration: what the measured times said, or why they were not asked; "" where a family
            has none.
    """

    operation: str
    what: str
    sizes: tuple[int, ...] = ()
    provider: str = ""
    path: str = ""
    because: str = ""
    reasons: tuple[Reason, ...] = ()
    flags: tuple[str, ...] = ()
    calibration: str = ""


def read_shapes(given: Any) -> tuple[tuple[int, ...], ...] | None:
    """Shapes as numbers; None where they are no shapes."""
    try:
        shapes = tuple(tuple(int(size) for size in shape) for shape in given)
    except (TypeError, ValueError):
        return None
    return None if any(size < 0 for shape in shapes for size in shape) else shapes


Explainer = Callable[[Question], Answer]

_explainers: dict[str, Explainer] = {}


def register(name: str, explainer: Explainer) -> None:
    """Say who explains an operation; the last one counts.

    Args:
        name: as `explain` takes it: "conv2d", "fft.rfft".
        explainer: see the module's text.
    """
    _explainers[name] = explainer


def names() -> tuple[str, ...]:
    """Every operation that can be explained, by alphabet."""
    return tuple(sorted(_explainers))


def answer(question: Question) -> Answer:
    """What the family of a question says.

    Raises:
        InvalidArgumentError: there is no such operation, or the question does not fit it.
    """
    explainer = _explainers.get(question.operation)
    if explainer is None:
        raise _unknown(question.operation)
    found = explainer(question)
    if left := question.left_over():
        known = ", ".join(sorted(question._taken)) or "none"
        raise InvalidArgumentError(
            f"explain: `{question.operation}` has no argument `{left[0]}`",
            notes=[f"beside `shapes` and `dtype` it takes: {known}"],
        )
    return found


def _unknown(operation: object) -> InvalidArgumentError:
    known: Sequence[str] = names()
    near = difflib.get_close_matches(str(operation), known, n=1, cutoff=0.6)
    return InvalidArgumentError(
        f"explain: there is no operation {operation!r}",
        notes=[f"there are: {', '.join(known)}"],
        helps=[f'did you mean "{near[0]}"?'] if near else [],
    )
