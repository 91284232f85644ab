"""Who serves a product on a device: explained by what a call asks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu.products import gemm, recipes
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.ops.serving import WORDS

if TYPE_CHECKING:
    from backendcfg.gpu.products.gemm import Recipe
    from backendcfg.gpu.products.recipes import Chosen

_KINDS = {name: kind for kind, name in gemm.KINDS.items()}


def place_of(device: Any) -> tuple[int, int] | None:
    """A device as DLPack numbers it; None for the CPU.

    Args:
        device: "cpu", "cuda", "cuda:1", "rocm:0", or a `torch.device`.

    Raises:
        InvalidArgumentError: it is no such device.
    """
    text = str(device)
    if text == "cpu":
        return None
    match = re.fullmatch(r"(\w+?)(?::(\d+))?", text)
    if match is None or match.group(1) not in _KINDS:
        _refuse(device)
    return _KINDS[match.group(1)], int(match.group(2) or 0)


def of_element(
    element: str, place: tuple[int, int]
) -> tuple[Chosen, Recipe | None, dict[str, str]]:
    """What is chosen for products of a type on a device, how it is called, and why no other is.

    Args:
        element: NumPy's name of the type.
        place: the device, as DLPack numbers it.
    """
    snapshot = _native.snapshot()
    chosen = recipes.choose(snapshot, *place, element, start=False)
    broken = recipes.unkept(recipes.flags_of(snapshot))
    if broken and chosen.recipe is not None:
        return chosen, None, {**chosen.reasons, chosen.recipe.provider: broken}
    return chosen, chosen.recipe, chosen.reasons


def of_product(
    operation: str,
    of: tuple[int, int, int],
    element: str,
    place: tuple[int, int],
    *,
    adds: bool = False,
) -> Answer:
    """Who would serve a product of sizes m, n, k on a device.

    Args:
        operation: of BLAS: "sgemm".
        of: m, n and k.
        element: NumPy's name of the type.
        place: the device, as DLPack numbers it.
        adds: whether a vector is added to each row, whose numbers lie one after the other.
    """
    (m, n, k), (kind, index) = of, place
    chosen, recipe, reasons = of_element(element, place)
    adder = recipes.adding(chosen) if adds and recipe and n > 1 and k > 1 else None
    if adder is not None:
        chosen, recipe, reasons = adder, adder.recipe, adder.reasons
    because = WORDS.get(chosen.because, "")
    if recipe is not None:
        said = ", ".join(f"{what} {number}" for what, number in gemm.words(recipe).items())
        because = f"{because}: {said}"
        if adder is not None:
            because += f", epilogue {gemm.BIAS[recipe.provider]}"
        if note := recipes.mixed(kind):
            because += f"; {note}"
    return Answer(
        operation,
        f"{operation} of ({m}, {k}) and ({k}, {n}) on {gemm.KINDS[kind]}:{index}",
        of,
        recipe.provider if recipe is not None else "",
        chosen.path if recipe is not None else "",
        because if recipe is not None else "",
        tuple(Reason(name, "", why) for name, why in reasons.items()),
        gemm.FLAGS,
    )


def _refuse(device: Any) -> NoReturn:
    raise InvalidArgumentError(
        f"explain: `device` must be a device, not {device!r}",
        helps=['write "cpu", "cuda:0" or "rocm:0"'],
    )
