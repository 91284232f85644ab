"""What is known of an array without its memory: the one description that all choices rest on.

`array_facts` makes it of any array: of NumPy, PyTorch or CuPy, or whatever has a shape and a dtype.
The views of arrays, `ArrayView` on the CPU and `DeviceView` on devices, give theirs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backendcfg.errors import InvalidArgumentError


class ArrayFacts(NamedTuple):
    """One array.

    Attributes:
        shape: its lengths.
        strides: in elements, not bytes.
        element: "float16", "bfloat16", "float32", "float8_e4m3fn"...
        device: where it is: "cpu", "cuda" (also on ROCm), "mps"...
        ordinal: which device of that kind.
        requires_grad: whether a backward pass will want it, as far as it says.
        nested: whether it is a PyTorch tensor of ragged layout.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    device: str = "cpu"
    ordinal: int = 0
    requires_grad: bool = False
    nested: bool = False


def array_facts(array: Any, name: str) -> ArrayFacts:
    """The facts of an array.

    Args:
        array: anything with `shape` and `dtype`; `strides` in bytes as NumPy has them, or
            `stride()` in elements as PyTorch has it; none means row-major.
        name: the argument, for the message.

    Raises:
        InvalidArgumentError: it is no array.
    """
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None or dtype is None or isinstance(array, type):
        raise InvalidArgumentError(
            f"`{name}` must be an array, not {type(array).__name__}",
            helps=["give a NumPy array, a PyTorch tensor, or what else has a shape and a dtype"],
        )
    nested = getattr(array, "is_nested", False) is True
    # A ragged tensor refuses to tell lengths that it does not have.
    lengths = (int(array.size(0)),) if nested else tuple(int(length) for length in shape)
    device, index = _device(array)
    return ArrayFacts(
        lengths,
        () if nested else _strides(array, lengths),
        str(dtype).rpartition(".")[2],
        device,
        index,
        getattr(array, "requires_grad", False) is True and grad_enabled(array),
        nested,
    )


def _strides(array: Any, lengths: tuple[int, ...]) -> tuple[int, ...]:
    if callable(getattr(array, "stride", None)):
        return tuple(int(step) for step in array.stride())
    if (bytes_ := getattr(array, "strides", None)) is not None and not callable(bytes_):
        size = int(array.itemsize)
        return tuple(int(step) // size for step in bytes_)
    return row_major(lengths)


def dense_facts(shape: tuple[int, ...], element: str, *, requires_grad: bool = False) -> ArrayFacts:
    """A dense array of which only this is told."""
    return ArrayFacts(shape, row_major(shape), element, requires_grad=requires_grad)


def row_major(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an array whose last dimension is dense."""
    steps = [1]
    for length in reversed(lengths[1:]):
        steps.insert(0, steps[0] * max(1, length))
    return tuple(steps[: len(lengths)])


def _device(array: Any) -> tuple[str, int]:
    device = getattr(array, "device", None)
    if callable(device):  # older JAX
        device = device()
    # PyTorch's has a type; JAX's a platform and an id; NumPy's is a text; CuPy's has an id alone.
    kind = getattr(device, "type", None) or getattr(device, "platform", None)
    if kind is None and not isinstance(device, str):
        kind = "cuda" if hasattr(array, "__cuda_array_interface__") else "cpu"
    name, _, number = str(kind or device).partition(":")
    index = getattr(device, "index", None)
    place = index if isinstance(index, int) else getattr(device, "id", None)
    if not isinstance(place, int):
        place = int(number) if number.isdecimal() else 0
    return {"gpu": "cuda", "rocm": "cuda"}.get(name, name), place


def grad_enabled(array: Any) -> bool:
    """Whether the framework of an array records for a backward pass here; PyTorch can be told."""
    import sys

    framework: Any = sys.modules.get(type(array).__module__.partition(".")[0])
    asks = getattr(framework, "is_grad_enabled", None)
    return bool(asks()) if asks is not None else True
