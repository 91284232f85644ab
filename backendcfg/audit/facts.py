"""What changes bits or compiled code and has no flag of ours.

PyTorch's default dtype and device, autocast, the options of torch.compile, JAX's other options, and
whether the processor flushes denormal numbers. Read for the token, for `guard` and for `capture`;
only what is imported is looked at. Nothing is imported, and nothing but `put_back` writes.
"""

from __future__ import annotations

import copy
import re
import sys
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from backendcfg.bridges.jax import OPTIONS
from backendcfg.catalogue.frameworks import JAX, TORCH
from backendcfg.probe.environment import is_incidental
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIGS = (
    "torch._inductor.config",
    "torch._dynamo.config",
    "torch._functorch.config",
    "torch.compiler.config",
    "torch.fx.experimental._config",
)
"""The modules of torch.compile's options."""

_FLUSH = "thread.flush_denormal"
_DTYPE = "torch.default_dtype"
_DEVICE = "torch.default_device"
_AUTOCAST = re.compile(r"torch\.autocast\[(\w+)\]\.(enabled|dtype)")
_JAX = "jax.config."
_DEVICES = ("cpu", "cuda")
# Switches that a bridge reads are no facts.
_FLAGGED = frozenset((*OPTIONS.values(), "torch._inductor.config.deterministic"))
_SMALLEST_NORMAL = sys.float_info.min
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def facts() -> dict[str, Any]:
    """Every fact by its name, as this thread has it.

    Of torch.compile's options, those that the program set to something else than they were when
    their module was imported. What cannot be read is "unreadable: " and why.
    """
    return {_FLUSH: _SMALLEST_NORMAL * 0.5 == 0.0, **_torch(), **_compile(), **_jax()}


def plain(value: Any) -> Any:
    """A fact as JSON data, the same in every process."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(plain(each)) for each in value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    return _ADDRESS.sub("", str(value))


def is_option(name: str) -> bool:
    """Whether a name is an option of torch.compile, which `facts` has only where it was set."""
    return name.startswith(tuple(f"{module}." for module in CONFIGS))


def is_fact(name: str) -> bool:
    """Whether a name is one that `facts` may have."""
    return (
        name in (_FLUSH, _DTYPE, _DEVICE)
        or name.startswith(_JAX)
        or is_option(name)
        or _AUTOCAST.fullmatch(name) is not None
    )


def initial(name: str) -> Any:
    """What an option of torch.compile is that nobody set; None for any other fact."""
    for module in CONFIGS:
        if name.startswith(f"{module}.") and module in sys.modules:
            entry = sys.modules[module]._config.get(name.removeprefix(f"{module}."))
            return None if entry is None else _preset(entry)
    return None


def put_back(name: str, value: Any) -> str:
    """Write a fact as it was; why that cannot be, or ""."""
    torch: Any = sys.modules.get(TORCH.name)
    try:
        if name == _FLUSH:
            if torch is None:
                return "only `torch.set_flush_denormal` sets it, and PyTorch is not loaded"
            if not torch.set_flush_denormal(value):
                return "this processor cannot be told"
        elif name == _DTYPE:
            torch.set_default_dtype(getattr(torch, value))
        elif name == _DEVICE:
            torch.set_default_device(value)
        elif autocast := _AUTOCAST.fullmatch(name):
            device, what = autocast.groups()
            if what == "enabled":
                torch.set_autocast_enabled(device, value)
            else:
                torch.set_autocast_dtype(device, getattr(torch, value))
        elif name.startswith(_JAX):
            sys.modules[JAX.name].config.update(name.removeprefix(_JAX), value)
        else:
            module = next(each for each in CONFIGS if name.startswith(f"{each}."))
            option = name.removeprefix(f"{module}.")
            sys.modules[module].__setattr__(option, copy.deepcopy(value))
    except Exception as error:
        return reason(error)
    now = facts().get(name, initial(name))
    return "" if plain(now) == plain(value) else "what holds it now does not let it go"


def _torch() -> dict[str, Any]:
    torch: Any = sys.modules.get(TORCH.name)
    if not hasattr(torch, "get_autocast_dtype"):  # not there, older than 2.4, or being imported
        return {}
    try:
        context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        found = {
            _DTYPE: _word(torch.get_default_dtype()),
            # `torch.get_default_device()` may start CUDA.
            _DEVICE: None if context is None else str(context.device),
        }
        for device in _DEVICES:
            found[f"torch.autocast[{device}].enabled"] = torch.is_autocast_enabled(device)
            found[f"torch.autocast[{device}].dtype"] = _word(torch.get_autocast_dtype(device))
    except Exception as error:
        return {_DTYPE: f"unreadable: {reason(error)}"}
    return found


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _compile() -> dict[str, Any]:
    found = {}
    for module in CONFIGS:
        config: Any = sys.modules.get(module)
        if config is None or not hasattr(config, "_config"):
            continue
        try:
            for option, value in _set_options(config):
                name = f"{module}.{option}"
                if name not in _FLAGGED:
                    # Some are lists, which are changed in place.
                    found[name] = copy.deepcopy(value) if _is_container(value) else value
        except Exception as error:
            found[module + ".*"] = f"unreadable: {reason(error)}"
    return found


def _set_options(config: Any) -> Iterator[tuple[str, Any]]:
    """The options that somebody wrote, and that are not what they were.

    Read past the module's own `__getattr__`, which warns and writes.
    """
    unset = sys.modules["torch.utils._config_module"]._UNSET_SENTINEL
    for option, entry in config._config.items():
        written = entry.user_override.get()
        if written is unset or entry.env_value_force is not unset or entry.alias is not None:
            continue
        if written is not (preset := _preset(entry)) and plain(written) != plain(preset):
            yield option, written


def _preset(entry: Any) -> Any:
    unset = sys.modules["torch.utils._config_module"]._UNSET_SENTINEL
    preset = entry.env_value_default
    return entry.default if preset is unset else preset


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, dict, set))


def _jax() -> dict[str, Any]:
    config: Any = getattr(sys.modules.get(JAX.name), "config", None)
    if config is None:
        return {}
    try:
        values = config.values
    except Exception as error:
        return {f"{_JAX}*": f"unreadable: {reason(error)}"}
    return {_JAX + option: value for option, value in values.items() if _matters(option)}


@cache
def _matters(option: str) -> bool:
    return option not in _FLAGGED and not is_incidental(option)
