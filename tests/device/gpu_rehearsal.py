"""A plugin of pytest that lets the tests in tests/gpu run without a GPU: `-p gpu_rehearsal`.

With `--doubles EXCHANGE:LIBRARY:...`, PyTorch's tensors on the host say that they are on a device, and
the doubles multiply; without, attention is computed by our kernels for the CPU. What is proven is
that those tests say what they mean to say, and not what a GPU does.
"""

import contextlib
import sys
from pathlib import Path


def pytest_addoption(parser):
    parser.addoption("--doubles", default="")


def pytest_configure(config):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
    doubles = [path for path in config.getoption("doubles").split(":") if path]
    if doubles:
        before, sys.argv = sys.argv, ["", *doubles]
        import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions

        sys.argv = before
    from gpu_arrays import Cuda

    class Rehearsed(Cuda):
        device = "cpu"
        place = "cuda:0" if doubles else "cpu"
        size = 24
        deep = 64
        times = 2
        is_real = False
        capability = (9, 0)

        def wait(self):
            """Nothing is behind."""

        @contextlib.contextmanager
        def busy(self):
            """Nobody else computes."""
            yield lambda: True

    config.rehearsed = Rehearsed()
