"""Calls on devices of kinds that were seen: C makes them alone, from what Python says of the first.

    found = recalled("conv2d", NAMES, arrays, options)      # the results, or None: make it here
    ...
    _native.device_remember(arrays, options, True, steps, results, about, 1)

A step is a tuple: the name of its kind, what C reads, and at the end whose failure it would be, as
`Arguments.failed` names it. Arrays are referred to by number, those of the call first and then
those that are made: see native/src/python/device_steps.c. A step that begins with no name is a
launch of a kernel of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg import _native
from backendcfg.gpu.arrays import Arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.gpu.cudnn.search import Plan

# An array seen otherwise: methods, called one after the other, each with an argument at most.
Views = tuple[tuple[Any, ...], ...]
PLAIN: Views = (("detach",),)
"""An array of the caller's without its history, as `device_library.plain` gives it."""


def recalled(
    operation: str,
    names: tuple[str, ...],
    arrays: tuple[Any, ...],
    options: tuple[Any, ...],
    seed: int = 0,
    *,
    is_recorded: bool = False,
) -> tuple[Any, ...] | None:
    """The results of a call that C can make alone; None where it is of no kind that was kept.

    Args:
        operation: for messages, as the names of the arrays are.
        names: of the arrays.
        arrays: of the call, None where there is none.
        options: what else its kind is known by.
        seed: of dropout.
        is_recorded: nobody need ask whether an array needs a gradient.

    Raises:
        DeviceFailedError: the device failed.
    """
    found = _native.device_recall(arrays, options, seed, is_recorded)
    if found is None:
        return None
    if found[0] is not None:
        failed(operation, names, arrays, found)
    return found[1:]


def failed(
    operation: str, names: tuple[str, ...], arrays: tuple[Any, ...], found: tuple[Any, ...]
) -> NoReturn:
    """Raise what failed in a call that C made alone, in the words of one that Python makes.

    Args:
        operation: for the message.
        names: of the arrays.
        arrays: of the call.
        found: what failed, what the call would have been counted as, and the step.

    Raises:
        DeviceFailedError: always, but for the next.
        InvalidArgumentError: this process was forked from one that had used the device.
    """
    fault, about, step = found
    named: tuple[str, ...] = step[-1] if isinstance(step[0], str) else (about[1],)
    library, *notes = named
    if len(fault) > 3 and fault[3]:
        notes.append(f"cuDNN says: {fault[3]}")
    given = Arguments(operation, dict(zip(names, arrays, strict=True)))
    given.failed(library, fault[:3], *notes)


def graph(
    libraries: tuple[int, int],
    plan: Plan,
    tensors: tuple[int, ...],
    arrays: tuple[int, ...],
    constants: bytes = b"",
) -> tuple[Any, ...]:
    """A run of cuDNN's plan.

    Args:
        libraries: addresses of cuDNN and of the driver.
        plan: the plan.
        tensors: their numbers in the graph.
        arrays: the array of each; below 0 a place in the constants, -1 being their first byte.
        constants: what cuDNN reads from the host's memory.
    """
    number = plan.described[0]
    return (
        *("graph", *libraries, number, plan.place),
        *(tensors, arrays, constants, plan.workspace, ("cuDNN",)),
    )


def method(target: int, name: str, *arguments: Any, seen: Views = ()) -> tuple[Any, ...]:
    """A method of an array, by its own library.

    Args:
        target: the array.
        name: of the method.
        arguments: one at most.
        seen: what the method is called of, where that is a view.
    """
    return "method", target, seen, name, arguments, -1, ()


def method_of(
    target: int, name: str, source: int, *, target_seen: Views = (), source_seen: Views = ()
) -> tuple[Any, ...]:
    """A method of an array whose argument is another."""
    return "method", target, target_seen, name, (), source, source_seen


def filled(
    target: int, shape: Sequence[int], source: int, found: Sequence[int], seen: Views
) -> tuple[tuple[Any, ...], ...]:
    """What `device_library.fill` does, for PyTorch's arrays.

    Args:
        target: the array that is written.
        shape: of it.
        source: the array that is read.
        found: its shape, as it is seen.
        seen: how it is seen.
    """
    if tuple(shape) == tuple(found):
        return (method_of(target, "copy_", source, source_seen=seen),)
    corner = tuple(slice(0, min(one, other)) for one, other in zip(shape, found, strict=True))
    view = ("__getitem__", corner)
    copied = method_of(target, "copy_", source, target_seen=(view,), source_seen=(*seen, view))
    grows = any(one > other for one, other in zip(shape, found, strict=True))
    return (method(target, "zero_"), copied) if grows else (copied,)
