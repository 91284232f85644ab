"""What products on devices need of Python: messages, and what only an array's own library does.

C takes the arrays, chooses and multiplies; it calls these for what is rare or is no product.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

from backendcfg import _native
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.libraries import driver as device_driver
from backendcfg.gpu.products import recipes
from backendcfg.gpu.products.gemm import CUDA, KINDS
from backendcfg.ops.arrays import place_named
from backendcfg.ops.products import TYPES

_MESSAGES = {
    "dimensions": "`{0}` must have {1}",
    "inner": "`{a}` and `{b}` must fit: the columns of one are the rows of the other",
    "batch": "the leading dimensions of `{a}` and `{b}` must fit",
    "broadcast": "`{0}` must broadcast to the shape of the product",
    "out-shape": "`out` must have the shape of the product",
    "read-only": "`out` must be writeable",
    "repeats": "`out` must not repeat an element",
    "overlap": "`out` must share no memory with `{0}`",
}
_HELPS = {
    "place": ["move it to where the others are"],
    "element": ["convert one of them: nothing is converted on a device"],
    "overlap": ["leave `out` away, or give it memory of its own"],
}


def refuse(
    operation: str, reason: str, detail: str, names: tuple[str, ...], values: tuple[Any, ...]
) -> NoReturn:
    """Raise what a product on a device was refused for; nothing has been written.

    Args:
        operation: "matmul".
        reason: which check failed, as native/src/python/device_shape.c names it.
        detail: the argument's name, or the message itself.
        names: of the arguments: the factors, what is added, and `out`; "" for none.
        values: as they were passed, None for none.

    Raises:
        InvalidArgumentError: always.
    """
    given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    if reason == "type":
        message = f"`{detail}` must hold {TYPES}, not {_dtype(given[detail])}"
    elif reason == "element":
        message = f"`{detail}` must hold {_dtype(given[names[0]])}, as `{names[0]}` does"
    elif reason == "forked":
        forked(operation)
    else:
        wanted = {"matmul": "at least one dimension", "addmm": "2 dimensions"}
        template = _MESSAGES.get(reason, detail.replace("{", "{{").replace("}", "}}"))
        message = template.format(
            detail, wanted.get(operation, "3 dimensions"), a=names[0], b=names[1]
        )
    raise InvalidArgumentError(
        f"{operation}: {message}",
        notes=[f"{name}: {describe(value)}" for name, value in given.items()],
        state="nothing was computed",
        helps=_HELPS.get(reason, []),
    ) from None


def forked(operation: str) -> NoReturn:
    """Raise in a child of a process that had used the device.

    Raises:
        InvalidArgumentError: always.
    """
    raise InvalidArgumentError(
        f"{operation}: this process was forked from one that had used the device",
        notes=["no driver of a device works on in a forked child"],
        state="nothing was computed",
        helps=['start workers by "spawn" or "forkserver": `multiprocessing.get_context("spawn")`'],
    )


_ADVICE = {
    "MEMORY": "free memory on the device, or make the workspace smaller",
    "SUBLIBRARY": "a part of cuDNN cannot be loaded: its files, libcudnn_*.so.9, must lie beside "
    "each other and be of one version, and the engines that it compiles need NVIDIA's driver",
    "ALLOC_FAILED": "free memory on the device, or make the workspace smaller",
    "DEVICE_ALLOC": "free memory on the device: MAGMA takes its own, beside the framework's",
    "NOT_SUPPORTED": "the library has no kernel for this: set `cuda.preferred_blas_library`",
    "INVALID_VALUE": "the library refuses an argument: set `cuda.preferred_blas_library`",
    "ARCH_MISMATCH": "the library has no code for this device: install another release of it",
    "EXECUTION_FAILED": "an earlier kernel may have failed: see `compute-sanitizer`",
    "ILLEGAL_ADDRESS": "an earlier kernel wrote where it may not: see `compute-sanitizer`",
    "LAUNCH_FAILED": "an earlier kernel may have failed: see `compute-sanitizer`",
    "NO_DEVICE": "the device may be gone: see `nvidia-smi` and the system's log",
    "UNAVAILABLE": "the device may be gone, or another process's alone: see `nvidia-smi`",
    "ERROR_UNKNOWN": "the device may be gone: see `nvidia-smi` and the system's log",
    "NOT_INITIALIZED": "the library could not start on this device: is its memory full?",
    "MISMATCH": "the driver does not fit its kernel module: reboot, or reinstall it",
    "CAPTURE": "call it once on the capture's stream before: nothing must be set up in it",
}


def failed(
    operation: str,
    library: str,
    fault: tuple[str, int, str],
    sizes: tuple[int, int, int],
    element: str,
) -> NoReturn:
    """Raise what a library of a device answered; it stays usable.

    Args:
        operation: "matmul".
        library: "cublas".
        fault: the function of the library or of its driver, the status that it returned, and the
            name of that; "" where the library knows none.
        sizes: m, n, k of the product.
        element: of the arrays.

    Raises:
        DeviceFailedError: always.
    """
    (function, status, name), (m, n, k) = fault, sizes
    if is_of_driver(function):
        library = "the device's driver"
    raise DeviceFailedError(
        f"{operation}: {library} failed: {function} returned {name or 'status'} ({status})",
        notes=[f"{element} product of ({m}, {k}) and ({k}, {n})"],
        state="the result was not computed; the next call starts anew",
        helps=advice(function, name),
    )


def is_of_driver(function: str) -> bool:
    """Whether a function is the driver's and not a library's: `cuMemAlloc`, `hipMalloc`."""
    return re.match(r"cu[A-Z]|hip[A-Z]", function) is not None


def advice(function: str, name: str) -> list[str]:
    """What to do about a status that a function of a library or driver returned, by its name."""
    if function in ("cuInit", "hipInit") and "NOT_INITIALIZED" in name:
        return ["in a child of a process that had used the device, none works: use `spawn`"]
    return [text for part, text in _ADVICE.items() if part in name][:1]


def place(value: Any) -> str:
    """Where an array is, for people: "cuda:0", or "the CPU"."""
    where = getattr(value, "__dlpack_device__", None)
    if where is not None:
        try:
            kind, index = where()
        except Exception:  # a foreign library's: this is for a message
            return f"`{getattr(value, 'device', 'no device')}`"
        return f"{KINDS[int(kind)]}:{index}" if int(kind) in KINDS else place_named(kind, index)
    if hasattr(value, "__cuda_array_interface__"):
        return "a CUDA device"
    return "the CPU"


def place_of(pointer: int) -> int:
    """The CUDA device that a pointer belongs to."""
    return device_driver.device_of(pointer)


def stream_of(value: Any, index: int) -> int | None:
    """The stream that PyTorch works on now on a device; None for what is no tensor of its."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    return int(torch.cuda.current_stream(index).cuda_stream)


def dense(operation: str, name: str, value: Any) -> Any:
    """The same array with its rows one after the other, made by its own library.

    Raises:
        InvalidArgumentError: it has no function for that.
    """
    if hasattr(value, "contiguous"):
        return value.contiguous()
    if (cupy := sys.modules.get("cupy")) is not None and isinstance(value, cupy.ndarray):
        return cupy.ascontiguousarray(value)
    raise InvalidArgumentError(
        f"{operation}: `{name}` must lie in memory as a BLAS can read it",
        notes=[f"{name}: {describe(value)}"],
        state="nothing was computed",
        helps=["copy it, so that its rows follow each other"],
    )


def copy(operation: str, target: Any, source: Any) -> None:
    """Put a source, broadcast, into a target, by their own library and on its stream.

    Raises:
        InvalidArgumentError: it has no function for that.
    """
    if hasattr(target, "copy_") and hasattr(source, "copy_"):
        # The sum is no part of the target's history: gradients are not followed here.
        target.detach().copy_(source.detach() if hasattr(source, "detach") else source)
        return
    if (cupy := sys.modules.get("cupy")) is not None and all(
        isinstance(each, cupy.ndarray) for each in (target, source)
    ):
        cupy.copyto(target, source)
        return
    raise InvalidArgumentError(
        f"{operation}: arrays of {_kind(source)} cannot be copied into those of {_kind(target)} "
        "on a device from here",
        state="nothing was computed",
        helps=["pass PyTorch's alone or CuPy's, or add to the product of `matmul` yourself"],
    )


def can_add(operation: str, target: Any, source: Any) -> None:
    """Whether `add` can add a source to a target.

    Raises:
        InvalidArgumentError: their libraries have no function for that.
    """
    if hasattr(target, "add_") and hasattr(source, "detach"):
        return
    if (cupy := sys.modules.get("cupy")) is not None and all(
        isinstance(each, cupy.ndarray) for each in (target, source)
    ):
        return
    raise InvalidArgumentError(
        f"{operation}: arrays of {_kind(source)} cannot be added to those of {_kind(target)} "
        "on a device from here",
        state="nothing was computed",
        helps=["pass PyTorch's alone or CuPy's, or add it to the result yourself"],
    )


def add(operation: str, target: Any, source: Any) -> None:
    """Add a source, broadcast, to a target, by their own library and on its stream.

    Raises:
        InvalidArgumentError: it has no function for that.
    """
    can_add(operation, target, source)
    if hasattr(target, "add_"):
        target.detach().add_(source.detach())  # gradients are not followed here
    else:
        sys.modules["cupy"].add(target, source, out=target)


def make(like: Any, shape: tuple[int, ...], element: str, kind: int, index: int) -> Any:
    """Memory for a result, by the library that owns an operand.

    Raises:
        InvalidArgumentError: it is none that makes arrays for others.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(like, torch.Tensor):  # of a release without a table
        return torch.empty(shape, dtype=getattr(torch, element), device=like.device)
    if cupy is not None and isinstance(like, cupy.ndarray) and kind == CUDA:
        with cupy.cuda.Device(index):
            return cupy.empty(shape, element)
    raise InvalidArgumentError(
        f"arrays of {_kind(like)} cannot be made on a device from here",
        state="nothing was computed",
        helps=["pass `out`, or arrays of PyTorch or CuPy"],
    )


def finite(operation: str, result: Any) -> None:
    """Raise where a result holds NaN or infinity; this waits for the device.

    Raises:
        InvalidArgumentError: it does, or its library cannot say.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(result, torch.Tensor):
        sound = bool(result.detach().isfinite().all())
    elif cupy is not None and isinstance(result, cupy.ndarray):
        sound = bool(cupy.isfinite(result).all())
    else:
        raise InvalidArgumentError(
            f"{operation}: `ops.check_finite` cannot look into arrays of {_kind(result)}",
            state="the result was computed, and is not checked",
            helps=["pass PyTorch's or CuPy's, or turn it off"],
        )
    if not sound:
        raise InvalidArgumentError(
            f"{operation}: the result has NaN or infinity, which `ops.check_finite` refuses",
            state="`out`, where it was given, holds it",
            helps=["look for NaN, infinity or overflow in the operands, or turn it off"],
        )


def bind() -> None:
    """Hand these to C."""
    from backendcfg.gpu.products import results

    _native.device_bind(
        refuse=refuse,
        failed=failed,
        place=place_of,
        recipe=recipes.recipe_for,
        make=results.make,
        dense=dense,
        copy=copy,
        finite=finite,
        stream=stream_of,
    )


def _dtype(value: Any) -> str:
    name = str(getattr(value, "dtype", type(value).__name__))
    return name.removeprefix("torch.")


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def describe(value: Any) -> str:
    """An array for people: "float32 array of shape (3, 5) on cuda:0"."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return _kind(value)
    return f"{_dtype(value)} array of shape {tuple(shape)} on {place(value)}"
