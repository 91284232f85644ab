"""What loading yields and resolving takes: flag assignments with their places, by rank."""

from __future__ import annotations

import os
from typing import Any

from backendcfg.errors import shown_path
from backendcfg.schema.base import Document, Rank
from backendcfg.schema.profile import Condition


class Place(Document):
    """Where a value is written: a file position, a variable or an argument.

    Attributes:
        path: the file, or None for a variable or an argument.
        line, column, length: 1-based position in `path`; 0 when there is no file.
        source: the whole line.
        name: the variable (`BACKENDCFG_THREADS_COUNT`) or the argument (`--set`), if no file.
        shipped: whether the file came with backendcfg; a reader need not be told where it lies.
    """

    path: str | None = None
    line: int = 0
    column: int = 0
    length: int = 1
    source: str = ""
    name: str = ""
    shipped: bool = False

    def __str__(self) -> str:
        if self.path and self.shipped:
            return f"{os.path.basename(self.path)}:{self.line}, shipped"
        return f"{shown_path(self.path)}:{self.line}" if self.path else self.name


class Assignment(Document):
    """One flag set at one place.

    Attributes:
        flag: canonical name; a legacy spelling is already expanded.
        value: JSON data, valid for the flag.
        place: where.
        written_as: the legacy spelling that was written, or "".
    """

    flag: str
    value: Any
    place: Place
    written_as: str = ""


class Requirement(Document):
    """A condition that a profile cannot do without."""

    condition: Condition
    place: Place


class Conditional(Document):
    """A `[[when]]` table."""

    condition: Condition
    assignments: tuple[Assignment, ...]
    place: Place


class Dropped(Document):
    """A `drop` entry: a flag (or a whole table) that parents set and this file unsets."""

    flag: str
    place: Place


class Layer(Document):
    """One file's (or one source's) contribution, at one rank.

    Attributes:
        rank: the strength of whoever picked it.
        title: what to call it in messages: "profile `fast`", "backendcfg.toml", "environment".
        profile: the profile's name, or "" for settings, variables and arguments.
        path: the file, or "".
        shipped: whether the file came with backendcfg.
        description: the profile's description.
    """

    rank: Rank
    title: str
    profile: str = ""
    path: str = ""
    shipped: bool = False
    description: str = ""
    assignments: tuple[Assignment, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    requires: tuple[Requirement, ...] = ()
    whens: tuple[Conditional, ...] = ()


class Stack(Document):
    """Every layer of a request, weakest first; a later layer wins over an earlier one.

    Attributes:
        name: what was asked for, as the user would type it: "fast", "base+tf32-off".
        layers: parents stand before the profiles that extend them; a parent that is reached twice
            stands once, at its last position, as if each `extends` were written out in full.
        files: every file that was read, with its modification time in nanoseconds and size in
            bytes; the compiled plan is stale when one of them changes.
        missing: places that were searched and held nothing; a plan is stale when one appears.
    """

    name: str
    layers: tuple[Layer, ...]
    files: dict[str, tuple[int, int]] = {}
    missing: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The profile's own description; of several that are joined, in which order they count."""
        parts = self.name.split("+")
        if len(parts) > 1 and "/" not in self.name:
            return " over ".join(f"`{part}`" for part in reversed(parts))
        return next((one.description for one in reversed(self.layers) if one.description), "")
