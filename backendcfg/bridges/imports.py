"""Calling back the moment that a framework has been imported.

A finder at the front of `sys.meta_path` lets the other finders do their work and wraps the loader
of a watched module, so that the callback runs in the importing thread right after the module's
own code, before the import statement returns. While nobody watches, nothing is installed.

What the callback raises comes out of that import statement, and Python then forgets the module.
Libraries that are opened without an import (`ctypes.CDLL`, a plug-in) are not seen: they are found
by the next `reload()` or `verify()`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

MODULES = (
    "numpy",
    # SciPy opens its own OpenBLAS with the first of these, not with `import scipy`.
    "scipy.linalg",
    "scipy.special",
    "scipy.optimize",
    "sklearn",
    "mkl",
    "torch",
    # PyTorch loads it with the first compilation; it has switches of its own, by thread.
    "torch._inductor.config",
)
"""Modules after whose import there are new libraries or switches to set."""

_executed: dict[str, ModuleType] = {}
_finishing: set[str] = set()


def watch(callback: Callable[[str], None], modules: Iterable[str] = MODULES) -> Watch:
    """Call back with the module's name each time that one of them has been imported.

    Also after `importlib.reload`; not after an import that fails, and not for modules that are
    imported already: whoever watches looks at those first.
    """
    made = Watch(callback, frozenset(modules))
    sys.meta_path.insert(0, made)
    return made


def is_imported(name: str) -> bool:
    """Whether a module is there with all its code run.

    True within the callback for that module, when Python itself still calls it unfinished.
    """
    module = sys.modules.get(name)
    if module is None:
        return False
    spec = getattr(module, "__spec__", None)
    return _executed.get(name) is module or not getattr(spec, "_initializing", False)


def is_finishing(name: str) -> bool:
    """Whether the callback for this module is running: nobody has used it yet."""
    return name in _finishing


class Watch:
    """A finder that wraps the loaders of the watched modules; see `watch`."""

    def __init__(self, callback: Callable[[str], None], modules: frozenset[str]) -> None:
        self.callback = callback
        self.modules = modules
        self.active = True

    def remove(self) -> None:
        """Stop watching, also for imports that are under way; twice is once."""
        self.active = False
        # Not `remove`, which compares with ==: other finders may define that as they like.
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the finders behind this one find, with its loader wrapped."""
        if fullname not in self.modules or not self.active:
            return None
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else []
        for finder in behind:
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
        if not self._owner.active:
            return
        _executed[name] = module
        _finishing.add(name)
        try:
            self._owner.callback(name)
        except BaseException:
            _executed.pop(name, None)
            raise
        finally:
            _finishing.discard(name)
