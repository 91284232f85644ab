"""The messages of operations that refuse their arguments."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from backendcfg.errors import InvalidArgumentError

TYPES = "float32, float64, bfloat16, float16, complex64 or complex128"


def is_flag(value: object) -> bool:
    """Whether an argument is True or False, Python's or NumPy's.

    What else has a truth is a mistake: "no" is true, and so is an array of one False.
    """
    return isinstance(value, (bool, np.bool_))


def refuse(reason: str, detail: str, a: Any, b: Any, out: Any) -> NoReturn:
    """Raise what `matmul` was refused for; nothing has been written.

    Args:
        reason: which check failed, as native/src/python/matmul.c names it.
        detail: the argument's name, or a sentence of the core.
        a: as passed.
        b: as passed.
        out: as passed.

    Raises:
        InvalidArgumentError: always.
    """
    named = {"a": a, "b": b, "out": out}
    messages = {
        "type": f"`{detail}` must hold {TYPES}, not {_dtype(named.get(detail))}",
        "out-type": f"`out` must hold {detail}, as the product does, not {_dtype(out)}",
        "dimensions": f"`{detail}` must have at least one dimension",
        "inner": f"the last dimension of `a` and the {_rows(b)} of `b` must be equal",
        "batch": "the leading dimensions of `a` and `b` must broadcast",
        "out-shape": "`out` must have the shape of the product",
        "read-only": "`out` must be writeable",
        "range": detail,
        "unserved": detail,
        "not-finite": f"{detail}, which `ops.check_finite` refuses",
        "argument": f"`out` cannot hold the product: {detail}",
    }
    helps = {
        "type": [f"convert it: `{detail}.astype(numpy.float64)`"],
        "range": ["add a provider with 64-bit integers to `[blas] library`, or split the product"],
        "not-finite": ["look for NaN, infinity or overflow in the operands, or turn it off"],
    }
    raise InvalidArgumentError(
        f"matmul: {messages[reason]}",
        notes=[f"{name}: {_describe(value)}" for name, value in named.items() if value is not None],
        state="nothing was computed" if reason != "not-finite" else "`out` was not written",
        helps=helps.get(reason, []),
    )


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _dtype(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__))


def _rows(value: Any) -> str:
    return "only dimension" if getattr(value, "ndim", 0) == 1 else "second to last dimension"


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return _kind(value) if shape is None else f"{_dtype(value)} array of shape {tuple(shape)}"
