"""Which library serves products on a device under a snapshot: the first of the order that can.

    choice = choose(snapshot, kind=2, index=0, element="float32")

Libraries are opened when the first array on a device comes, never before. C keeps the choice with
the snapshot: it asks `recipe_for` once for each device and element type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.catalogue.gpu import AMD, NVIDIA
from backendcfg.errors import MissingLibraryError
from backendcfg.gpu import messages
from backendcfg.gpu.libraries import files
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.gpu.libraries.calling import OpenLibrary
from backendcfg.gpu.libraries.opening import DRIVERS, Unusable, open_device, require_device
from backendcfg.gpu.products import gemm
from backendcfg.ops.devices import CUDA, ROCM, place_named
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.ops.serving import WORDS
from backendcfg.records import field, record, replace

if TYPE_CHECKING:
    from backendcfg.gpu.products.gemm import Recipe

_TOOLKITS = {
    CUDA: (NVIDIA, "CUDA"),
    ROCM: (AMD, "ROCm"),
}


@record(frozen=True)
class ProductChoice:
    """The library that serves products, and why no other.

    Attributes:
        recipe: how it is called; None where no library can serve.
        path: of its file.
        library: its handle.
        driver: the handle of the driver.
        because: "first" or "able", as `native.REASONS` has them; "" where no library can serve.
        reasons: for each other provider, why it does not serve.
        fallback: serves what this library has no algorithm for; None for nobody.
        adder: adds a vector in the call that multiplies, where this library cannot.
    """

    recipe: Recipe | None = None
    path: str = ""
    library: int = 0
    driver: int = 0
    because: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    fallback: ProductChoice | None = None
    adder: ProductChoice | None = None


def driver_of(kind: int) -> int:
    """The handle of the driver of a kind of place.

    Raises:
        MissingLibraryError: there is none.
    """
    return require_device(DRIVERS[kind]).handle


def flags_of(snapshot: int) -> dict[str, Any]:
    """The flags of `gemm.FLAGS` as a snapshot holds them."""
    held = native.decode(snapshot)
    return {
        flag: usual if held[flag] is None else held[flag] for flag, usual in gemm.DEFAULTS.items()
    }


def choose(
    snapshot: int, kind: int, index: int, element: str, *, start: bool = True
) -> ProductChoice:
    """Who serves products of an element type on a device, under a snapshot.

    Args:
        snapshot: its address.
        kind: of the device, with DLPack's number: a key of `devices.KINDS`.
        index: of the device.
        element: one of `gemm.ELEMENTS`.
        start: initialise the driver if nobody has.
    """
    flags = flags_of(snapshot)
    order = gemm.order(kind, flags[gemm.LIBRARY])
    driver = open_device(DRIVERS[kind])
    if isinstance(driver, Unusable):
        return ProductChoice(reasons=dict.fromkeys(order, "; ".join(driver.reasons)))
    capability = device_driver.capability(driver.path, index, kind=kind, start=start)
    adder = gemm.adder(kind, order, element)
    able: dict[str, ProductChoice] = {}
    reasons = {}
    for name in order:
        if able and name != adder and next(iter(able)) not in gemm.BY_DESCRIPTORS:
            reasons[name] = f"behind `{next(iter(able))}`"
            continue
        made = gemm.recipe(name, flags, element, capability)
        opened = made if isinstance(made, str) else open_device(name)
        if isinstance(made, str):
            reasons[name] = made
        elif isinstance(opened, Unusable):
            reasons[name] = "; ".join(opened.reasons)
        elif isinstance(opened, OpenLibrary):
            because = "first" if name == order[0] else "able"
            made = gemm.for_version(made, opened.version)
            able[name] = ProductChoice(made, opened.path, opened.handle, driver.handle, because)
    return _first(able, reasons, adder)


def _first(able: dict[str, ProductChoice], reasons: dict[str, str], adder: str) -> ProductChoice:
    """The first of those who can, with what the others are there for."""
    if not able:
        return ProductChoice(reasons=reasons)
    serving, *others = able
    fallback = None
    for name in others:
        reasons[name] = f"behind `{serving}`"
        if serving in gemm.BY_DESCRIPTORS:
            reasons[name] += ", and takes over where that has no algorithm"
            fallback = fallback or able[name]
    return replace(
        able[serving],
        reasons=reasons,
        fallback=fallback,
        adder=able[adder] if adder in others else None,
    )


def adding(chosen: ProductChoice) -> ProductChoice | None:
    """Who adds a vector to each row of a product in the call that multiplies; None for nobody."""
    first = chosen.recipe
    if first is None or first.element in gemm.COMPLEX:
        return None
    if first.provider in gemm.BY_DESCRIPTORS:
        return chosen
    if chosen.adder is None or chosen.adder.recipe is None:
        return None
    others = {n: why for n, why in chosen.reasons.items() if n != chosen.adder.recipe.provider}
    others[first.provider] = (
        "it cannot add a vector in the call that multiplies, and takes over where there is no "
        "algorithm that does"
    )
    return replace(chosen.adder, reasons=others)


def mixed(kind: int) -> str:
    """What to know where libraries of two toolkits are in the process; "" where they are not."""
    vendor, title = _TOOLKITS[kind]
    found = sorted(files.loaded_toolkits(vendor))
    if len(found) < 2:
        return ""
    said = files.framework_toolkits().get(vendor)
    whose = f"PyTorch's is {said}" if said else "the nearest is used, and no framework says which"
    return f"{title} {' and '.join(map(str, found))} are both in this process: {whose}"


def recipe_for(operation: str, snapshot: int, kind: int, index: int, element: str) -> int:
    """The address of the recipe; what C asks.

    Raises:
        TierNotKeptError: no library keeps what the profile promises.
        MissingLibraryError: no library can serve it.
    """
    broken = messages.unkept(flags_of(snapshot)[gemm.TIER])
    messages.refuse_unkept(operation, broken, "compute on the CPU: our own kernels keep it")
    chosen = choose(snapshot, kind, index, element)
    if chosen.recipe is None:
        place = place_named((kind, index))
        raise MissingLibraryError(
            f"{operation}: no library can multiply {element} on {place}",
            notes=[f"{name}: {why}" for name, why in chosen.reasons.items()],
            helps=["run `backendcfg detect` to list the libraries that were found"],
        )
    return intern(chosen)


def intern(chosen: ProductChoice | None) -> int:
    """The address in C of what was chosen; 0 for nobody."""
    if chosen is None or (recipe := chosen.recipe) is None:
        return 0
    return _native.device_recipe(
        chosen.library,
        chosen.driver,
        intern(chosen.fallback),
        intern(chosen.adder),
        recipe.workspace,
        gemm.ELEMENTS.index(recipe.element),
        native.REASONS.index(chosen.because),
        recipe.data_type,
        recipe.compute_type,
        recipe.scale_type,
        recipe.math_mode,
        recipe.atomics,
        recipe.algorithm,
        recipe.reduction,
    )


def of_element(
    element: str, place: tuple[int, int]
) -> tuple[ProductChoice, Recipe | None, dict[str, str]]:
    """The library for products of a type on a device, how it is called, and why no other.

    Args:
        element: NumPy's name of the type.
        place: the device, as DLPack numbers it.
    """
    snapshot = _native.snapshot()
    chosen = choose(snapshot, *place, element, start=False)
    broken = messages.unkept(flags_of(snapshot)[gemm.TIER])
    if broken and chosen.recipe is not None:
        return chosen, None, {**chosen.reasons, chosen.recipe.provider: broken}
    return chosen, chosen.recipe, chosen.reasons


def explain(
    operation: str,
    of: tuple[int, int, int],
    element: str,
    place: tuple[int, int],
    *,
    adds: bool = False,
) -> Answer:
    """What `explain` says of a product of sizes m, n, k on a device.

    Args:
        operation: of BLAS: "sgemm".
        of: m, n and k.
        element: NumPy's name of the type.
        place: the device, as DLPack numbers it.
        adds: whether a vector is added to each row, whose numbers lie one after the other.
    """
    (m, n, k), (kind, _) = of, place
    chosen, recipe, reasons = of_element(element, place)
    adder = adding(chosen) if adds and recipe and n > 1 and k > 1 else None
    if adder is not None:
        chosen, recipe, reasons = adder, adder.recipe, adder.reasons
    because = WORDS.get(chosen.because, "")
    if recipe is not None:
        said = ", ".join(f"{what} {number}" for what, number in gemm.words(recipe).items())
        because = f"{because}: {said}"
        if adder is not None:
            because += f", epilogue {gemm.BIAS[recipe.provider]}"
        if note := mixed(kind):
            because += f"; {note}"
    return Answer(
        operation,
        f"{operation} of ({m}, {k}) and ({k}, {n}) on {place_named(place)}",
        of,
        recipe.provider if recipe is not None else "",
        chosen.path if recipe is not None else "",
        because if recipe is not None else "",
        tuple(Reason(name, "", why) for name, why in reasons.items()),
        gemm.FLAGS,
    )
