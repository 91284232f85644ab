"""What the modules of `backendcfg.backends` are made of.

A module here holds no value of its own: it reads flags as they are in force where it is called,
and sets them through `session.adjust`. How to write one:

    class CudnnModule(PropModule):
        fp32_precision = FlagProperty("cudnn.fp32_precision", ...)     # assignable

    def set_flags(_enabled=None, ...):              # None keeps, here and in flags()
        return exchange("cudnn", locals())          # all of them or none

    @remembered                                     # the second time costs what profile() costs
    def flags(enabled=None, ...):
        return scoped(given("cudnn", locals()))

    enabled: bool                                   # for type checkers
    become(__name__, CudnnModule)

A simple flag, one that the schema declares with `calls`, is an attribute of its module without a
line here; for type checkers the module also says `enabled: bool`. A module that has only functions
becomes a plain `PropModule`, so that a typing mistake in an assignment is refused. Whatever sets a
flag goes through `assign` or a `FlagProperty`, because these obey `disable_global_flags()`.
`effective` follows the float32 precision tree. `installed`, `library_file`, `version` and `gpus`
answer what this machine has.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import types
from functools import lru_cache

from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.defaults import TORCH_CALLS
from backendcfg.errors import FrozenFlagsError, UnknownAttributeError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.session import adjust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, NoReturn, Self, TypeVar

    from backendcfg.schema.host import Gpu, Host
    from backendcfg.session.adjust import Overlay

    Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = __package__

_frozen = False

NEVER_WERE = {
    "linalg": "there is no `torch.backends.linalg`; the eigenvalues of a symmetric matrix, which"
    " some texts call `linalg.eighvals`, are `torch.linalg.eigvalsh`",
    "mkl.is_enabled": "PyTorch never had it: `mkl.is_available()` says whether MKL is here, and"
    " `blas.library` in a profile whether our products use it",
    "openmp.is_enabled": "PyTorch never had it: `openmp.is_available()` says whether an OpenMP"
    " runtime is here, and `threads.count` in a profile how many threads it uses",
}
"""Names that tutorials mention and that PyTorch never had: what serves instead."""


def read(flag: str) -> Any:
    """The value of a flag as it is in force here; its default where nothing is in force."""
    return FlagsInForce().values[flag]


def asked(flag: str) -> bool:
    """Whether somebody set a flag, as opposed to its default."""
    return flag in FlagsInForce().asked


def library(flag: str) -> str:
    """The library chosen by a flag that chooses one; "default" where nobody chose."""
    return read(flag) or "default"


def assign(values: Mapping[str, Any]) -> None:
    """Set flags for this process, all of them or none; None is a value like any other wrong one.

    Raises:
        FrozenFlagsError: after `disable_global_flags()`.
        BackendCfgError: as `session.adjust.assign`; everything is as before.
    """
    if values and _frozen:
        refuse_frozen(next(iter(values)))
    if values:
        adjust.assign(values)


def scoped(values: Mapping[str, Any]) -> Overlay:
    """A scope in which flags have these values, over what is in force where it is entered."""
    return adjust.overlay(values)


def given(table: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that a call of `flags()` or `set_flags()` gives a value; None keeps one.

    Args:
        table: the table of the schema: "cudnn"; "" for what is in none.
        parameters: the call's `locals()`. A parameter is named as its flag, in `set_flags()` with
            an underscore before it.
    """
    values = {_flag(table, name): value for name, value in parameters.items()}
    return {flag: value for flag, value in values.items() if value is not None}


def exchange(table: str, parameters: Mapping[str, Any], **known: Any) -> tuple[Any, ...]:
    """What a `set_flags()` does: set the flags that are given, all of them or none.

    Args:
        table: as for `given`.
        parameters: as for `given`.
        known: what flags are now that cannot be read by their name.

    Returns:
        What they were, in the order of the parameters, to be given back: `set_flags(*previous)`.
    """
    names = [name.removeprefix("_") for name in parameters]
    previous = [known[name] if name in known else read(_flag(table, name)) for name in names]
    assign(given(table, parameters))
    return tuple(previous)


def _flag(table: str, parameter: str) -> str:
    name = parameter.removeprefix("_")
    return f"{table}.{name}" if table else name


def remembered(make: Function) -> Function:
    """A function that returns a scope and makes it once per set of arguments."""
    cached = functools.lru_cache(maxsize=256, typed=True)(make)

    @functools.wraps(make)
    def scope(*positional: Any, **by_name: Any) -> Any:
        try:
            return cached(*positional, **by_name)
        except TypeError:  # an argument that cannot be a key, or a wrong call
            return make(*positional, **by_name)

    return scope  # type: ignore[return-value]


def freeze() -> None:
    """Refuse every assignment from now on; scopes stay allowed."""
    global _frozen
    _frozen = True


def is_frozen() -> bool:
    """Whether `freeze()` was called."""
    return _frozen


def refuse_frozen(flag: str) -> NoReturn:
    """Say that a flag cannot be set any more."""
    raise FrozenFlagsError(
        f"`{flag}` cannot be set after disable_global_flags()",
        helps=["use a scope instead: `with backendcfg.backends.cudnn.flags(...)`, or a profile"],
    )


class Verbose:
    """A scope in which a library tells of its calls on standard output, or does not.

    It switches the libraries that are loaded, through `bridges/verbose.py`, nests, and gives back
    what was there, also when a variable had turned it on. PyTorch's turns all off on leaving.

    Args:
        flag: the flag that says how much it tells.
        level: the flag's value; checked on entering.
    """

    def __init__(self, flag: str, level: int) -> None:
        self._scope = scoped({flag: level})

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> Literal[False]:
        self._scope.__exit__(exc_type, exc_val, exc_tb)
        return False


class ContextProp:
    """An attribute of a module that is read and set by functions."""

    def __init__(self, getter: Callable[[], Any], setter: Callable[[Any], object]) -> None:
        self.getter = getter
        self.setter = setter

    def __get__(self, obj: object, objtype: type | None = None) -> Any:
        return self.getter()

    def __set__(self, obj: Any, val: Any) -> None:
        if _frozen:
            refuse_frozen(getattr(obj, "__name__", type(obj).__name__))
        self.setter(val)


class FlagProperty(ContextProp):
    """An attribute that is a flag.

    Args:
        flag: its name.
        getter: how it is read, for flags whose value follows from others.
    """

    def __init__(self, flag: str, getter: Callable[[], Any] | None = None) -> None:
        super().__init__(getter or (lambda: read(flag)), lambda value: assign({flag: value}))
        self.flag = flag

    def __set__(self, obj: Any, val: Any) -> None:
        self.setter(val)


class ReadOnly:
    """An attribute that answers and cannot be set."""

    def __init__(self, getter: Callable[[], Any], why: str) -> None:
        self.getter = getter
        self.why = why

    def __get__(self, obj: object, objtype: type | None = None) -> Any:
        return self.getter()

    def __set__(self, obj: Any, val: Any) -> None:
        raise UnknownAttributeError(self.why)


class PropModule(types.ModuleType):
    """A module whose unknown attributes are refused, with the one that was meant.

    Args:
        m: the module that it stands before, as in PyTorch.
        name: its name.
    """

    def __init__(self, m: types.ModuleType, name: str) -> None:
        super().__init__(name, m.__doc__)
        self.__dict__.update(vars(m))

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attr!r}")
        refuse_unknown(self, self.__name__, attr)

    def __setattr__(self, attr: str, value: Any) -> None:
        if not (attr.startswith("_") or self._takes(attr, value)):
            refuse_unknown(self, self.__name__, attr)
        super().__setattr__(attr, value)

    def _takes(self, attr: str, value: Any) -> bool:
        """Whether this may be set: a switch, a submodule, or a function, which tests replace."""
        found = [vars(kind)[attr] for kind in type(self).__mro__ if attr in vars(kind)]
        if found:
            return hasattr(found[0], "__set__")
        is_function = callable(value) and callable(vars(self).get(attr))
        return is_function or isinstance(value, types.ModuleType)

    def __dir__(self) -> list[str]:
        return public(self)


def become(name: str, kind: type[PropModule] = PropModule) -> None:
    """Give a module that is being imported its class; the last line of each module here.

    A class of the module's own gets an attribute for every simple flag of the module: one that the
    schema declares with `calls`. A plain `PropModule` gets none, as in PyTorch's `nnpack`.
    """
    if kind is not PropModule:
        add_simple_flags(kind, name.removeprefix(f"{PACKAGE}."))
    sys.modules[name].__class__ = kind


def add_simple_flags(kind: type, table: str) -> None:
    """Give a class an assignable attribute for every simple flag of a table of the schema.

    Args:
        kind: the class; attributes that it has already stay.
        table: "cudnn", "cuda.matmul".
    """
    for flag in TORCH_CALLS:
        holder, _, attribute = flag.rpartition(".")
        if holder == table and attribute not in vars(kind):
            setattr(kind, attribute, FlagProperty(flag))


def public(module: types.ModuleType) -> list[str]:
    """The names that a module offers: its switches, and what `__all__` says or it defines."""
    names: set[str] = {
        name
        for kind in type(module).__mro__
        if kind not in types.ModuleType.__mro__
        for name, value in vars(kind).items()
        if not name.startswith("_")
    }
    defined = [name for name, value in vars(module).items() if _is_own(module, value)]
    names.update(vars(module).get("__all__", defined))
    return sorted(
        name for name in names - {"TYPE_CHECKING", "annotations"} if not name.startswith("_")
    )


def _is_own(module: types.ModuleType, value: object) -> bool:
    """Whether a module defines a value, or one of its submodules does."""
    home = getattr(value, "__module__", None) or module.__name__
    inside = f"{home}.".startswith(f"{module.__name__}.")
    return inside and not isinstance(value, types.ModuleType)


def refuse_unknown(holder: object, name: str, attr: str) -> NoReturn:
    """Say that there is no such attribute, and which one was meant.

    Args:
        holder: what was asked; its public names are candidates.
        name: what to call it.
        attr: the attribute that it does not have.
    """
    import difflib

    path = f"{name}.{attr}".removeprefix(f"{PACKAGE}.")
    near = difflib.get_close_matches(attr, dir(holder), n=1, cutoff=0.6)
    helps = [NEVER_WERE[path]] if path in NEVER_WERE else []
    if near and not helps:
        helps = [f"did you mean `{near[0]}`?"]
    if attr in dir(holder):
        raise UnknownAttributeError(f"`{name}.{attr}` cannot be set")
    raise UnknownAttributeError(
        f"`{name}` has no attribute `{attr}`",
        helps=helps or [f"it has: {', '.join(dir(holder))}"],
    )


_WHEELS = ("nvidia/*/lib", "nvidia/*/*/lib", "torch/lib", "_rocm_sdk_*/lib")


def host() -> Host:
    """This machine, detected once until `reload()`."""
    return _detected(adjust.edition)


@lru_cache(maxsize=1)
def _detected(_edition: int) -> Host:
    from backendcfg.session.planning import detect

    return detect()


def gpus(*vendors: str) -> tuple[Gpu, ...]:
    """The GPUs that this process may use, of these vendors."""
    return tuple(gpu for gpu in host().gpus if gpu.visible and gpu.vendor in vendors)


def installed(*packages: str) -> bool:
    """Whether any of these is installed, by import name, among those that detection knows."""
    return any(package in host().packages for package in packages)


def has_kind(kind: str) -> bool:
    """Whether detection found a library of this kind, whoever brought it."""
    return any(library.kind == kind for library in host().libraries)


def ask_torch(question: Callable[[Any], Any]) -> Any:
    """What a PyTorch that is loaded here answers; None where none is, or it cannot say."""
    if not imports.is_imported(TORCH.name):
        return None
    try:
        return question(sys.modules[TORCH.name])
    except AttributeError:
        return None


def library_file(stem: str) -> str:
    """The file of a library by the start of its name, as "libcudnn.so"; "" where there is none.

    One that is loaded wins, then those of wheels, then what the loader would find.
    """
    from backendcfg.probe.loaded import mapped_files

    for path in mapped_files():
        if os.path.basename(path).startswith(stem):
            return path
    return _on_disk(stem, adjust.edition)


def places() -> list[str]:
    """The folders in which wheels are installed."""
    return sys.path


@lru_cache(maxsize=64)
def _on_disk(stem: str, _edition: int) -> str:
    import glob

    from backendcfg.probe.installed import loader_cache

    for directory in places():
        for pattern in _WHEELS:
            found = sorted(glob.glob(os.path.join(directory or ".", pattern, f"{stem}*")))
            if found:
                return os.path.realpath(found[-1])
    try:
        named = loader_cache()
    except (OSError, ValueError):
        return ""
    return next((path for name, path in sorted(named.items()) if name.startswith(stem)), "")


def version(path: str, distributions: tuple[str, ...] = ()) -> tuple[int, int, int] | None:
    """The version of a library, as (major, minor, patch); None where nothing says it.

    The file is not opened for it: its name says the version, or the wheel that it came in.

    Args:
        path: its file.
        distributions: wheels that the file may come from.
    """
    if found := re.search(r"\.so\.(\d+)\.(\d+)\.(\d+)$", path):
        return int(found[1]), int(found[2]), int(found[3])
    return _of_wheel(path, distributions)


def _of_wheel(path: str, distributions: tuple[str, ...]) -> tuple[int, int, int] | None:
    from importlib import metadata

    if "site-packages" not in path and "dist-packages" not in path:
        return None
    for name in distributions:
        try:
            numbers = re.findall(r"\d+", metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
        if len(numbers) >= 3:
            return int(numbers[0]), int(numbers[1]), int(numbers[2])
    return None


ROOT = "fp32_precision"
CUDNN = ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision")
ONEDNN = (
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
)


def effective(flag: str) -> str:
    """The precision in force at a node of the tree: its own, else its nearest parent's."""
    own: str = read(flag)
    if own != "none" and (flag not in CUDNN or asked(flag)):
        return own
    on_cuda = flag.startswith("cud")
    for parent in _parents(flag):
        if (value := read(parent)) != "none":
            return "none" if on_cuda and value == "bf16" else str(value)
    return own


def _parents(flag: str) -> tuple[str, ...]:
    if flag == ROOT:
        return ()
    backend = "cudnn.fp32_precision" if flag.startswith("cud") else "mkldnn.fp32_precision"
    return (ROOT,) if flag == backend else (backend, ROOT)


def is_tf32(*leaves: str) -> bool:
    """What a legacy `allow_tf32` reads: whether every leaf computes in TF32."""
    return all(effective(leaf) == "tf32" for leaf in leaves)


def legacy(*leaves: str) -> bool | None:
    """The same for `set_flags`, which is given it back later; None where the leaves differ."""
    found = {effective(leaf) == "tf32" for leaf in leaves}
    return found.pop() if len(found) == 1 else None


class Leaf:
    """`cudnn.conv`, `mkldnn.matmul` and the like: one assignable `fp32_precision`.

    Args:
        name: what messages call it: "backendcfg.backends.cudnn.conv".
        flag: the flag.
    """

    __slots__ = ("_flag", "_name")

    def __init__(self, name: str, flag: str) -> None:
        self._name = name
        self._flag = flag

    @property
    def fp32_precision(self) -> str:
        """The precision in force: "none", "ieee", "tf32" or, in oneDNN, "bf16"."""
        return effective(self._flag)

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        """Set it for this process."""
        assign({self._flag: value})

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__"):
            raise AttributeError(attr)
        refuse_unknown(self, self._name, attr)

    def __setattr__(self, attr: str, value: Any) -> None:
        if attr not in ("fp32_precision", "_flag", "_name"):
            refuse_unknown(self, self._name, attr)
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        return ["fp32_precision"]

    def __repr__(self) -> str:
        return f"<{self._name}: fp32_precision={self.fp32_precision!r}>"
