"""A child interpreter that is asked one question and answers with one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from backendcfg import errors
from backendcfg.errors import BackendCfgError, InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_SECONDS = 120


def ask(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    task: str,
    remedy: str,
    given: str = "",
    python: str = sys.executable,
) -> dict[str, Any]:
    """What the child prints as its last line.

    Args:
        words: the interpreter's arguments. The working directory is not searched for modules: a
            folder of the user's may be called like one.
        environment: of the child.
        task: what it does, for messages: "the rehearsal of profile `fast`".
        remedy: what else the user can do, if it dies.
        given: its standard input.
        python: its interpreter.

    Raises:
        BackendCfgError: what the child answered under `error`, as its own class.
        InternalError: it died, hung or did not answer.
    """
    try:
        child = subprocess.run(
            [python, "-P", *words],
            input=given,
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InternalError(
            f"{task} did not end within {LIMIT_SECONDS} s", helps=[remedy]
        ) from error
    try:
        answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        last = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InternalError(
            f"{task} ended with status {child.returncode}", notes=[last], helps=[remedy]
        ) from error
    if "error" in answer:
        raise from_record(answer["error"])
    return answer


def from_record(record: Mapping[str, Any]) -> BackendCfgError:
    """The error that `to_dict` wrote, as its own class."""
    kinds = {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, BackendCfgError)
    }
    return kinds.get(record["code"], InternalError)(
        record["message"],
        spans=[errors.Span(**place) for place in record["places"]],
        notes=record["notes"],
        state=record["state"],
        helps=record["helps"],
    )
