"""The registry is one per process: every test starts and ends with nothing in it."""

from __future__ import annotations

import gc

import pytest

from backendcfg import _native
from backendcfg.registry import base, busy, owners
from backendcfg.session import wiring


@pytest.fixture(autouse=True)
def _empty_registry():
    wiring.connect()
    previous = _native.current() if not _native.chain() else None
    cells = dict(owners.CELLS)  # which settings that are kept for other tests refer to
    owners.CELLS.clear()
    owners.STUCK.clear()
    owners.this_thread().cells.clear()
    base._applied.clear()
    yield
    gc.collect()
    held = {name: cell.claims for name, cell in owners.CELLS.items() if cell.claims}
    waiting_ones = set(busy.WAITERS)
    owners.CELLS.clear()
    owners.CELLS.update(cells)
    owners.STUCK.clear()
    base._applied.clear()
    _native.set_base(previous)
    assert held == {}, "a claim leaked"
    assert waiting_ones == set(), "a waiter leaked"
    assert _native.chain() == (), "a scope leaked"
