"""Who serves products on a device under a snapshot: the first of the order that is there and can.

    made = choose(snapshot, kind=2, index=0, element="float32")

Libraries are opened when the first array of a device comes, never before. What was chosen is kept
with the snapshot, in C: `recipe_for` is asked once for each device and element type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.catalogue.gpu import AMD, NVIDIA
from backendcfg.errors import MissingLibraryError, TierNotKeptError
from backendcfg.gpu.libraries import driver as device_driver
from backendcfg.gpu.libraries import files
from backendcfg.gpu.libraries.opening import OpenLibrary, Unusable, open_device, require_device
from backendcfg.gpu.products import gemm
from backendcfg.records import field, record, replace

if TYPE_CHECKING:
    from backendcfg.gpu.products.gemm import Recipe

_TOOLKITS = {
    gemm.CUDA: (NVIDIA, "CUDA"),
    gemm.ROCM: (AMD, "ROCm"),
}
_DRIVERS = {gemm.CUDA: "cuda", gemm.ROCM: "hip"}

# No library of a vendor promises these; our own kernels, which do, compute on the CPU alone.
_UNKEPT_TIERS = ("cross-machine", "batch-invariant")


@record(frozen=True)
class Chosen:
    """Who serves, and why nobody else.

    Attributes:
        recipe: how it is called; None when nobody can.
        path: the file of the library.
        library: its handle.
        driver: that of the driver.
        because: "first" or "able", as `native.REASONS` has them; "" when nobody can.
        reasons: for each other provider, why not.
        fallback: who takes over what the library has no algorithm for; None for nobody.
        adder: who adds a vector in the call that multiplies, where that is somebody else.
    """

    recipe: Recipe | None = None
    path: str = ""
    library: int = 0
    driver: int = 0
    because: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    fallback: Chosen | None = None
    adder: Chosen | None = None


def driver_of(kind: int) -> int:
    """The handle of the driver of a kind of place.

    Raises:
        MissingLibraryError: there is none.
    """
    return require_device(_DRIVERS[kind]).handle


def flags_of(snapshot: int) -> dict[str, Any]:
    """The flags of `gemm.FLAGS` as a snapshot holds them."""
    held = native.decode(snapshot)
    return {
        flag: usual if held[flag] is None else held[flag] for flag, usual in gemm.DEFAULTS.items()
    }


def choose(snapshot: int, kind: int, index: int, element: str, *, start: bool = True) -> Chosen:
    """Who serves products of an element type on a device, under a snapshot.

    Args:
        snapshot: its address.
        kind: of the device, with DLPack's number: a key of `gemm.KINDS`.
        index: of the device.
        element: one of `gemm.ELEMENTS`.
        start: initialise the driver if nobody has.
    """
    flags = flags_of(snapshot)
    order = gemm.order(kind, flags[gemm.LIBRARY])
    driver = open_device(_DRIVERS[kind])
    if isinstance(driver, Unusable):
        return Chosen(reasons=dict.fromkeys(order, "; ".join(driver.reasons)))
    capability = device_driver.capability(driver.path, index, kind=kind, start=start)
    adder = gemm.adder(kind, order, element)
    able: dict[str, Chosen] = {}
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
            able[name] = Chosen(made, opened.path, opened.handle, driver.handle, because)
    return _first(able, reasons, adder)


def _first(able: dict[str, Chosen], reasons: dict[str, str], adder: str) -> Chosen:
    """The first of those who can, with what the others are there for."""
    if not able:
        return Chosen(reasons=reasons)
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


def adding(chosen: Chosen) -> Chosen | None:
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


def unkept(flags: dict[str, Any]) -> str:
    """Why no product on a device can keep what the flags promise, or ""."""
    tier = flags[gemm.TIER]
    if tier not in _UNKEPT_TIERS:
        return ""
    return f"`determinism.tier` promises `{tier}`, which no library on a device keeps"


def recipe_for(operation: str, snapshot: int, kind: int, index: int, element: str) -> int:
    """The address of the recipe; what C asks.

    Raises:
        TierNotKeptError: no library keeps what the profile promises.
        MissingLibraryError: no library can serve it.
    """
    if broken := unkept(flags_of(snapshot)):
        raise TierNotKeptError(
            f"{operation}: {broken}",
            state="nothing was computed",
            helps=["compute on the CPU: our own kernels keep it", "use a profile of a lower tier"],
        )
    chosen = choose(snapshot, kind, index, element)
    if chosen.recipe is None:
        place = f"{gemm.KINDS[kind]}:{index}"
        raise MissingLibraryError(
            f"{operation}: no library can multiply {element} on {place}",
            notes=[f"{name}: {why}" for name, why in chosen.reasons.items()],
            helps=["run `backendcfg detect` to list the libraries that were found"],
        )
    return intern(chosen)


def intern(chosen: Chosen | None) -> int:
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
