"""A scope around every call of a function, a coroutine function or a generator function.

A decorated generator runs in a context of its own, so its consumer does not see its scope, and the
switches that it holds in other libraries are given back while it is suspended and taken again for
the next step. When another scope has taken one of them meanwhile, that step does as `busy` says;
under "raise" the generator ends with ProfileBusyError. Changes that the consumer makes to context
variables after the first step are not seen in the generator.
"""

from __future__ import annotations

import functools
import inspect
import types
from contextvars import Context, copy_context

from backendcfg import _native, log
from backendcfg.registry import busy, entering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from typing import Any

    from backendcfg._native import Scope
    from backendcfg.errors import InvalidArgumentError


def decorate(scope: Scope, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the scope around it; what kind of function it is does not change.

    Raises:
        InvalidArgumentError: it is a class, or what `@classmethod` and `@staticmethod` make.
    """
    if isinstance(function, (classmethod, staticmethod)):
        kind = type(function).__name__
        raise _refusal(f"a {kind}, which is no function yet", f"put the decorator below `@{kind}`")
    if isinstance(function, type):
        raise _refusal(f"the class `{function.__qualname__}`", "decorate its methods")
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if isinstance(function, functools.partial):
        called = function.func
    if inspect.isasyncgenfunction(called):
        return _async_generator(scope, function)
    if inspect.isgeneratorfunction(called):
        return _generator(scope, function)
    if inspect.iscoroutinefunction(called):

        @functools.wraps(function)
        async def in_scope(*positional: Any, **named: Any) -> Any:
            async with scope:
                return await function(*positional, **named)

        return in_scope

    @functools.wraps(function)
    def under_scope(*positional: Any, **named: Any) -> Any:
        with scope:
            return function(*positional, **named)

    return under_scope


def _refusal(what: str, cure: str) -> InvalidArgumentError:
    from backendcfg.errors import InvalidArgumentError

    return InvalidArgumentError(f"a scope cannot decorate {what}", helps=[cure])


def _generator(scope: Scope, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def stepped(*positional: Any, **named: Any) -> Generator[Any, Any, Any]:
        context, depth = copy_context(), len(_native.claims())
        generator = function(*positional, **named)
        context.run(scope.__enter__)
        try:
            call, argument = generator.send, None
            while True:
                try:
                    item = context.run(call, argument)
                except StopIteration as stop:
                    return stop.value
                context.run(entering.suspend, depth)
                try:
                    call, argument = generator.send, (yield item)
                except GeneratorExit:
                    _resume_to_close(context, depth)
                    context.run(generator.close)
                    raise
                except BaseException as error:  # thrown in by the consumer
                    call, argument = generator.throw, error
                try:
                    context.run(entering.resume, depth, _native.claims())
                except BaseException:
                    context.run(generator.close)
                    raise
        finally:
            context.run(scope.__exit__, None, None, None)

    return stepped


def _async_generator(scope: Scope, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def stepped(*positional: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        context, depth = copy_context(), len(_native.claims())
        generator = function(*positional, **named)
        await _within(context, entering.enter_in_task(scope))
        try:
            step = generator.asend(None)
            while True:
                try:
                    item = await _within(context, step)
                except StopAsyncIteration:
                    return
                context.run(entering.suspend, depth)
                try:
                    step = generator.asend((yield item))
                except GeneratorExit:
                    _resume_to_close(context, depth)
                    await _within(context, generator.aclose())
                    raise
                except BaseException as error:  # thrown in by the consumer
                    step = generator.athrow(error)
                around = _native.claims()
                take = functools.partial(entering.resume, depth, around)
                try:
                    await _within(context, entering.when_free(take))
                except BaseException:
                    await _within(context, generator.aclose())
                    raise
        finally:
            context.run(scope.__exit__, None, None, None)

    return stepped


def _resume_to_close(context: Context, depth: int) -> None:
    """Take the switches back for the generator's own cleaning up, if they are free."""
    from backendcfg.errors import BackendCfgError

    try:
        context.run(entering.resume, depth, _native.claims(), busy.SKIP)
    except BackendCfgError as error:
        log.error("closing a generator: %s", error)


@types.coroutine
def _within(context: Context, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await something with every step of it in a context of its own."""
    steps: Any = context.run(awaitable.__await__)
    call, argument = steps.send, None
    while True:
        try:
            signal = context.run(call, argument)
        except StopIteration as stop:
            return stop.value
        try:
            call, argument = steps.send, (yield signal)
        except GeneratorExit:
            context.run(steps.close)
            raise
        except BaseException as error:
            call, argument = steps.throw, error
