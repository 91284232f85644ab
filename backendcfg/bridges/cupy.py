"""CuPy's compute type for products of float32 and complex64.

Read in CuPy's sources (`cupy/_core/_routines_linalg.pyx`), not run: no GPU was at hand. CuPy keeps
one list of compute types for the process, without a lock, and looks at it in every product. An
entry starts undecided; the first look decides it by CUPY_TF32. TF32 needs compute capability 8.0,
else CuPy warns and takes its default.
"""

from __future__ import annotations

import sys

from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = "cupy"
MIRRORS = True
SCOPED_FLAGS = frozenset({"cupy.compute_type"})

_LINALG = "cupy._core._routines_linalg"
_CONSTANTS = {
    "default": "COMPUTE_TYPE_DEFAULT",
    "pedantic": "COMPUTE_TYPE_PEDANTIC",
    "fp32": "COMPUTE_TYPE_FP32",
    "tf32": "COMPUTE_TYPE_TF32",
}
_FLOAT32 = "f"


class ComputeType(AnytimeSwitch):
    """`cupy._core.set_compute_type` for float32, which complex64 shares."""

    name = "cupy.compute_type"

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def read(self) -> str | int:
        """The flag's word for it, or CuPy's number for a type that the flag does not name."""
        linalg = _linalg()
        number = int(linalg.get_compute_type(_FLOAT32))
        for word, constant in _CONSTANTS.items():
            if getattr(linalg, constant, None) == number:
                return word
        return number

    def write(self, value: str | int) -> None:
        linalg = _linalg()
        number = getattr(linalg, _CONSTANTS[value]) if isinstance(value, str) else value
        linalg.set_compute_type(_FLOAT32, number)

    def unsupported(self) -> str:
        """Why this CuPy, or its GPU, cannot take the type."""
        linalg = _linalg()
        if not hasattr(linalg, "set_compute_type") or not hasattr(linalg, _CONSTANTS[self.wanted]):
            version = getattr(sys.modules["cupy"], "__version__", "here")
            return f"CuPy {version} has no {_CONSTANTS[self.wanted]}"
        if self.wanted != "tf32":
            return ""
        try:
            # "80" for 8.0, "120" for 12.0.
            capability = int(sys.modules["cupy"].cuda.Device().compute_capability)
        except Exception as error:
            return f"CuPy finds no GPU: {error}"
        return "" if capability >= 80 else "TF32 needs a GPU of compute capability 8.0"


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The setting of the CuPy in this process, if the profile asks for a compute type."""
    if "cupy.compute_type" not in asked:
        return []
    wanted = values["cupy.compute_type"]
    return [Setting(ComputeType(wanted), wanted, "cupy.compute_type")]


def _linalg() -> Any:
    return sys.modules[_LINALG]
