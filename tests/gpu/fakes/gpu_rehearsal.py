"""A plugin of pytest that lets the tests in tests/gpu run without a GPU: `-p gpu_rehearsal`.

With `--fakes EXCHANGE:CUDA:LIBRARY:...`, PyTorch's tensors on the host say that they are on a device,
and the fakes compute; with `--emulated` too, what they launch of our own kernels is run by
the emulation of a GPU. Without fakes, attention is computed by our kernels for the CPU. What is
proven is that those tests say what they mean to say, and not what a GPU does.
"""

import contextlib
import ctypes
import sys
from pathlib import Path


def pytest_addoption(parser):
    parser.addoption("--fakes", default="")
    parser.addoption("--emulated", action="store_true")


def emulator(cuda):
    """What runs our kernels that the fake of the driver launches."""
    from attention_on_device import Emulator

    class Fake:
        library = ctypes.CDLL(cuda)

    class Patch:
        setattr = staticmethod(setattr)

    Fake.library.cuInit(0)  # `explain` does not start a driver
    made = Emulator()
    made.install(Fake, Patch)
    return made


class Memory:
    """The memory of a tensor, as an emulator asks for it."""

    def __init__(self, tensor):
        import numpy as np

        storage = tensor.untyped_storage()
        kind = ctypes.c_uint8 * storage.nbytes()
        self.held = tensor
        self.array = np.frombuffer(kind.from_address(storage.data_ptr()), np.uint8)


def pytest_configure(config):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hardware"))
    fakes = [path for path in config.getoption("fakes").split(":") if path]
    if fakes:
        before, sys.argv = sys.argv, ["", *fakes]
        import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions

        sys.argv = before
    from gpu_arrays import Cuda

    runs = emulator(fakes[1]) if config.getoption("emulated") else None

    class Rehearsed(Cuda):
        device = "cpu"
        place = "cuda:0" if fakes else "cpu"
        size = 24
        deep = 64
        times = 2
        is_real = False
        capability = (9, 0)

        def wait(self):
            """Nothing is behind."""

        def seed(self, number):
            """Each test makes its own arrays."""
            super().seed(number)
            if runs is not None:
                runs.arrays = []

        def random(self, *shape, dtype="float32"):
            """Our kernels may read what was made."""
            return self._lent(super().random(*shape, dtype=dtype))

        def mask(self, *shape):
            """As `random`."""
            return self._lent(super().mask(*shape))

        def _lent(self, array):
            if runs is not None:
                runs.reads(Memory(array))
            return array

        @contextlib.contextmanager
        def busy(self):
            """Nobody else computes."""
            yield lambda: True

    config.rehearsed = Rehearsed()
