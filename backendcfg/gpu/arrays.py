"""The arrays of a call on a device: described, checked, and its results made.

    given = Arguments("cholesky", {"a": a})
    held = given.take("a")
    result, out = given.make(held.shape, held.element)
    work = given.work(library.handle, driver.handle, held, out)    # for one call of `_native`

A call has one place, that of its first array; nothing is moved and nothing converted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg.dispatch import attention_facts
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.products import calls
from backendcfg.gpu.products.gemm import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Bytes of a number, of every type that `_native.device_make` makes.
SIZES = {
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "bfloat16": 2,
    "float16": 2,
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}
_NOTHING = "nothing was computed"
_MOVE = ["move it to where the others are"]

# (library, driver, device, stream, other streams, whether to wait), as device_work.c reads it.
Work = tuple[int, int, int, int, tuple[int, ...], bool]


class Held(NamedTuple):
    """An array on a device, as C describes it.

    Attributes:
        address: of its first number.
        kind: of its place, with DLPack's number.
        ordinal: of its device among those of the kind.
        element: a key of `SIZES`; "" for another type.
        shape: its sizes.
        steps: its strides in bytes.
        stream: that its work is in order on.
        settles: its owner knows no stream, so that a call must wait until it is done.
        holder: what keeps the memory besides the array itself.
    """

    address: int
    kind: int
    ordinal: int
    element: str
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    stream: int
    settles: bool
    read_only: bool
    holder: object

    @property
    def strides(self) -> tuple[int, ...]:
        """In numbers."""
        size = SIZES.get(self.element, 1)
        return tuple(step // size for step in self.steps)

    @property
    def place(self) -> str:
        """As PyTorch names it: "cuda:0"."""
        return f"{KINDS[self.kind]}:{self.ordinal}"

    @property
    def is_dense(self) -> bool:
        """Whether its rows follow each other, without gaps, as C lays arrays out."""
        step = SIZES.get(self.element, 1)
        for size, found in zip(reversed(self.shape), reversed(self.steps), strict=True):
            if size != 1 and found != step:
                return 0 in self.shape
            step *= size
        return True

    def extent(self) -> tuple[int, int]:
        """The addresses of its first byte and past its last; equal when it is empty."""
        if 0 in self.shape:
            return self.address, self.address
        reach = [(size - 1) * step for size, step in zip(self.shape, self.steps, strict=True)]
        low = self.address + sum(each for each in reach if each < 0)
        high = self.address + sum(each for each in reach if each > 0)
        return low, high + SIZES.get(self.element, 1)


class Arguments:
    """The arrays of one call of an operation.

    Attributes:
        operation: "cholesky".
        given: what was passed, by the name of its argument; None where nothing was.
        first: the first array that was taken, whose place is the call's.
        first_name: of its argument; "" before.
    """

    __slots__ = ("first", "first_name", "given", "operation")
    first: Held

    def __init__(self, operation: str, given: Mapping[str, Any]) -> None:
        self.operation = operation
        self.given = given
        self.first_name = ""

    def take(self, name: str) -> Held:
        """An argument as a device array, at the place of the first.

        Raises:
            InvalidArgumentError: it is none, cannot be read, or is at another place.
        """
        return self.hold(name, self.given[name])

    def hold(self, name: str, value: Any) -> Held:
        """Any array as a device array, at the place of the first; for messages it has a name.

        Raises:
            InvalidArgumentError: as `take`.
        """
        try:
            described = _native.device_array(value)
        except MemoryError:
            raise
        except Exception as error:  # a foreign library's, of whatever type
            self.refuse(f"`{name}` cannot be read: {error}")
        first = self.first if self.first_name else None
        if described is None:
            where = f"{first.place}, as `{self.first_name}` is" if first else "a device"
            self.refuse(f"`{name}` must be an array on {where}", helps=_MOVE)
        held = Held(*described)
        if first is None:
            self.first, self.first_name = held, name
        elif (held.kind, held.ordinal) != (first.kind, first.ordinal):
            self.refuse(
                f"`{name}` must be on {first.place}, as `{self.first_name}` is, "
                f"not on {held.place}",
                helps=_MOVE,
            )
        if any(step % SIZES.get(held.element, 1) for step in held.steps):
            self.refuse(f"`{name}` must have strides that are multiples of its numbers' size")
        return held

    def make(self, shape: tuple[int, ...], element: str) -> tuple[Any, Held]:
        """Uninitialised memory for a result, or to work in, by the library that owns the first.

        Args:
            shape: its sizes; its rows follow each other.
            element: a key of `SIZES`.

        Raises:
            InvalidArgumentError: that library makes no arrays for others.
            MemoryError: the device is full, as that library says it.
        """
        first, like = self.first, self.given[self.first_name]
        made = _native.device_make(like, shape, element)
        if made is None:
            try:
                made = calls.make(like, shape, element, first.kind, first.ordinal)
            except InvalidArgumentError:
                self.refuse(
                    f"`{self.first_name}` must be of a library that makes its results: "
                    "PyTorch or CuPy",
                    helps=[
                        f"pass it as one of theirs: `torch.from_dlpack({self.first_name})`",
                    ],
                )
        return made, self.hold("the result", made)

    def dense(self, name: str, value: Any) -> tuple[Any, Held]:
        """An argument whose rows follow each other: itself, or a copy by its own library.

        Raises:
            InvalidArgumentError: its library has no function for that.
        """
        held = self.hold(name, value)
        if held.is_dense:
            return value, held
        copy = calls.dense(self.operation, name, value)
        return copy, self.hold(name, copy)

    def out(self, name: str, shape: tuple[int, ...], element: str, *read: str) -> Held:
        """An argument that a result is written into.

        Args:
            name: of the argument.
            shape: of the result.
            element: of the result.
            read: names of the arguments that are read, with which it must share no memory.

        Raises:
            InvalidArgumentError: it cannot hold the result.
        """
        held = self.take(name)
        if held.shape != shape:
            self.refuse(f"`{name}` must have the shape {shape}")
        if held.element != element:
            self.refuse(f"`{name}` must hold {element}")
        if held.read_only:
            self.refuse(f"`{name}` must be writeable")
        low, high = held.extent()
        steps = zip(held.shape, held.steps, strict=True)
        if low != high and any(size > 1 and step == 0 for size, step in steps):
            self.refuse(f"`{name}` must not repeat an element")
        for other in read:
            other_low, other_high = self.take(other).extent()
            if low < other_high and other_low < high:
                self.refuse(
                    f"`{name}` must share no memory with `{other}`",
                    helps=[f"leave `{name}` away, or give it memory of its own"],
                )
        return held

    def work(self, library: int, driver: int, *held: Held | None) -> Work:
        """What a call of C does on the device, for arrays of which the first says the stream.

        Args:
            library: address of the library whose handle the call needs; 0 for none.
            driver: address of the driver.
            held: all arrays that it reads and writes.
        """
        arrays = [each for each in held if each is not None]
        stream = arrays[0].stream
        others = tuple(sorted({each.stream for each in arrays} - {stream}))
        settles = any(each.settles for each in arrays)
        return library, driver, arrays[0].ordinal, stream, others, settles

    def refuse(self, what: str, notes: Sequence[str] = (), helps: Sequence[str] = ()) -> NoReturn:
        """Raise what an argument was refused for; nothing has been written.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            f"{self.operation}: {what}",
            notes=[*self.described(), *notes],
            state=_NOTHING,
            helps=list(helps),
        ) from None

    def failed(self, library: str, fault: tuple[str, int, str], *notes: str) -> NoReturn:
        """Raise what a library or the driver answered; it stays usable.

        Args:
            library: its name, for people: "cuSOLVER".
            fault: the function, the status that it returned, and the name of that; as C says it,
                where "" for the function is a forked process.
            notes: more that is known.

        Raises:
            DeviceFailedError: it failed.
            InvalidArgumentError: this process was forked from one that had used the device.
        """
        function, status, name = fault
        if not function:
            calls.forked(self.operation)
        who = "the device's driver" if calls.is_of_driver(function) else library
        raise DeviceFailedError(
            f"{self.operation}: {who} failed: {function} returned {name or 'status'} ({status})",
            notes=[*self.described(), *notes],
            state="the result was not computed; the next call starts anew",
            # No library of products has to do with it.
            helps=[one for one in calls.advice(function, name) if "_blas_" not in one],
        )

    def described(self) -> list[str]:
        """The arguments, a line each, for the notes of a message."""
        return [
            f"{name}: {calls.describe(value)}"
            for name, value in self.given.items()
            if value is not None
        ]


def needs_gradient(value: Any) -> bool:
    """Whether a tensor needs a gradient, and gradients are recorded now."""
    return getattr(value, "requires_grad", False) is True and attention_facts.grad_enabled(value)


def refuse_tangents(operation: str, names: tuple[str, ...], arrays: tuple[Any, ...]) -> None:
    """Refuse arrays on a device that carry a tangent of PyTorch's forward mode: it would be lost.

    Args:
        operation: what would lose it.
        names: of its arrays.
        arrays: them; None where there is none.

    Raises:
        InvalidArgumentError: one of them carries one.
    """
    # Without a level, which is nearly always, there are no tangents.
    forward = sys.modules.get("torch.autograd.forward_ad")
    if forward is None or getattr(forward, "_current_level", -1) < 0:
        return
    if not _native.device_holds(arrays[0]):
        return
    tensor = sys.modules["torch"].Tensor
    given = dict(zip(names, arrays, strict=True))
    for name, value in given.items():
        if isinstance(value, tensor) and forward.unpack_dual(value).tangent is not None:
            Arguments(operation, given).refuse(
                f"`{name}` carries a tangent of PyTorch's forward mode, which is not followed",
                helps=[
                    "call PyTorch's own function where tangents are wanted",
                    f"pass its primal: `torch.autograd.forward_ad.unpack_dual({name}).primal`",
                ],
            )
