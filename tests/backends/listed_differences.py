"""Where `backendcfg.backends` differs from torch.backends 2.13 in what the conformance test sees.

Each entry is `(module, name, what)`: what differs is "signature", "value" (what a fresh process
reads or a call without arguments returns), "members" of a class, or "missing". An entry that is no
difference any more fails the test. docs/backends.md explains the reasons.
"""

from __future__ import annotations

KEEPS = "flags() and set_flags() keep what is not named, so every default is None"
NAMES = "works without PyTorch, so it holds the names of its types"

DIFFERENCES = {
    ("", "flags", "signature"): KEEPS,
    ("", "set_flags", "signature"): KEEPS,
    ("cudnn", "flags", "signature"): KEEPS,
    ("cudnn", "set_flags", "signature"): KEEPS,
    ("mkldnn", "flags", "signature"): KEEPS,
    ("mkldnn", "set_flags", "signature"): KEEPS,
    ("miopen", "flags", "signature"): KEEPS,
    ("nnpack", "flags", "signature"): KEEPS,
    ("cuda", "is_flash_attention_available", "value"): "ours is compiled in, for the CPU",
    ("cudnn", "CUDNN_TENSOR_DTYPES", "value"): NAMES,
    ("cudnn", "benchmark_limit", "value"): "PyTorch has it as None where it has no cuDNN",
    ("mkldnn", "allow_tf32", "value"): "PyTorch's reads None on every build but XPU",
    ("cudnn.rnn", "CudnnRNNModule", "members"): "init_dropout_state is the module's function",
    ("mkldnn", "MkldnnModule", "members"): "is_available is the module's function",
    ("mps", "get_core_count", "value"): "PyTorch raises AttributeError away from a Mac",
    ("mps", "get_name", "value"): "PyTorch raises AttributeError away from a Mac",
    ("mps", "is_macos13_or_newer", "value"): "PyTorch raises RuntimeError away from a Mac",
}
