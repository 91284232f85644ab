"""Who serves linear algebra on a device: explained by what a call asks."""

from __future__ import annotations

from backendcfg.gpu.linalg import steps
from backendcfg.gpu.linalg.solver import flags_of
from backendcfg.gpu.products.gemm import KINDS
from backendcfg.ops.explanation import Answer, Reason

# What C refuses is told, and not what it counts with.
_TOO_LARGE = "its 32-bit integers are too small for matrices of this size"


def of_function(
    function: str,
    sizes: tuple[int, int, int],
    element: str,
    place: tuple[int, int],
    matrices: int = 1,
) -> Answer:
    """Who would serve a function of `ops.linalg` for matrices on a device.

    Args:
        function: its name.
        sizes: rows, columns and right-hand sides.
        element: NumPy's name of the type.
        place: the device, as DLPack numbers it.
        matrices: how many there are, each with right-hand sides of its own.
    """
    (m, n, k), (kind, index) = sizes, place
    operation = f"linalg.{function}"
    flags = flags_of()
    sides = f" and {k} right-hand sides" if k else ""
    what = f"{operation} of ({m}, {n}) {element}{sides} on {KINDS[kind]}:{index}"
    chosen = steps.choose(flags, kind, index, element, function)
    reasons, recipe = dict(chosen.reasons), chosen.recipe
    if recipe is not None and (broken := steps.unkept(flags)):
        reasons[recipe.provider] = broken
        recipe = None
    elif recipe is not None and not steps.serves(chosen, index, function, sizes):
        reasons[recipe.provider] = _TOO_LARGE
        recipe = None
    if recipe is None:
        return _answer(operation, what, sizes, reasons)
    because = f"{chosen.because}: {recipe.words}"
    if steps.is_together(chosen, function, matrices, sizes):
        because += "; the stack at once"
    return _answer(operation, what, sizes, reasons, (recipe.provider, chosen.path, because))


def _answer(
    operation: str,
    what: str,
    sizes: tuple[int, int, int],
    reasons: dict[str, str],
    serving: tuple[str, str, str] = ("", "", ""),
) -> Answer:
    told = tuple(Reason(name, "", why) for name, why in reasons.items())
    return Answer(operation, what, sizes, *serving, told, steps.FLAGS)
