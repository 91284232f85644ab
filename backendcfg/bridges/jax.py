"""JAX's configuration: the precision of products, its random streams, and 64-bit types.

Each value is there twice in JAX: for the process, and for a thread that is inside one of JAX's own
contexts, where the thread's wins. `apply` writes the first, through `jax.config.update`; a scope
writes the second, as `with jax.default_matmul_precision(...)` does, so that threads with different
scopes do not meet. JAX compares all of them when it looks for a compiled function, so a function is
compiled again after a change; what was compiled ahead of time (`.lower().compile()`, `jax.export`)
keeps what it was compiled with.

Measured with JAX 0.10.2 on the CPU. XLA_FLAGS is in `bridges/xla_flags.py`.
"""

from __future__ import annotations

import sys

from backendcfg.records import record
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = "jax"
MIRRORS = True
OPTIONS = {
    "jax.default_matmul_precision": "jax_default_matmul_precision",
    "jax.threefry_partitionable": "jax_threefry_partitionable",
    "jax.default_prng_impl": "jax_default_prng_impl",
    "jax.enable_x64": "jax_enable_x64",
}
"""The option of JAX that each flag is."""

SCOPED_FLAGS = frozenset(OPTIONS)
_PRECISION = "jax_default_matmul_precision"


@record(frozen=True)
class Option(AnytimeSwitch):
    """An option for the process: what holds in every thread that says nothing else."""

    option: str
    only: str = "base"

    @property
    def name(self) -> str:
        return f"jax.{self.option.removeprefix('jax_')}"

    def read(self) -> Any:
        return _spoken(self.option, _state(self.option).get_global())

    def in_force(self) -> Any:
        """What holds in this thread, which may be inside one of JAX's contexts."""
        here = ThreadOption(self.option).read()
        return self.read() if here is None else here

    def overridden(self) -> str:
        """What outranks the process's value in this thread, or ""."""
        return "" if self.in_force() == self.read() else "a context of JAX around this call"

    def write(self, value: Any) -> None:
        sys.modules["jax"].config.update(self.option, _meant(self.option, value))

    def unsupported(self) -> str:
        """Why this JAX has no such option, or keeps it in another way."""
        return _missing(self.option)


class ThreadOption(AnytimeSwitch):
    """The same option for the calling thread; None leaves it to the process's."""

    only = "scope"
    reach = "thread"
    latch = "each-thread"

    def __init__(self, option: str) -> None:
        self.option = option
        self.name = f"jax.{option.removeprefix('jax_')}.thread"
        if not _missing(option):
            self._state = _state(option)
            self._unset = _unset()

    @property
    def read(self) -> Callable[[], Any]:
        """What answers: a scope asks each time that it is entered and left."""
        get, unset, spoken = self._state.get_local, self._unset, _spoken(self.option, None)

        def read() -> Any:
            found = get()
            return None if found is unset else spoken if found is None else found

        return read

    def write(self, value: Any) -> None:
        """As JAX's own context managers do it when they are entered and left."""
        parse = getattr(self._state, "_parser", None)
        meant = _meant(self.option, value)
        local = self._unset if value is None else parse(meant) if parse else meant
        self._state.set_local(local)
        if (hook := self._state._update_thread_local_hook) is not None:
            hook(None if value is None else local)

    def unsupported(self) -> str:
        """Why this JAX has no such option, or keeps it in another way."""
        return _missing(self.option)


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The settings of the JAX in this process, for the flags that were asked."""
    return [
        Setting(switch(option), values[flag], flag)
        for flag, option in OPTIONS.items()
        if flag in asked
        for switch in (Option, ThreadOption)
    ]


def _state(option: str) -> Any:
    return sys.modules["jax._src.config"].config_states[option]


def _unset() -> Any:
    return sys.modules["jax._src.config"].config_ext.unset


def _missing(option: str) -> str:
    version = getattr(sys.modules["jax"], "__version__", "here")
    config = sys.modules.get("jax._src.config")
    state = getattr(config, "config_states", {}).get(option)
    if state is None:
        return f"JAX {version} has no `{option}`"
    needed = ("get_global", "get_local", "set_local", "_update_thread_local_hook")
    known = hasattr(getattr(config, "config_ext", None), "unset")
    if known and all(hasattr(state, attribute) for attribute in needed):
        return ""
    return f"JAX {version} keeps `{option}` in another way than the releases that were measured"


def _spoken(option: str, value: Any) -> Any:
    """What JAX holds, as the flag spells it: JAX says None for a precision that nobody set."""
    return "default" if option == _PRECISION and value is None else value


def _meant(option: str, value: Any) -> Any:
    return None if option == _PRECISION and value == "default" else value
