"""What a call of linear algebra on a device was passed beside its arrays, checked as on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.ops.arrays import is_flag

if TYPE_CHECKING:
    from backendcfg.gpu.linalg.solver import Solver

_DEFAULTS = {
    "upper": False,
    "left": True,
    "adjoint": False,
    "full_matrices": True,
    "check_errors": False,
    "pivot": True,
}
_MODES = ("reduced", "complete", "r")


class Options:
    """What was passed beside the arrays, checked."""

    def __init__(self, solver: Solver) -> None:
        given = solver.given
        for name, usual in _DEFAULTS.items():
            value = given.get(name, usual)
            if not is_flag(value):
                solver.refuse("flag", name)
            setattr(self, name, bool(value))
        if not self.pivot:
            solver.refuse("pivot", "pivot")
        if given.get("driver") not in (None, "gesvd"):
            solver.refuse("driver-device", "driver")
        self.mode = given.get("mode", "reduced")
        if not isinstance(self.mode, str) or self.mode not in _MODES:
            solver.refuse("mode", "mode")
        triangle = given.get("UPLO", "L")
        if not isinstance(triangle, str) or triangle not in ("L", "l", "U", "u"):
            solver.refuse("triangle", "UPLO")
        if solver.function in ("eigh", "eigvalsh"):
            self.upper = triangle in ("U", "u")
        self.raises = self.check_errors or not solver.function.endswith("_ex")

    upper: bool
    left: bool
    adjoint: bool
    full_matrices: bool
    check_errors: bool
    pivot: bool
