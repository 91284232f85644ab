"""What the verbs found: as objects, as what `--json` prints, and read from that again."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import backendcfg
from backendcfg.audit.evidence.compare import Comparison, Why
from backendcfg.audit.evidence.drift import Drift  # noqa: TC001 - Pydantic reads it
from backendcfg.audit.evidence.float64 import Float64
from backendcfg.audit.evidence.measure import Measured
from backendcfg.audit.evidence.prove import Proof
from backendcfg.audit.evidence.twice import Twice
from backendcfg.audit.evidence.why import Search
from backendcfg.audit.report import words
from backendcfg.audit.verify import Reading, Verification
from backendcfg.errors import UnreadableFileError, shown_path
from backendcfg.load.text import LARGEST_RESULTS, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

Verb = Literal["prove", "compare", "verify"]


@dataclass(frozen=True)
class About:
    """How results came about.

    Attributes:
        verb: of `backendcfg`.
        command: what was run; empty for `verify`.
        version: of backendcfg.
        day: when, as "2026-11-25", in UTC.
    """

    verb: Verb
    command: tuple[str, ...] = ()
    version: str = backendcfg.__version__
    day: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).date().isoformat())

    @property
    def line(self) -> str:
        """The command, as a shell reads it."""
        return shlex.join(self.command)


@dataclass(frozen=True)
class Against:
    """How a proof stands to a lock.

    Attributes:
        results: what the runs produced otherwise, in words.
        drift: what is not here as locked.
    """

    results: tuple[str, ...]
    drift: tuple[Drift, ...]


def _as_html(found: Found) -> str | None:
    """What a notebook shows: the report; None where jinja2 is not installed."""
    from backendcfg.audit.report import page

    return page.fragment(found) if page.is_available() else None


@dataclass(frozen=True)
class Proved:
    """What `prove` found.

    Attributes:
        about: how it came about.
        proof: whether runs were the same.
        tier: of the profile.
        twice: what `--twice` showed; None without it.
        why: what `--why` found; None without it, and where runs are the same.
        cure: the flags with which runs are the same; None where none are known, and empty where
            runs were the same without any when they were made again.
        against: how it stands to a lock; None without one, and where runs differ.
    """

    about: About
    proof: Proof
    tier: str
    twice: Twice | None = None
    why: Search | None = None
    cure: dict[str, Any] | None = None
    against: Against | None = None
    _repr_html_ = _as_html

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        return words.verdict(self.proof)

    @property
    def good(self) -> bool:
        """Whether everything was the same."""
        unlike = self.twice is not None and bool(self.twice.unlike)
        other = self.against is not None and bool(self.against.results)
        return self.proof.equal and not unlike and not other

    def document(self) -> dict[str, Any]:
        """As data."""
        found = {**asdict(self.proof), "equal": self.proof.equal, "tier": self.tier}
        if self.twice is not None:
            found["twice"] = asdict(self.twice)
        if self.why is not None:
            found |= {"why": asdict(self.why), "cure": self.cure}
        if self.against is not None:
            found["against"] = asdict(self.against)
        return found | {"about": asdict(self.about)}


@dataclass(frozen=True)
class Compared:
    """What `compare` found.

    Attributes:
        about: how it came about.
        comparison: the two sides.
        why: what `--why` found; None without it.
        float64: what `--float64` found; None without it.
    """

    about: About
    comparison: Comparison
    why: Why | None = None
    float64: Float64 | None = None
    _repr_html_ = _as_html

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        return words.faster(self.comparison)

    @property
    def good(self) -> None:
        """Neither: a side that is faster is no better in itself."""

    def document(self) -> dict[str, Any]:
        """As data."""
        found = asdict(self.comparison)
        if self.why is not None:
            found["why"] = asdict(self.why)
        if self.float64 is not None:
            found["float64"] = asdict(self.float64)
        return found | {"about": asdict(self.about)}


@dataclass(frozen=True)
class Verified:
    """What `verify` found.

    Attributes:
        about: how it came about.
        verification: every switch, and the precision that was measured.
        broken: why a library that is installed cannot be imported, by its name.
        python: why a plain `python` starts there without the profile, in words; "" if it does not.
    """

    about: About
    verification: Verification
    broken: dict[str, str] = field(default_factory=dict)
    python: str = ""
    _repr_html_ = _as_html

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        said = words.switches(self.verification)
        return f"{said}; a plain `python` starts without it" if self.python else said

    @property
    def good(self) -> bool:
        """Whether all is as the profile wants, the tier in force, and so in any `python`."""
        return self.verification.ok and not self.python


Found = Proved | Compared | Verified


def evidence(path: str) -> Found:
    """What a verb found, from the file that its `--json` was written to.

    A notebook shows it as the report that `backendcfg report` writes, where jinja2 is installed.

    Args:
        path: of a file with what `backendcfg --json prove`, `compare` or `verify` printed.

    Raises:
        UnreadableFileError: the file cannot be read, or holds something else.
    """
    content, _ = read_bytes(path, LARGEST_RESULTS)
    try:
        return _read(json.loads(content))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise UnreadableFileError(
            f"{shown_path(path)} holds no results of `prove`, `compare` or `verify`",
            notes=[first] if isinstance(error, json.JSONDecodeError) else [],
            helps=["write it anew: `backendcfg --json prove PROFILE -- COMMAND > results.json`"],
        ) from None


def _read(document: Mapping[str, Any]) -> Found:
    """Results from their document.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    about = _checked(About, document["about"])
    if about.verb == "compare":
        return Compared(
            about,
            _checked(Comparison, document),
            _checked(Why | None, document.get("why")),
            _checked(Float64 | None, document.get("float64")),
        )
    if about.verb == "verify":
        return verified(about, document)
    return Proved(
        about,
        _checked(Proof, document),
        _checked(str, document["tier"]),
        _checked(Twice | None, document.get("twice")),
        _checked(Search | None, document.get("why")),
        _checked(dict[str, Any] | None, document.get("cure")),
        _checked(Against | None, document.get("against")),
    )


def verified(about: About, document: Mapping[str, Any]) -> Verified:
    """Results of `verify` from what its child says."""
    found = {name: _checked(kind, document[name]) for name, kind in _VERIFIED.items()}
    broken = _checked(dict[str, str], document.get("broken", {}))
    python = _checked(str, document.get("python", ""))
    return Verified(about, Verification(**found), broken, python)


# By field, as Pydantic cannot read the class: its module loads that of `Measured` only to measure.
_VERIFIED = {
    "profile": str,
    "tier": str,
    "in_force": bool,
    "readings": tuple[Reading, ...],
    "overrides": tuple[str, ...],
    "because": tuple[str, ...],
    "measured": tuple[Measured, ...],
}


def _checked(kind: Any, data: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(data)
