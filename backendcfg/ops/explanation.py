"""One explainer for each operation: the registry behind `explain`.

A family of operations explains itself by the code that makes its choice. It registers each of its
operations once, when `backendcfg.ops` is imported:

    explanation.register("linalg.cholesky", explain_linalg)

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

import numpy as np

from backendcfg import _native
from backendcfg.catalogue.cpu import COMPILED_IN
from backendcfg.defaults import DEFAULTS
from backendcfg.errors import InvalidArgumentError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops.arrays import element_named, is_flag
from backendcfg.tables import aligned, html

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

    def shapes_of(self, *counts: int) -> tuple[tuple[int, ...], ...]:
        """The shapes, as many as one of `counts` says; any number where it says nothing.

        Raises:
            InvalidArgumentError: there are others, or they are no shapes.
        """
        shapes = self.read_shapes()
        if shapes is None or (counts and len(shapes) not in counts):
            many = (
                f"{' or '.join(map(str, counts))} shapes" if counts else "a shape for each operand"
            )
            many = "one shape in a list" if counts == (1,) else many
            raise InvalidArgumentError(f"explain: `shapes` must be {many}, not {self.shapes!r}")
        return shapes

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


def element_of(dtype: Any) -> str:
    """The name of a type that arrays may have.

    Raises:
        InvalidArgumentError: it is neither NumPy's nor PyTorch's.
    """
    name = element_named(dtype)
    try:
        return name if name == "bfloat16" else np.dtype(name).name
    except TypeError:
        raise InvalidArgumentError(
            f"explain: `dtype` must be NumPy's or PyTorch's, not {dtype!r}"
        ) from None


def of_explain(error: InvalidArgumentError, prefix: str) -> InvalidArgumentError:
    """The error of an operation, whose message begins with `prefix`, as one of `explain`."""
    return InvalidArgumentError(f"explain: {str(error).removeprefix(prefix)}")


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


@dataclass(frozen=True)
class Explanation:
    """Who would serve an operation, and why nobody else; printed as lines.

    Attributes:
        operation: what would be called: "sgemm".
        sizes: of the call; m, n, k of one product.
        profile: the profile in force, or "" for none.
        provider: who serves, or "" when nobody can.
        path: the file; "" for what has none of its own.
        reasons: one for each other provider.
        because: why the one that serves does.
        flags: those that the choice looked at, with their values.
        calibration: what the measured times said, or why they were not asked; "" where the
            operation has none.
    """

    operation: str
    sizes: tuple[int, ...]
    profile: str
    provider: str
    path: str
    reasons: tuple[Reason, ...]
    because: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    calibration: str = ""
    what: str = field(default="", repr=False)

    def __str__(self) -> str:
        lines = [*aligned(self._rows()), *self._notes()]
        return "\n".join([self._title(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        return html(self._title(), ("provider", "why"), self._rows(), self._notes())

    def _title(self) -> str:
        under = f"profile `{self.profile}`" if self.profile else "no profile"
        return f"{self.what or self.operation} under {under}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [(one.provider, one.why) for one in self.reasons]
        if not self.provider:
            return rows
        place = self.path or ("compiled in" if self.provider in COMPILED_IN else "")
        said = ", ".join(filter(None, (place, self.because)))
        return [(self.provider, f"serves: {said}"), *rows]

    def _notes(self) -> list[str]:
        looked = ", ".join(f"{flag} = {_literal(value)}" for flag, value in self.flags.items())
        notes = [f"flags: {looked}"] if looked else []
        return notes + ([f"calibration {self.calibration}"] if self.calibration else [])


def explain(
    operation: str, shapes: Any = (), dtype: Any = "float64", **options: Any
) -> Explanation:
    """Who would serve an operation in this context, by the code that makes the choice.

    Args:
        operation: "matmul", "linalg.cholesky": `explain` with another text lists them.
        shapes: of its operands, as NumPy gives them: `((m, k), (k, n))` for a product.
        dtype: of the operands.
        options: what else the operation takes, by name: `is_causal=True`.

    Raises:
        InvalidArgumentError: there is no such operation, or the arguments do not fit it.
        MissingLibraryError: the profile in force needs a library that cannot be opened.
    """
    current = _native.current()
    values = {**DEFAULTS, **FlagsInForce().values}
    said = answer(Question(operation, shapes, dtype, options, values))
    return Explanation(
        said.operation,
        said.sizes,
        current.name if current else "",
        said.provider,
        said.path,
        said.reasons,
        said.because,
        {flag: values[flag] for flag in said.flags if flag in values},
        said.calibration,
        said.what,
    )


def _literal(value: Any) -> str:
    from backendcfg.resolve.words import literal

    # No preference among libraries is an empty table, which says nothing to a reader.
    return literal(value) if value != {} else "nothing"
