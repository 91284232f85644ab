"""One call of linear algebra on a device: its memory, its steps on the stream, and what they said.

A step is one call of C; all memory is made by the library of the first array. The matrices of a
stack lie one after the other, each by columns where `Stack.columns` is the matrix.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg._native import current
from backendcfg.dispatch import device_linalg
from backendcfg.dispatch.device_linalg import ELEMENTS, Chosen, Recipe, Step
from backendcfg.errors import MissingLibraryError, TierNotKeptError
from backendcfg.ops import device_layout as layout
from backendcfg.ops import linalg_refusal, serving
from backendcfg.ops.attention_call import flags_in_force
from backendcfg.ops.device_arrays import SIZES, Arguments, Held, Work
from backendcfg.ops.device_products import describe

if TYPE_CHECKING:
    from collections.abc import Hashable

TITLES = {"cusolver": "cuSOLVER", "hipsolver": "hipSOLVER", "magma": "MAGMA"}
KEPT = 512
_OUTSIDE = 6  # the caller of `ops.linalg`, from `_look`
_chosen: dict[Hashable, tuple[Chosen, Recipe, dict[str, Any]]] = {}
_sizes: dict[Hashable, tuple[int, int]] = {}
_SOLVES = (device_linalg.CHOLESKY_SOLVE, device_linalg.LU_SOLVE)


class Seen(NamedTuple):
    """An argument as messages describe it."""

    dtype: str
    shape: tuple[int, ...]
    place: str


class Stack(NamedTuple):
    """Memory of a stack: of each matrix the same.

    Attributes:
        value: the array, of its own library.
        held: the same, described.
        step: bytes from one matrix to the next; 0 where there is one for all.
    """

    value: Any
    held: Held
    step: int

    @property
    def columns(self) -> Any:
        """The matrices, where they lie by columns."""
        return layout.columns(self.value)

    @property
    def at(self) -> tuple[int, int]:
        """Address and step."""
        return self.held.address, self.step


class Solver:
    """A call of a function of `ops.linalg`, from its arrays to its results.

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
    """

    def __init__(self, function: str, given: dict[str, Any], arrays: tuple[str, ...]) -> None:
        self.function = function
        self.operation = f"linalg.{function}"
        self.given = given
        self.arrays = Arguments(self.operation, {name: given[name] for name in arrays})
        self.held = {name: self.arrays.take(name) for name in arrays}
        self.element = ""
        self.lead: tuple[int, ...] = ()
        self.matrices = 1
        self.sizes: tuple[int, int, int] = (0, 0, 0)

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
            _chosen[key] = known
        self.chosen, self.recipe, self.flags = known

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
        """Memory for a stack: of `inner` numbers for each matrix, of the call's type by default."""
        element = element or self.element
        lead = self.lead if lead is None else lead
        value, held = self.arrays.make((*lead, *inner), element)
        return Stack(value, held, math.prod(inner) * SIZES[element])

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
        target = made.columns if by_columns else made.value
        layout.copy(self.operation, name, target, self.given[name])
        return made

    def info(self, lead: tuple[int, ...] | None = None) -> Stack:
        """Memory for what a step says of each matrix."""
        return self.make((), "int32", lead)

    def scratch(self) -> Stack:
        """Room for what a step says that cannot fail."""
        return self.info(())._replace(step=0)

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

    def run(
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
        """Put one step on the stream.

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
            layout.zero(info.value)
            return
        addresses: dict[str, Any] = {name: stack.at for name, stack in more.items()}
        step = Step(
            kind, ELEMENTS.index(self.element), upper, transpose, vectors,
            self.recipe.deterministic, matrices, m, n, k, a.at, info=info.at, **addresses,
        )  # fmt: skip
        held = [a.held, info.held, *(stack.held for stack in more.values())]
        device_bytes, host_bytes = self._sizes_of(step, held)
        if device_bytes:
            room = self.arrays.make((device_bytes,), "uint8")  # until the call returns
            held.append(room[1])
            step = step._replace(workspace=(room[1].address, device_bytes))
        fault = _native.device_linalg(self._work(held), step._replace(host_bytes=host_bytes))
        if fault is not None:
            self._failed(fault)

    def _work(self, held: list[Held]) -> Work:
        """What waits for what: for all arrays of the call, and those of one step."""
        everything = (self.arrays.first, *self.held.values(), *held)
        return self.arrays.work(self.chosen.library, self.chosen.driver, *everything)

    def _sizes_of(self, step: Step, held: list[Held]) -> tuple[int, int]:
        """Bytes that a step needs on the device and on the host; asked once for each kind."""
        first = self.arrays.first
        arrays = (step.a, step.b, step.c, step.values, step.pivots, step.info)
        steps = tuple(bytes_between for _, bytes_between in arrays)
        key = (self.chosen.library, first.kind, first.ordinal, step[:10], steps)
        known = _sizes.get(key)
        if known is None:
            answer = _native.device_linalg_sizes(self._work(held), step)
            if answer is None:
                self.arrays.refuse(
                    f"{TITLES[self.recipe.provider]} cannot serve matrices of this size",
                    helps=["compute on the CPU"],
                )
            if len(answer) == 3:
                self._failed(answer)
            if len(_sizes) >= KEPT:
                _sizes.clear()
            known = _sizes[key] = answer
        return known

    def _failed(self, fault: tuple[str, int, str]) -> NoReturn:
        self.arrays.failed(TITLES[self.recipe.provider], fault)

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

    def check(self, info: Stack, name: str) -> None:
        """Wait, and raise for the first matrix that a step could not serve.

        Raises:
            LinAlgError: there is one.
        """
        said = layout.numbers(self.operation, info.value)
        at = next((index for index, number in enumerate(said) if number != 0), None)
        if at is not None:
            self.fail(int(said[at]), at, name)

    def check_sound(self, values: Stack, name: str) -> None:
        """Raise for the first matrix whose numbers are not finite, as nothing else would say it.

        Raises:
            LinAlgError: there is one.
        """
        said = layout.numbers(self.operation, layout.sound(values.value))
        at = next((index for index, is_sound in enumerate(said) if not is_sound), None)
        if at is not None:
            self.fail(-1, at, name)

    def fail(self, info: int, at: int, name: str) -> NoReturn:
        """Raise for one matrix of an argument.

        Raises:
            LinAlgError: always.
        """
        seen = self.seen(name)
        linalg_refusal.fail(self.function, info, at if self.lead else -1, seen)

    def finish(self, *results: Any) -> None:
        """Count the call, tell the traces, and look at the results where the profile says so.

        Raises:
            InvalidArgumentError: a result has NaN or infinity, under `ops.check_finite`.
        """
        sizes = (self.matrices, *self.sizes)
        provider, because = self.recipe.provider, f"on a device; {self.chosen.because}"
        serving.served(self.operation, provider, because, sizes, self.element)
        if self.flags["ops.check_finite"]:
            for result in results:
                if not all(layout.numbers(self.operation, layout.sound(result.reshape(1, -1)))):
                    self.refuse("not-finite", "")


def flags_of() -> dict[str, Any]:
    """The flags of `device_linalg.FLAGS` in force here and now."""
    values = flags_in_force()
    return {name: values.get(name) or usual for name, usual in device_linalg.DEFAULTS.items()}


def forget() -> None:
    """Forget who serves and how much memory steps need; the next call of each kind asks again."""
    _chosen.clear()
    _sizes.clear()
