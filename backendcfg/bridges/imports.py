"""Calling back the moment that a framework has been imported.

A finder at the front of `sys.meta_path` lets the other finders do their work and wraps the loader
of a watched module, so that the callback runs in the importing thread right after the module's
own code, before the import statement returns. While nobody watches, nothing is installed.

What the callback raises comes out of that import statement, and Python then forgets the module.
A module that `importlib.util.LazyLoader` loads is one of ours the moment that its code has run, not
when the import statement returns, and nothing here is what makes it run.

Libraries that are opened without an import (`ctypes.CDLL`, a plug-in) are not seen: they are found
by the next `reload()` or `verify()`. Nor is a module whose loader has no `exec_module`: Python has
called such loaders deprecated since 3.4.
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec
from _thread import get_ident

from backendcfg.catalogue.cpu import MKL
from backendcfg.catalogue.frameworks import FRAMEWORKS, NUMBA, NUMPY, SKLEARN
from backendcfg.probe import loaded

TYPE_CHECKING = False
try:
    from backendcfg import _native
except ImportError:
    _native = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.abc import Loader
    from types import ModuleType
    from typing import Any

MODULES = (
    *(each.bridge_after for each in FRAMEWORKS if each.bridge_after),
    "random",
    "numpy.random",
    # SciPy opens its own OpenBLAS with the first of these, not with `import scipy`.
    "scipy.linalg",
    "scipy.special",
    "scipy.optimize",
    SKLEARN.name,
    NUMBA.name,
    MKL.name,
    # PyTorch loads it with the first compilation; it has switches of its own, by thread.
    "torch._inductor.config",
)
"""Modules after whose import there are new libraries or switches to set."""

_executed: dict[str, ModuleType] = {}
_finishing: dict[str, tuple[int, bool]] = {}
"""Modules whose callback runs now, in which thread, and whether their code ran before."""

finished = 0
"""How many times a watched module's code has run, while somebody watched."""

sought = 0
"""How many times an import system asked a watch for a module, whichever it was."""


def mapped_set() -> tuple[int, int] | None:
    """How many libraries were ever loaded and unloaded here; None where nobody counts.

    The compiled part asks the loader. ctypes could not: the loader calls back under its own lock,
    which deadlocks when Python code in the callback waits for another thread that loads a library,
    and callbacks break forked children (https://github.com/joblib/threadpoolctl/issues/225).
    """
    return _native.mapped() if _native is not None else None


def may_have_libraries() -> bool:
    """Whether a numeric library may be in this process, or NumPy, which may have one inside."""
    global _libraries
    now = mapped_set()
    if now is None or _libraries[0] != now:
        _libraries = now, any(map(loaded.may_be_numeric, loaded.mapped_files()))
    return _libraries[1] or is_imported(NUMPY.name)


_libraries: tuple[tuple[int, int] | None, bool] = (None, False)


def watch(callback: Callable[[str], None], modules: Iterable[str] = MODULES) -> Watch:
    """Call back with the module's name each time that one of them has been imported.

    Also after `importlib.reload`, and for an import that another thread is in the middle of; not
    after an import that fails, and not for modules that are imported already: whoever watches looks
    at those first.
    """
    made = Watch(callback, frozenset(modules))
    sys.meta_path.insert(0, made)
    for name in made.modules:
        if (module := sys.modules.get(name)) is None or _is_lazy(module):
            continue
        spec = _spec(module)
        if getattr(spec, "_initializing", False):
            _Unfinished.adopt(spec, made)
        else:
            made.ran.add(name)
    return made


def is_imported(name: str) -> bool:
    """Whether a module is there with all its code run, so that this thread may use it.

    True within the callback for that module, when Python itself still calls it unfinished; false
    meanwhile in every other thread, which would have to wait for the importing one. Asking does not
    load a module that is to be loaded lazily.
    """
    module = sys.modules.get(name)
    if module is None or _is_lazy(module):
        return False
    if (finishing := _finishing.get(name)) is not None and finishing[0] != get_ident():
        return False
    return _executed.get(name) is module or not getattr(_spec(module), "_initializing", False)


def is_finishing(name: str) -> bool:
    """Whether the callback for this module is running: nobody has used it yet."""
    return name in _finishing


def runs_again(name: str) -> bool:
    """Whether the callback is running because the module's code ran once more.

    Its switches are then as the module makes them, whatever was set after the first time.
    """
    return _finishing.get(name, (0, False))[1]


def _is_lazy(module: object) -> bool:
    """Whether the module's code waits for the first use of an attribute, whichever it is."""
    lazy = getattr(sys.modules.get("importlib.util"), "_LazyModule", None)
    return lazy is not None and type(module) is lazy


def _spec(module: object) -> ModuleSpec | None:
    """The module's spec, past any `__getattr__`: programs put all sorts of things for modules."""
    try:
        found: ModuleSpec | None = object.__getattribute__(module, "__spec__")
    except AttributeError:
        return None
    return found


class Watch:
    """A finder that wraps the loaders of the watched modules; see `watch`."""

    def __init__(self, callback: Callable[[str], None], modules: frozenset[str]) -> None:
        self.callback = callback
        self.modules = modules
        self.active = True
        self.ran: set[str] = set()
        self._searching: set[tuple[str, int]] = set()

    def remove(self) -> None:
        """Stop watching, also for imports that are under way; twice is once."""
        self.active = False
        # A new list: another thread that imports may be going through this one, and would pass over
        # a finder if the others moved up. Not by ==, which other finders may define as they like.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def finish(self, module: ModuleType, name: str) -> None:
        """Call back for a module whose code has run."""
        global finished
        if not self.active:
            return
        finished += 1
        _finishing[name] = get_ident(), name in self.ran
        _executed[name] = module
        try:
            self.callback(name)
        except BaseException:
            _executed.pop(name, None)
            raise
        finally:
            _finishing.pop(name, None)
        self.ran.add(name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the finders behind this one find, with its loader wrapped."""
        global sought
        sought += 1
        if fullname not in self.modules or not self.active:
            return None
        search = (fullname, get_ident())
        if search in self._searching:
            # A finder behind this one asks all finders again: hooks like ours do.
            return None
        self._searching.add(search)
        try:
            return self._find(fullname, path, target)
        finally:
            self._searching.discard(search)

    def _find(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders = iter(list(sys.meta_path))
        for finder in finders:
            if finder is self:
                break
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                # A namespace package is a directory that happens to have the name.
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """A loader that calls back after the wrapped one has run the module."""

    def __init__(self, wrapped: Loader, owner: Watch) -> None:
        self._wrapped = wrapped
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        if name in ("_wrapped", "_owner"):
            # A copy that is being made has neither yet.
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._wrapped.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module shall not see the wrapper: resources, pickling and reload ask its loader.
        spec = module.__spec__
        if spec is not None and spec.loader is self:  # type: ignore[comparison-overlap]
            spec.loader = self._wrapped
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._wrapped
        name = module.__name__
        _executed.pop(name, None)
        self._wrapped.exec_module(module)
        if _is_lazy(module):
            self._wait_for(module)
        else:
            self._owner.finish(module, name)

    def _wait_for(self, module: ModuleType) -> None:
        """Wrap the loader that a lazy module will call at its first use."""
        spec = _spec(module)
        # Not `__loader__`: what differs from now when it is loaded is put back afterwards.
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._owner)  # type: ignore[assignment]


class _Unfinished(ModuleSpec):
    """The spec of a module that was being imported when a watch began.

    Its loader runs already and can no longer be wrapped. But the import system clears
    `_initializing` in the importing thread at the very end, whether the import failed or not.
    """

    _watches: list[Watch]

    @classmethod
    def adopt(cls, spec: ModuleSpec | None, watch: Watch) -> None:
        """Tell a watch when the import ends."""
        if type(spec) is ModuleSpec:
            spec.__dict__["_watches"] = []
            spec.__class__ = cls
        if type(spec) is cls:
            spec._watches.append(watch)

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        try:
            if not value:
                self._tell()
        finally:
            self.__dict__["_initializing"] = value

    def _tell(self) -> None:
        watches = self.__dict__.pop("_watches")
        self.__class__ = ModuleSpec  # type: ignore[assignment]
        module = sys.modules.get(self.name)
        if module is None or _spec(module) is not self:
            return
        try:
            for watch in watches:
                watch.finish(module, self.name)
        except BaseException:
            sys.modules.pop(self.name, None)
            raise
