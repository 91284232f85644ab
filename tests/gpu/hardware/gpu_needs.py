"""What the tests on a GPU need, asked without importing a framework."""

from __future__ import annotations

import os
from importlib.util import find_spec

DEVICES = ("nvidiactl", "dxg", "nvhost-gpu")


def missing(config):
    """Why these tests cannot run here; "" when they can. Starts no driver where there is no GPU."""
    if hasattr(config, "rehearsed"):
        return ""
    if "gpu" not in config.getoption("markexpr").replace("not gpu", ""):
        return "needs a GPU, and to be asked for: `pytest -m gpu`"
    if find_spec("torch") is None:
        return "needs a GPU, and PyTorch for CUDA, which is not installed"
    if not any(os.path.exists(f"/dev/{name}") for name in DEVICES):
        return "needs a GPU: NVIDIA's driver has no device here"
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        return f"needs a GPU: PyTorch {torch.__version__} can use none"
    return ""
