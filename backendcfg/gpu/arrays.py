"""The arrays of a call on a device: viewed, checked, and its results made.

    given = Arguments("cholesky", {"a": a})
    a_view = given.take("a")
    result, out = given.make(a_view.shape, a_view.element)
    work = given.work(library.handle, driver.handle, a_view, out)    # for one call of `_native`

All arrays of a call are on the device of its first array; nothing is moved and nothing converted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg.dispatch.array_facts import ArrayFacts, grad_enabled
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu import messages, own_library
from backendcfg.ops import devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
"""By element, for every type that `_native.device_make` makes: the bytes of a number."""

_NOTHING = "nothing was computed"
_MOVE = ["move it to where the others are"]

# (library, driver, device, stream, other streams, whether to wait), as work.c reads it.
Work = tuple[Any, int, int, int, tuple[int, ...], bool]


class DeviceView(NamedTuple):
    """A view of an array on a device, as `_native.device_array` gives it for any framework.

    Attributes:
        address: of its first number.
        kind: of the device, as DLPack numbers it: a key of `devices.KINDS`.
        ordinal: of the device among those of its kind.
        element: a key of `SIZES`; "" for another type.
        shape: its sizes.
        byte_strides: its strides in bytes.
        stream: the stream that its owner works on.
        synchronizes: its owner names no stream, so that a call must wait until it is done.
        read_only: it must not be written.
        holder: what keeps the memory alive besides the array itself.
    """

    address: int
    kind: int
    ordinal: int
    element: str
    shape: tuple[int, ...]
    byte_strides: tuple[int, ...]
    stream: int
    synchronizes: bool
    read_only: bool
    holder: object

    @property
    def strides(self) -> tuple[int, ...]:
        """Its strides, counted in numbers."""
        size = SIZES.get(self.element, 1)
        return tuple(stride // size for stride in self.byte_strides)

    @property
    def place(self) -> str:
        """Its device, as PyTorch names it: "cuda:0"."""
        return devices.place_named((self.kind, self.ordinal))

    @property
    def is_dense(self) -> bool:
        """Whether its rows follow each other without gaps, as C lays arrays out."""
        packed = SIZES.get(self.element, 1)
        for size, stride in zip(reversed(self.shape), reversed(self.byte_strides), strict=True):
            if size != 1 and stride != packed:
                return 0 in self.shape
            packed *= size
        return True

    def extent(self) -> tuple[int, int]:
        """The addresses of its first byte and past its last; equal when it is empty."""
        if 0 in self.shape:
            return self.address, self.address
        pairs = zip(self.shape, self.byte_strides, strict=True)
        reach = [(size - 1) * stride for size, stride in pairs]
        low = self.address + sum(each for each in reach if each < 0)
        high = self.address + sum(each for each in reach if each > 0)
        return low, high + SIZES.get(self.element, 1)


class Arguments:
    """The arrays of one call of an operation.

    Attributes:
        operation: "cholesky".
        given: what was passed, by the name of its argument; None where nothing was.
        first: the view of the first array that was taken, whose device is the call's.
        first_name: of its argument; "" before one was taken.
    """

    __slots__ = ("first", "first_name", "given", "operation")
    first: DeviceView

    def __init__(self, operation: str, given: Mapping[str, Any]) -> None:
        self.operation = operation
        self.given = given
        self.first_name = ""

    def take(self, name: str) -> DeviceView:
        """The view of an argument, which must be on the device of the first.

        Raises:
            InvalidArgumentError: it is no array on a device, cannot be read, or is on another one.
        """
        return self.hold(name, self.given[name])

    def hold(self, name: str, value: Any) -> DeviceView:
        """The view of any array on the device of the first; messages call it by a name.

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
        view = DeviceView(*described)
        if first is None:
            self.first, self.first_name = view, name
        elif (view.kind, view.ordinal) != (first.kind, first.ordinal):
            self.refuse(
                f"`{name}` must be on {first.place}, as `{self.first_name}` is, "
                f"not on {view.place}",
                helps=_MOVE,
            )
        if any(stride % SIZES.get(view.element, 1) for stride in view.byte_strides):
            self.refuse(f"`{name}` must have strides that are multiples of its numbers' size")
        return view

    def facts(self, name: str, view: DeviceView, *, requires_grad: bool = False) -> ArrayFacts:
        """What is known of an argument; an element that no view names is as its array says it."""
        element = view.element or messages.dtype_of(self.given[name])
        return ArrayFacts(view.shape, view.strides, element, "cuda", view.ordinal, requires_grad)

    def make(self, shape: tuple[int, ...], element: str) -> tuple[Any, DeviceView]:
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
                made = own_library.make(like, shape, element, first.kind, first.ordinal)
            except InvalidArgumentError:
                self.refuse(
                    f"`{self.first_name}` must be of a library that makes its results: "
                    "PyTorch or CuPy",
                    helps=[
                        f"pass it as one of theirs: `torch.from_dlpack({self.first_name})`",
                    ],
                )
        return made, self.hold("the result", made)

    def dense(self, name: str, value: Any) -> tuple[Any, DeviceView]:
        """An argument whose rows follow each other, and its view: itself, or a copy.

        Raises:
            InvalidArgumentError: its library has no function for that.
        """
        view = self.hold(name, value)
        if view.is_dense:
            return value, view
        copy = own_library.dense(self.operation, name, value)
        return copy, self.hold(name, copy)

    def out(self, name: str, shape: tuple[int, ...], element: str, *read: str) -> DeviceView:
        """An argument that a result is written into.

        Args:
            name: of the argument.
            shape: of the result.
            element: of the result.
            read: names of the arguments that are read, with which it must share no memory.

        Raises:
            InvalidArgumentError: it cannot hold the result.
        """
        view = self.take(name)
        if view.shape != shape:
            self.refuse(f"`{name}` must have the shape {shape}")
        if view.element != element:
            self.refuse(f"`{name}` must hold {element}")
        if view.read_only:
            self.refuse(f"`{name}` must be writeable")
        low, high = view.extent()
        pairs = zip(view.shape, view.byte_strides, strict=True)
        if low != high and any(size > 1 and stride == 0 for size, stride in pairs):
            self.refuse(f"`{name}` must not repeat an element")
        for other in read:
            other_low, other_high = self.take(other).extent()
            if low < other_high and other_low < high:
                self.refuse(
                    f"`{name}` must share no memory with `{other}`",
                    helps=[f"leave `{name}` away, or give it memory of its own"],
                )
        return view

    def work(self, library: Any, driver: int, *views: DeviceView | None) -> Work:
        """Where a call of C works: the device, and the stream of the first array.

        Args:
            library: address of the library whose handle the call needs; 0 for none.
            driver: address of the driver.
            views: of all arrays that it reads and writes.
        """
        arrays = [each for each in views if each is not None]
        stream = arrays[0].stream
        others = tuple(sorted({each.stream for each in arrays} - {stream}))
        synchronizes = any(each.synchronizes for each in arrays)
        return library, driver, arrays[0].ordinal, stream, others, synchronizes

    def refuse(self, what: str, notes: Sequence[str] = (), helps: Sequence[str] = ()) -> NoReturn:
        """Refuse an argument; nothing has been written.

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
        """Raise the status that a library or the driver returned; the library stays usable.

        Args:
            library: its title: "cuSOLVER".
            fault: the function, the status that it returned, and the status' name, as C gives them;
                the function is "" in a child of a process that had used the device.
            notes: more for the message.

        Raises:
            DeviceFailedError: it failed.
            InvalidArgumentError: this process was forked from one that had used the device.
        """
        function, status, name = fault
        if not function:
            messages.forked(self.operation)
        who = "the device's driver" if messages.is_of_driver(function) else library
        raise DeviceFailedError(
            f"{self.operation}: {who} failed: {function} returned {name or 'status'} ({status})",
            notes=[*self.described(), *notes],
            state="the result was not computed; the next call starts anew",
            # These flags choose among libraries of products, which are not called here.
            helps=[one for one in messages.advice(function, name) if "_blas_" not in one],
        )

    def described(self) -> list[str]:
        """The arguments for the notes of a message, a line each."""
        return [
            f"{name}: {messages.describe(value)}"
            for name, value in self.given.items()
            if value is not None
        ]


def needs_gradient(value: Any) -> bool:
    """Whether a tensor needs a gradient, and gradients are recorded now."""
    return getattr(value, "requires_grad", False) is True and grad_enabled(value)


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
