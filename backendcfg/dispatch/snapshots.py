"""From a compiled plan to the snapshot that native code reads.

The conservative rule: the first provider of the plan's order that opens. Nothing behind it is
opened, because a second library brings a second pool of threads; but what costs nothing is kept
behind it for products that do not fit its integers: libraries already in the process, and ours.

A calibration, where one may be used, lets these compete by speed; and it opens another library that
the profile names if that one's threads were measured to be worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.catalogue.cpu import COMPILED_IN, NATIVE, PROVIDERS
from backendcfg.defaults import DEFAULTS
from backendcfg.dispatch import calibration, speed
from backendcfg.dispatch.providers import (
    Refused,
    Usable,
    compiled_in,
    files_of,
    is_loaded,
    open_file,
    open_path,
)
from backendcfg.errors import MissingLibraryError
from backendcfg.probe.loaded import libraries_in_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backendcfg._native import Prepared
    from backendcfg.dispatch.calibration import Table
    from backendcfg.transact.compiled import Compiled


@dataclass
class Listing:
    """How an order of providers became handles.

    Attributes:
        handles: the open ones, best first.
        names: theirs.
        reasons: for each provider that is not among them, why.
        table: the calibration in use; None for none.
        unused: why none is in use; "" when one is.
        decision: who serves what by it.
    """

    handles: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    table: Table | None = None
    unused: str = ""
    decision: speed.Decision = field(default_factory=speed.Decision)


_default = Listing()
"""How the providers were found that hold where no profile does."""


def materialise(prepared: Prepared) -> int:
    """The address of the snapshot for a prepared profile, opening its library if need be.

    Raises:
        MissingLibraryError: none of its providers can be opened, or the file that it names cannot.
    """
    compiled: Compiled = prepared.payload
    libraries = [*compiled.libraries, *_in_process()]
    path = compiled.values.get("blas.path") or ""
    order = compiled.order or _names()
    listing = list_providers(order, libraries, path)
    if path and order[0] in listing.reasons:
        # Who names a file wants no other library's bits.
        raise MissingLibraryError(
            f"cannot use {path}, which `blas.path` of profile `{compiled.name}` names",
            notes=[listing.reasons[order[0]]],
            helps=["give the absolute path of a library that has CBLAS, or remove `blas.path`"],
        )
    if not listing.handles:
        raise MissingLibraryError(
            f"no library can serve products of CPU arrays under profile `{compiled.name}`",
            notes=[f"{name}: {reason}" for name, reason in listing.reasons.items()],
            helps=[f"allow `{NATIVE.name}` in `[blas] library`: it is always there"],
        )
    _calibrate(
        listing,
        calibration.table_for(compiled),
        libraries,
        named=compiled.named,
        order=compiled.order,
    )
    # With the profile and not by the snapshot, which is kept for ever.
    prepared.listing = listing
    return _snapshot(compiled.values, listing)


def default() -> int:
    """The snapshot that holds where no profile does: NumPy's own library, and ours behind it.

    Only what is in the process is used; nothing is opened that was not.
    """
    global _default
    _default = listing = list_providers(_names(), _in_process(), loaded_only=True)
    _calibrate(listing, calibration.table_for(None), [])
    return _snapshot({}, listing)


def listing_here() -> Listing:
    """How the providers were found that an operation has here and now.

    Raises:
        MissingLibraryError: the profile in force needs a library that cannot be opened.
    """
    _native.snapshot()
    prepared = _native.current()
    return _default if prepared is None else prepared.listing or Listing()


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
    if name in COMPILED_IN:
        return compiled_in(name)
    files = list(dict.fromkeys(files_of(name, libraries)))
    if not files:
        return f"absent: no file of it {'is in the process' if loaded_only else 'was found'}"
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


def _calibrate(
    listing: Listing,
    table: Table | str,
    libraries: Sequence[Mapping[str, Any]],
    *,
    named: tuple[str, ...] = (),
    order: tuple[str, ...] = (),
) -> None:
    """Let the providers of a listing compete by speed, and open one more if that is worth it.

    Those that the profile names compete among themselves: speed never overrides a preference.
    """
    if isinstance(table, str):
        listing.unused = table
        return
    for name, handle in zip(listing.names, listing.handles, strict=True):
        file = native.file() if name in COMPILED_IN else native.describe(handle).path
        listing.unused = calibration.replaced(table, name, file)
        if listing.unused:
            return
    first = listing.names[0]
    if named and first not in named:
        listing.unused = "none of the libraries that `blas.library` names is usable"
        return
    competing = [name for name in named if name == first or name in table.libraries]
    wanted = speed.decide(table, competing).named() if first in competing[:1] else set()
    for name in sorted(wanted - set(listing.names)):
        _open_too(listing, name, table, libraries, order)
    competing = [name for name in listing.names if not named or name in named]
    listing.decision = speed.decide(table, competing)
    if listing.decision.fastest:
        listing.table = table
    else:
        listing.unused = f"`{first}`, which serves, was not measured"


def _open_too(
    listing: Listing,
    name: str,
    table: Table,
    libraries: Sequence[Mapping[str, Any]],
    order: tuple[str, ...],
) -> None:
    """Open a provider that is worth a pool of threads of its own, as the file that was measured."""
    for file in files_of(name, libraries):
        if calibration.replaced(table, name, file.path):
            continue
        answer = open_file(name, file)
        if isinstance(answer, Usable):
            ahead = set(order[: order.index(name)])
            position = sum(1 for other in listing.names if other in ahead)
            listing.handles.insert(position, answer.handle)
            listing.names.insert(position, name)
            del listing.reasons[name]
        else:
            listing.reasons[name] = answer.reason
        return


def _in_process() -> list[dict[str, Any]]:
    return [vars(library) for library in libraries_in_process()]


def _names() -> tuple[str, ...]:
    return tuple(provider.name for provider in PROVIDERS)


def _snapshot(values: Mapping[str, Any], listing: Listing) -> int:
    """The snapshot of a plan's values, at their defaults where it has none, and of a listing."""
    threads = listing.table.threads if listing.table is not None else 1
    preferred = listing.decision.positions(listing.names, threads)
    encoded = native.encode({**DEFAULTS, **values})
    return native.intern(encoded, listing.handles, preferred)
