"""The result of resolving a profile for a host: plain data, no behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from backendcfg.schema.base import Document, Rank, Tier
from backendcfg.schema.host import Library
from backendcfg.schema.profile import Place

if TYPE_CHECKING:
    from collections.abc import Iterator


class Origin(Document):
    """Who set a value, and where."""

    rank: Rank
    title: str
    place: Place = Place()


class Hidden(Document):
    """A value that lost."""

    value: Any
    origin: Origin


class Adaptation(Document):
    """A request that the host changed: requested, got, because."""

    requested: Any
    got: Any
    because: str


class Entry(Document):
    """One flag of a plan.

    Attributes:
        flag: its name.
        value: what will be applied, JSON data.
        origin: who set it.
        hides: what it won over, nearest first, the default last.
        adaptation: how the host changed it, if it did.
        dormant: why nothing on this host reads it, or "".
        carried: whether this release has a switch for it, or an operation that reads it.
    """

    flag: str
    value: Any
    origin: Origin
    hides: tuple[Hidden, ...] = ()
    adaptation: Adaptation | None = None
    dormant: str = ""
    carried: bool = True

    @property
    def idle(self) -> str:
        """Why the value has no effect here, or ""."""
        return self.dormant or ("" if self.carried else "not set by this release yet")


class Rejection(Document):
    """A candidate, with every reason why it is not chosen, or may not be."""

    candidate: str
    reasons: tuple[str, ...]


class Choice(Document):
    """How a library was chosen.

    Attributes:
        flag: the flag that chooses.
        chosen: the library.
        order: the usable ones, best first.
        named: those of `order` that the wish prefers or requires by name.
        rejected: the others, with every reason.
        conditional: those of `order` that serve under a condition which each process meets or not,
            with the condition.
    """

    flag: str
    chosen: str
    order: tuple[str, ...]
    named: tuple[str, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    conditional: tuple[Rejection, ...] = ()


class Check(Document):
    """One requirement, and what was found: the check is the explanation.

    Attributes:
        need: what is needed, in words: "CUDA compute capability >=8.0".
        found: what the host has, in words.
        met: whether it holds.
        because: what asks for it: "`requires` in profile `h200`", "tier `cross-machine`".
        place: where that is written.
    """

    need: str
    found: str
    met: bool
    because: str
    place: Place = Place()


class Plan(Document):
    """Every flag with its value, and why.

    Attributes:
        name: what was asked for: "fast", "base+tf32-off".
        description: the strongest layer's description.
        tier: its name.
        host: the host in one line.
        host_digest: digest of the host that it was resolved for.
        entries: every flag, in schema order; also those at their default.
        choices: how each library was chosen.
        libraries: the CPU BLAS files that may serve our operations, best first.
        checks: every requirement that was looked at.
        unkept: flags that the tier rests on and that this release does not set yet.
        overrides: variables of other software that contradict the plan, in words.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    name: str
    description: str = ""
    tier: Tier = "none"
    host: str = ""
    host_digest: str = ""
    entries: tuple[Entry, ...]
    choices: tuple[Choice, ...] = ()
    libraries: tuple[Library, ...] = ()
    checks: tuple[Check, ...] = ()
    unkept: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """What a notebook shows: not the hundred entries, but what somebody asked for."""
        yield from (("name", self.name), ("tier", self.tier), ("host", self.host))
        yield ("asked", self.asked())

    def _repr_html_(self) -> str:
        from backendcfg.schema import describe
        from backendcfg.tables import html

        shown = [e for e in self.entries if e.origin.rank != "default" or e.adaptation]
        rows = [
            (
                e.flag,
                describe.toml(e.value),
                "default" if e.origin.rank == "default" else e.origin.title,
                e.adaptation.because if e.adaptation else e.idle,
            )
            for e in shown
        ]
        return html(
            f"{self.name} (tier {self.tier}) on {self.host}",
            ("flag", "value", "from", "because"),
            rows,
            [*self.overrides, f"{len(self.entries) - len(shown)} other flags at their default"],
        )

    def entry(self, flag: str) -> Entry:
        """The entry of a flag.

        Raises:
            KeyError: no such flag.
        """
        for entry in self.entries:
            if entry.flag == flag:
                return entry
        raise KeyError(flag)

    def values(self) -> dict[str, Any]:
        """The value of every flag."""
        return {entry.flag: entry.value for entry in self.entries}

    def asked(self) -> dict[str, Any]:
        """The values that somebody set, without those at their default."""
        return {e.flag: e.value for e in self.entries if e.origin.rank != "default"}
