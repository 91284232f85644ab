"""A scope around functions, coroutine functions and generators."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest
from fake_switches import WAIT, Switch, scope

from backendcfg import _native
from backendcfg.errors import ProfileBusyError


def name():
    current = _native.current() if _native.chain() else None
    return current and current.name


def test_a_function_runs_in_the_scope_every_time():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    def compute(depth, *, scale=1):
        """Say what is in force."""
        return compute(depth - 1) if depth else (name(), threads.value * scale)

    assert compute(0) == ("fast", 4)
    assert compute(3) == ("fast", 4)
    assert compute.__name__ == "compute"
    assert compute.__doc__ == "Say what is in force."
    assert (name(), threads.value) == (None, 8)


def test_a_method_and_a_partial_keep_their_kind():
    threads = Switch("threads", 8)

    class Model:
        @scope("fast", (threads, 4))
        def fit(self):
            return self, threads.value

    async def add(one, two):
        return one + two, threads.value

    model = Model()
    assert model.fit() == (model, 4)
    wrapped = scope("fast", (threads, 4))(functools.partial(add, 1))
    assert asyncio.run(wrapped(2)) == (3, 4)


def test_an_exception_leaves_a_decorated_function_s_scope():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        fail()
    assert (name(), threads.value) == (None, 8)


def test_a_coroutine_function_stays_one_and_runs_in_the_scope():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    async def compute():
        before = name(), threads.value
        await asyncio.sleep(0)
        return before, (name(), threads.value)

    assert inspect.iscoroutinefunction(compute)
    assert asyncio.run(compute()) == (("fast", 4), ("fast", 4))
    assert threads.value == 8


def test_a_generator_does_not_leak_its_scope_to_its_consumer():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    def numbers():
        for number in range(3):
            yield number, name(), threads.value

    assert inspect.isgeneratorfunction(numbers)
    outside = []
    inside = []
    for item in numbers():
        inside.append(item)
        outside.append((name(), threads.value))
    assert inside == [(0, "fast", 4), (1, "fast", 4), (2, "fast", 4)]
    assert outside == [(None, 8)] * 3
    assert (name(), threads.value) == (None, 8)


def test_a_generator_is_sent_values_thrown_errors_and_closed_in_its_scope():
    threads = Switch("threads", 8)
    seen = []

    @scope("fast", (threads, 4))
    def conversation():
        try:
            received = yield "ready"
            seen.append((received, name(), threads.value))
            try:
                yield "again"
            except ValueError as error:
                seen.append((str(error), name(), threads.value))
            yield "caught"
        finally:
            seen.append(("closed", name(), threads.value))

    generator = conversation()
    assert next(generator) == "ready"
    assert generator.send("hello") == "again"
    assert generator.throw(ValueError("thrown")) == "caught"
    generator.close()
    assert seen == [("hello", "fast", 4), ("thrown", "fast", 4), ("closed", "fast", 4)]
    assert (name(), threads.value) == (None, 8)


def test_a_generator_returns_its_value_and_raises_its_errors():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    def delegate():
        got = yield 1
        if got == "fail":
            raise KeyError("inside")
        return got

    def outer():
        return (yield from delegate())

    generator = outer()
    next(generator)
    with pytest.raises(StopIteration) as stopped:
        generator.send("value")
    assert stopped.value.value == "value"
    generator = outer()
    next(generator)
    with pytest.raises(KeyError, match="inside"):
        generator.send("fail")
    assert threads.value == 8


def test_a_generator_s_own_scopes_are_suspended_with_it():
    threads = Switch("threads", 8)

    @scope("outer", (threads, 4))
    def numbers():
        yield threads.value
        with scope("inner", (threads, 2)):
            yield threads.value
            yield threads.value
        yield threads.value

    inside, outside = [], []
    for value in numbers():
        inside.append(value)
        outside.append(threads.value)
    assert inside == [4, 2, 2, 4]
    assert outside == [8, 8, 8, 8]


def test_a_consumer_may_open_another_scope_around_each_step():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    def numbers():
        yield threads.value
        yield threads.value

    generator = numbers()
    seen = [next(generator)]
    with scope("other", (threads, 2)):
        seen.append(threads.value)
        seen.append(next(generator))
        seen.append(threads.value)
    generator.close()
    assert seen == [4, 2, 4, 2]
    assert threads.value == 8


def test_two_generators_that_disagree_can_be_consumed_in_turn():
    threads = Switch("threads", 8)

    def numbers():
        while True:
            yield threads.value

    one, two = (scope(f"p{n}", (threads, n))(numbers)() for n in (1, 2))
    assert [next(g) for g in (one, two, one, two)] == [1, 2, 1, 2]
    one.close()
    two.close()
    assert threads.value == 8


def test_a_generator_whose_switch_was_taken_ends_with_profile_busy():
    import contextvars

    threads = Switch("threads", 8)
    closed = []

    @scope("fast", (threads, 4))
    def numbers():
        try:
            yield 1
            yield 2
        finally:
            closed.append(name())

    generator = numbers()
    assert next(generator) == 1
    elsewhere, other = contextvars.Context(), scope("other", (threads, 2))
    elsewhere.run(other.__enter__)
    with pytest.raises(ProfileBusyError, match="which profile `other` holds at 2"):
        next(generator)
    elsewhere.run(other.__exit__, None, None, None)
    assert closed == ["fast"]
    assert threads.value == 8


def test_an_abandoned_generator_gives_everything_back():
    threads = Switch("threads", 8)

    @scope("fast", (threads, 4))
    def numbers():
        yield 1

    generator = numbers()
    next(generator)
    del generator
    assert (name(), threads.value) == (None, 8)


def test_an_async_generator_does_not_leak_its_scope_to_its_consumer():
    threads = Switch("threads", 8)
    inside, outside = [], []

    @scope("fast", (threads, 4))
    async def numbers():
        for number in range(3):
            await asyncio.sleep(0)
            got = yield number, name(), threads.value
            inside.append(got)

    async def consume():
        async for item in numbers():
            inside.append(item)
            outside.append((name(), threads.value))
        outside.append((name(), threads.value))

    assert inspect.isasyncgenfunction(numbers)
    asyncio.run(consume())
    assert inside == [(0, "fast", 4), None, (1, "fast", 4), None, (2, "fast", 4), None]
    assert outside == [(None, 8)] * 4


def test_an_async_generator_is_sent_values_thrown_errors_and_closed_in_its_scope():
    threads = Switch("threads", 8)
    seen = []

    @scope("fast", (threads, 4))
    async def conversation():
        try:
            seen.append(((yield "ready"), name(), threads.value))
            try:
                yield "again"
            except ValueError as error:
                await asyncio.sleep(0)
                seen.append((str(error), name(), threads.value))
            yield "caught"
        finally:
            await asyncio.sleep(0)
            seen.append(("closed", name(), threads.value))

    async def talk():
        generator = conversation()
        assert await anext(generator) == "ready"
        assert await generator.asend("hello") == "again"
        assert await generator.athrow(ValueError("thrown")) == "caught"
        await generator.aclose()

    asyncio.run(talk())
    assert seen == [("hello", "fast", 4), ("thrown", "fast", 4), ("closed", "fast", 4)]
    assert threads.value == 8


def test_an_async_generator_waits_for_its_switch_without_blocking_the_loop():
    threads = Switch("threads", 8)
    seen = []

    @scope("fast", (threads, 4), busy=WAIT)
    async def numbers():
        yield threads.value
        yield threads.value

    async def holder(taken, release):
        async with scope("other", (threads, 2)):
            taken.set()
            await release.wait()
            seen.append("released")

    async def main():
        taken, release = asyncio.Event(), asyncio.Event()
        generator = numbers()
        seen.append(await anext(generator))
        task = asyncio.create_task(holder(taken, release))
        await taken.wait()
        step = asyncio.ensure_future(anext(generator))
        await asyncio.sleep(0)
        release.set()
        seen.append(await step)
        await generator.aclose()
        await task

    asyncio.run(main())
    assert seen == [4, "released", 4]
    assert threads.value == 8
