"""Profiles to commit, without resolving any."""

from __future__ import annotations

from backendcfg.transact import generations
from backendcfg.transact.compiled import Compiled


def compiled(name):
    return Compiled(name=name, tier="none", values={"threads.count": 4}, asked=("threads.count",))


def commit(path, name, **options):
    """Commit a small profile and return its number."""
    plan = {"schema": 1, "name": name, "entries": []}
    return generations.commit(path, name, {"threads.count": "4"}, plan, compiled(name), **options)


def named(generation):
    """`(number, name)` of a generation, or None."""
    return generation and (generation.number, generation.name)
