"""A plan reduced to what a starting process needs. Standard library only.

A process that starts under a profile must neither import Pydantic nor detect the host, so the
generation on disk carries this beside the full plan. It is valid while its stamp holds.
"""

from __future__ import annotations

from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.schema.plan import Plan


@record(frozen=True)
class Asked:
    """The request that a plan answers, so that a variation of the plan can be resolved.

    Attributes:
        name: the profile; None for whoever picked one.
        rank: how strong the name is; "default" without a name asks for the arguments alone.
        arguments: flags that were set beside it, as TOML text.
        directory: where it was asked; "" for the working directory.
    """

    name: str | None = None
    rank: str = "default"
    arguments: dict[str, str] = field(default_factory=dict)
    directory: str = ""


@record(frozen=True)
class Compiled:
    """What is applied, without the reasons.

    Attributes:
        name: what was asked for: "fast", "base+tf32-off".
        tier: the determinism tier.
        values: every flag with its value; choices of library as the provider chosen.
        asked: the flags that somebody set, as opposed to defaults.
        dormant: flags that have no effect on the host, with the reason.
        bitless: the asked flags that can change no bits, so that no tier rests on them.
        takes_all_cores: whether `threads.count` was "auto", so that it is the number of cores.
        unkept: flags that the tier rests on and that this release does not set yet.
        order: CPU providers that may serve, best first.
        named: those of them that somebody prefers by name; only they compete by speed then.
        libraries: their files, as `schema.host.Library` dumps them.
        overrides: variables that contradict the plan, in words.
        in_files: the flags that settings files set, by file.
        stamp: what must still be true for this to be valid (`probe.stamp`).
        request: what was asked for, to ask again with other arguments.
    """

    name: str
    tier: str
    values: dict[str, Any]
    asked: tuple[str, ...] = ()
    dormant: dict[str, str] = field(default_factory=dict)
    bitless: tuple[str, ...] = ()
    takes_all_cores: bool = False
    unkept: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    libraries: tuple[dict[str, Any], ...] = ()
    overrides: tuple[str, ...] = ()
    in_files: dict[str, list[str]] = field(default_factory=dict)
    stamp: dict[str, Any] = field(default_factory=dict)
    request: Asked = field(default_factory=Asked)

    @property
    def effective(self) -> tuple[str, ...]:
        """The flags that somebody set and that have an effect on this host."""
        return tuple(flag for flag in self.asked if flag not in self.dormant)

    @property
    def remedy(self) -> str:
        """The command that starts a program under this from its first line.

        It names the profile only where the request does. What a file, a variable or `apply` picks
        is picked there again, and flags in that file lose to a profile that is named.
        """
        words = ["backendcfg run"]
        if self.request.rank == "profile-by-argument" and self.request.name:
            words.append(self.request.name)
        for flag, text in sorted(self.request.arguments.items()):
            words.append(f"--set {_quoted(f'{flag}={text}')}")
        return " ".join([*words, "-- python ..."])

    def tier_rests_on(self, flag: str) -> bool:
        """Whether what became of a flag counts for the tier."""
        return flag not in self.dormant and flag not in self.bitless

    def to_json(self) -> str:
        """One JSON object."""
        import json
        from dataclasses import asdict

        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Compiled:
        """The inverse of `json.loads(to_json())`.

        Raises:
            TypeError, KeyError: the data is from another release, or damaged.
        """
        for name, kind in _KINDS.items():
            if not isinstance(data[name], kind):
                raise TypeError(f"{name!r} is not of type {kind.__name__}")
        return cls(
            **{
                **data,
                "asked": tuple(data["asked"]),
                "bitless": tuple(data["bitless"]),
                "unkept": tuple(data["unkept"]),
                "order": tuple(data["order"]),
                "named": tuple(data["named"]),
                "libraries": tuple(data["libraries"]),
                "overrides": tuple(data["overrides"]),
                "request": Asked(**data["request"]),
            }
        )


def _quoted(text: str) -> str:
    """A word for a shell, as `shlex.quote` has it, which a start would load `re` for."""
    if text.isascii() and not text.strip(_PLAIN):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_"
"""Characters that a shell takes as they are."""

_KINDS: dict[str, type] = {
    **dict.fromkeys(("name", "tier"), str),
    **dict.fromkeys(("values", "dormant", "in_files", "stamp", "request"), dict),
    **dict.fromkeys(("asked", "bitless", "unkept", "order", "named"), list),
    **dict.fromkeys(("libraries", "overrides"), list),
    "takes_all_cores": bool,
}
"""What JSON has for each attribute."""


def compile_plan(plan: Plan, stamp: dict[str, Any], request: Asked) -> Compiled:
    """Reduce a plan; `stamp` says until when the result is valid, `request` what it answers."""
    from backendcfg.schema.profile import flags

    in_files: dict[str, list[str]] = {}
    for entry in plan.entries:
        path = entry.origin.place.path
        if path and not entry.origin.title.startswith("profile "):
            in_files.setdefault(path, []).append(entry.flag)
    threads = plan.entry("threads.count").adaptation
    choice = next((choice for choice in plan.choices if choice.flag == "blas.library"), None)
    return Compiled(
        name=plan.name,
        tier=plan.tier,
        values=plan.values(),
        asked=tuple(plan.asked()),
        dormant={entry.flag: entry.idle for entry in plan.entries if entry.idle},
        bitless=tuple(flag for flag in plan.asked() if not flags()[flag].flag.bits),
        takes_all_cores=threads is not None and threads.requested == "auto",
        unkept=plan.unkept,
        order=choice.order if choice is not None else (),
        named=choice.named if choice is not None else (),
        libraries=tuple(library.model_dump() for library in plan.libraries),
        overrides=plan.overrides,
        in_files=in_files,
        stamp=stamp,
        request=request,
    )
