"""Describe every public name of torch.backends or of backendcfg.backends, as JSON.

Run in a fresh interpreter: `python walk_backends.py torch.backends`. A public name has no leading
underscore and is defined in its module, or the module's `__all__` has it. What the module merely
imports is none.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import inspect
import json
import sys
import types
import warnings

MODULES = (
    "",
    "cpu",
    "cuda",
    "cudnn",
    "cudnn.rnn",
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
    "xeon.run_cpu",
    "xnnpack",
)
ALSO = {"cuda": ("SDPBackend",), "python_native": ("triton", "cutedsl")}
"""Public by their use, though a module only imports or makes them."""

DSL = ("name", "available", "version", "enabled", "enable", "disable", "disabled")

HOLDERS = {
    ("cuda", "matmul"): (
        "allow_tf32",
        "fp32_precision",
        "allow_fp16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction_split_k",
        "allow_bf16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction_split_k",
        "allow_fp16_accumulation",
    ),
    ("cudnn", "conv"): ("fp32_precision",),
    ("mkldnn", "matmul"): ("fp32_precision",),
    ("mkldnn", "conv"): ("fp32_precision",),
    ("mkldnn", "rnn"): ("fp32_precision",),
    ("python_native", "triton"): DSL,
    ("python_native", "cutedsl"): DSL,
}
"""Objects with attributes that only their `__getattr__` knows."""

GPU_ONLY = {"cublas_workspace_size", "cublaslt_workspace_size", "blas_workspace_size"}
"""A CPU build of PyTorch has no function behind them to call."""


def public_names(module: types.ModuleType, path: str, package: str) -> list[str]:
    """The public names of a module."""
    home = getattr(module, "m", module)  # PyTorch puts an object in front of some modules
    found = set(ALSO.get(path, ())) | set(vars(home).get("__all__", ()))
    for name, value in vars(home).items():
        if isinstance(value, types.ModuleType):
            continue
        at = getattr(value, "__module__", None)
        if at == home.__name__ or (at is None and isinstance(value, (bool, int, str, set))):
            found.add(name)
    for kind in type(module).__mro__:
        if kind.__module__.startswith(package):
            found |= set(vars(kind))
    # PyTorch defines some that its own module then does not give.
    found -= {"TYPE_CHECKING"}
    return sorted(name for name in found if not name.startswith("_") and hasattr(module, name))


def plain(value: object) -> object:
    """A value as JSON, with its type; enumerations by name and number."""
    if isinstance(value, enum.Enum) or hasattr(type(value), "__members__"):
        return ["enum", getattr(value, "name", str(value)), int(value)]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted(map(str, value))]
    if isinstance(value, (bool, int, str, list, tuple)) or value is None:
        return [type(value).__name__, value]
    return ["object"]


def called(function: object, signature: inspect.Signature, name: str) -> dict[str, object]:
    """What a call without arguments returns, where it only asks."""
    asks = name.startswith(("is_", "get_", "preferred_", "version")) or name.endswith(
        ("_enabled", "_allowed", "frozen")
    )
    needs = [p for p in signature.parameters.values() if p.default is p.empty]
    if not asks or needs or name in GPU_ONLY:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function()
    except (AttributeError, RuntimeError) as error:
        return {"value": type(error).__name__}
    return {"value": plain(value)}


def shown(signature: inspect.Signature) -> str:
    """Names, kinds and defaults, without annotations."""
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def describe(holder: object, path: str, name: str) -> dict[str, object]:
    """One name."""
    value = getattr(holder, name)
    if (path, name) in HOLDERS:
        found = {attr: getattr(value, attr) for attr in HOLDERS[path, name]}
        return {
            attr: shown(inspect.signature(inner)) if callable(inner) else plain(inner)
            for attr, inner in found.items()
        }
    if inspect.isclass(value) and getattr(value, "__members__", None):
        return {"value": {key: int(member) for key, member in value.__members__.items()}}
    if inspect.isclass(value):
        public = [
            key
            for kind in value.__mro__
            if kind is not object and not kind.__module__.startswith("builtins")
            for key in vars(kind)
            if not key.startswith("_")
        ]
        described: dict[str, object] = {"members": public}
        with contextlib.suppress(ValueError):  # pybind11's classes have none
            described["signature"] = shown(inspect.signature(value))
        return described
    if callable(value):
        signature = inspect.signature(value)
        return {"signature": shown(signature), **called(value, signature, name)}
    return {"value": plain(value)}


def main(package: str) -> None:
    """Print the description of every module."""
    found: dict[str, dict[str, object]] = {}
    for path in MODULES:
        full = f"{package}.{path}" if path else package
        importlib.import_module(full)
        module = sys.modules[full]
        found[path] = {
            name: describe(module, path, name) for name in public_names(module, path, package)
        }
    print(json.dumps(found))


main(sys.argv[1])
