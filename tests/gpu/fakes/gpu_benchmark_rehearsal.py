"""Run as a program: benchmarks/gpu.py on fakes, timed by the host's clock.

Its arguments are the folder of the benchmarks, the compiled exchange.c and the fakes of the
driver, cuBLAS, cuBLASLt, cuFFT, cuDNN and cuSOLVER. Without fakes, attention alone is computed, by
our kernels for the CPU, whose names are the same.
"""

import sys
import time
from pathlib import Path

FOLDER, *FAKES = sys.argv[1:]
sys.argv[1:] = FAKES
sys.path[:0] = [FOLDER, str(Path(__file__).parent)]

import gpu  # noqa: E402
from measure import table  # noqa: E402


class Clock:
    """What `gpu.Events` is to a device."""

    device, place = "cpu", "cuda:0"

    def seconds(self, call, count):
        """Seconds of one of `count` calls."""
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    def wait(self):
        """Nothing is behind."""


class OnTheHost(Clock):
    """Where there are no fakes."""

    place = "cpu"


if not FAKES:
    gpu.KERNELS["math"] = "MATH"
    print(table(gpu.attention(OnTheHost(), ((1, 2, 16, 16, True),), 1)))
    sys.exit()

import gpu_calls  # noqa: E402
import torch_on_device  # noqa: E402, F401 - PyTorch's tensors are on a device

from backendcfg import ops  # noqa: E402

gpu_calls.CALLS = 2
print(table(gpu.beyond_the_library(Clock(), 1, 4)))
print(table(gpu.small_calls(Clock(), 1)))
print(table(gpu.products(Clock(), (4,), 1)))
print(
    *sorted({f"{each.operation} by {each.provider}" for each in ops.stats().operations}), sep="\n"
)
