"""The files that can serve products of CPU arrays, and whether one may be opened now.

What is known of each provider, and their order, is in `backendcfg.catalogue.cpu`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.catalogue.cpu import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class LibraryFile:
    """A file that could serve as a provider, as detection or a profile describes it.

    Attributes:
        path: absolute.
        prefix: before each symbol.
        suffix: after each symbol.
        interface: "lp64", "ilp64", or "" to find out by calling it.
        owner: who brought it.
    """

    path: str
    prefix: str = ""
    suffix: str = ""
    interface: str = ""
    owner: str = ""


INVARIANT = ("thread-invariant", "cross-machine", "batch-invariant")
"""Tiers under which neither threads nor a batch may change a bit: libraries do not promise that."""


def hazard(name: str) -> str:
    """Why opening a provider's library in this process now would break something, or ""."""
    for each in BY_NAME[name].hazards:
        if each.variable and environ.foreign([each.variable]):
            return each.reason
        late = each.framework and each.framework not in sys.modules
        if late and find_spec(each.framework) is not None:
            return each.reason
    return ""


def files_of(name: str, libraries: Sequence[Mapping[str, Any]]) -> list[LibraryFile]:
    """The files that could serve as a provider, in the order to try them.

    Args:
        name: of the provider.
        libraries: as `schema.host.Library` dumps them; others' are passed over.
    """
    provider = BY_NAME[name]
    rank = {owner: position for position, owner in enumerate(provider.owners)}
    mine = [library for library in libraries if library.get("provider") == name]
    mine.sort(key=lambda library: rank.get(library.get("owner", ""), len(rank)))
    found = []
    for library in mine:
        prefix, suffix, interface = provider.affixes or (
            library.get("prefix", ""),
            library.get("suffix", ""),
            library.get("interface", "").replace("both", ""),
        )
        owner = library.get("owner", "")
        found.append(LibraryFile(library["path"], prefix, suffix, interface, owner))
    return found
