"""In which order `einsum` contracts: opt_einsum's, or from left to right."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from backendcfg.flags import FlagsInForce

FLAGS = ("opt_einsum.enabled", "opt_einsum.strategy", "determinism.tier")
"""The flags that the choice looks at."""

FIXED_ORDER = ("cross-machine", "batch-invariant")
"""Tiers under which an order that depends on a package and on sizes may not be used."""

Operands = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""Labels and shape of each."""


def is_fixed(flags: FlagsInForce) -> bool:
    """Whether the tier promises bits that depend on no sizes but those of what is summed."""
    return flags.tier in FIXED_ORDER


def order(
    operands: Operands, output: tuple[int, ...], flags: FlagsInForce
) -> tuple[tuple[tuple[int, ...], ...], str, str]:
    """Which operands are contracted in each step, who says so, and why.

    The result of a step goes to the end of those that are left.
    """
    count = len(operands)
    if count == 1:
        return ((0,),), "one operand", "there is no order to choose"
    plain = ((0, 1), *((last, 0) for last in range(count - 2, 0, -1)))
    if count == 2:
        return plain, "one pair", "there is no order to choose"
    if not flags["opt_einsum.enabled"]:
        return plain, "left to right", "`opt_einsum.enabled` is off"
    if flags.tier in FIXED_ORDER:
        return plain, "left to right", f"the tier is {flags.tier}"
    if not _is_installed():
        return plain, "left to right", "opt_einsum is not installed"
    strategy = str(flags["opt_einsum.strategy"])
    return _path(operands, output, strategy), "opt_einsum", f"`opt_einsum.strategy` is {strategy}"


@lru_cache(maxsize=1)
def _is_installed() -> bool:
    return find_spec("opt_einsum") is not None


@lru_cache(maxsize=512)
def _path(
    operands: Operands,
    output: tuple[int, ...],
    strategy: str,
) -> tuple[tuple[int, ...], ...]:
    import opt_einsum

    names = [[*map(opt_einsum.get_symbol, labels)] for labels, _ in operands]
    here = frozenset(label for labels, _ in operands for label in labels)
    result = "".join(opt_einsum.get_symbol(label) for label in output if label in here)
    equation = ",".join("".join(each) for each in names) + "->" + result
    try:
        path, _ = opt_einsum.contract_path(
            equation, *(shape for _, shape in operands), shapes=True, optimize=strategy
        )
    except (KeyError, ValueError) as error:
        raise InvalidArgumentError(
            f"einsum: opt_einsum found no order: {error}", state="nothing was computed"
        ) from error
    return tuple(tuple(step) for step in path)
