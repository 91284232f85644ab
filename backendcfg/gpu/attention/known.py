"""Attention on devices, of kinds that were seen: C makes such a call alone.

The first call of a kind is checked, planned and launched by `device_attention`, which hands C the
argument block that it made. C compares the arrays of later calls with those, and the options and
the flags in force; where all are alike it makes the results and launches.
"""

from __future__ import annotations

from typing import Any

from backendcfg._native import device_recall
from backendcfg.gpu import replay
from backendcfg.gpu.arrays import refuse_tangents
from backendcfg.gpu.attention import backward
from backendcfg.gpu.attention.forward import NAMES, Options
from backendcfg.ops.attention.calls import OPERATION

_EXACT = (type(None), float, int)


def attend(
    arrays: tuple[Any, Any, Any, Any],
    options: tuple[str, float, bool, float | None, bool, bool],
    seed: int | None,
) -> Any:
    """The operation for arrays of which query is on a device; see `scaled_dot_product_attention`.

    Args:
        arrays: query, key, value and the mask or None.
        options: the operation, `dropout_p`, `is_causal`, `scale`, `enable_gqa` and
            `return_logsumexp`, checked.
        seed: of the dropout.

    Raises:
        InvalidArgumentError: an argument does not fit, carries a tangent, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    refuse_tangents(OPERATION, NAMES, arrays)
    number = 0 if seed is None else int(seed)
    _, dropout, is_causal, scale, enable_gqa, logsumexp = options
    if type(scale) not in _EXACT or type(dropout) is not float:  # NumPy's, say: no constant to C
        scale = None if scale is None else float(scale)
        options = (OPERATION, float(dropout), is_causal, scale, enable_gqa, logsumexp)
    found = device_recall(arrays, options, number)
    if found is None:
        checked = Options(float(dropout), bool(is_causal), scale, bool(enable_gqa), number)
        return backward.attend(arrays, checked, logsumexp=bool(logsumexp))
    if found[0] is not None:
        replay.failed(OPERATION, NAMES, arrays, found)
    return found[1:] if logsumexp else found[1]
