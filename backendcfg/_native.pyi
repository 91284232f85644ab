# Types of the compiled module; native/include/backendcfg.h is the manual of its C side.

from collections.abc import Callable
from typing import Any, NoReturn, Self, TypeAlias, TypeVar, final

from numpy.typing import NDArray

from backendcfg.ops.linalg import (
    CholeskyEx,
    Eigh,
    InvEx,
    Lu,
    LuFactor,
    LuFactorEx,
    Qr,
    SolveEx,
    Svd,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

ABI: int

# A resolved profile, ready to enter.
#
# Attributes:
#     name: what was asked for.
#     payload: the compiled plan.
#     switches: what `enter_switches` sets; None when a scope has nothing process-wide to set.
#     snapshot: address of its snapshot, 0 until materialised; only such addresses are accepted.
#     listing: how the providers of the snapshot were found; None until materialised.
@final
class Prepared:
    def __init__(self, name: str, payload: object, switches: object | None = None) -> None: ...
    @property
    def name(self) -> str: ...
    payload: Any
    switches: Any
    snapshot: int
    listing: Any

# A profile as a context manager, re-entrant, or as a decorator.
#
# Attributes:
#     prepared: what it enters.
#     busy: what to do when a switch is taken, as the callbacks understand it.
#     is_open: whether it was entered anywhere and not left since.
@final
class Scope:
    def __init__(self, prepared: Prepared, busy: int = 0, /) -> None: ...
    @property
    def prepared(self) -> Prepared: ...
    @property
    def busy(self) -> int: ...
    @property
    def is_open(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...
    def __call__(self, function: _Function, /) -> _Function: ...

# Hand in Python callables, None for none; those not named keep their value. Returns what the named
# ones were.
#
# enter_switches(prepared, scope, claims) returns a claim, and
# leave_switches(prepared, scope, claim) gives it back; claims are those of the open scopes of this
# context, innermost first.
# materialise(prepared) returns a snapshot's address. refuse(reason, detail, a, b, out) raises.
# foreign(a, b, out) multiplies what is not NumPy's.
# traced(operation, provider, because, sizes, dtype) hears of every call while tracing is set.
# linalg_refuse(function, reason, detail, given) and linalg_failed(function, info, index, matrix,
# lead) raise; linalg_foreign(function, arrays, given) computes what is not NumPy's;
# linalg_result(function, results) gives several results their type.
# computing(name, arguments, keywords) hears of a call that is observed before it is made; what it
# returns comes back in computed(name, digest, token, results), which hears of it afterwards.
# Without a token the results are None.
# attention_choice() says of the profile in force how forward passes of PyTorch's attention are
# served: (kernel, because, refusal). It is asked once for each Prepared.
# decorate(scope, function), aenter(scope) and aexit(scope, type, value, traceback) are the
# scope's other protocols. misplaced(scope) hears of an exit without an entry in this context.
def bind(
    **callbacks: Callable[..., Any] | None,
) -> dict[str, Callable[..., Any] | None]: ...

# The innermost Prepared of this context, else the base, else None.
def current() -> Prepared | None: ...

# The Prepared of every open scope of this context, innermost first.
def chain() -> tuple[Prepared, ...]: ...

# What enter_switches returned for those scopes, innermost first.
def claims() -> tuple[Any, ...]: ...

# What the loops below look at of `owners.Cell`.
class CellFields:
    _claims: dict[Any, Any]
    _base: Any
    known: bool

# Set the switches of a scope: each is read, written where it differs, and read back. False where
# a cell already has claims: nothing was done then. What a switch raises comes through.
#
# lines are `owners.Line`. held grows by each that was set, begun by (line, value before) for each
# that is about to be written, and before by what each switch held; before is emptied where all held
# what is wanted and are to hold it afterwards. refuse(wanted, found) raises.
def enter_lines(
    lines: list[Any],
    held: list[Any],
    begun: list[tuple[Any, Any]],
    before: list[Any],
    refuse: Callable[[Any, Any], NoReturn],
    /,
) -> bool: ...

# Give them back, the last one first: the recorded base, or what the switch held before. held
# shrinks by each that was written and read back. False at one that raises an Exception or holds
# something else, and as soon as a cell has claims, because somebody looked at it. What else is
# raised comes through.
def leave_lines(held: list[Any], before: list[Any], /) -> bool: ...

# What holds where no scope is open; None for nothing.
def set_base(prepared: Prepared | None, /) -> None: ...

# Address of the snapshot that an operation would take here and now.
def snapshot() -> int: ...

# Import NumPy's C API, which `matmul` needs.
def set_array_api() -> None: ...

# A read-only view of an array with a shape that it broadcasts to; ValueError where it does not.
def broadcast(array: NDArray[Any], shape: tuple[int, ...], /) -> NDArray[Any]: ...

# An array over the memory of a DLPack capsule on the CPU, which is used up, and what it holds;
# bfloat16 is a uint16 array. ValueError says what is wrong with it.
def from_dlpack(capsule: object, /) -> tuple[NDArray[Any], str]: ...

# The matrix product of two arrays; those that are not NumPy's go to `foreign(a, b, out)`, a
# callback that returns the product.
def matmul(a: Any, b: Any, /, out: Any = None) -> Any: ...

# The same of NumPy arrays, in which uint16 holds bfloat16.
def matmul_bfloat16(
    a: NDArray[Any], b: NDArray[Any], /, out: NDArray[Any] | None = None
) -> NDArray[Any]: ...

# Which function PyTorch, whose `torch._C` is that file, lacks for kernels of ours to take the place
# of its own; None for none.
def torch_lacks(file: str, /) -> str | None: ...

# Replace PyTorch's kernels of attention by ours where that is not done, and let ours serve; with
# None they pass every call on to PyTorch's. Raises RuntimeError where PyTorch does not take them.
def serve_torch_attention(file: str | None, /) -> None: ...

# Give PyTorch its kernels back, which no other thread may be calling.
def restore_torch_attention() -> None: ...

# The same for its operators `mm` and `bmm`; our kernels compute those of float32.
def serve_torch_products(file: str | None, /) -> None: ...
def restore_torch_products() -> None: ...

# `out = added + a @ b` of float16, or of bfloat16 as uint16: the sum is rounded once. `added` has
# the shape of `out`; strides of 0 repeat it.
def addmm(
    added: NDArray[Any], a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], /
) -> NDArray[Any]: ...

# Attention of four-dimensional arrays (batch, heads, length, width) and the logarithms of its sums
# (batch, heads, length of query; float64 for float64, else float32).
#
# Args:
#     kernel: "flash", or "efficient" for memory that grows with threads alone.
#     query, key, value: of any strides; bfloat16 is uint16. Query's heads are a multiple of key's.
#     mask: bool, float32 or of the element's type, broadcast to (batch, heads, query, key).
#     is_causal: query i sees keys 0 to i; with a mask too.
#     scale: of the scores.
#     dropout_p, seed: of weights, by position; the backward pass drops the same. In the place of a
#         seed, uint8 (batch, heads, queries, keys): 1 for each weight that is kept; `out`, which
#         the backward pass takes, is then float32 also for elements of 16 bits.
#     element: "float32", "float64", "bfloat16" or "float16".
#     threads: at most so many; 0 for the team's. The bits do not depend on it.
#
# Returns (out, logsumexp), dense. A query that sees no key has zeros, and minus infinity.
# Raises ValueError "attention: <argument> ..." before anything is computed; MemoryError.
def attention(
    kernel: str,
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    mask: NDArray[Any] | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: int | NDArray[Any],
    element: str,
    threads: int = 0,
    /,
) -> tuple[NDArray[Any], NDArray[Any]]: ...

# For each instruction set of the kernels, the best last: its name, whether this CPU runs it, and
# how many operations its code has served.
def kernel_isas() -> list[tuple[str, bool, int]]: ...

# Whether our kernels multiply bfloat16 by AMX on this CPU and under the tier of this context.
def has_tiles() -> bool: ...

# Use one instruction set from now on, in every thread; None for the best. For tests.
# Raises ValueError for one that is unknown or that this CPU cannot run.
def force_kernel_isa(name: str | None, /) -> None: ...

# The gradients of query, key and value: attention going backward. Arrays are those that
# `attention` takes and returned; bfloat16 is uint16. `results` are arrays to write to.
def attention_backward(
    grad_out: NDArray[Any],
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    mask: NDArray[Any] | None,
    out: NDArray[Any],
    logsumexp: NDArray[Any],
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: int | NDArray[Any],
    element: str,
    threads: int = 0,
    results: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None,
    /,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...

# Writes `one`, bits of the size of an element of `out`, or 0: numbers that an MT19937 draws, each
# below p or not. `words` is the generator's state, 624 of uint64, which changes; `start` the word
# that it draws next, 0 to 624; returns the one of afterwards. Raises ValueError for arrays that are
# not contiguous.
def bernoulli(words: NDArray[Any], start: int, p: float, one: int, out: NDArray[Any], /) -> int: ...

# Sets the state of a generator of PyTorch's to `after` if it is still `before`, and says whether it
# was; no other thread runs Python in between.
def exchange_state(generator: Any, before: Any, after: Any, /) -> bool: ...

# A number of 64 bits for the bytes there.
def digest(address: int, size: int, seed: int = 0, /) -> int: ...

# Tells the callbacks `computing` and `computed` of what a ufunc, a function or a method computes
# from now on; whether that can be done. `written` is the number of the argument that it writes to
# where it returns None, a method's own object being 0, and -1 for none. `hides`: whether calls that
# it makes are not told.
def observe(target: object, name: str, written: int, hides: bool, /) -> bool: ...

# Calls a function; the addresses of the instructions that this thread was at every so many
# microseconds. None where nobody can tell, no signal is free, or another thread is sampled.
def sampled(function: Callable[[], object], microseconds: int, /) -> list[int] | None: ...

# How many libraries this process ever loaded and unloaded; None where the loader does not count.
def mapped() -> tuple[int, int] | None: ...

# How much freed memory glibc's malloc keeps from now on. Returns what was set last, 0 for nothing
# yet, None where another malloc serves this process.
def keep_freed(kept: int = ..., /) -> int | None: ...

# How many loops of NumPy's element-wise functions share large arrays among threads, after they were
# told to, or not to any more.
def numpy_elementwise(threads: bool = ..., /) -> int: ...

# Whether our kernels compute NumPy's matmul of "float16", "float32" or "float64", after they were
# told to, or to give it back. RuntimeError where something replaced matmul, or its loop.
def numpy_matmul(dtype: str, ours: bool = ..., /) -> bool: ...

# The C functions at an address, as functions of Python: `int f(void)`, also as True or False,
# `void f(int)` and `int f(int)`.
def asking(address: int, /) -> Callable[[], int]: ...
def asking_whether(address: int, /) -> Callable[[], bool]: ...
def telling(address: int, /) -> Callable[[int], None]: ...
def exchanging(address: int, /) -> Callable[[int], int]: ...

# For each open provider: name, path, integer width, calls by operation, and of these those that
# went to it by measured speed and because those before it cannot.
def stats() -> list[tuple[str, str, int, dict[str, int], dict[str, int], dict[str, int]]]: ...

# Count a call that was served, and tell the traces.
def served(
    operation: str,
    provider: str,
    because: str,
    sizes: tuple[int, ...] = (),
    dtype: str = "",
    /,
) -> None: ...

# Calls counted by `served`: {(operation, provider, because): calls}.
def served_counts() -> dict[tuple[str, str, str], int]: ...

# Whether the callback `traced` hears of every call.
def set_tracing(on: bool, /) -> None: ...

# Set every counter to zero, those of `served` too.
def reset_stats() -> None: ...

# For each provider of this context's order: name, path, verdict and what it lacks, for one matrix
# of m by n elements (0 to 3: float32, float64, complex64, complex128) and k right-hand sides; and
# the word for why the one that serves does, "" where nobody can; and which of
# `native.FACTORISATIONS` it goes by.
def linalg_choice(
    function: str, element: int, m: int, n: int, k: int, /
) -> tuple[list[tuple[str, str, int, str]], str, int]: ...

# The functions of `backendcfg.ops.linalg`.
def linalg_inv(A: Any) -> Any: ...
def linalg_inv_ex(A: Any, *, check_errors: bool = False) -> InvEx: ...
def linalg_cholesky(A: Any, *, upper: bool = False) -> Any: ...
def linalg_cholesky_ex(
    A: Any, *, upper: bool = False, check_errors: bool = False
) -> CholeskyEx: ...
def linalg_cholesky_solve(B: Any, L: Any, upper: bool = False) -> Any: ...
def linalg_cholesky_inverse(L: Any, upper: bool = False) -> Any: ...
def linalg_lu_factor(A: Any, *, pivot: bool = True) -> LuFactor: ...
def linalg_lu_factor_ex(
    A: Any, *, pivot: bool = True, check_errors: bool = False
) -> LuFactorEx: ...
def linalg_lu(A: Any, *, pivot: bool = True) -> Lu: ...
def linalg_lu_solve(
    LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False
) -> Any: ...
def linalg_qr(A: Any, mode: str = "reduced") -> Qr: ...
def linalg_eigh(A: Any, UPLO: str = "L") -> Eigh: ...
def linalg_eigvalsh(A: Any, UPLO: str = "L") -> Any: ...
def linalg_svd(A: Any, full_matrices: bool = True, *, driver: None = None) -> Svd: ...
def linalg_svdvals(A: Any, *, driver: None = None) -> Any: ...
def linalg_solve(A: Any, B: Any, *, left: bool = True) -> Any: ...
def linalg_solve_ex(
    A: Any, B: Any, *, left: bool = True, check_errors: bool = False
) -> SolveEx: ...

# Writes a convolution of dense arrays, by our own kernels; threads 0 for as many as are worth it.
def convolve(
    images: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any] | None,
    out: NDArray[Any],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    threads: int,
    /,
) -> None: ...

# Writes the columns of the windows of one image and group, (terms, pixels), from one pixel on;
# place is (image, group, pixel).
def unfold(
    images: NDArray[Any],
    columns: NDArray[Any],
    kernel: tuple[int, int],
    out: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    place: tuple[int, int, int],
    threads: int,
    /,
) -> None: ...

# Hand in what products on devices need of Python; see native/gpu/python/device.h.
def device_bind(**callbacks: Callable[..., Any] | None) -> None: ...

# A product on a device: alpha a b + beta added, into `out`; `added` and `out` may be None.
# NotImplemented where no argument is on a device.
def device_product(
    operation: str, a: Any, b: Any, added: Any, out: Any, alpha: Any, beta: Any, /
) -> Any: ...

# Whether a value is an array on a device.
def device_holds(value: Any, /) -> bool: ...

# An array on a device: address, kind and index of the place, element, shape, strides in bytes,
# stream, whether the call must wait for the device, and what keeps its memory. None for others.
def device_array(
    value: Any, /
) -> (
    tuple[int, int, int, str, tuple[int, ...], tuple[int, ...], int, bool, bool, object] | None
): ...

# An uninitialised array by the library of another; None where that has no table of functions.
def device_make(like: Any, shape: tuple[int, ...], element: str, /) -> Any: ...

# Code loaded into the primary context of a CUDA device: a capsule, or what failed: the function of
# the driver ("" in a forked child), its status, the name of that.
def device_kernel(driver: int, index: int, code: bytes, name: str, shared_bytes: int, /) -> Any: ...

# Put a kernel on a stream; `others` are streams of its arguments. None, or what failed, as above.
def device_launch(
    kernel: Any,
    stream: int,
    others: tuple[int, ...],
    synchronizes: bool,
    grid: int,
    threads: int,
    argument: Any,
    /,
) -> tuple[str, int, str] | None: ...

# Memory of the driver's: what keeps it and its address; or what failed.
def device_memory(
    driver: int, index: int, size: int, /
) -> tuple[object, int] | tuple[str, int, str]: ...

# A capsule of DLPack's over memory that its owner keeps, its rows one after the other.
def device_lend(
    owner: object,
    address: int,
    kind: int,
    index: int,
    code: int,
    bits: int,
    shape: tuple[int, ...],
    versioned: bool,
    /,
) -> Any: ...

# The address of a recipe: how a library is called for one element type. `fallback` and `adder` are
# those of others, or 0.
def device_recipe(
    library: int,
    driver: int,
    fallback: int,
    adder: int,
    workspace: int,
    element: int,
    reason: int,
    data_type: int,
    compute_type: int,
    scale_type: int,
    math_mode: int,
    atomics: int,
    algorithm: int,
    reduction: int,
    /,
) -> int: ...

_Fault: TypeAlias = tuple[str, int, str]

# Make a device current and its stream wait for others: what was current before, or -1, and whether
# the stream is captured; or what failed.
def device_begin(
    driver: int, index: int, stream: int, others: tuple[int, ...], /
) -> tuple[int, bool] | _Fault: ...

# The opposite. None, or what failed.
def device_end(
    driver: int,
    index: int,
    stream: int,
    others: tuple[int, ...],
    synchronizes: bool,
    before: int,
    failed: bool,
    /,
) -> _Fault | None: ...

# The version that the SONAME of an open library has, 10000 * major + 100 * minor; -1 for none.
def device_soname(handle: int, /) -> int: ...

# For each recipe (operation, provider, path, reason, calls).
def device_recipes() -> list[tuple[str, str, str, str, int]]: ...
