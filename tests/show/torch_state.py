"""Everything that PyTorch, its compiler and the thread pools beside it say of their switches.

Getters alone, PyTorch's and threadpoolctl's; nothing of backendcfg. What cannot be asked (a name
that raises in this build) is recorded as the exception's class.
"""

from __future__ import annotations

import hashlib
import os
import types

MODULES = (
    "",
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "kleidiai",
    "mha",
    "miopen",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "python_native",
    "quantized",
)
HIDDEN = (
    "cuda.matmul.allow_tf32",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_fp16_accumulation",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "opt_einsum.enabled",
    "opt_einsum.strategy",
    "python_native.cutedsl.enabled",
    "python_native.triton.enabled",
)
"""Names that `dir` does not list."""
ASKING = ("is_", "get_", "preferred_")
_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
"""The compiler hands an address to its workers, another one in every process."""
SIMPLE = (bool, int, float, str, tuple, list, type(None))


def switches():
    """Each attribute of torch.backends that is data, and each getter that takes no argument."""
    from operator import attrgetter

    import torch

    found = {}
    for path in MODULES:
        module = attrgetter(path)(torch.backends) if path else torch.backends
        for name in {*dir(module), *dir(type(module))}:
            if name.startswith(("_", "set_")):
                continue
            full = f"{path}.{name}".lstrip(".")
            try:
                value = getattr(module, name)
                if isinstance(value, types.FunctionType) and _asks(name):
                    value = value()
            except Exception as error:
                value = type(error).__name__
            if isinstance(value, SIMPLE) or type(value).__module__ == "torch._C":
                found[full] = repr(value)
    for name in HIDDEN:
        found[name] = repr(attrgetter(name)(torch.backends))
    return found


def _asks(name):
    return name.startswith(ASKING) or name.endswith(("_enabled", "_allowed"))


def others():
    """What PyTorch keeps outside torch.backends, for this thread and for the process."""
    import threadpoolctl
    import torch
    import torch._inductor.config

    core = torch._C
    inductor = torch._inductor.config.get_config_copy()
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "sdp_priority": core._get_sdp_priority_order(),
        "sdp_overrideable": core._get_overrideable_sdp_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "debug_mode": torch.get_deterministic_debug_mode(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "nnpack": core._get_nnpack_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "autocast": [torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")],
        "pools": sorted([p["filepath"], p["num_threads"]] for p in threadpoolctl.threadpool_info()),
        **{f"compiler.{name}": repr(value) for name, value in inductor.items()},
        **{f"variable {name}": text for name, text in os.environ.items() if name != _ADDRESS},
    }


def leaves_under_a_parent():
    """What the leaves of cuDNN say under a parent: whether PyTorch's hidden default is intact."""
    import torch

    torch.backends.fp32_precision = "ieee"
    cudnn = torch.backends.cudnn
    seen = [cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision]
    torch.backends.fp32_precision = "none"
    return seen


def generators():
    """Where Python's, NumPy's and PyTorch's random generators stand."""
    import random

    import numpy as np
    import torch

    numpy_state = np.random.get_state()  # noqa: NPY002 - this is the one that programs seed
    told = [random.getstate(), numpy_state[1].tobytes(), numpy_state[2:]]
    told.append(torch.random.get_rng_state().numpy().tobytes())
    return [hashlib.sha256(repr(one).encode()).hexdigest() for one in told]


def state():
    """All of it but the generators, as JSON data."""
    return {"switches": switches(), "others": others()}
