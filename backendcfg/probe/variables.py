"""Other software's environment variables: which flag each one decides, and how it is spelled.

`contradictions` compares an environment with a plan; what a child process needs is made of the
same table by `backendcfg.bridges.environment`. Standard library only. Sources are those of the
flags in `backendcfg.schema.tables`; what decides in whose place was measured where the vendors do
not say.
"""

from __future__ import annotations

from backendcfg.probe import xla_text
from backendcfg.probe.variable_table import VARIABLES, Variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

__all__ = ["VARIABLES", "Variable", "contradictions", "names", "tf32_override"]

_TORCH = {"tf32": "1", "ieee": "0", "bf16": "0"}
PRECISIONS: dict[str, dict[Any, str]] = {
    "fp32_precision": _TORCH,
    "cuda.matmul.fp32_precision": _TORCH,
    "cudnn.fp32_precision": _TORCH,
    "cudnn.conv.fp32_precision": _TORCH,
    "cudnn.rnn.fp32_precision": _TORCH,
    "jax.default_matmul_precision": {"tensorfloat32": "1", "highest": "0", "float32": "0"},
    "tensorflow.tensor_float_32_execution": {True: "1", False: "0"},
    "cupy.compute_type": {"tf32": "1", "pedantic": "0", "fp32": "0"},
}
"""What each value of the flags that NVIDIA_TF32_OVERRIDE outranks needs that variable to be; other
values need nothing. NVIDIA documents 0; that 1 forces TF32 was read, not run."""

TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def names() -> tuple[str, ...]:
    """Every variable that the table knows, rivals and caps included."""
    found = dict.fromkeys((TF32_OVERRIDE,))
    for row in VARIABLES:
        found.update(dict.fromkeys(filter(None, (row.name, *row.rivals, row.cap))))
    return tuple(found)


def tf32_override(values: Mapping[str, Any], asked: Collection[str]) -> tuple[str, str] | None:
    """What the asked precisions need of NVIDIA_TF32_OVERRIDE.

    Returns:
        `(flag, "1")` when an asked flag wants TF32, which a 0 would deny; `(flag, "0")` when all
        asked ones want more than TF32, which a 1 would deny; None when none was asked.
    """
    needs = {
        flag: need
        for flag, meanings in PRECISIONS.items()
        if flag in asked and (need := meanings.get(values.get(flag)))
    }
    for need in ("1", "0"):
        for flag, mine in needs.items():
            if mine == need:
                return flag, need
    return None


def contradictions(
    values: Mapping[str, Any], asked: Collection[str], environment: Mapping[str, str]
) -> list[str]:
    """The variables that say otherwise than the flags somebody asked for, in words.

    Args:
        values: every flag with its planned value.
        asked: the flags that somebody set; of others nothing is said.
        environment: the environment to look at; a variable that is set and empty counts as unset.
    """
    words = []
    for row in VARIABLES:
        if row.flag not in asked or row.flag not in values:
            continue
        value = values[row.flag]
        found = environment.get(row.name)
        if found and not row.says(found, row.encode(value)):
            words.append(f"{row.name}={found} contradicts `{row.flag} = {_toml(value)}`")
        words += [
            f"{name}={environment[name]} contradicts `{row.flag} = {_toml(value)}`"
            for name in row.rivals
            if environment.get(name) and not row.says(environment[name], row.encode(value))
        ]
        cap = environment.get(row.cap, "")
        if cap.isdecimal() and int(cap) < value:
            words.append(f"{row.cap}={cap} contradicts `{row.flag} = {_toml(value)}`")
    need = tf32_override(values, asked)
    override = environment.get(TF32_OVERRIDE)
    if need and override in ("0", "1") and override != need[1]:
        flag = need[0]
        words.append(f"{TF32_OVERRIDE}={override} contradicts `{flag} = {_toml(values[flag])}`")
    words += xla_text.contradictions(values, asked, environment)
    own = values.get("environment") if "environment" in asked else None
    words += [
        f"{name}={environment[name]} contradicts `environment.{name} = {_toml(text)}`"
        for name, text in (own or {}).items()
        if name != xla_text.VARIABLE and environment.get(name) and environment[name] != text
    ]
    return words


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
