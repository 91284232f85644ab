"""Plans of linear algebra on a device: what a function makes, copies, and puts on the stream.

All memory is made by the library of the first array. The matrices of a stack lie one after the
other, each by columns or by rows, which is its transpose by columns.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg._native import current
from backendcfg.errors import MissingLibraryError, TierNotKeptError
from backendcfg.flags import FlagsInForce
from backendcfg.gpu import layout
from backendcfg.gpu.arrays import Arguments, Held
from backendcfg.gpu.linalg import plan as device_plan
from backendcfg.gpu.linalg import steps as device_linalg
from backendcfg.gpu.linalg.plan import GIVEN, Plan, Stack
from backendcfg.gpu.linalg.steps import ELEMENTS, Chosen, Recipe, Step
from backendcfg.gpu.products.calls import describe
from backendcfg.ops import serving
from backendcfg.ops.linalg import refusal as linalg_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from backendcfg.gpu.linalg.plan import Values

TITLES = {"cusolver": "cuSOLVER", "hipsolver": "hipSOLVER", "magma": "MAGMA"}
KEPT = 512
_OUTSIDE = 7  # the caller of `ops.linalg`, from `_look`
_chosen: dict[Hashable, tuple[Chosen, Recipe, dict[str, Any]]] = {}
_SOLVES = (device_linalg.CHOLESKY_SOLVE, device_linalg.LU_SOLVE)
_BY_BLAS = (device_linalg.LU, device_linalg.LU_SOLVE)


class Seen(NamedTuple):
    """An argument as messages describe it."""

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
        flags: a value for each of `device_linalg.FLAGS`.
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
        self.plan = Plan(self.operation, arrays)
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
        # As `open_device`: what is loaded later may have to be preferred, and `explain` says so.
        loaded = _native.mapped()
        key = (current(), loaded, first.kind, first.ordinal, element, self.function)
        known = _chosen.get(key)
        if known is None:
            known = self._look(first)
            if len(_chosen) >= KEPT:
                _chosen.clear()
            if current() is key[0]:
                _chosen[key] = known
        self.chosen, self.recipe, self.flags = known
        self.plan.title = TITLES[self.recipe.provider]
        self.together = device_linalg.is_together(self.chosen, self.function, self.matrices, sizes)

    def _look(self, first: Held) -> tuple[Chosen, Recipe, dict[str, Any]]:
        flags = flags_of()
        if broken := device_linalg.unkept(flags):
            raise TierNotKeptError(
                f"{self.operation}: {broken}",
                state="nothing was computed",
                helps=[
                    "compute on the CPU: our own code keeps it",
                    "use a profile of a lower tier",
                ],
            )
        chosen = device_linalg.choose(flags, first.kind, first.ordinal, self.element, self.function)
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
                f"`{chosen.passed_over}`, which `{device_linalg.LIBRARY}` prefers: "
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
        return self.plan.make((*lead, *inner), element, device_plan.size_of(inner, element))

    def hide(
        self, inner: tuple[int, ...], element: str, lead: tuple[int, ...] | None = None
    ) -> Stack:
        """The same, where nobody but the steps that follow each other sees it."""
        lead = self.lead if lead is None else lead
        step = device_plan.size_of(inner, element)
        return self.plan.hide(math.prod(lead) * step, step)

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
            layout.copy(operation, name, values[target], here if of is None else here.reshape(of))

        self.plan.do(put)

    def columns(self, stack: Stack) -> Stack:
        """The matrices of a stack, where they lie by columns; made once for all who ask."""
        at = stack.at
        if at not in self._columns:
            self._columns[at] = self.plan.keep(lambda values: layout.columns(values[at]))
        return self._columns[at]

    def info(self, lead: tuple[int, ...] | None = None) -> Stack:
        """An array for what a step says of each matrix."""
        return self.make((), "int32", lead)

    def scratch(self) -> Stack:
        """Room for what a step says that cannot fail."""
        return self.hide((), "int32", ())._replace(step=0)

    @property
    def is_complex(self) -> bool:
        """Whether the matrices are."""
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
            kind: `device_linalg.LU` and so on.
            a: what is factorised, or the factor.
            info: what is said of each matrix, or of none that anybody reads (step 0).
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
                self.plan.do(lambda values: layout.zero(values[at]))
            return
        library = self.chosen.library
        if self.together:
            more["a_pointers"] = self._pointers_to(a)
            if "b" in more:
                more["b_pointers"] = self._pointers_to(more["b"])
            if kind in _BY_BLAS:
                library = self.chosen.blas
        self._steps.append(
            Step(
                library, kind, ELEMENTS.index(self.element), upper, transpose, vectors,
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
        made = _native.device_linalg_plan(
            self.chosen.driver, self.arrays.first.ordinal, self.plan.area, tuple(self._steps)
        )
        if made is None:
            self.arrays.refuse(
                f"{self.plan.title} cannot serve matrices of this size",
                helps=["compute on the CPU"],
            )
        self.plan.run(made)
        self.plan.area = 0
        self._steps = []

    # What was said

    def seen(self, name: str) -> Seen:
        """An argument for a message."""
        held = self.held[name]
        dtype = held.element or describe(self.given[name]).partition(" ")[0]
        return Seen(dtype, held.shape, held.place)

    def refuse(self, reason: str, detail: str) -> NoReturn:
        """Raise what the call was refused for, as `linalg_refusal.refuse`.

        Raises:
            InvalidArgumentError: always.
        """
        given = {name: self.seen(name) if name in self.held else value
                 for name, value in self.given.items()}  # fmt: skip
        linalg_refusal.refuse(self.function, reason, detail, given)

    def failing(self, name: str) -> Callable[[int, int], NoReturn]:
        """What raises for one matrix of an argument, by what was said of it and its number.

        Raises:
            LinAlgError: always.
        """
        function, seen, lead = self.function, self.seen(name), self.lead

        def fail(info: int, at: int) -> NoReturn:
            linalg_refusal.fail(function, info, at if lead else -1, seen, lead)

        return fail

    def check(self, info: Stack, name: str) -> None:
        """Wait, and raise for the first matrix that a step could not serve."""
        operation, at, fail = self.operation, info.at, self.failing(name)

        def look(values: Values) -> None:
            said = layout.numbers(operation, values[at])
            if any(said):
                failed = next(index for index, number in enumerate(said) if number != 0)
                fail(int(said[failed]), failed)

        self.plan.do(look)

    def check_sound(self, found: Stack, name: str) -> None:
        """Raise for the first matrix whose numbers are not finite, as nothing else would say it."""
        operation, at, fail = self.operation, found.at, self.failing(name)

        def look(values: Values) -> None:
            said = layout.numbers(operation, layout.sound(values[at]))
            if not all(said):
                fail(-1, said.index(False))

        self.plan.do(look)

    def finish(self, *results: Stack) -> None:
        """Count the call, tell the traces, and look at the results where the profile says so."""
        sizes = (self.matrices, *self.sizes)
        provider, because = self.recipe.provider, f"on a device; {self.chosen.because}"
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
                if not all(layout.numbers(operation, layout.sound(flat))):
                    linalg_refusal.refuse(function, "not-finite", "", {**values[GIVEN], **seen})

        return look


def flags_of() -> dict[str, Any]:
    """The flags of `device_linalg.FLAGS` in force here and now."""
    flags = FlagsInForce()
    return {name: flags[name] or usual for name, usual in device_linalg.DEFAULTS.items()}


def forget() -> None:
    """Forget who serves and what calls do; the next call of each kind asks again."""
    _chosen.clear()
    device_plan.forget()
