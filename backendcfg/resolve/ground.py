"""What the rules look at: the host, and every flag as it would be applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.host import Host, Library
    from backendcfg.schema.plan import Entry, Origin

ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Subject:
    """Something with a value that somebody set: a flag, or a variable in `[environment]`."""

    name: str
    value: Any
    origin: Origin

    @property
    def asked(self) -> bool:
        """Whether somebody set it, as opposed to a default."""
        return self.origin.rank != "default"


@dataclass(frozen=True)
class Ground:
    """What a profile comes to on a host, before anybody says whether it may.

    Attributes:
        host: the machine.
        entries: every flag with its concrete value.
        required: the library that is required, by flag; another one would be an error.
        libraries: files that may serve products of CPU arrays.
        variables: who set each variable of `[environment]`.
    """

    host: Host
    entries: Mapping[str, Entry]
    required: Mapping[str, str]
    libraries: tuple[Library, ...]
    variables: Mapping[str, Origin]

    def value(self, flag: str) -> Any:
        """The value that would be applied."""
        return self.entries[flag].value

    def asked(self, flag: str) -> bool:
        """Whether somebody set a flag."""
        return self.entries[flag].origin.rank != "default"

    def variable(self, name: str) -> str:
        """A variable that `[environment]` sets, or ""."""
        return str(self.value(ENVIRONMENT).get(name, ""))

    def subject(self, name: str) -> Subject | None:
        """A flag or an `environment.NAME`; None when nothing here reads it or nobody sets it."""
        table, _, variable = name.partition(".")
        if table == ENVIRONMENT and variable:
            if variable not in self.variables:
                return None
            return Subject(name, self.variable(variable), self.variables[variable])
        entry = self.entries[name]
        return None if entry.dormant else Subject(name, entry.value, entry.origin)

    def precision(self, leaf: str) -> str:
        """The float32 precision in force at a leaf: its own, else its parents', else its own.

        A leaf at its default follows a parent that somebody set, as in PyTorch.
        """
        own = self.entries[leaf]
        if own.origin.rank != "default" and own.value != "none":
            return str(own.value)
        parent = "mkldnn.fp32_precision" if leaf.startswith("mkldnn.") else "cudnn.fp32_precision"
        for name in (parent, "fp32_precision"):
            if (value := self.value(name)) != "none":
                # CUDA has no bfloat16 mode for float32; PyTorch reads the parent as none there.
                return "none" if value == "bf16" and parent.startswith("cudnn") else str(value)
        return str(own.value)
