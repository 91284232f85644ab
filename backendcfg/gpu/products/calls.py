"""What C asks of Python for products on devices: messages, choices, and the arrays' own library.

C takes the arrays and multiplies. It calls these functions for what is rare or is no product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu import own_library
from backendcfg.gpu.libraries.driver import device_of
from backendcfg.gpu.messages import advice, describe, dtype_of, forked, is_of_driver
from backendcfg.gpu.products import recipes, results
from backendcfg.ops.products import TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Refuse a product on a device; nothing has been written.

    Args:
        operation: "matmul".
        reason: which check failed, as native/gpu/python/shape.c names it.
        detail: the argument's name, or the message itself.
        names: of the arguments: the factors, what is added, and `out`; "" for none.
        values: as they were passed, None for none.

    Raises:
        InvalidArgumentError: always.
    """
    given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    if reason == "type":
        message = f"`{detail}` must hold {TYPES}, not {dtype_of(given[detail])}"
    elif reason == "element":
        message = f"`{detail}` must hold {dtype_of(given[names[0]])}, as `{names[0]}` does"
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


def failed(
    operation: str,
    library: str,
    fault: tuple[str, int, str],
    sizes: tuple[int, int, int],
    element: str,
) -> NoReturn:
    """Raise the status that a library of products returned; the library stays usable.

    Args:
        operation: "matmul".
        library: "cublas".
        fault: the function of the library or of its driver, the status that it returned, and the
            status' name; "" where the library has none.
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


CALLBACKS: dict[str, Callable[..., Any]] = {
    "refuse": refuse,
    "failed": failed,
    "place": device_of,
    "recipe": recipes.recipe_for,
    "make": results.make,
    "dense": own_library.dense,
    "copy": own_library.copy,
    "finite": own_library.check_finite,
    "stream": own_library.stream_of,
}
"""What `_native.device_bind` takes."""
