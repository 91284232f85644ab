"""What a flag is: one typed field with what everything else needs to know about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

Need = str
"""What must be on the host for a flag to matter: see `backendcfg.resolve.facts`."""


@dataclass(frozen=True)
class Flag:
    """Everything that is derived for a flag: TOML key, variable, help, docs, dormancy.

    Attributes:
        summary: what the flag does, for people.
        readers: who obeys it: `native` (our operations), a framework, a library, `environment`.
        needs: what the host must have for it to matter, any of; empty means always.
        source: where the fact comes from.
        bits: whether it can change the bits of a result.
        trusted: whether only a trusted project may set it.
        carried: whether this release has a switch for it, or an operation of ours that reads it.
            What has none is validated, resolved and explained, and reported as dormant.
        in_c: whether C has its value in a snapshot: C reads it, or keeps something with the
            snapshot that follows from it. All other flags stay in Python.
        calls: for a switch of PyTorch that takes the flag's value as it is, the two functions of
            `torch._C` that read and write it: "_{}_cudnn_enabled" is `_get_cudnn_enabled` and
            `_set_cudnn_enabled`. The bridge and the face in `backends/` need no more than this.
        spells: for a legacy spelling, what each of its values writes: `{value: {flag: value}}`.
    """

    summary: str
    readers: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    source: str = ""
    bits: bool = True
    trusted: bool = False
    carried: bool = True
    in_c: bool = False
    calls: str = ""
    spells: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class FlagField:
    """A flag as found in a model: its full name, its metadata and its field."""

    name: str
    flag: Flag
    info: FieldInfo

    @property
    def default(self) -> Any:
        """The value that holds when nobody sets the flag, as JSON data."""
        value = self.info.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json", exclude_defaults=True)
        return list(value) if isinstance(value, tuple) else value


def iterate(model: type[BaseModel], prefix: str = "") -> Iterator[FlagField]:
    """Every flag of a model and of the tables in it, in the order of declaration."""
    for name, info in model.model_fields.items():
        marks = [mark for mark in info.metadata if isinstance(mark, Flag)]
        if marks:
            yield FlagField(prefix + name, marks[0], info)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from iterate(info.annotation, f"{prefix}{name}.")
