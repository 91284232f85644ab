"""A short digest of everything in force that can change bits or compiled code.

For cache keys, file names and logs. Equal tokens on equal machines mean equal arithmetic: the same
libraries with the same switches, as they read back, whoever set them. It says nothing about the
state of random generators, nor about what a program computes.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.audit import computing, facts, survey
from backendcfg.bridges.environment import started_with
from backendcfg.bridges.pool_calls import mapped_set
from backendcfg.probe import environment
from backendcfg.probe.variables import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.transact.compiled import Compiled

FORMAT = 2
"""Raised when another release composes the digest in another way."""

_constant: tuple[Any, dict[str, Any], str] = (None, {}, "")


class Token(str):
    """Sixteen hexadecimal digits, and what went into them.

    Attributes:
        parts: `switches` with the value of each, `facts` that have no flag, `flags` that the
            profile in force sets, `variables`, `libraries` by file name with their size and a
            digest of their content, `versions`, `processor` and `devices`.
    """

    __slots__ = ("parts",)
    parts: dict[str, dict[str, Any]]

    def differences(self, other: Token) -> dict[str, tuple[Any, Any]]:
        """What differs between two tokens: `{"libraries.libopenblas.so": (this, other)}`."""
        found: dict[str, tuple[Any, Any]] = {}
        for part in self.parts:
            mine, theirs = self.parts[part], other.parts[part]
            for name in sorted({*mine, *theirs}):
                if mine.get(name) != theirs.get(name):
                    found[f"{part}.{name}"] = (mine.get(name), theirs.get(name))
        return found


def numerics_token() -> Token:
    """The digest of what is in force in this thread or task now.

    It has the libraries that are loaded, so take it when everything that computes is imported. It
    changes with every switch and fact that can change bits, by whomever it is set, and never with
    the time, the place of files, or the names of profiles.
    """
    global _constant
    loaded = computing.versions(), mapped_set()
    if _constant[0] != loaded or loaded[1] is None:
        constant = computing.describe()
        _constant = (loaded, constant, _digest(constant))
    changing = {
        "switches": _switches(),
        "facts": {name: facts.plain(value) for name, value in facts.facts().items()},
        "flags": _flags(),
        "variables": _variables(),
    }
    token = Token(_digest([FORMAT, _constant[2], changing]))
    token.parts = {**changing, **_constant[1]}
    return token


def _switches() -> dict[str, Any]:
    matter = _matter()
    return {
        name: "unreadable" if switch.obstacle else switch.value
        for name, switch in survey.survey().items()
        if switch.flag in matter
    }


def _flags() -> dict[str, Any]:
    """What the profile in force sets, also for libraries that are not loaded, and for ours."""
    current = _native.current()
    if current is None:
        return {}
    compiled: Compiled = current.payload
    matter = _matter()
    values: Mapping[str, Any] = compiled.values
    found = {flag: values[flag] for flag in compiled.asked if flag in values and flag in matter}
    return {**found, "order": list(compiled.order)}


def _variables() -> dict[str, Any]:
    """Texts that no switch can be read for; both, where this process changed one since it began.

    Whoever read it may have done so before the change or after.
    """
    now, first = environment.watched(), _at_start()
    read_back = _read_back()
    names = sorted({*now, *first} - read_back)
    pairs = {name: [first.get(name), now.get(name)] for name in names if name[:3] != "LD_"}
    return {name: two if two[0] != two[1] else two[0] for name, two in pairs.items()}


@cache
def _matter() -> frozenset[str]:
    from backendcfg.schema.profile import flags

    return frozenset(name for name in flags() if survey.matters(name))


@cache
def _at_start() -> dict[str, str]:
    return environment.watched(started_with())


@cache
def _read_back() -> frozenset[str]:
    """The variables whose libraries can be asked what came of them."""
    return frozenset(row.name for row in VARIABLES if row.runtime)


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()
