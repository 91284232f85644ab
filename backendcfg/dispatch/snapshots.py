"""From a compiled plan to the snapshot that native code reads.

The conservative rule: the first provider of the plan's order that opens. Nothing behind it is
opened, because a second library brings a second pool of threads; but what costs nothing is kept
behind it for products that do not fit its integers: libraries already in the process, and ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg import native
from backendcfg.dispatch.opening import Refused, Usable, is_loaded, open_file, open_path
from backendcfg.dispatch.providers import PROVIDERS, REFERENCE, files_of
from backendcfg.errors import MissingLibraryError
from backendcfg.probe.loaded import libraries_in_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backendcfg._native import Prepared
    from backendcfg.transact.compiled import Compiled


@dataclass
class Listing:
    """How an order of providers became handles.

    Attributes:
        handles: the open ones, best first.
        names: theirs.
        reasons: for each provider that is not among them, why.
    """

    handles: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


_listings: dict[int, Listing] = {}


def materialise(prepared: Prepared) -> int:
    """The address of the snapshot for a prepared profile, opening its library if need be.

    Raises:
        MissingLibraryError: none of its providers can be opened.
    """
    compiled: Compiled = prepared.payload
    libraries = [*compiled.libraries, *_in_process()]
    path = compiled.values.get("blas.path") or ""
    listing = list_providers(compiled.order or _names(), libraries, path)
    if not listing.handles:
        raise MissingLibraryError(
            f"no library can serve products of CPU arrays under profile `{compiled.name}`",
            notes=[f"{name}: {reason}" for name, reason in listing.reasons.items()],
            helps=["allow `reference` in `[blas] library`: it is always there"],
        )
    return _snapshot(native.encode(compiled.values), listing)


def default() -> int:
    """The snapshot that holds where no profile does: NumPy's own library, and ours behind it.

    Only what is in the process is used; nothing is opened that was not.
    """
    return _snapshot({}, list_providers(_names(), _in_process(), loaded_only=True))


def reasons(snapshot: int) -> dict[str, str]:
    """Why the providers that a snapshot does not list are not in it."""
    listing = _listings.get(snapshot)
    return dict(listing.reasons) if listing else {}


def list_providers(
    order: Iterable[str],
    libraries: Iterable[Mapping[str, Any]],
    path: str = "",
    *,
    loaded_only: bool = False,
) -> Listing:
    """Open what an order of providers needs.

    Args:
        order: names, best first.
        libraries: files, as `schema.host.Library` dumps them.
        path: a file to use for the first name instead of the detected ones, or "".
        loaded_only: open nothing that is not in the process.
    """
    listing, known = Listing(), list(libraries)
    for name in order:
        if path and not listing.names and not listing.reasons:
            answer = _at(name, path)
        else:
            answer = _first(name, known, loaded_only=loaded_only, ahead=listing.names)
        if isinstance(answer, Usable):
            listing.handles.append(answer.handle)
            listing.names.append(name)
        else:
            listing.reasons[name] = answer
    return listing


def _at(name: str, path: str) -> Usable | str:
    answer = open_path(name, path)
    return answer.reason if isinstance(answer, Refused) else answer


def _first(
    name: str, libraries: list[Mapping[str, Any]], *, loaded_only: bool, ahead: list[str]
) -> Usable | str:
    """The first file of a provider that opens, or why none is open."""
    if name == REFERENCE:
        return Usable(native.reference(), "")
    files = list(dict.fromkeys(files_of(name, libraries)))
    if not files:
        return "absent: no file of it was found"
    refusals = []
    for file in files:
        if not is_loaded(file.path):
            if ahead:
                refusals.append(f"behind `{ahead[0]}`, and not in the process: not opened")
                continue
            if loaded_only:
                refusals.append("not in the process: not opened without a profile")
                continue
        answer = open_file(name, file)
        if isinstance(answer, Usable):
            return answer
        refusals.append(answer.reason)
    return "; ".join(dict.fromkeys(refusals))


def _in_process() -> list[dict[str, Any]]:
    return [vars(library) for library in libraries_in_process()]


def _names() -> tuple[str, ...]:
    return tuple(provider.name for provider in PROVIDERS)


def _snapshot(values: Mapping[str, int], listing: Listing) -> int:
    snapshot = native.intern(values, listing.handles)
    _listings[snapshot] = listing
    return snapshot
