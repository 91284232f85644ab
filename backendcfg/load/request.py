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
        rank: the strength of whoever named it; unused when `name` is None.
        arguments: flags set by argument, each a TOML value still: `{"threads.count": "4"}`.
        cwd: where to look for a project; None for this process's working directory.
        use_environment: whether BACKENDCFG_PROFILE and BACKENDCFG_<FLAG> count.
    """

    name: str | None = None
    rank: Rank = "profile-by-argument"
    arguments: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    use_environment: bool = True
