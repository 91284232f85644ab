"""Scopes of the compiled part: what `current()` is, where, and when it is given back."""

import asyncio
import contextlib
import contextvars
import gc
import subprocess
import sys
import threading
import tracemalloc

import pytest

from backendcfg._native import Prepared, Scope, chain, claims, current

FAST, EXACT = Prepared("fast", None), Prepared("exact", None)


@pytest.fixture(autouse=True)
def _nothing_is_left_open():
    assert chain() == ()
    yield
    assert chain() == ()


def test_scopes_nest_and_restore():
    outside = current()
    with Scope(FAST, 0) as scope:
        assert scope.prepared is FAST
        assert current() is FAST
        with Scope(EXACT, 0):
            assert current() is EXACT
            assert chain() == (EXACT, FAST)
        assert current() is FAST
    assert current() is outside


def test_one_scope_may_be_entered_again():
    scope = Scope(FAST, 0)
    with scope, Scope(EXACT, 0), scope:
        assert chain() == (FAST, EXACT, FAST)


def test_an_exit_stack_holds_scopes():
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(Scope(FAST, 0)).prepared is FAST
        stack.enter_context(Scope(EXACT, 0))
        assert chain() == (EXACT, FAST)


def test_the_classs_own_methods_take_the_scope_first():
    scope = Scope(FAST, 0)
    assert Scope.__enter__(scope) is scope
    assert chain() == (FAST,)
    assert Scope.__exit__(scope, None, None, None) is None
    for call in (Scope.__enter__, Scope.__exit__, lambda: Scope.__enter__(FAST)):
        with pytest.raises(TypeError, match="a method of Scope takes a Scope first"):
            call()
    with pytest.raises(TypeError, match="__enter__ takes no arguments"):
        Scope.__enter__(scope, 1)


COLLECTING = """
import gc
from backendcfg._native import Prepared, Scope, chain, claims

def suspended(number):
    with Scope(Prepared(str(number), None), 0):
        yield

class Circle:
    def __init__(self, generator):
        self.itself, self.generator = self, generator
        next(generator)

gc.disable()
gc.set_threshold(1, 1, 1)
fast = Prepared("fast", None)
for number in range(200):
    Circle(suspended(number))
    gc.enable()
    with Scope(fast, 0):
        pass
    chain(), claims()
    gc.disable()
gc.collect()
print(chain())
"""


def test_a_collector_that_closes_generators_meanwhile_does_no_harm():
    # In a process of its own: what goes wrong here ends the process, at some later point.
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", COLLECTING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "()\n", "")


@pytest.mark.parametrize("exception", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_leaves_the_scope(exception):
    with pytest.raises(exception), Scope(FAST, 0):
        raise exception


def test_a_new_thread_starts_at_the_base():
    seen = []
    with Scope(FAST, 0):
        thread = threading.Thread(target=lambda: seen.append(chain()))
        thread.start()
        thread.join()
    assert seen == [()]


def test_a_copied_context_carries_the_scope_after_it_was_left():
    with Scope(FAST, 0):
        context = contextvars.copy_context()
    assert context.run(current) is FAST
    assert context.run(chain) == (FAST,)


def test_tasks_do_not_see_each_other():
    async def one(prepared, mine, other):
        with Scope(prepared, 0):
            other.set()
            await mine.wait()
            return chain()

    async def both():
        first, second = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(one(FAST, first, second), one(EXACT, second, first))

    assert asyncio.run(both()) == [(FAST,), (EXACT,)]


def test_leaving_out_of_order_removes_the_scopes_own_frame():
    outer, inner = Scope(FAST, 0), Scope(EXACT, 0)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert chain() == (EXACT,)
    inner.__exit__(None, None, None)


def test_a_suspended_generator_takes_away_only_its_own_scope():
    def generator():
        with Scope(FAST, 0):
            yield

    with Scope(EXACT, 0):
        leaking = generator()
        next(leaking)
        with Scope(EXACT, 0):
            assert chain() == (EXACT, FAST, EXACT)
            leaking.close()
            assert chain() == (EXACT, EXACT)


def test_leaving_in_another_context_closes_the_scope_where_it_is(callbacks):
    told = []
    callbacks(misplaced=told.append)
    scope = Scope(FAST, 0)
    context = contextvars.copy_context()
    context.run(scope.__enter__)
    assert context.run(current) is FAST
    scope.__exit__(None, None, None)
    assert told == [scope]
    assert context.run(chain) == ()


def test_leaving_what_was_never_entered_changes_nothing(callbacks):
    told = []
    callbacks(misplaced=told.append)
    scope = Scope(FAST, 0)
    with Scope(EXACT, 0):
        scope.__exit__(None, None, None)
        assert chain() == (EXACT,)
    assert told == [scope]


def test_a_decorator_and_async_with_are_the_callbacks(callbacks):
    async def entered(scope):
        return scope.__enter__()

    async def left(scope, *exception):
        scope.__exit__(*exception)

    callbacks(decorate=lambda scope, function: (scope, function), aenter=entered, aexit=left)

    async def block():
        async with Scope(FAST, 0):
            return chain()

    scope = Scope(FAST, 0)
    assert scope(len) == (scope, len)
    assert asyncio.run(block()) == (FAST,)


@pytest.mark.usefixtures("callbacks")
def test_what_is_not_bound_says_so():
    with pytest.raises(RuntimeError, match=r"^backendcfg\._native: decorate is not bound$"):
        Scope(FAST, 0)(len)
    with pytest.raises(RuntimeError, match=r"^backendcfg\._native: enter_switches is not bound$"):
        Scope(Prepared("x", None, {}), 0).__enter__()


def test_wrong_arguments_are_type_errors():
    with pytest.raises(TypeError, match="Scope takes a Prepared, not str"):
        Scope("fast", 0)
    with pytest.raises(TypeError, match="by position"):
        Scope(prepared=FAST)
    with pytest.raises(TypeError, match="__enter__ takes no arguments"):
        Scope(FAST, 0).__enter__(1)


def test_an_address_that_is_not_a_snapshot_is_refused():
    prepared = Prepared("x", None)
    assert prepared.snapshot == 0
    with pytest.raises(ValueError, match="not the address of a snapshot"):
        prepared.snapshot = 12345
    assert prepared.snapshot == 0


def test_ten_thousand_rounds_leave_no_memory_behind():
    scope = Scope(FAST, 0)
    outer = Scope(EXACT, 0)

    def rounds():
        for _ in range(10_000):
            with outer, Scope(FAST, 0), scope:
                pass
            outer.__enter__()
            scope.__enter__()
            outer.__exit__(None, None, None)
            scope.__exit__(None, None, None)

    rounds()
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in (FAST, EXACT, scope, outer)]
    tracemalloc.start()
    rounds()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert counts == [sys.getrefcount(thing) for thing in (FAST, EXACT, scope, outer)]
    assert grown < 10_000


def test_a_hundred_thousand_open_scopes_are_no_recursion():
    scopes = [Scope(FAST, 0) for _ in range(100_000)]
    for scope in scopes:
        scope.__enter__()
    scopes[0].__exit__(None, None, None)
    assert len(chain()) == 99_999
    context = contextvars.copy_context()
    for scope in reversed(scopes[1:]):
        scope.__exit__(None, None, None)
    assert len(context.run(chain)) == 99_999
    del context


def test_sixty_four_threads_never_mix():
    wrong = []
    start = threading.Barrier(64)

    def work(number):
        mine = Prepared(str(number), None)
        start.wait()
        for _ in range(200):
            with Scope(mine, 0), Scope(FAST, 0), Scope(mine, 0):
                if chain() != (mine, FAST, mine) or claims():
                    wrong.append(number)
            if chain():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
