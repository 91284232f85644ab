"""What is asked for: a profile or whatever is in force, with flags set beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from backendcfg.schema.base import Rank


@dataclass(frozen=True)
class Request:
    """One request for a plan.

    Attributes:
        name: the profile, `a+b`, or a file (`./x.toml`); None for the strongest of
            BACKENDCFG_PROFILE, the project's, the user's and the system's settings.
        rank: the strength of whoever named it. When `name` is None, "default" asks for the
            arguments alone: no settings file and no variable counts; any other is unused.
        arguments: flags set by argument, each a TOML value still: `{"threads.count": "4"}`.
        cwd: where to look for a project; None for this process's working directory.
        use_environment: whether BACKENDCFG_PROFILE, BACKENDCFG_<FLAG> and the variables that give
            PyTorch's switches their first value count.
        environment: where the last are looked up; None for this process's.
    """

    name: str | None = None
    rank: Rank = "profile-by-argument"
    arguments: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    use_environment: bool = True
    environment: Mapping[str, str] | None = None
