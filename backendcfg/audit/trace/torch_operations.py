"""The operations of PyTorch, as its dispatcher calls them below autograd.

A mode of dispatch sees the operations of one thread: forward and backward, those of optimizers and
of workers. Views and memory that nothing is written to yet compute nothing, and are not recorded.
What `torch.compile` made is opaque: its kernels are no operations. Of the operations in its window
a stream gets the line that calls them, for those of a backward pass the line of the forward one.
"""

from __future__ import annotations

import os
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.audit import places
from backendcfg.audit.trace import again
from backendcfg.audit.trace.nested import leaves, mapped
from backendcfg.audit.trace.streams import GENERATOR, LARGEST_KEPT, MOST_SAMPLED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.audit.trace.streams import Recorder, Stream

OURS = ("torch", "torchgen", "functorch", "backendcfg", "contextlib", "threading")
"""Packages whose lines are not the program's."""

KEPT = ".pt"
"""What the files are called that hold the arguments of an operation."""

# Their result is memory as it was found.
_UNWRITTEN = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
)
_PRECISIONS = tuple(
    f"{where}.fp32_precision"
    for where in ("cuda.matmul", "cudnn.conv", "mkldnn.matmul", "mkldnn.conv")
)
_OVERWRITES = ("copy_", "fill_", "zero_")
# Packages whose operations wait for other ranks, each of which would make them once.
_COMMUNICATING = ("c10d", "_c10d_functional", "symm_mem")
# Their schemas do not say that they write to an argument.
_WRITING = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
# More than one result is right: vectors may have another sign, and rows another order.
_FACTORIZATIONS = (
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "geqrf",
    "linalg_eig",
    "linalg_ldl_factor_ex",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_qr",
)
# A view of what Python or NumPy made, which no other operation shows.
_FROM_OUTSIDE = ("lift_fresh",)


@dataclass(frozen=True)
class Operation:
    """What is known of an operator.

    Attributes:
        name: as PyTorch prints it, without its namespace's default overload.
        computes: whether it is recorded.
        written: the numbers of arguments that it writes to; with `written_names`, for those that
            are given by name.
        overwrites: whether it does so without reading them.
        draws: whether it draws from a generator.
        allocates: whether it gives memory that nothing is written to yet.
    """

    name: str
    computes: bool
    written: tuple[int, ...] = ()
    written_names: tuple[str, ...] = ()
    overwrites: bool = False
    draws: bool = False
    allocates: bool = False


def watch(recorder: Recorder) -> None:
    """Record PyTorch, which has been imported, in this thread and in those that start later."""
    make = modes(recorder)
    make().__enter__()
    recorder.in_threads.append(make)


def modes(recorder: Recorder) -> Any:
    """The mode of dispatch that records, as a class."""
    import torch
    from torch.utils import _python_dispatch

    mode: Any = _python_dispatch.TorchDispatchMode
    known: dict[Any, Operation] = {}
    plain = (torch.Tensor, torch.nn.Parameter)

    class Operations(mode):  # type: ignore[misc]
        """Records the operations of the thread that enters it."""

        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            # Without it, PyTorch compiles nothing while a mode is active.
            return True

        def __init__(self) -> None:
            super().__init__()
            self.lines: dict[int, str] = {}
            self.unwritten: set[int] = set()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            about = known.get(func)
            if about is None:
                about = known[func] = known_operation(torch, func)
            if not about.computes:
                out = func(*args, **kwargs)
                if about.allocates and recorder.wanted.windows:
                    self.unwritten |= _storages(out)
                return out
            stream = recorder.stream()
            if stream.last >= 0 or stream.again:
                call = _Call(func, args, kwargs)
                return _closely(torch, stream, about, self, call)
            out = func(*args, **kwargs)
            if type(out) in plain:
                stream.add(about.name, digest(torch, out))
            elif (found := _written(about, out, args, kwargs)) is not None:
                stream.add(about.name, _digest_of_all(torch, found))
            return out

    return Operations


def known_operation(torch: Any, func: Any) -> Operation:
    """What the schema of an operator says of it."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a function of functions; what it calls is seen by itself
        return Operation(str(func), computes=False)
    name = schema.name.partition("::")[2]
    views = bool(schema.returns) and all(
        one.alias_info is not None and not one.alias_info.is_write for one in schema.returns
    )
    writes = [
        (i, one.name)
        for i, one in enumerate(schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    ]
    draws = torch.Tag.nondeterministic_seeded in func.tags
    return Operation(
        str(func).removesuffix(".default"),
        computes=name in _FROM_OUTSIDE or not (views or name in _UNWRITTEN),
        written=tuple(i for i, _ in writes),
        written_names=tuple(name for _, name in writes),
        overwrites=draws or name in _OVERWRITES or any(name == "out" for _, name in writes),
        draws=draws,
        allocates=name in _UNWRITTEN and "empty" in name,
    )


def _written(about: Operation, out: Any, args: Any, kwargs: Any) -> list[Any] | None:
    """The tensors that an operation computed; None for one that gives a number or nothing."""
    found = list(_tensors(out))
    if not found:
        given = [args[i] for i in about.written if i < len(args)]
        given += [kwargs[name] for name in about.written_names if name in kwargs]
        found = list(_tensors(given))
    return found or None


def outcome(torch: Any, about: Operation, out: Any, args: Any, kwargs: Any) -> int:
    """The digest of what an operation computed, given what it returned."""
    return _digest_of_all(torch, _written(about, out, args, kwargs) or [])


def _tensors(value: Any) -> Iterator[Any]:
    return (one for one in leaves(value) if hasattr(one, "data_ptr"))


def digest(torch: Any, tensor: Any, seed: int = 0) -> int:
    """A digest of a tensor's elements, in the order of its indices; 0 where they cannot be read."""
    if tensor.layout is not torch.strided:
        return _digest_of_sparse(torch, tensor, seed)
    if tensor.device.type == "meta" or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return 0  # a tensor without elements, or one that stands for others
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.device.type != "cpu":
        return _digest_on_device(torch, tensor, seed)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    size = tensor.numel() * tensor.element_size()
    return _native.digest(tensor.data_ptr(), size, seed) if size else seed


def _digest_of_all(torch: Any, tensors: list[Any]) -> int:
    found = 0
    for one in tensors:
        found = digest(torch, one, found)
    return found


def _digest_of_sparse(torch: Any, tensor: Any, seed: int) -> int:
    if tensor.layout is not torch.sparse_coo:
        return 0
    tensor = tensor.coalesce()
    return digest(torch, tensor.values(), digest(torch, tensor.indices(), seed))


def _digest_on_device(torch: Any, tensor: Any, seed: int) -> int:
    """The sum of the words of a tensor times odd numbers that differ by place, on its device."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return seed
    # Bytes, because a type may have no integer of its size that all its tensors can be viewed as.
    words = flat.view(torch.uint8).to(torch.int64)
    odd = torch.arange(words.numel(), device=tensor.device, dtype=torch.int64)
    odd = odd * -0x61C8864680B583EB | 1  # what digest.c calls `odd`, as a signed number
    total = int(((words + 1) * (odd ^ (odd >> 29))).sum().item())
    return (total + seed) % (1 << 64)


@dataclass(frozen=True)
class _Call:
    """An operator and its arguments."""

    operator: Any
    args: Any
    kwargs: Any

    def __call__(self) -> Any:
        return self.operator(*self.args, **self.kwargs)


def _closely(torch: Any, stream: Stream, about: Operation, mode: Any, call: _Call) -> Any:
    """Run an operation of a stream of which more is wanted than its digest.

    Args:
        torch: the package.
        stream: of this thread.
        about: the operator.
        mode: of this thread, with the `lines` that call forward operations and the storages that
            are `unwritten`.
        call: what is run.
    """
    place = _place(torch, mode.lines)
    wanted = stream.is_in_window()
    keeps = stream.count == stream.keep
    inputs = _inputs(torch, about, call, mode.unwritten) if wanted else []
    kept = _Kept(torch, stream, call) if keeps else None
    second = _second(torch, stream, about, call)
    out = call()
    found = _written(about, out, call.args, call.kwargs)
    if found is None:
        return out
    mode.unwritten -= _storages(found)
    value = _digest_of_all(torch, found)
    if stream.is_followed():
        stream.sample(b"".join(_sample(torch, one, MOST_SAMPLED // len(found)) for one in found))
    facts: dict[str, Any] = {"name": about.name, "place": place}
    outputs = [_shape(one) for one in found]
    if wanted:
        facts |= {"inputs": inputs, "outputs": outputs, "settings": _settings(torch)}
        if kept is not None:
            facts["kept"] = kept.finish(found)
        stream.detail(facts)
    if second is not None and stream.again == again.FLOAT64:
        stream.compare(about.name, place, torch, found, second)
    elif second is not None:
        stream.repeated += 1
        if _digest_of_all(torch, second) != value:
            stream.tell_unlike(about.name, place, outputs)
    stream.add(about.name, value)
    return out


def _second(torch: Any, stream: Stream, about: Operation, call: _Call) -> list[Any] | None:
    """What an operation computes a second time.

    None where it is not run a second time; empty where it cannot be run in float64.
    """
    package, _, name = about.name.partition(".")
    if about.draws or not stream.again or package in _COMMUNICATING:
        return None
    given = call.args, call.kwargs
    exact = stream.again == again.FLOAT64
    name = name.partition(".")[0]
    if name in _FACTORIZATIONS if exact else about.written or name in _WRITING:
        return None
    if not all(_is_plain(torch, one) for one in _tensors(given)):
        return None
    # An operator of the program's own may draw without saying so.
    generator = None if package == "aten" else torch.get_rng_state()
    try:
        if exact and (given := again.tensors_in_float64(torch, given)) is None:
            return None
        return _written(about, call.operator(*given[0], **given[1]), *given)
    except Exception as error:  # a kernel without float64, or what the program's own call raises
        if package == "aten" and again.is_the_programs(error, OURS):
            raise
        return [] if exact else None
    finally:
        if generator is not None:
            torch.set_rng_state(generator)


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether a tensor is what it seems: dense, in memory, and with no code of the program's."""
    is_known = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_known and tensor.layout is torch.strided and tensor.device.type != "meta"


def _place(torch: Any, lines: dict[int, str]) -> str:
    """Where the program calls what runs now: "train.py:16", or "backward of train.py:16"."""
    node = torch._C._current_autograd_node()
    if node is None:
        place = places.place(OURS, sys._getframe(2))
        # The number that the node of this operation will have.
        lines[torch.autograd._get_sequence_nr() - 1] = place
        return place
    forward = lines.get(node._sequence_nr(), "")
    return f"{forward}, in its backward" if forward else f"a backward pass ({node.name()})"


def _settings(torch: Any) -> dict[str, Any]:
    """What a program may set itself, and what decides how an operation computes."""
    found = {
        "threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    for name in _PRECISIONS:
        with suppress(AttributeError):
            found[name] = attrgetter(name)(torch.backends)
    # Where there are new names, reading the old one raises in a program that uses both.
    if found.keys().isdisjoint(_PRECISIONS):
        found["precision of float32 products"] = torch.get_float32_matmul_precision()
    return found


def _storages(value: Any) -> set[int]:
    """Where the storages of tensors begin."""
    found = set()
    for one in _tensors(value):
        try:
            found.add(one.untyped_storage().data_ptr())
        except (NotImplementedError, RuntimeError):
            continue  # a sparse tensor, or one that stands for others
    return found


def _inputs(torch: Any, about: Operation, call: _Call, unwritten: set[int]) -> list[dict[str, Any]]:
    """What an operation reads: its tensors, and the state of a generator that it draws from."""
    given: Any = (call.args, call.kwargs)
    if about.overwrites:
        args = [one for i, one in enumerate(call.args) if i not in about.written]
        named = {key: one for key, one in call.kwargs.items() if key not in about.written_names}
        given = (args, named)
    found = []
    for one in _tensors(given):
        new = bool(unwritten) and not _storages(one).isdisjoint(unwritten)
        found.append({"what": _shape(one), "digest": digest(torch, one), "unwritten": new})
    if numbers := [one for one in leaves(given) if isinstance(one, (int, float, complex, str))]:
        found.append({"what": "numbers", "digest": zlib.crc32(repr(numbers).encode())})
    if about.draws:
        generator = call.kwargs.get("generator") or torch.default_generator
        found.append({"what": GENERATOR, "digest": digest(torch, generator.get_state())})
    return found


def _sample(torch: Any, tensor: Any, most: int) -> bytes:
    """At most so many elements of a tensor, evenly spread, as float64; none that cannot be read."""
    try:
        flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        some = flat[:: max(1, -(-flat.numel() // most))]
        numbers: bytes = some.to("cpu", torch.float64).numpy().tobytes()
    except (NotImplementedError, RuntimeError, TypeError):
        return b""  # a sparse tensor, or one that stands for others
    return numbers


def _shape(tensor: Any) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        return f"{kind}{list(tensor.shape)}"
    except RuntimeError:  # a nested tensor has none
        return kind


class _Kept:
    """The arguments of an operation, kept in a file before it runs."""

    def __init__(self, torch: Any, stream: Stream, call: _Call) -> None:
        self.torch = torch
        self.path = os.path.join(stream.folder, f"{stream.key}-{stream.count}{KEPT}")
        size = sum(one.numel() * one.element_size() for one in _tensors((call.args, call.kwargs)))
        self.obstacle = f"its arguments have {size} bytes" if size > LARGEST_KEPT else ""
        if not self.obstacle:
            given = mapped(self._copy, (call.args, call.kwargs))
            self.call = {"operation": str(call.operator), "args": given[0], "kwargs": given[1]}

    def _copy(self, value: Any) -> Any:
        if not hasattr(value, "data_ptr"):
            return value
        return value.detach().clone(memory_format=self.torch.preserve_format)

    def finish(self, outputs: list[Any]) -> dict[str, str]:
        """Write the call and what it gave; the file, or why there is none."""
        if not self.obstacle:
            self.call["outputs"] = [self._copy(one) for one in outputs]
            try:
                self.torch.save(self.call, self.path)
            except Exception as error:  # arguments that cannot be pickled, a full disk
                self.obstacle = f"its arguments cannot be kept: {error}"
        return {"path": "" if self.obstacle else self.path, "obstacle": self.obstacle}
