"""Every switch of `torch.backends` (PyTorch 2.13), under its names, with or without PyTorch.

    from backendcfg import backends

    backends.cudnn.benchmark = True
    with backends.mkldnn.flags(enabled=False):
        ...

Reading gives what is in force here: a scope's profile, the process's, or the defaults. Setting
changes that profile as an argument would, so a value that breaks its tier is refused, and
whatever framework is loaded obeys. PyTorch is never imported. docs/backends.md says for each
switch what it drives, and where we differ from torch.backends on purpose.
"""

from __future__ import annotations

import importlib

from backendcfg.backends.base import (
    ROOT,
    ContextProp,
    FlagProperty,
    PropModule,
    become,
    effective,
    exchange,
    given,
    remembered,
    scoped,
)
from backendcfg.backends.base import freeze as _freeze
from backendcfg.backends.base import is_frozen as _is_frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # In one statement; the sorter would write seventeen.
    # isort: off
    from backendcfg.backends import (
        cpu as cpu,
        cuda as cuda,
        cudnn as cudnn,
        cusparselt as cusparselt,
        kleidiai as kleidiai,
        mha as mha,
        miopen as miopen,
        mkl as mkl,
        mkldnn as mkldnn,
        mps as mps,
        nnpack as nnpack,
        openmp as openmp,
        opt_einsum as opt_einsum,
        python_native as python_native,
        quantized as quantized,
        xeon as xeon,
        xnnpack as xnnpack,
    )

    # isort: on
    from backendcfg.session.adjust import Overlay

    fp32_precision: str

_MODULES = (
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "kleidiai",
    "mha",
    "miopen",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "python_native",
    "quantized",
    "xeon",
    "xnnpack",
)

__all__ = [
    "ContextProp",
    "GenericModule",
    "PropModule",
    "disable_global_flags",
    "flags",
    "flags_frozen",
    "set_flags",
]


class GenericModule(PropModule):
    """`backendcfg.backends` itself: the root of the float32 precision tree, and its modules."""

    fp32_precision = FlagProperty(ROOT, lambda: effective(ROOT))

    def __getattr__(self, attr: str) -> Any:
        if attr in _MODULES:
            return importlib.import_module(f"{self.__name__}.{attr}")
        return super().__getattr__(attr)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *_MODULES])


def disable_global_flags() -> None:
    """Refuse every assignment to a switch from now on, in every module; scopes stay allowed."""
    _freeze()


def flags_frozen() -> bool:
    """Whether `disable_global_flags()` was called."""
    return _is_frozen()


def set_flags(_fp32_precision: str | None = None) -> tuple[str]:
    """Set the root of the float32 precision tree.

    Args:
        _fp32_precision: "none", "ieee", "tf32" or "bf16"; None keeps it.

    Returns:
        What it was, to be given back: `set_flags(*previous)`.
    """
    return exchange("", locals())


@remembered
def flags(fp32_precision: str | None = None) -> Overlay:
    """A scope in which the root of the float32 precision tree has this value; None keeps it."""
    return scoped(given("", locals()))


become(__name__, GenericModule)
