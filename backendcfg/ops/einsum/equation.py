"""Equations of `einsum`: letters, lists of labels, `...`, and what is wrong with them."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

LETTERS = string.ascii_uppercase + string.ascii_lowercase
"""In the order in which they stand in a result that is not spelled out."""

DOTS = -1
"""`...` among labels; its dimensions get the labels from len(LETTERS) on, the last one first."""


def refuse(what: str, *helps: str) -> NoReturn:
    """Raise for an equation or an operand."""
    raise InvalidArgumentError(f"einsum: {what}", state="nothing was computed", helps=[*helps])


@dataclass(frozen=True)
class Labelled:
    """An equation and the shapes of its operands: what a call computes, but for the numbers.

    Attributes:
        inputs: the labels of each dimension of each operand.
        output: the labels of the result.
        operands: of each operand the labels and sizes that are contracted: each label once, and
            without those of size 1 that are longer elsewhere, which broadcast.
        sizes: of each label.
        plans: what was made of it, by whatever else that depends on; kept as long as this is.
    """

    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    operands: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    sizes: Mapping[int, int] = field(compare=False)
    plans: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return tuple(self.sizes[label] for label in self.output)


@dataclass(frozen=True)
class Equation:
    """What was asked for: labels by operand, `DOTS` among them; `output` None where implicit."""

    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...] | None

    def label(self, shapes: tuple[tuple[int, ...], ...]) -> Labelled:
        """The labels of every dimension.

        Raises:
            InvalidArgumentError: an operand has other dimensions, or sizes that do not broadcast.
        """
        return _label(self, shapes)


@lru_cache(maxsize=512)
def _label(equation: Equation, shapes: tuple[tuple[int, ...], ...]) -> Labelled:
    inputs = tuple(
        _expand(position, labels, len(shape))
        for position, (labels, shape) in enumerate(zip(equation.inputs, shapes, strict=True))
    )
    _check_sizes(inputs, shapes)
    sizes: dict[int, int] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    operands = tuple(
        _kept(labels, shape, sizes) for labels, shape in zip(inputs, shapes, strict=True)
    )
    return Labelled(inputs, _output(equation, inputs), operands, sizes)


def _kept(
    labels: tuple[int, ...], shape: tuple[int, ...], sizes: Mapping[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    own = dict(zip(labels, shape, strict=True))
    kept = tuple(label for label in own if own[label] == sizes[label])
    return kept, tuple(own[label] for label in kept)


def _expand(position: int, labels: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    named = len(labels) - (DOTS in labels)
    hidden = dimensions - named
    if hidden < 0 or (hidden and DOTS not in labels):
        reason = "at least " if DOTS in labels else ""
        refuse(
            f"operand {position} must have {reason}{named} dimensions, as many as its labels, "
            f"not {dimensions}"
        )
    if DOTS not in labels:
        return labels
    at = labels.index(DOTS)
    dots = range(len(LETTERS) + hidden - 1, len(LETTERS) - 1, -1)
    return (*labels[:at], *dots, *labels[at + 1 :])


def _check_sizes(inputs: tuple[tuple[int, ...], ...], shapes: tuple[tuple[int, ...], ...]) -> None:
    seen: dict[int, tuple[int, int]] = {}
    for position, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        own: dict[int, int] = {}
        for label, size in zip(labels, shape, strict=True):
            if own.setdefault(label, size) != size:
                refuse(
                    f"operand {position} must have equal sizes for its repeated label "
                    f"{_name(label)}, not {own[label]} and {size}"
                )
            known, owner = seen.get(label, (1, position))
            if known == 1:
                seen[label] = (size, position)
            elif size not in (1, known):
                refuse(
                    f"operand {position} has size {size} for {_name(label)}, which does not "
                    f"broadcast with the size {known} of operand {owner}"
                )


def _output(equation: Equation, inputs: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    everything = [label for labels in inputs for label in labels]
    dots = sorted({label for label in everything if label >= len(LETTERS)}, reverse=True)
    if equation.output is None:
        named = [label for label in everything if label < len(LETTERS)]
        return (*dots, *sorted(label for label in set(named) if named.count(label) == 1))
    found: list[int] = []
    for label in equation.output:
        found.extend(dots if label == DOTS else [label])
    return tuple(found)


def _name(label: int) -> str:
    return f"`{LETTERS[label]}`" if label < len(LETTERS) else "`...`"


@lru_cache(maxsize=512)
def parse(equation: str, operands: int) -> Equation:
    """An equation of letters.

    Raises:
        InvalidArgumentError: it is none, or does not have as many operands.
    """
    left, arrow, right = equation.partition("->")
    if "->" in right or ">" in left or "-" in left:
        refuse(f'`equation` must have one "->", not {equation!r}')
    terms = left.split(",")
    if len(terms) != operands:
        refuse(
            f"`equation` {equation!r} must have as many operands as were given, {operands}, "
            f"not {len(terms)}"
        )
    inputs = tuple(_letters(term, f"operand {i}", equation) for i, term in enumerate(terms))
    if not arrow:
        return Equation(inputs, None)
    return _checked(inputs, _letters(right, "the result", equation))


def _letters(term: str, whose: str, equation: str) -> tuple[int, ...]:
    labels = []
    rest = term.replace(" ", "")
    while rest:
        if rest.startswith("..."):
            labels.append(DOTS)
            rest = rest[3:]
            continue
        if rest[0] not in LETTERS:
            refuse(
                f"`equation` {equation!r} must label {whose} with letters and `...`, "
                f"not {rest[0]!r}"
            )
        labels.append(LETTERS.index(rest[0]))
        rest = rest[1:]
    return _one_ellipsis(tuple(labels), whose)


def parse_sublists(arguments: tuple[Any, ...]) -> Equation:
    """Operands with lists of labels, and one more list where the result is spelled out.

    Raises:
        InvalidArgumentError: a list is missing, or holds what is no label.
    """
    if len(arguments) < 2:
        refuse("operand 0 must be followed by the list of its labels")
    pairs = len(arguments) // 2
    inputs = tuple(_numbers(arguments[2 * i + 1], f"operand {i}") for i in range(pairs))
    if len(arguments) % 2 == 0:
        return Equation(inputs, None)
    return _checked(inputs, _numbers(arguments[-1], "the result"))


def _numbers(sublist: Any, whose: str) -> tuple[int, ...]:
    if not isinstance(sublist, (list, tuple)):
        refuse(f"{whose} must have a list of labels, not {type(sublist).__name__}")
    labels = []
    for label in sublist:
        if label is Ellipsis:
            labels.append(DOTS)
        elif (
            hasattr(label, "__index__")
            and not isinstance(label, bool)
            and 0 <= label.__index__() < len(LETTERS)
        ):
            labels.append(label.__index__())
        else:
            refuse(f"{whose} must have labels from 0 to {len(LETTERS) - 1} or `...`, not {label!r}")
    return _one_ellipsis(tuple(labels), whose)


def _one_ellipsis(labels: tuple[int, ...], whose: str) -> tuple[int, ...]:
    if labels.count(DOTS) > 1:
        refuse(f"{whose} must have one `...` at most")
    return labels


def _checked(inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> Equation:
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label == DOTS:
            continue
        if output.count(label) > 1:
            refuse(f"the result must have {_name(label)} once, not {output.count(label)} times")
        if label not in known:
            refuse(f"the result must have labels of operands, and none has {_name(label)}")
    return Equation(inputs, output)
