"""`torch.backends.python_native`: operators that PyTorch has in Triton and CuTe DSL as well.

A language, an operator or a dispatch key that is disabled keeps PyTorch's built-in kernel. Which
operators there are, only a PyTorch that is loaded can say.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from backendcfg.backends import base
from backendcfg.backends.base import (
    PropModule,
    assign,
    become,
    public,
    read,
    refuse_unknown,
    scoped,
)
from backendcfg.errors import InvalidArgumentError, UnknownAttributeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from packaging.version import Version

    from backendcfg.session.adjust import Overlay

    available_dsls: list[str]
    all_dsls: list[str]
    cutedsl: DSLController
    triton: DSLController

__all__ = [
    "DSLController",
    "PythonNativeModule",
    "all_dsls",
    "available_dsls",
    "cutedsl",
    "disable_dispatch_keys",
    "disable_operations",
    "enable_dispatch_keys",
    "enable_operations",
    "get_dsl_operations",
    "is_dsl_disabled",
    "is_operation_disabled",
    "operations_disabled",
    "triton",
]

_OPERATIONS = "python_native.disabled_operations"
_KEYS = "python_native.disabled_dispatch_keys"
_MODULES = {
    "cutedsl": ("nvidia-cutlass-dsl", ("cutlass", "tvm_ffi")),
    "triton": ("triton", ("triton",)),
}
"""By language: the wheel that has its version, and the modules that PyTorch 2.13 looks for."""


def _check_dsl(name: Any) -> None:
    if name not in _MODULES:
        raise InvalidArgumentError(f"`dsl_name` must be one of {', '.join(_MODULES)}, not {name!r}")


class DSLController:
    """One kernel language: `python_native.triton`.

    Args:
        dsl_name: "cutedsl" or "triton".
    """

    def __init__(self, dsl_name: str) -> None:
        _check_dsl(dsl_name)
        object.__setattr__(self, "_dsl_name", dsl_name)

    @property
    def name(self) -> str:
        """The language."""
        name: str = self.__dict__["_dsl_name"]
        return name

    @property
    def available(self) -> bool:
        """Whether it is installed and an NVIDIA GPU is here to run it on."""
        if not base.gpus("nvidia"):
            return False
        return all(find_spec(module) is not None for module in _MODULES[self.name][1])

    @property
    def version(self) -> Version | None:
        """Its version; None where it is not available."""
        if not self.available:
            return None
        from packaging.version import Version

        try:
            return Version(metadata.version(_MODULES[self.name][0]))
        except metadata.PackageNotFoundError:
            return None

    @property
    def enabled(self) -> bool:
        """Whether its operators may be used; assignable."""
        return bool(read(self._flag))

    @enabled.setter
    def enabled(self, value: bool) -> None:
        """Set it for this process."""
        assign({self._flag: value})

    def disable(self) -> None:
        """Keep PyTorch's built-in kernel for every operator that it has in this language."""
        assign({self._flag: False})

    def enable(self) -> None:
        """Allow the language again; what is disabled by name or by key stays so."""
        assign({self._flag: True})

    def disabled(self) -> Overlay:
        """A scope in which the language is disabled."""
        return scoped({self._flag: False})

    @property
    def _flag(self) -> str:
        return f"python_native.{self.name}.enabled"

    def __setattr__(self, attr: str, value: Any) -> None:
        if attr != "enabled":
            refuse_unknown(self, f"{__name__}.{self.name}", attr)
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        return [name for name in vars(type(self)) if not name.startswith("_")]

    def __repr__(self) -> str:
        available = "available" if self.available else "unavailable"
        enabled = "enabled" if self.enabled else "disabled"
        return f"DSLController({self.name}, {available}, {enabled})"


_CONTROLLERS = {name: DSLController(name) for name in _MODULES}


def get_dsl_operations(dsl_name: str) -> list[str]:
    """The operators that PyTorch has in a language, sorted; none where PyTorch is not loaded.

    Raises:
        InvalidArgumentError: there is no such language.
    """
    _check_dsl(dsl_name)
    said = base.ask_torch(lambda torch: torch._native.registry.get_dsl_operations(dsl_name))
    return list(said or ())


def disable_operations(*op_symbols: str) -> None:
    """Keep PyTorch's built-in kernel of some operators, in every language."""
    _change(_OPERATIONS, op_symbols, disable=True)


def enable_operations(*op_symbols: str) -> None:
    """Take back what `disable_operations` did."""
    _change(_OPERATIONS, op_symbols, disable=False)


def disable_dispatch_keys(*dispatch_keys: str) -> None:
    """Keep PyTorch's built-in kernels for some dispatch keys, such as "CUDA"."""
    _change(_KEYS, dispatch_keys, disable=True)


def enable_dispatch_keys(*dispatch_keys: str) -> None:
    """Take back what `disable_dispatch_keys` did."""
    _change(_KEYS, dispatch_keys, disable=False)


def operations_disabled(*op_symbols: str) -> Overlay:
    """A scope in which some operators keep PyTorch's built-in kernel.

    What is disabled already where this is called stays so inside.
    """
    return scoped({_OPERATIONS: [*read(_OPERATIONS), *_new(_OPERATIONS, op_symbols)]})


def is_operation_disabled(op_symbol: str) -> bool:
    """Whether an operator keeps PyTorch's built-in kernel by name."""
    return op_symbol in read(_OPERATIONS)


def is_dsl_disabled(dsl_name: str) -> bool:
    """Whether a language is disabled.

    Raises:
        InvalidArgumentError: there is no such language.
    """
    _check_dsl(dsl_name)
    return not read(f"python_native.{dsl_name}.enabled")


def _change(flag: str, names: tuple[str, ...], *, disable: bool) -> None:
    _check(names)
    kept = [name for name in read(flag) if name not in names]
    assign({flag: [*read(flag), *_new(flag, names)] if disable else kept})


def _new(flag: str, names: tuple[str, ...]) -> list[str]:
    """The names that are not there yet, each once."""
    _check(names)
    return [name for name in dict.fromkeys(names) if name not in read(flag)]


def _check(names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(
                f"the name of an operator or a dispatch key is a str, not {name!r}"
            )


class PythonNativeModule(PropModule):
    """`backendcfg.backends.python_native` with its attributes."""

    @property
    def available_dsls(self) -> list[str]:
        """The languages that are available here."""
        return [name for name, dsl in _CONTROLLERS.items() if dsl.available]

    @property
    def all_dsls(self) -> list[str]:
        """Every language."""
        return list(_CONTROLLERS)

    @property
    def cutedsl(self) -> DSLController:
        """CuTe DSL."""
        return _CONTROLLERS["cutedsl"]

    @property
    def triton(self) -> DSLController:
        """Triton."""
        return _CONTROLLERS["triton"]

    def __setattr__(self, attr: str, value: Any) -> None:
        if isinstance(vars(PythonNativeModule).get(attr), property):
            raise UnknownAttributeError(
                f"`{self.__name__}.{attr}` cannot be set",
                helps=[f"`{self.__name__}.triton.enabled = False` disables a language"],
            )
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        return public(self)


become(__name__, PythonNativeModule)
