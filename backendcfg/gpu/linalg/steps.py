"""Linear algebra on devices: what the flags say to each library, and which one serves.

    chosen = choose(flags, kind=2, element="float32")
    chosen.recipe.deterministic        # 1, CUSOLVER_DETERMINISTIC_RESULTS

Calls and `explain` both ask `choose`. A function of `ops.linalg` is made of steps, which `vendors`
describes. A library is added with its rules here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import defaults
from backendcfg.catalogue.gpu import preferred_first
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.gpu import messages
from backendcfg.gpu.libraries.opening import DRIVERS, Unusable, open_device
from backendcfg.gpu.linalg.magma import Magma
from backendcfg.gpu.linalg.vendors import (
    CHOLESKY,
    CHOLESKY_SOLVE,
    EIGH,
    ITEM,
    LU,
    LU_SOLVE,
    MOST,
    QR,
    QR_VECTORS,
    SVD,
    CublasStacks,
    Cusolver,
    Hipsolver,
    Stack,
    Step,
    StepMaker,
)
from backendcfg.ops.devices import CUDA, ROCM, place_named
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.records import field, record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backendcfg.gpu.libraries.calling import OpenLibrary

LIBRARY = "cuda.preferred_linalg_library"
ALGORITHMS = "determinism.algorithms"
TIER = "determinism.tier"

FLAGS = (
    LIBRARY,
    ALGORITHMS,
    TIER,
    "ops.check_finite",
)
"""The flags that the choice reads."""

DEFAULTS: dict[str, Any] = {flag: defaults.DEFAULTS[flag] for flag in FLAGS}
DEFAULTS[LIBRARY] = "default"  # the word for no preference

ELEMENTS = tuple(ITEM)

STEPS: dict[str, tuple[int, ...]] = {
    "cholesky": (CHOLESKY,),
    "cholesky_ex": (CHOLESKY,),
    "cholesky_inverse": (CHOLESKY_SOLVE,),
    "cholesky_solve": (CHOLESKY_SOLVE,),
    "eigh": (EIGH,),
    "eigvalsh": (EIGH,),
    "inv": (LU, LU_SOLVE),
    "inv_ex": (LU, LU_SOLVE),
    "lu": (LU, LU_SOLVE),
    "lu_factor": (LU,),
    "lu_factor_ex": (LU,),
    "lu_solve": (LU_SOLVE,),
    "qr": (QR, QR_VECTORS),
    "solve": (LU, LU_SOLVE),
    "solve_ex": (LU, LU_SOLVE),
    "svd": (SVD,),
    "svdvals": (SVD,),
}
"""By function of `ops.linalg`: the steps that it is made of."""

# cusolverDeterministicMode_t, which came with CUDA 12.2.
DETERMINISTIC_RESULTS = 1
DETERMINISTIC_SINCE = (11, 5)

# hipsolverDeterministicMode_t, which every library with the newer SONAME has.
HIP_DETERMINISTIC_RESULTS = 241
HIP_DETERMINISTIC_SINCE = (1,)

# Larger ones fill a device one by one, and few of a size are as fast one after the other: both as
# PyTorch has measured it, in `lu_factor` and `lu_solve` of aten/src/ATen/native/cuda/linalg.
_LARGEST_LU = 511
_FEW, _LARGEST_OF_FEW = 2, 63


@record(frozen=True)
class LinalgRecipe:
    """How one library is called for one element type.

    Attributes:
        provider: "cusolver".
        element: of the matrices.
        deterministic: the library's number of a mode that is set; 0 where it has none.
        pivots: the type of the pivots that it reads and writes.
        words: the numbers by their names in the library's header, for `explain`.
    """

    provider: str
    element: str
    deterministic: int = 0
    pivots: str = "int64"
    words: str = ""


@record(frozen=True)
class LinalgChoice:
    """The library that serves a function, and why no other.

    Attributes:
        recipe: how it is called; None where no library can serve.
        path: of its file.
        library: its handle.
        driver: the handle of the driver.
        blas: the handle of the library with LU for whole stacks; 0 for none.
        because: why this one serves, in words; "" where no library can.
        reasons: for each other provider, why it does not serve.
        passed_over: the library that the profile prefers, where another one serves; else "".
    """

    recipe: LinalgRecipe | None = None
    path: str = ""
    library: OpenLibrary | None = None
    driver: int = 0
    blas: OpenLibrary | None = None
    because: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    passed_over: str = ""


def needs_same_bits(flags: Mapping[str, Any]) -> bool:
    """Whether the same call must give the same bits."""
    return bool(flags[ALGORITHMS] == "deterministic" or flags[TIER] != "none")


def _cusolver(
    flags: Mapping[str, Any], element: str, version: tuple[int, int, int]
) -> LinalgRecipe | str:
    # A handle that nobody configured does not allow results that differ from run to run either.
    if version[:2] >= DETERMINISTIC_SINCE:
        words = "mode CUSOLVER_DETERMINISTIC_RESULTS"
        return LinalgRecipe("cusolver", element, DETERMINISTIC_RESULTS, words=words)
    if needs_same_bits(flags):
        return (
            f"version {version[0]}.{version[1]} cannot be told to be deterministic, as "
            f"`{ALGORITHMS}` or `{TIER}` asks; 11.5 is the first that can"
        )
    return LinalgRecipe("cusolver", element, words="no mode to set")


def _hipsolver(
    flags: Mapping[str, Any], element: str, version: tuple[int, int, int]
) -> LinalgRecipe | str:
    # An older SONAME does not say whether the library has modes; without, a call that asks fails.
    if version[:1] >= HIP_DETERMINISTIC_SINCE or needs_same_bits(flags):
        words = "mode HIPSOLVER_DETERMINISTIC_RESULTS"
        return LinalgRecipe("hipsolver", element, HIP_DETERMINISTIC_RESULTS, "int32", words)
    return LinalgRecipe("hipsolver", element, pivots="int32", words="no mode is set")


def _magma(
    flags: Mapping[str, Any], element: str, version: tuple[int, int, int]
) -> LinalgRecipe | str:
    if needs_same_bits(flags):
        return f"it does not promise the same bits, as `{ALGORITHMS}` or `{TIER}` asks"
    words = "a part is computed on the host, which waits"
    return LinalgRecipe("magma", element, pivots="int32", words=words)


PROVIDERS: dict[
    str, Callable[[Mapping[str, Any], str, tuple[int, int, int]], LinalgRecipe | str]
] = {
    "cusolver": _cusolver,
    "hipsolver": _hipsolver,
    "magma": _magma,
}
"""By provider: from flags, an element and its version, its recipe, or why it cannot keep them."""

ORDERS: dict[int, tuple[str, ...]] = {CUDA: ("cusolver", "magma"), ROCM: ("hipsolver", "magma")}
"""By kind of place: who may serve, in the order that holds when nobody chooses."""

# The same library of the other vendor: PyTorch reads one name for both.
_SAME: dict[int, dict[str, str]] = {CUDA: {}, ROCM: {"cusolver": "hipsolver"}}
MAKERS: dict[str, StepMaker] = {
    "cublas": CublasStacks(),
    "cusolver": Cusolver(),
    "hipsolver": Hipsolver(),
    "magma": Magma(),
    "magma_hip": Magma(),
}
"""By library: how it is asked for a step."""

# Which library has the steps for whole stacks that a provider lacks.
_BLAS = {"cusolver": "cublas"}
# MAGMA is built for one or the other, under one name.
_BUILDS = {ROCM: {"magma": "magma_hip"}}


def order(kind: int, preferred: Any) -> tuple[str, ...]:
    """The providers of a kind of place, the preferred one first."""
    return preferred_first(ORDERS[kind], _SAME[kind].get(preferred, preferred))


def flags_in_force() -> dict[str, Any]:
    """The flags of `FLAGS` that are in force here and now."""
    flags = FlagsInForce()
    return {name: flags[name] or usual for name, usual in DEFAULTS.items()}


def choose(flags: Mapping[str, Any], kind: int, element: str) -> LinalgChoice:
    """Who serves the functions for an element type on a kind of device.

    Nothing is started on the device; libraries are opened.

    Args:
        flags: a value for each of `FLAGS`.
        kind: of the device, with DLPack's number.
        element: one of `ELEMENTS`.
    """
    preferred = flags[LIBRARY]
    names = order(kind, preferred)
    wanted = "" if preferred == "default" else _SAME[kind].get(preferred, preferred)
    reasons: dict[str, str] = {}
    if wanted and wanted not in names:
        reasons[wanted] = f"it is not served on {'AMD' if kind == ROCM else 'NVIDIA'}'s devices"
    driver = open_device(DRIVERS[kind])
    if isinstance(driver, Unusable):
        return LinalgChoice(reasons={**reasons, **dict.fromkeys(names, "; ".join(driver.reasons))})
    chosen, serving = None, ""
    for name in names:
        if chosen is not None:
            reasons[name] = f"behind `{serving}`"
            continue
        answer = _able(name, kind, flags, element)
        if isinstance(answer, str):
            reasons[name] = answer
            continue
        recipe, opened = answer
        serving = name
        passed_over = wanted if wanted and recipe.provider != wanted else ""
        because = "the first of the order" if name == names[0] else "those before it cannot"
        if passed_over:
            because = f"in place of `{wanted}`, which `{LIBRARY}` prefers"
        blas = open_device(_BLAS[name]) if name in _BLAS else None
        chosen = LinalgChoice(
            recipe,
            opened.path,
            opened,
            driver.handle,
            None if isinstance(blas, Unusable) else blas,
            because,
            reasons,
            passed_over,
        )
    return chosen or LinalgChoice(reasons=reasons)


def _able(name: str, kind: int, flags: Mapping[str, Any], element: str) -> Any:
    """(recipe, opened library), or why a provider cannot serve."""
    opened = open_device(_BUILDS.get(kind, {}).get(name, name))
    if isinstance(opened, Unusable):
        return "; ".join(opened.reasons)
    recipe = PROVIDERS[name](flags, element, opened.version)
    return recipe if isinstance(recipe, str) else (recipe, opened)


def is_together(
    chosen: LinalgChoice, function: str, matrices: int, sizes: tuple[int, int, int]
) -> bool:
    """Whether a stack is served by one call of each step, instead of one matrix after the other.

    Args:
        chosen: who serves.
        function: of `ops.linalg`.
        matrices: how many there are.
        sizes: rows, columns and right-hand sides.
    """
    m, n, k = sizes
    if chosen.recipe is None or chosen.recipe.provider != "cusolver" or not 1 < matrices <= MOST:
        return False
    if max(sizes) > MOST or 0 in (m, n):
        return False
    steps = STEPS[function]
    if CHOLESKY in steps:
        return True
    if CHOLESKY_SOLVE in steps:
        return k == 1 and function == "cholesky_solve"
    if LU in steps and (m != n or n > _LARGEST_LU):
        return False
    if LU_SOLVE in steps and matrices <= _FEW and n > _LARGEST_OF_FEW:
        return False
    return bool({LU, LU_SOLVE} & set(steps)) and chosen.blas is not None


def steps_of(
    function: str, sizes: tuple[int, int, int]
) -> tuple[tuple[int, tuple[int, int, int]], ...]:
    """The steps of a function with their sizes, as its call has them without options.

    Args:
        function: of `ops.linalg`, a key of `STEPS`.
        sizes: rows, columns and right-hand sides.
    """
    m, n, k = sizes
    least = min(m, n)
    k = n if function in ("inv", "inv_ex", "cholesky_inverse") else k
    of = {
        CHOLESKY: (n, n, 0),
        CHOLESKY_SOLVE: (n, n, k),
        LU: (m, n, 0),
        LU_SOLVE: (m, m, m) if function == "lu" else (n, n, k),
        QR: (m, n, 0),
        QR_VECTORS: (m, least, least),
        EIGH: (n, n, 0),
        SVD: (max(m, n), least, 0),
    }
    return tuple((step, of[step]) for step in STEPS[function])


def serves(chosen: LinalgChoice, function: str, sizes: tuple[int, int, int]) -> bool:
    """Whether the library that was chosen has the steps of a function for matrices of a size."""
    recipe, library = chosen.recipe, chosen.library
    if recipe is None or library is None or 0 in sizes[:2]:
        return recipe is not None
    vectors = "N" if function == "svdvals" else "A"
    return all(
        MAKERS[library.name].supports(
            Step(library, kind, recipe.element, False, "N", vectors, 0, 1, *of, Stack(0))
        )
        for kind, of in steps_of(function, sizes)
    )


_TOO_LARGE = "its 32-bit integers are too small for matrices of this size"


def explain(
    function: str,
    sizes: tuple[int, int, int],
    element: str,
    place: tuple[int, int],
    matrices: int = 1,
) -> Answer:
    """What `explain` says of a function of `ops.linalg` for matrices on a device.

    Args:
        function: its name.
        sizes: rows, columns and right-hand sides.
        element: NumPy's name of the type.
        place: the device, as DLPack numbers it.
        matrices: how many there are, each with right-hand sides of its own.
    """
    m, n, k = sizes
    operation = f"linalg.{function}"
    flags = flags_in_force()
    sides = f" and {k} right-hand sides" if k else ""
    what = f"{operation} of ({m}, {n}) {element}{sides} on {place_named(place)}"
    chosen = choose(flags, place[0], element)
    reasons, recipe = dict(chosen.reasons), chosen.recipe
    if recipe is not None and (broken := messages.unkept(flags[TIER])):
        reasons[recipe.provider] = broken
        recipe = None
    elif recipe is not None and not serves(chosen, function, sizes):
        reasons[recipe.provider] = _TOO_LARGE
        recipe = None
    if recipe is None:
        return _answer(operation, what, sizes, reasons)
    because = f"{chosen.because}: {recipe.words}"
    if is_together(chosen, function, matrices, sizes):
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
    return Answer(operation, what, sizes, *serving, told, FLAGS)
