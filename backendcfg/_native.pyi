# Types of the compiled module; native/include/backendcfg.h is the manual of its C side.

from collections.abc import Callable
from typing import Any, Self, TypeVar, final

from numpy.typing import NDArray

_Function = TypeVar("_Function", bound=Callable[..., Any])

ABI: int

# A resolved profile, ready to enter.
#
# Attributes:
#     name: what was asked for.
#     payload: the compiled plan.
#     knobs: what `enter_knobs` sets; None when a scope has nothing process-wide to set.
#     snapshot: address of its snapshot, 0 until materialised; only such addresses are accepted.
@final
class Prepared:
    def __init__(self, name: str, payload: object, knobs: object | None = None) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def payload(self) -> Any: ...
    knobs: Any
    snapshot: int

# A profile as a context manager, re-entrant, or as a decorator.
#
# Attributes:
#     prepared: what it enters.
#     busy: what to do when a knob is taken, as the callbacks understand it.
@final
class Scope:
    def __init__(self, prepared: Prepared, busy: int = 0, /) -> None: ...
    @property
    def prepared(self) -> Prepared: ...
    @property
    def busy(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...
    def __call__(self, function: _Function, /) -> _Function: ...

# Hand in Python callables, None for none; those not named keep their value. Returns what the named
# ones were.
#
# enter_knobs(prepared, scope, claims) returns a claim, and leave_knobs(prepared, scope, claim)
# gives it back; claims are those of the open scopes of this context, innermost first.
# materialise(prepared) returns a snapshot's address. refuse(reason, detail, a, b, out) raises.
# decorate(scope, function), aenter(scope) and aexit(scope, type, value, traceback) are the
# scope's other protocols. misplaced(scope) hears of an exit without an entry in this context.
def bind(
    **callbacks: Callable[..., Any] | None,
) -> dict[str, Callable[..., Any] | None]: ...

# The innermost Prepared of this context, else the base, else None.
def current() -> Prepared | None: ...

# The Prepared of every open scope of this context, innermost first.
def chain() -> tuple[Prepared, ...]: ...

# What enter_knobs returned for those scopes, innermost first.
def claims() -> tuple[Any, ...]: ...

# What holds where no scope is open; None for nothing.
def set_base(prepared: Prepared | None, /) -> None: ...

# Address of the snapshot that an operation would take here and now.
def snapshot() -> int: ...

# Import NumPy's C API, which `matmul` needs.
def set_array_api() -> None: ...

# The matrix product of two arrays.
def matmul(
    a: NDArray[Any], b: NDArray[Any], /, out: NDArray[Any] | None = None
) -> NDArray[Any]: ...

# How many libraries this process ever loaded and unloaded; None where the loader does not count.
def mapped() -> tuple[int, int] | None: ...

# For each open provider: name, path, integer width and calls by operation.
def stats() -> list[tuple[str, str, int, dict[str, int]]]: ...

# Set every counter to zero.
def reset_stats() -> None: ...
