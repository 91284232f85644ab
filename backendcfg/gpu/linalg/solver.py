"""Making a plan of linear algebra on a device: memory, copies, and the steps on the stream.

The library of the first array makes all memory. The matrices of a stack lie one after the other,
each by columns or by rows; by rows is the transpose by columns.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg.cache import ProfileCache
from backendcfg.errors import MissingLibraryError
from backendcfg.gpu import messages, own_library
from backendcfg.gpu.arrays import Arguments, DeviceView
from backendcfg.gpu.linalg import steps
from backendcfg.gpu.linalg.plan import GIVEN, LinalgPlan, size_of
from backendcfg.gpu.linalg.vendors import CHOLESKY_SOLVE, LU, LU_SOLVE, Stack, Step
from backendcfg.gpu.messages import describe
from backendcfg.ops import linalg, serving
from backendcfg.ops.arrays import is_flag

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from backendcfg.gpu.linalg.plan import Values
    from backendcfg.gpu.linalg.steps import LinalgChoice, LinalgRecipe

TITLES = {"cusolver": "cuSOLVER", "hipsolver": "hipSOLVER", "magma": "MAGMA"}
_OUTSIDE = 9  # frames from `_choose` to the caller of `ops.linalg`
_choices: ProfileCache[Hashable, tuple[LinalgChoice, LinalgRecipe, dict[str, Any]]] = ProfileCache(
    512
)
_SOLVES = (CHOLESKY_SOLVE, LU_SOLVE)
_BY_BLAS = (LU, LU_SOLVE)


class Described(NamedTuple):
    """What messages say of an argument: plans keep it, and must keep no array."""

    dtype: str
    shape: tuple[int, ...]
    place: str


class Solver:
    """A kind of call of a function of `ops.linalg`, while its plan is made.

    Attributes:
        function: "solve".
        operation: "linalg.solve".
        arrays: the arrays of the call.
        held: the same by name, described.
        element: of the matrices.
        lead: the shape of the stack.
        matrices: how many that are.
        recipe: how the library is called.
        flags: a value for each of `steps.FLAGS`.
        sizes: rows and columns of a matrix, and right-hand sides.
        plan: what is made here; it keeps nothing of this call.
        together: whether the stack is served by one call of each step.
    """

    def __init__(self, function: str, given: dict[str, Any], arrays: tuple[str, ...]) -> None:
        self.function = function
        self.operation = f"linalg.{function}"
        self.given = given
        self.arrays = Arguments(self.operation, {name: given[name] for name in arrays})
        self.held = {name: self.arrays.take(name) for name in arrays}
        self.places = {name: at for at, name in enumerate(arrays)}
        self.plan = LinalgPlan(self.operation, arrays)
        self.element = ""
        self.lead: tuple[int, ...] = ()
        self.matrices = 1
        self.sizes: tuple[int, int, int] = (0, 0, 0)
        self.together = False
        self._steps: list[Step] = []
        self._columns: dict[int, Stack] = {}
        self._pointers: dict[int, Stack] = {}

    def choose(self, element: str, lead: tuple[int, ...], sizes: tuple[int, int, int]) -> None:
        """Choose who serves; nothing has been made before.

        Args:
            element: of the matrices.
            lead: the shape of the stack.
            sizes: rows, columns and right-hand sides.

        Raises:
            TierNotKeptError: no library keeps what the profile promises.
            MissingLibraryError: no library can serve it.
        """
        self.element, self.lead, self.matrices = element, lead, math.prod(lead)
        self.sizes = sizes
        first = self.arrays.first
        place = first.kind, first.ordinal, element, self.function

        def choice() -> tuple[LinalgChoice, LinalgRecipe, dict[str, Any]]:
            found = self._choose(first)
            # Choosing opens libraries: the next call finds them loaded, and this choice.
            _choices.find((_native.mapped(), *place), lambda: found)
            return found

        # A library that is loaded later may have to be preferred: `open_device` looks again then.
        key = (_native.mapped(), *place)
        self.choice, self.recipe, self.flags = _choices.find(key, choice)
        self.plan.title = TITLES[self.recipe.provider]
        self.together = steps.is_together(self.choice, self.function, self.matrices, sizes)

    def _choose(self, first: DeviceView) -> tuple[LinalgChoice, LinalgRecipe, dict[str, Any]]:
        flags = steps.flags_in_force()
        broken = messages.unkept(flags[steps.TIER])
        messages.refuse_unkept(self.operation, broken, "compute on the CPU: our own code keeps it")
        chosen = steps.choose(flags, first.kind, self.element)
        if chosen.recipe is None:
            raise MissingLibraryError(
                f"{self.operation}: no library can serve {self.element} on {first.place}",
                notes=[f"{name}: {why}" for name, why in chosen.reasons.items()],
                state="nothing was computed",
                helps=["import the framework that made the array: it brings its libraries"],
            )
        if chosen.passed_over:
            warnings.warn(
                f"{self.operation} is served by {TITLES[chosen.recipe.provider]}, not by "
                f"`{chosen.passed_over}`, which `{steps.LIBRARY}` prefers: "
                f"{chosen.reasons[chosen.passed_over]}",
                UserWarning,
                stacklevel=_OUTSIDE,
            )
        return chosen, chosen.recipe, flags

    # Memory

    def make(
        self, inner: tuple[int, ...], element: str = "", lead: tuple[int, ...] | None = None
    ) -> Stack:
        """An array of `inner` numbers for each matrix, of the call's type by default."""
        element = element or self.element
        lead = self.lead if lead is None else lead
        return self.plan.make((*lead, *inner), element, size_of(inner, element))

    def hide(
        self, inner: tuple[int, ...], element: str, lead: tuple[int, ...] | None = None
    ) -> Stack:
        """The same, where nobody but the steps that follow each other sees it."""
        lead = self.lead if lead is None else lead
        stride = size_of(inner, element)
        return self.plan.hide(math.prod(lead) * stride, stride)

    @property
    def pivots(self) -> str:
        """The type of pivots that the steps of this call write and read."""
        return "int32" if self.together else self.recipe.pivots

    def copied(
        self,
        name: str,
        rows: int,
        count: int,
        *,
        by_columns: bool,
        lead: tuple[int, ...] | None = None,
    ) -> Stack:
        """A copy of an argument's matrices, to be written over.

        Args:
            name: of the argument, of shape (..., rows, count).
            rows: of each matrix.
            count: of its columns.
            by_columns: lie by columns; otherwise by rows, which is the transposed one by columns.
            lead: of the stack; of the call by default.
        """
        made = self.make((count, rows) if by_columns else (rows, count), lead=lead)
        self.copy(name, made, by_columns=by_columns)
        return made

    def copy(
        self, name: str, into: Stack, *, by_columns: bool, of: tuple[int, ...] | None = None
    ) -> None:
        """Copy an argument into memory of its size, reshaped to `of` before."""
        source, operation = self.places[name], self.operation
        target = (self.columns(into) if by_columns else into).at

        def put(values: Values) -> None:
            here = values[source]
            own_library.copy_argument(
                operation, name, values[target], here if of is None else here.reshape(of)
            )

        self.plan.do(put)

    def columns(self, stack: Stack) -> Stack:
        """The matrices of a stack, where they lie by columns; made once for all who ask."""
        at = stack.at
        if at not in self._columns:
            self._columns[at] = self.plan.keep(lambda values: own_library.transposed(values[at]))
        return self._columns[at]

    def info(self, lead: tuple[int, ...] | None = None) -> Stack:
        """An array for LAPACK's `info` of each matrix."""
        return self.make((), "int32", lead)

    def scratch(self) -> Stack:
        """Room for the `info` of a step that cannot fail: nobody reads it."""
        return self.hide((), "int32", ())._replace(stride=0)

    @property
    def is_complex(self) -> bool:
        """Whether the matrices are complex."""
        return self.element.startswith("complex")

    @property
    def is_vector(self) -> bool:
        """Whether the right side of `solve` is one vector for each matrix."""
        if self.function not in ("solve", "solve_ex"):
            return False
        matrix, side = self.held["A"].shape, self.held["B"].shape
        return len(side) == 1 or side == matrix[:-1]

    # Steps

    def put(
        self,
        kind: int,
        a: Stack,
        info: Stack,
        sizes: tuple[int, int, int],
        *,
        lead: tuple[int, ...] | None = None,
        upper: bool = False,
        transpose: str = "N",
        vectors: str = "N",
        **more: Stack,
    ) -> None:
        """Plan one step; `run` puts those that were planned on the stream.

        Args:
            kind: `vendors.LU` and so on.
            a: what is factorised, or the factor.
            info: LAPACK's `info` of each matrix; a stride of 0 discards it.
            sizes: rows, columns, and right-hand sides or reflectors.
            lead: the shape of the stack; of the call by default.
            upper: see `Step`; and the following.
            transpose: of the factor.
            vectors: that are wanted.
            more: the other arrays of the step: b, c, values, pivots.
        """
        matrices, (m, n, k) = self.matrices if lead is None else math.prod(lead), sizes
        if 0 in (matrices, m, n) or (k == 0 and kind in _SOLVES):
            if info.at >= 0:
                at = info.at
                self.plan.do(lambda values: own_library.zero(values[at]))
            return
        library = self.choice.library
        if self.together:
            more["a_pointers"] = self._pointers_to(a)
            if "b" in more:
                more["b_pointers"] = self._pointers_to(more["b"])
            if kind in _BY_BLAS:
                library = self.choice.blas
        if library is None:
            raise RuntimeError("`choose` has raised where there is no library")
        self._steps.append(
            Step(
                library, kind, self.element, upper, transpose, vectors,
                self.recipe.deterministic, matrices, m, n, k, a, info=info, **more,
            )
        )  # fmt: skip

    def _pointers_to(self, stack: Stack) -> Stack:
        if stack.at not in self._pointers:
            self._pointers[stack.at] = self.plan.pointers(stack, self.matrices)
        return self._pointers[stack.at]

    def run(self) -> None:
        """Put the steps that were planned on the stream, in one call."""
        if not self._steps:
            return
        if not all(steps.MAKERS[each.library.name].supports(each) for each in self._steps):
            self.arrays.refuse(
                f"{self.plan.title} cannot serve matrices of this size",
                helps=["compute on the CPU"],
            )
        self.plan.run(tuple(self._steps), self.choice.driver)
        self.plan.area = 0
        self._steps = []

    # Messages and `info`

    def seen(self, name: str) -> Described:
        """What messages say of an argument."""
        held = self.held[name]
        dtype = held.element or describe(self.given[name]).partition(" ")[0]
        return Described(dtype, held.shape, held.place)

    def refuse(self, reason: str, detail: str) -> NoReturn:
        """Refuse the call, as `ops.linalg.refuse` does.

        Raises:
            InvalidArgumentError: always.
        """
        given = {name: self.seen(name) if name in self.held else value
                 for name, value in self.given.items()}  # fmt: skip
        linalg.refuse(self.function, reason, detail, given)

    def failing(self, name: str) -> Callable[[int, int], NoReturn]:
        """A function that raises for one matrix of an argument, by its `info` and its number.

        Raises:
            LinAlgError: always.
        """
        function, seen, lead = self.function, self.seen(name), self.lead

        def fail(info: int, at: int) -> NoReturn:
            linalg.fail(function, info, at if lead else -1, seen, lead)

        return fail

    def check(self, info: Stack, name: str) -> None:
        """Wait, and raise for the first matrix that a step could not serve."""
        operation, at, fail = self.operation, info.at, self.failing(name)

        def look(values: Values) -> None:
            said = own_library.numbers(operation, values[at])
            if any(said):
                failed = next(index for index, number in enumerate(said) if number != 0)
                fail(int(said[failed]), failed)

        self.plan.do(look)

    def check_sound(self, found: Stack, name: str) -> None:
        """Raise for the first matrix whose results are not finite: no `info` says so."""
        operation, at, fail = self.operation, found.at, self.failing(name)

        def look(values: Values) -> None:
            said = own_library.numbers(operation, own_library.are_finite(values[at]))
            if not all(said):
                fail(-1, said.index(False))

        self.plan.do(look)

    def finish(self, *results: Stack) -> None:
        """Count and trace the call, and check its results where `ops.check_finite` asks for it."""
        sizes = (self.matrices, *self.sizes)
        provider, because = self.recipe.provider, f"on a device; {self.choice.because}"
        if self.together:
            because += "; the stack at once"
        said = (self.operation, provider, because, sizes, self.element)
        served = serving.served
        self.plan.do(lambda values: served(*said))
        if self.flags["ops.check_finite"] and results:
            self.plan.do(self._looking(tuple(result.at for result in results)))

    def _looking(self, results: tuple[int, ...]) -> Callable[[Values], None]:
        operation, function = self.operation, self.function
        seen = {name: self.seen(name) for name in self.held}

        def look(values: Values) -> None:
            for at in results:
                flat = values[at].reshape(1, -1)
                if not all(own_library.numbers(operation, own_library.are_finite(flat))):
                    linalg.refuse(function, "not-finite", "", {**values[GIVEN], **seen})

        return look


_OPTIONS = {
    "upper": False,
    "left": True,
    "adjoint": False,
    "full_matrices": True,
    "check_errors": False,
    "pivot": True,
}
_MODES = ("reduced", "complete", "r")


class Options:
    """The arguments of a call beside its arrays, checked as on the CPU."""

    def __init__(self, solver: Solver) -> None:
        given = solver.given
        for name, usual in _OPTIONS.items():
            value = given.get(name, usual)
            if not is_flag(value):
                solver.refuse("flag", name)
            setattr(self, name, bool(value))
        if not self.pivot:
            solver.refuse("pivot", "pivot")
        if given.get("driver") not in (None, "gesvd"):
            solver.refuse("driver-device", "driver")
        self.mode = given.get("mode", "reduced")
        if not isinstance(self.mode, str) or self.mode not in _MODES:
            solver.refuse("mode", "mode")
        triangle = given.get("UPLO", "L")
        if not isinstance(triangle, str) or triangle not in ("L", "l", "U", "u"):
            solver.refuse("triangle", "UPLO")
        if solver.function in ("eigh", "eigvalsh"):
            self.upper = triangle in ("U", "u")
        self.raises = self.check_errors or not solver.function.endswith("_ex")

    upper: bool
    left: bool
    adjoint: bool
    full_matrices: bool
    check_errors: bool
    pivot: bool


def forget() -> None:
    """Forget which library serves; the next call of each kind chooses again."""
    _choices.clear()
