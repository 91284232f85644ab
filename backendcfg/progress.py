"""What takes long just now, for whoever shows it: the command line on a terminal.

Whoever works says so. Where nobody shows it, as in every program that imports the package, that is
a list of a few texts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_open: list[Step] = []
_end: Callable[[], None] | None = None

show: Callable[[], Callable[[], None]] | None = None
"""Called when a step begins; shows `current()` until the function is called that it gives."""


class Step:
    """A part of a command that may take long: `with Step("looking at this machine"):`.

    Attributes:
        what: what is done, as a person reads it.
        part: how much of it is done, from 0 to 1; None where nobody knows.
    """

    def __init__(self, what: str, part: float | None = None) -> None:
        self.what = what
        self.part = part

    def at(self, part: float, what: str) -> None:
        """Say how much is done, and what comes."""
        self.part, self.what = part, what

    def __enter__(self) -> Self:
        global _end
        _open.append(self)
        if _end is None and show is not None:
            _end = show()
        return self

    def __exit__(self, *_: object) -> None:
        global _end
        _open.remove(self)
        if _end is not None and not _open:
            end, _end = _end, None
            end()


def current() -> Step | None:
    """The innermost step that is not done."""
    return next(iter(_open[-1:]), None)
