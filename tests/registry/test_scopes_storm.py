"""64 threads and 64 tasks with overlapping scopes: no leak, no mixture, the base restored.

Every peer fails this: each scope saves what it sees and restores it, so overlapping scopes restore
each other's temporary values.
"""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from fake_switches import RAISE, SKIP, WAIT, Switch, profile

from backendcfg import _native
from backendcfg.errors import ProfileBusyError
from backendcfg.registry import entering

WORKERS = 64
ROUNDS = 10_000
BASE = 64


@pytest.fixture(name="world")
def _world():
    """Two switches and four profiles that want different values in them."""
    threads, core = Switch("threads", BASE), Switch("core", "base")
    profiles = [
        profile(f"p{number}", (threads, number), (core, f"core{number}")) for number in range(1, 4)
    ]
    profiles.append(profile("only-core", (core, "core1")))
    return threads, core, profiles


class Tally:
    """What happened, and every breach of the promise."""

    def __init__(self, threads, core):
        self.threads, self.core = threads, core
        self.entered = self.busy = self.nested = 0
        self.breaches = []

    def look(self, prepared):
        """Check that the switches are as this scope wants them."""
        settings = {setting.switch.name: setting.wanted for setting in prepared.switches()}
        found = {name: getattr(self, name).value for name in settings}
        if found != settings:
            self.breaches.append((prepared.name, found, settings))
        if _native.current() is not prepared:
            self.breaches.append((prepared.name, _native.current()))


def check(tally, rounds):
    assert tally.breaches == []
    assert entering.holdings() == ()
    assert entering.stuck() == ()
    assert (tally.threads.value, tally.core.value) == (BASE, "base")
    assert tally.entered + tally.busy == rounds
    assert tally.entered > rounds // 100
    assert tally.busy > 0
    assert tally.nested > 0


@pytest.mark.slow
def test_64_threads_with_overlapping_scopes_for_10_000_rounds(world):
    threads, core, profiles = world
    tally = Tally(threads, core)
    lock = threading.Lock()
    start = threading.Barrier(WORKERS)

    def work(seed):
        chance = random.Random(seed)
        entered = busy = nested = 0
        start.wait()
        for _ in range(ROUNDS // WORKERS):
            outer, inner = chance.choice(profiles), chance.choice(profiles[:3])
            how = chance.choice((RAISE, WAIT))
            try:
                with _native.Scope(outer, how):
                    tally.look(outer)
                    if chance.random() < 0.3:
                        try:
                            with _native.Scope(inner, RAISE):
                                tally.look(inner)
                                nested += 1
                        except ProfileBusyError:
                            pass
                        tally.look(outer)
                    if chance.random() < 0.1:
                        raise ValueError
                    start.broken  # noqa: B018 - a few bytecodes for others to get in
                entered += 1
            except ValueError:
                entered += 1
            except ProfileBusyError:
                busy += 1
        with lock:
            tally.entered += entered
            tally.busy += busy
            tally.nested += nested

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(WORKERS)]
    with switching_often():
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    check(tally, WORKERS * (ROUNDS // WORKERS))


class switching_often:  # noqa: N801
    """Let threads take turns a thousand times as often as usual."""

    def __enter__(self):
        import sys

        self.before = sys.getswitchinterval()
        sys.setswitchinterval(5e-6)

    def __exit__(self, *_):
        import sys

        sys.setswitchinterval(self.before)


# Tasks take turns in the same order each time, so that few rounds meet what many do; threads do not.
@pytest.mark.parametrize("rounds", [1_000, pytest.param(ROUNDS, marks=pytest.mark.exhaustive)])
def test_64_tasks_with_overlapping_scopes(world, rounds):
    threads, core, profiles = world
    tally = Tally(threads, core)

    async def work(seed):
        chance = random.Random(seed)
        for _ in range(rounds // WORKERS):
            outer, inner = chance.choice(profiles), chance.choice(profiles[:3])
            how = chance.choice((RAISE, WAIT))
            try:
                async with _native.Scope(outer, how):
                    tally.look(outer)
                    await asyncio.sleep(0)
                    tally.look(outer)
                    if chance.random() < 0.3:
                        try:
                            with _native.Scope(inner, RAISE):
                                tally.look(inner)
                                await asyncio.sleep(0)
                                tally.look(inner)
                                tally.nested += 1
                        except ProfileBusyError:
                            pass
                        tally.look(outer)
                    await asyncio.sleep(0)
                tally.entered += 1
            except ProfileBusyError:
                tally.busy += 1
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(work(seed) for seed in range(WORKERS)))

    asyncio.run(main())
    check(tally, WORKERS * (rounds // WORKERS))


def test_threads_and_tasks_together_with_every_choice_of_busy(world):
    threads, core, profiles = world
    tally = Tally(threads, core)
    skipped = []

    def in_threads(seed):
        chance = random.Random(seed)
        for _ in range(100):
            prepared = chance.choice(profiles)
            how = chance.choice((RAISE, WAIT, SKIP))
            try:
                with _native.Scope(prepared, how):
                    if how == SKIP:
                        skipped.append(_native.current() is prepared)
                    else:
                        tally.look(prepared)
            except ProfileBusyError:
                pass

    async def in_task(seed):
        chance = random.Random(seed)
        for _ in range(100):
            prepared = chance.choice(profiles)
            try:
                async with _native.Scope(prepared, WAIT):
                    tally.look(prepared)
                    await asyncio.sleep(0)
                    tally.look(prepared)
            except ProfileBusyError as error:
                tally.breaches.append(error.message)

    async def main():
        await asyncio.gather(*(in_task(seed) for seed in range(16)))

    workers = [threading.Thread(target=in_threads, args=(seed,)) for seed in range(16)]
    with switching_often():
        for worker in workers:
            worker.start()
        asyncio.run(main())
        for worker in workers:
            worker.join()
    assert tally.breaches == []
    assert all(skipped)
    assert skipped
    assert (threads.value, core.value) == (BASE, "base")
    assert entering.holdings() == ()
