"""TensorFlow's threads, deterministic operations, TF32 and oneDNN.

TensorFlow takes thread counts until its first operation and has no switch that turns deterministic
operations off again; both are marked irreversible before they are set. Measured with TensorFlow
2.21 on the CPU; what TF32 does on a GPU was read, not run:
https://www.tensorflow.org/api_docs/python/tf/config/experimental
"""

from __future__ import annotations

import sys

from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import ModuleType
    from typing import Any

FRAMEWORK: str | None = "tensorflow"
MIRRORS = True
SCOPED_FLAGS = frozenset({"tensorflow.tensor_float_32_execution"})


class _Switch(AnytimeSwitch):
    """What TensorFlow's switches have in common."""

    name: str

    def __init__(self, tensorflow: ModuleType) -> None:
        self.tensorflow: Any = tensorflow

    def read(self) -> Any:
        """The value now, from TensorFlow."""
        raise NotImplementedError

    def write(self, value: Any) -> None:
        """Tell TensorFlow."""
        raise NotImplementedError


class _Threads(_Switch):
    """A thread count; TensorFlow says 0 while it chooses by itself."""

    latch = "before-first-use"
    reversible = False
    which: str

    def read(self) -> int:
        return int(getattr(self.tensorflow.config.threading, f"get_{self.which}")())

    def write(self, value: int) -> None:
        getattr(self.tensorflow.config.threading, f"set_{self.which}")(value)

    def too_late(self) -> str:
        module = sys.modules.get("tensorflow.python.eager.context")
        context = getattr(module, "_context", None)
        if getattr(context, "_initialized", False):
            return "TensorFlow has begun to compute, and takes this only before"
        return ""


class IntraOpThreads(_Threads):
    """Threads inside one operation."""

    name = "tensorflow.intra_op_threads"
    which = "intra_op_parallelism_threads"


class InterOpThreads(_Threads):
    """Operations at the same time."""

    name = "tensorflow.inter_op_threads"
    which = "inter_op_parallelism_threads"


class OpDeterminism(_Switch):
    """Deterministic operations; random ones then raise unless `tf.random.set_seed` was called."""

    name = "tensorflow.op_determinism"
    reversible = False

    def read(self) -> bool:
        return bool(_config().is_op_determinism_enabled())

    def write(self, value: bool) -> None:
        if value:
            self.tensorflow.config.experimental.enable_op_determinism()
        else:
            # Private, and TensorFlow's own tests use it. Only the undoing of an apply that failed
            # half way comes here.
            _config().disable_op_determinism()

    def too_late(self) -> str:
        return "TensorFlow has no switch that turns it off" if self.read() else ""


class TensorFloat32(_Switch):
    """TF32 in products and convolutions on NVIDIA GPUs; TensorFlow starts with it on."""

    name = "tensorflow.tensor_float_32_execution"

    def read(self) -> bool:
        return bool(self.tensorflow.config.experimental.tensor_float_32_execution_enabled())

    def write(self, value: bool) -> None:
        self.tensorflow.config.experimental.enable_tensor_float_32_execution(value)


class OneDnn(_Switch):
    """Whether TensorFlow's CPU operations go through oneDNN; decided when it is imported."""

    name = "tensorflow.onednn_opts"
    latch = "before-import"
    reversible = False

    def read(self) -> bool:
        return bool(sys.modules[_PORT].IsMklEnabled())

    def write(self, value: bool) -> None:
        raise RuntimeError(self.too_late())

    def too_late(self) -> str:
        return "TensorFlow read TF_ENABLE_ONEDNN_OPTS when it was imported"

    def unsupported(self) -> str:
        """Why this build of TensorFlow cannot say whether it uses oneDNN."""
        if hasattr(sys.modules.get(_PORT), "IsMklEnabled"):
            return ""
        return "this build of TensorFlow does not say whether it uses oneDNN"


_PORT = "tensorflow.python.util._pywrap_util_port"
_SWITCHES: tuple[tuple[type[_Switch], str], ...] = (
    (IntraOpThreads, "threads.count"),
    (InterOpThreads, "threads.interop"),
    (OneDnn, "tensorflow.onednn_opts"),
    (TensorFloat32, "tensorflow.tensor_float_32_execution"),
    (OpDeterminism, "tensorflow.op_determinism"),
)


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The settings of the TensorFlow in this process, for the flags that were asked."""
    return [
        Setting(switch(sys.modules["tensorflow"]), values[flag], flag, remedy)
        for switch, flag in _SWITCHES
        if flag in asked and values[flag] != "auto"
    ]


def _config() -> Any:
    return sys.modules["tensorflow.python.framework.config"]
