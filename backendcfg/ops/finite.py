"""What `ops.check_finite` asks of the results of operations written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.narrow import widen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.flags import FlagsInForce


def check_finite(
    array: NDArray[Any], operation: str, flags: FlagsInForce, element: str = ""
) -> None:
    """Refuse a result that holds NaN or infinity where the flag is on.

    Args:
        array: the result; uint16 where `element` is "bfloat16".
        operation: for the message.
        flags: the flags.
        element: what it holds, where its dtype does not say.

    Raises:
        InvalidArgumentError: it does; the message tells the first place.
    """
    if not flags["ops.check_finite"]:
        return
    array = widen(array, element)
    if array.dtype.kind not in "fc":
        return
    finite = np.isfinite(array)
    if finite.all():
        return
    place = tuple(int(i) for i in np.argwhere(~finite)[0])
    raise InvalidArgumentError(
        f"{operation}: the result is {array[place]} at {place}, which `ops.check_finite` refuses",
        state="no result was returned",
        helps=["look for NaN, infinity or overflow in the operands, or turn it off"],
    )
