"""Which library computes an operation, with which precision, beside the one that is granted.

A switch that was read back says what a library was told. What it does about it is measured here: a
CPU without matrix units takes no bfloat16 however often it is granted, and a library that takes
less than anybody granted breaks what the profile promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backendcfg.audit.evidence.operations import Operation, granted, granted_to_sums, operations
from backendcfg.audit.evidence.probes import FORMATS, Precision, probe_precision
from backendcfg.audit.evidence.served import Served, served
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

State = Literal["ok", "granted, not taken", "differs", "not measured"]


@dataclass(frozen=True)
class Measured:
    """One operation of a library, measured.

    Attributes:
        operation: as its library calls it.
        device: where it computed: "cpu", "cuda:0".
        dtype: of its operands and its result.
        precision: what was found; None where the library raised.
        granted: the fewest bits of the fraction that the profile lets its operands have.
        state: ok; granted, not taken: the profile grants fewer bits, and the library computes with
            all that its type has; differs: it computes with fewer than anybody granted; not
            measured: the library raised.
        because: why, for anything but ok.
        served: whose code computes; None where that is not known.
    """

    operation: str
    device: str
    dtype: str
    precision: Precision | None
    granted: int
    state: State
    because: str = ""
    served: Served | None = None

    def __str__(self) -> str:
        return f"{self.operation} of {self.dtype} on {self.device}"


def measure(values: Mapping[str, Any], asked: Collection[str]) -> tuple[Measured, ...]:
    """Measure every library that is imported here.

    Args:
        values: every flag with its value, a default where nobody set it.
        asked: the flags that somebody set.
    """
    return tuple(_measured(each, values, asked) for each in operations())


def _measured(operation: Operation, values: Mapping[str, Any], asked: Collection[str]) -> Measured:
    fewest, by = granted(operation, values, asked)
    about = operation.name, operation.device, operation.dtype
    try:
        found = probe_precision(
            operation.call, operation.dtype, operation.kind, sizes=operation.sizes
        )
    except Exception as error:
        because = f"{type(error).__name__}: {reason(error)}".partition("\n")[0]
        return Measured(*about, None, fewest, "not measured", because)
    judged = _judged(operation, found, fewest, by, values)
    try:
        by_whom = served(operation)
    except Exception:  # its matrices are larger: there may be no memory for them
        by_whom = None
    return Measured(*about, found, fewest, *judged, by_whom)


def _judged(
    operation: Operation, found: Precision, fewest: int, by: str, values: Mapping[str, Any]
) -> tuple[State, str]:
    whole = FORMATS[operation.dtype].fraction
    if found.operands < fewest:
        return "differs", f"its operands keep {found.operands} bits, {fewest} are granted"
    if found.emulated and not by:
        return "differs", "its operands are split in parts, and not all parts are multiplied"
    if found.accumulator is not None:
        least, allowed = granted_to_sums(operation, values)
        if found.accumulator < least:
            return "differs", f"its sums keep {found.accumulator} bits, {least} are granted"
        if allowed and found.accumulator >= FORMATS["float32"].fraction:
            return "granted, not taken", f"`{allowed}` grants sums of {least} bits"
    if by and found.operands == whole:
        return "granted, not taken", f"`{by}` grants {fewest} bits"
    return "ok", ""
