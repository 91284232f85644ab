"""What calls on a GPU cost the host: beyond the library itself, and beside PyTorch's.

    python benchmarks/gpu.py [--quick]

The arrays are so small that the device waits for the host. Nobody waits for the device.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from typing import TYPE_CHECKING

from measure import Row, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu import Events

OVERHEAD_TARGET = 2e-6
CALLS = 200  # in a turn
# Numbers of cuBLAS: float32, its compute type, no transpose, the default algorithm.
R_32F, COMPUTE_32F, OPERATION_N, DEFAULT = 0, 68, 0, -1
# Of cuFFT: complex numbers in float32, forward, and a plan that there is not.
C_32F, FORWARD, NO_PLAN = 4, -1, -1


def scope(**flags: object):
    """A scope of ours with flags, all others as nobody set them."""
    from backendcfg._native import Prepared, Scope
    from backendcfg.schema.profile import defaults
    from backendcfg.transact.compiled import Compiled

    values = {**defaults(), **flags}
    return Scope(Prepared("benchmark", Compiled("benchmark", "none", values)))


def on_the_host(
    clock: Events, calls: dict[str, Callable[[], object]], rounds: int
) -> dict[str, float]:
    """The median seconds that each call costs the host, measured in turns."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # compiles, finds algorithms
    for _ in range(rounds):
        for name, call in calls.items():
            clock.wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter() - start) / CALLS)
    clock.wait()
    return {name: statistics.median(taken) for name, taken in samples.items()}


def beyond_the_library(clock: Events, rounds: int, n: int = 16) -> list[Row]:
    """What a call costs the host beyond the bare call of cuBLAS, and of cuFFT.

    Python calls the library through ctypes, whose own time is that of the same call with no handle,
    or no plan, which the library refuses at once.
    """
    import torch

    from backendcfg import ops

    a, b, out = (torch.randn(n, n, device=clock.device) for _ in range(3))
    signals = torch.randn(n, 64, dtype=torch.complex64, device=clock.device)
    spectra = torch.empty_like(signals)
    ops.matmul(a, b, out=out)
    ops.fft.fft(signals)
    said = ops.explain("matmul", ((n, n), (n, n)), "float32", device=clock.place)
    multiply = bare_product(said.path, a, b, out)
    said = ops.explain("fft.fft", ((n, 64),), "complex64", device=clock.place)
    transform = bare_transform(said.path, signals, spectra)
    return [
        *_beyond(
            clock, rounds, f"a product of n = {n}", "cuBLAS", multiply,
            OVERHEAD_TARGET,
            ours=lambda: ops.matmul(a, b, out=out), theirs=lambda: torch.matmul(a, b, out=out),
        ),
        *_beyond(
            clock, rounds, f"{n} transforms of 64 numbers", "cuFFT", transform,
            ours=lambda: ops.fft.fft(signals), theirs=lambda: torch.fft.fft(signals),
        ),
    ]  # fmt: skip


def _beyond(
    clock: Events,
    rounds: int,
    what: str,
    library: str,
    bare: tuple[Callable[[], int], Callable[[], int], Callable[[], object]],
    target: float | None = None,
    **calls: Callable[[], object],
) -> list[Row]:
    """One row; `bare` is the call, the one that is refused, and what ends both."""
    through, refused, end = bare
    if through() or not refused():
        raise RuntimeError(f"{library} took what it had to refuse, or refused the call")
    took = on_the_host(clock, {**calls, "through": through, "refused": refused}, rounds)
    end()
    own = max(took["through"] - took["refused"], 0.0)
    ours, theirs = (max(took[name] - own, 0.0) for name in ("ours", "theirs"))
    return [
        Row(
            f"{what} beyond the bare call of {library} ({nanoseconds(own)})",
            nanoseconds(ours),
            f"torch {nanoseconds(theirs)}",
            f"{took['theirs'] / took['ours']:.2f}x",
            f"<= {nanoseconds(target)}" if target else "",
            ours <= target if target else None,
        )
    ]


def bare_product(path: str, a: object, b: object, out: object):
    """cuBLAS multiplies two square float32 matrices; the arrays must outlive the calls."""
    library, handle = ctypes.CDLL(path), ctypes.c_void_p()
    if library.cublasCreate_v2(ctypes.byref(handle)):
        raise RuntimeError("cuBLAS made no handle")
    library.cublasSetStream_v2(handle, ctypes.c_void_p(0))
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    size = ctypes.c_int64(len(a))
    first, second, to = (ctypes.c_void_p(each.data_ptr()) for each in (b, a, out))
    rest = (
        *(OPERATION_N, OPERATION_N, size, size, size, one, first, R_32F, size),
        *(second, R_32F, size, zero, to, R_32F, size, COMPUTE_32F, DEFAULT),
    )
    multiply = library.cublasGemmEx_64
    return (
        lambda: multiply(handle, *rest),
        lambda: multiply(None, *rest),
        lambda: library.cublasDestroy_v2(handle),
    )


def bare_transform(path: str, signals: object, spectra: object):
    """cuFFT transforms the rows of a complex64 matrix; the arrays must outlive the calls."""
    library, plan = ctypes.CDLL(path), ctypes.c_int()
    many, length = (ctypes.c_longlong(size) for size in signals.shape)
    one, bytes_needed = ctypes.c_longlong(1), ctypes.c_size_t()
    side = ctypes.byref(length), one, length, C_32F
    described = 1, ctypes.byref(length), *side, *side, many, ctypes.byref(bytes_needed), C_32F
    if library.cufftCreate(ctypes.byref(plan)) or library.cufftXtMakePlanMany(plan, *described):
        raise RuntimeError("cuFFT made no plan")
    library.cufftSetStream(plan, ctypes.c_void_p(0))
    pointers = (ctypes.c_void_p(each.data_ptr()) for each in (signals, spectra))
    rest = (*pointers, FORWARD)
    execute = library.cufftXtExec
    return (
        lambda: execute(plan, *rest),
        lambda: execute(NO_PLAN, *rest),
        lambda: library.cufftDestroy(plan),
    )


def small_calls(clock: Events, rounds: int) -> list[Row]:
    """What a small call of each family costs the host, beside PyTorch's of the same arrays."""
    import torch
    from torch.nn.functional import conv2d, scaled_dot_product_attention

    from backendcfg import ops
    from backendcfg.ops import linalg

    def random(*shape, dtype=torch.float32):
        return torch.randn(*shape, device=clock.device).to(dtype)

    a, b, bias = random(16, 16), random(16, 16), random(16)
    positive = a @ a.mT + 16 * torch.eye(16, device=clock.device)
    image, weight = random(1, 8, 16, 16), random(8, 8, 3, 3)
    heads = [random(1, 2, 64, 64, dtype=torch.bfloat16) for _ in range(3)]
    pairs = {
        "addmm": (lambda: ops.addmm(bias, a, b), lambda: torch.addmm(bias, a, b)),
        "einsum": (
            lambda: ops.einsum("ij,kj->ik", a, b),
            lambda: torch.einsum("ij,kj->ik", a, b),
        ),
        "scaled_dot_product_attention": (
            lambda: ops.scaled_dot_product_attention(*heads),
            lambda: scaled_dot_product_attention(*heads),
        ),
        "conv2d": (lambda: ops.conv2d(image, weight), lambda: conv2d(image, weight)),
        "fft.rfft": (lambda: ops.fft.rfft(a), lambda: torch.fft.rfft(a)),
        "linalg.cholesky_ex": (
            lambda: linalg.cholesky_ex(positive),
            lambda: torch.linalg.cholesky_ex(positive),
        ),
        "linalg.solve_ex": (
            lambda: linalg.solve_ex(positive, b),
            lambda: torch.linalg.solve_ex(positive, b),
        ),
    }
    rows = []
    for name, (ours, theirs) in pairs.items():
        took = on_the_host(clock, {"ours": ours, "theirs": theirs}, rounds)
        rows.append(
            Row(
                f"a small call of {name}",
                nanoseconds(took["ours"]),
                f"torch {nanoseconds(took['theirs'])}",
                f"{took['theirs'] / took['ours']:.2f}x",
            )
        )
    return rows
