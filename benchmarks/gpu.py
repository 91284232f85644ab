"""Products and attention on a GPU, against PyTorch's own and against the bare call of the library.

    python benchmarks/gpu.py [--quick]

Needs a GPU and a PyTorch for CUDA, nothing else. Both compute the same arrays, in turns, in one
process, and are timed by the device's own events; what a call costs the host is timed by its clock.
"""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from gpu_calls import beyond_the_library, scope, small_calls
from measure import Row, emit, machine, nanoseconds, options

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (16, 64, 256, 512, 1024, 2048, 4096, 8192)
SMALL_SIZES = (16, 1024, 2048)
# By name: the type of the arrays, and what both are told of float32.
KINDS = {
    "float32": ("float32", "ieee"),
    "TF32": ("float32", "tf32"),
    "bfloat16": ("bfloat16", "ieee"),
    "float16": ("float16", "ieee"),
}
WORTH_THE_LIBRARY = 1024  # from where a product must be as fast as PyTorch's
PRODUCT_TARGET = 0.99
# Batch, heads, length, width, causal.
SHAPES = ((4, 16, 4096, 64, False), (2, 16, 4096, 128, False), (2, 16, 4096, 128, True))
KERNELS = {
    "cudnn": "CUDNN_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
}
CUDNN_TARGET, FLASH_TARGET = 1.0, 0.6


class Events:
    """Time on the device, between two events on its current stream."""

    device = "cuda"
    place = "cuda:0"

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """Seconds of one of `count` calls."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / count

    def wait(self) -> None:
        """Until the device is done."""
        import torch

        torch.cuda.synchronize()


def in_turns(
    clock: Events, calls: dict[str, Callable[[], object]], *, rounds: int, turn: float = 0.01
) -> dict[str, float]:
    """The median seconds of each call, as the device takes them, measured in turns."""
    counts = {}
    for name, call in calls.items():
        clock.seconds(call, 3)  # compiles, finds algorithms, warms up
        counts[name] = max(1, min(1000, round(turn / clock.seconds(call, 3))))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].append(clock.seconds(call, counts[name]))
    return {name: statistics.median(taken) for name, taken in samples.items()}


def products(clock: Events, sizes: tuple[int, ...], rounds: int) -> list[Row]:
    """Square products, by us and by `torch.matmul`, under the same flags."""
    import torch

    from backendcfg import ops

    rows = []
    for kind, (dtype, precision) in KINDS.items():
        torch.backends.cuda.matmul.fp32_precision = precision
        for n in sizes:
            a, b = (
                torch.randn(n, n, device=clock.device).to(getattr(torch, dtype)) for _ in range(2)
            )
            out = torch.empty_like(a)
            calls = {
                "ours": lambda a=a, b=b, out=out: ops.matmul(a, b, out=out),
                "theirs": lambda a=a, b=b, out=out: torch.matmul(a, b, out=out),
            }
            with scope(**{"cuda.matmul.fp32_precision": precision}):
                took = in_turns(clock, calls, rounds=rounds)
            ratio = took["theirs"] / took["ours"]
            speed = 2 * n**3 / took["ours"] / 1e12
            has_target = n >= WORTH_THE_LIBRARY
            rows.append(
                Row(
                    f"{kind} product, n = {n}",
                    f"{nanoseconds(took['ours'])}, {speed:.3g} TFLOP/s",
                    f"torch.matmul {nanoseconds(took['theirs'])}",
                    f"{ratio:.3f}x",
                    f">= {PRODUCT_TARGET}x" if has_target else "",
                    ratio >= PRODUCT_TARGET if has_target else None,
                )
            )
    return rows


def theirs_by(
    kernel: str, arrays: tuple[object, ...], *, causal: bool
) -> Callable[[], object] | None:
    """PyTorch's attention by one of its backends; None where that cannot compute it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def call() -> object:
        with sdpa_kernel(getattr(SDPBackend, KERNELS[kernel])):
            return scaled_dot_product_attention(*arrays, is_causal=causal)

    try:
        call()
    except RuntimeError:
        return None
    return call


def attention(clock: Events, shapes: tuple[tuple, ...], rounds: int) -> list[Row]:
    """Attention in bfloat16, by each kernel of ours that can, against the best of PyTorch's."""
    import torch

    from backendcfg import ops

    rows = []
    for batch, heads, length, width, causal in shapes:
        shape = (batch, heads, length, width)
        arrays = tuple(torch.randn(shape, device=clock.device).to(torch.bfloat16) for _ in range(3))
        calls = {}
        for kernel in KERNELS:
            if (call := theirs_by(kernel, arrays, causal=causal)) is not None:
                calls[f"torch {kernel}"] = call
        for kernel in KERNELS:
            with scope(**{"cuda.sdp_priority": [kernel]}):
                said = ops.explain(
                    "scaled_dot_product_attention", [shape] * 3, "bfloat16",
                    device=clock.place, is_causal=causal,
                )  # fmt: skip
            if said.provider == kernel:
                calls[kernel] = _ours(kernel, arrays, causal)
        took = in_turns(clock, calls, rounds=rounds)
        peers = {name: seconds for name, seconds in took.items() if name.startswith("torch ")}
        best = min(peers, key=peers.__getitem__, default="")
        what = f"attention {shape}{', causal' if causal else ''}"
        for kernel in KERNELS:
            if kernel not in took:
                rows.append(Row(f"{what} by {kernel}", "does not serve it here"))
                continue
            work = 4 * batch * heads * length**2 * width / (2 if causal else 1)
            against = "torch cudnn" if kernel == "flash" and "torch cudnn" in peers else best
            target = {"cudnn": CUDNN_TARGET, "flash": FLASH_TARGET}.get(kernel)
            ratio = peers[against] / took[kernel] if against else None
            rows.append(
                Row(
                    f"{what} by {kernel}",
                    f"{nanoseconds(took[kernel])}, {work / took[kernel] / 1e12:.3g} TFLOP/s",
                    f"{against} {nanoseconds(peers[against])}" if against else "",
                    f"{ratio:.2f}x" if ratio else "",
                    f">= {target}x" if ratio and target else "",
                    ratio >= target if ratio and target else None,
                )
            )
    return rows


def _ours(kernel: str, arrays: tuple[object, ...], causal: bool) -> Callable[[], object]:
    from backendcfg import ops

    flags = scope(**{"cuda.sdp_priority": [kernel]})

    def call() -> object:
        with flags:
            return ops.scaled_dot_product_attention(*arrays, is_causal=causal)

    return call


def missing() -> str:
    """Why nothing can be measured here; "" when it can."""
    try:
        import torch
    except ImportError:
        return "it needs a GPU and PyTorch for CUDA, which is not installed"
    if torch.version.cuda is None or not torch.cuda.is_available():
        return f"it needs a GPU, and PyTorch {torch.__version__} can use none here"
    return ""


def gpu() -> str:
    """The device and what drives it, as `machine` describes the rest."""
    import torch

    name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    cudnn = torch.backends.cudnn.version()
    return f"- {name}, sm_{major}{minor}; CUDA {torch.version.cuda}, cuDNN {cudnn}"


def main() -> int:
    """Print the tables; 2 where there is no GPU."""
    asked = options(__doc__).parse_args()
    if why := missing():
        print(f"benchmarks/gpu.py: nothing was measured: {why}", file=sys.stderr)
        return 2
    quick = asked.quick
    rounds = 7 if quick else 21
    clock = Events()
    if not asked.rows:
        print(f"{machine()}\n{gpu()}\n")
    emit(
        [
            *beyond_the_library(clock, rounds),
            *small_calls(clock, rounds),
            *products(clock, SMALL_SIZES if quick else SIZES, rounds),
            *attention(clock, SHAPES[:1] if quick else SHAPES, rounds),
        ]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
