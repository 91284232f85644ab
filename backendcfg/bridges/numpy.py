"""Who computes NumPy's matmul and its element-wise functions: the `[route.numpy]` table.

NumPy's C API replaces the loop of a ufunc, the function that computes it for one element type; see
`native/src/python/numpy_loops.h`. `np.dot` and `np.linalg` call the BLAS themselves.
"""

from __future__ import annotations

from backendcfg import _native
from backendcfg.bridges.memory import is_worker
from backendcfg.catalogue.frameworks import NUMPY
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = NUMPY.name
SCOPED_FLAGS: frozenset[str] = frozenset()
"""None: a route is for the whole process."""

MATMUL = "route.numpy.matmul"
ELEMENTWISE = "route.numpy.elementwise"


class Matmul(AnytimeSwitch):
    """Whose kernels compute matmul of a type: "keep", those of NumPy, or "native", ours."""

    only = "base"

    def __init__(self, dtype: str) -> None:
        self.name = f"numpy.matmul.{dtype}"
        self.dtype = dtype

    def read(self) -> str:
        return "native" if _native.numpy_matmul(self.dtype) else "keep"

    def write(self, value: str) -> None:
        _native.numpy_matmul(self.dtype, value == "native")

    def unsupported(self) -> str:
        """What replaced NumPy's own matmul, or ""."""
        try:
            _native.numpy_matmul(self.dtype)
        except RuntimeError as error:
            return str(error)
        return ""


class Elementwise(AnytimeSwitch):
    """On which threads element-wise functions run: "keep", the caller's, or "threads", the team."""

    name = "numpy.elementwise"
    only = "base"
    is_numeric = False

    def read(self) -> str:
        return "threads" if _native.numpy_elementwise() else "keep"

    def write(self, value: str) -> None:
        _native.numpy_elementwise(value == "threads")


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The settings, for the routes that the profile asks for; "keep" touches nothing."""
    result = []
    if MATMUL in asked and values[MATMUL] != "keep":
        types = ("float16", "float32", "float64")
        result += [Setting(Matmul(dtype), values[MATMUL], MATMUL) for dtype in types]
    # Workers have siblings on the other cores.
    if ELEMENTWISE in asked and values[ELEMENTWISE] != "keep" and not is_worker():
        result.append(Setting(Elementwise(), values[ELEMENTWISE], ELEMENTWISE))
    return result
