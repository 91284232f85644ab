"""Digests of what a run produced, equal for runs that a proof calls equal."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from backendcfg.audit.evidence.lock import Results
from backendcfg.audit.evidence.outputs import parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.audit.evidence.files import Content
    from backendcfg.audit.evidence.prove import Proof
    from backendcfg.audit.evidence.recorded import Stream
    from backendcfg.audit.evidence.runs import Run

MOST_FILES = 100
"""Of more files there is one digest for all, since a lock is small."""


def results_of(proof: Proof, first: Run, written: Mapping[str, Content]) -> Results:
    """What every run of a proof produced whose runs are equal.

    Args:
        proof: what it showed.
        first: its first run.
        written: what each file holds that the first run wrote.
    """
    return Results(
        runs=proof.runs,
        bound=round(proof.bound, 4),
        text=_of_text(first.whole_text),
        records=_of_records(first.records),
        files=None if proof.files is None else _of_files(written),
        also=dict(proof.also) or None,
    )


def _digest(data: Any) -> str:
    return blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()


def _of_text(text: str) -> str:
    """A time counts as one, whichever it is."""
    return _digest([[kind, "" if kind == "time" else piece] for kind, piece in parts(text)])


def _of_records(streams: Sequence[Stream]) -> str:
    """Which process recorded what does not count; which rank and which task does."""
    if not any(stream.records for stream in streams):
        return ""
    return _digest(sorted(map(_of_stream, streams)))


def _of_stream(stream: Stream) -> str:
    values = {
        name: [[one.dtype, one.shape, one.digest] for one in records]
        for name, records in stream.records.items()
    }
    whose = [one for one in (stream.rank, stream.task or None) if one is not None]
    return _digest([*whose, values] if whose else values)


def _of_files(written: Mapping[str, Content]) -> dict[str, str]:
    found = {path: _of_content(one) for path, one in written.items()}
    return found if len(found) <= MOST_FILES else {f"{len(found)} files": _digest(found)}


def _of_content(one: Content) -> str:
    """As `files.differing` compares it: numbers but for times, else its parts, else all of it."""
    if one.text is not None:
        return _of_text(one.text)
    return _digest(sorted([*part, value] for part, value in one.parts.items()) or one.whole)
