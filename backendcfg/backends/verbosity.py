"""The `verbose` contexts of `backends.mkl` and `backends.mkldnn`.

They switch the libraries that are loaded, through `bridges/verbose.py`, nest, and give back what
was there, also when a variable had turned it on. PyTorch's own turn everything off on leaving.
"""

from __future__ import annotations

from backendcfg.backends.base import scoped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, Self


class _Verbose:
    """A scope in which a library tells of its calls on standard output, or does not."""

    _flag: str

    def __init__(self, level: int) -> None:
        self._scope = scoped({self._flag: level})

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> Literal[False]:
        self._scope.__exit__(exc_type, exc_val, exc_tb)
        return False


class MklVerbose(_Verbose):
    """A scope in which MKL prints a line for each of its calls, or none.

    Args:
        enable: `VERBOSE_OFF` or `VERBOSE_ON`; checked on entering.
    """

    _flag = "mkl.verbose"

    def __init__(self, enable: int) -> None:
        super().__init__(enable)
        self.enable = enable


class OneDnnVerbose(_Verbose):
    """A scope in which oneDNN prints a line for each primitive that it runs or makes, or none.

    Args:
        level: `VERBOSE_OFF`, `VERBOSE_ON`, or `VERBOSE_ON_CREATION`; checked on entering.
    """

    _flag = "mkldnn.verbose"

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.level = level
