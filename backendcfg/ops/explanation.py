"""Who would serve an operation here and now, and why the others would not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.catalogue.cpu import COMPILED_IN
from backendcfg.defaults import DEFAULTS
from backendcfg.flags import FlagsInForce
from backendcfg.ops import families
from backendcfg.ops.families import Question, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Explanation", "Reason", "explain"]


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
        under = f"profile `{self.profile}`" if self.profile else "no profile"
        lines = [f"{self.what or self.operation} under {under}"]
        width = max(len(name) for name in (self.provider, *(r.provider for r in self.reasons)))
        if self.provider:
            place = self.path or ("compiled in" if self.provider in COMPILED_IN else "")
            said = ", ".join(filter(None, (place, self.because)))
            lines.append(f"  {self.provider:<{width}}  serves: {said}")
        lines += [f"  {r.provider:<{width}}  {r.why}" for r in self.reasons]
        if self.flags:
            looked = ", ".join(f"{flag} = {_literal(value)}" for flag, value in self.flags.items())
            lines.append(f"  flags: {looked}")
        if self.calibration:
            lines.append(f"  calibration {self.calibration}")
        return "\n".join(lines)


def explain(operation: str, shapes: Any, dtype: Any = "float64", **options: Any) -> Explanation:
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
    said = families.answer(Question(operation, shapes, dtype, options, values))
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
