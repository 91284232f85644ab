"""Programs that import libraries in any order and write their switches in between, from a seed.

Run as a program it is the trunk of many of them: it imports what they all begin with, and forks one
child for each, which runs the rest.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback

IMPORTS = {
    "numpy": "import numpy",
    "scipy": "import scipy.linalg, scipy.special, scipy.optimize",
    "sklearn": "import sklearn, sklearn.utils, sklearn.utils.parallel",
    "torch": "import torch",
    "jax": "import jax",
}

BOOLEANS = ("True", "False")
PRECISIONS = ('"ieee"', '"tf32"', '"none"')
CPU_PRECISIONS = (*PRECISIONS, '"bf16"')

WRITES = {
    "torch.backends.cuda.matmul.allow_tf32": BOOLEANS,
    "torch.backends.cuda.matmul.fp32_precision": PRECISIONS,
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": (
        *BOOLEANS,
        "(True, False)",
    ),
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": (
        *BOOLEANS,
        "(False, False)",
    ),
    "torch.backends.cuda.matmul.allow_fp16_accumulation": BOOLEANS,
    "torch.backends.cudnn.enabled": BOOLEANS,
    "torch.backends.cudnn.benchmark": BOOLEANS,
    "torch.backends.cudnn.deterministic": BOOLEANS,
    "torch.backends.cudnn.allow_tf32": BOOLEANS,
    "torch.backends.cudnn.fp32_precision": PRECISIONS,
    "torch.backends.cudnn.conv.fp32_precision": PRECISIONS,
    "torch.backends.cudnn.rnn.fp32_precision": PRECISIONS,
    "torch.backends.mkldnn.enabled": BOOLEANS,
    "torch.backends.mkldnn.deterministic": BOOLEANS,
    "torch.backends.mkldnn.allow_tf32": BOOLEANS,
    "torch.backends.mkldnn.fp32_precision": CPU_PRECISIONS,
    "torch.backends.mkldnn.matmul.fp32_precision": CPU_PRECISIONS,
    "torch.backends.mkldnn.conv.fp32_precision": CPU_PRECISIONS,
    "torch.backends.mkldnn.rnn.fp32_precision": CPU_PRECISIONS,
    "torch.backends.fp32_precision": PRECISIONS,
    "torch.backends.opt_einsum.enabled": BOOLEANS,
    "torch.backends.opt_einsum.strategy": ('"auto"', '"greedy"', '"optimal"'),
    "torch.backends.quantized.engine": ('"onednn"', '"fbgemm"', '"none"'),
    "torch.backends.miopen.immediate": BOOLEANS,
    "torch.utils.deterministic.fill_uninitialized_memory": BOOLEANS,
}
"""Attributes of PyTorch and what is assigned to them, older and newer names of one switch alike."""

ALONE = {
    "torch.backends.cuda.matmul.allow_fp16_accumulation",
    "torch.backends.cudnn.enabled",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic",
    "torch.backends.mkldnn.enabled",
    "torch.backends.mkldnn.deterministic",
    "torch.backends.opt_einsum.enabled",
    "torch.backends.opt_einsum.strategy",
    "torch.backends.quantized.engine",
    "torch.backends.miopen.immediate",
    "torch.utils.deterministic.fill_uninitialized_memory",
}
"""Those that no other assignment touches."""

CALLS = {
    "": (
        'os.environ["OMP_NUM_THREADS"] = "2"',
        'os.environ["OPENBLAS_NUM_THREADS"] = "1"',
        'os.environ["MKL_NUM_THREADS"] = "1"',
        'os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=false"',
        'os.environ["JAX_ENABLE_X64"] = "1"',
        'os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"',
        'os.environ.pop("OMP_NUM_THREADS", None)',
        "import random; random.seed(3)",
        "random.random()",
        "run_a_thread()",
    ),
    "numpy": (
        "numpy.random.seed(3)",
        "numpy.random.rand()",
        "numpy.random.default_rng().random()",
        "numpy.random.set_bit_generator(numpy.random.PCG64(1))",
        'numpy.seterr(all="ignore")',
        "numpy.ones((32, 32)) @ numpy.ones((32, 32))",
        'numpy.einsum("ij,jk", numpy.ones((3, 3)), numpy.ones((3, 3)))',
    ),
    "scipy": (
        "scipy.linalg.eigh([[2.0, 1.0], [1.0, 2.0]])",
        "scipy.linalg.solve([[2.0, 1.0], [1.0, 2.0]], [1.0, 2.0])",
        "scipy.special.expit(0.5)",
    ),
    "sklearn": (
        "sklearn.set_config(assume_finite=True)",
        "limits = threadpool_limits(1)",
        'with threadpool_limits(2, user_api="blas"): run_a_thread()',
        "threadpool_info()",
        "sklearn.utils.check_random_state(None).rand()",
    ),
    "torch": (
        'torch.set_float32_matmul_precision("highest")',
        'torch.set_float32_matmul_precision("high")',
        'torch.set_float32_matmul_precision("medium")',
        "torch.get_float32_matmul_precision()",
        "torch.use_deterministic_algorithms(True)",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.use_deterministic_algorithms(False)",
        'torch.set_deterministic_debug_mode("warn")',
        "torch.set_num_threads(1)",
        "torch.set_num_threads(2)",
        "torch.set_num_interop_threads(2)",
        "torch.manual_seed(3)",
        "torch.rand(2)",
        "torch.set_flush_denormal(True)",
        "torch.set_default_dtype(torch.float64)",
        "torch.backends.cuda.enable_flash_sdp(False)",
        "torch.backends.cuda.enable_mem_efficient_sdp(False)",
        "torch.backends.cuda.enable_math_sdp(True)",
        "torch.backends.cuda.enable_cudnn_sdp(True)",
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)",
        'torch.backends.cuda.preferred_linalg_library("cusolver")',
        'torch.backends.cuda.preferred_blas_library("cublaslt")',
        'torch.backends.cuda.preferred_rocm_fa_library("default")',
        "torch.backends.mha.set_fastpath_enabled(False)",
        "torch.backends.nnpack.set_flags(False)",
        "torch.backends.opt_einsum.set_flags(True, 'greedy')",
        "torch.backends.opt_einsum.set_flags(False)",
        "torch.backends.cudnn.set_flags(True, None, True, True, True)",
        "torch.backends.mkldnn.set_flags(True, True)",
        "with torch.backends.cudnn.flags(enabled=True): run_a_thread()",
        "with torch.backends.mkldnn.flags(enabled=False): torch.ones(4, 4) @ torch.ones(4, 4)",
        "with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_OFF): pass",
        "with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_OFF): pass",
        "with torch.backends.nnpack.flags(enabled=False): pass",
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH): attend()",
        "attend()",
        "torch.ones(32, 32) @ torch.ones(32, 32)",
        'torch.einsum("ij,jk,kl->il", *[torch.ones(4, 4)] * 3)',
        "torch.nn.Conv2d(1, 1, 3)(torch.ones(1, 1, 8, 8))",
        "torch.nn.LSTM(4, 4)(torch.ones(2, 1, 4))",
        "torch.backends.cuda.matmul.allow_tf32",
        "torch.backends.cudnn.allow_tf32",
        "torch.backends.mkldnn.matmul.fp32_precision",
        "torch.backends.cuda.matmul.fp32_precision",
        "torch.backends.disable_global_flags()",
        "import torch._inductor.config",
        "import torch._inductor.config; torch._inductor.config.deterministic = False",
    ),
    "jax": (
        'jax.config.update("jax_default_matmul_precision", "float32")',
        'jax.config.update("jax_default_matmul_precision", "bfloat16")',
        'jax.config.update("jax_default_matmul_precision", None)',
        'jax.config.update("jax_enable_x64", True)',
        'jax.config.update("jax_enable_x64", False)',
        'jax.config.update("jax_threefry_partitionable", False)',
        'jax.config.update("jax_default_prng_impl", "rbg")',
        'jax.config.update("jax_default_prng_impl", "threefry2x32")',
        'jax.config.update("jax_debug_nans", False)',
        'jax.config.update("jax_numpy_rank_promotion", "warn")',
        'jax.config.update("jax_platforms", "cpu")',
        'with jax.default_matmul_precision("highest"): jax.numpy.ones((4, 4)) @ jax.numpy.ones(4)',
        "with jax.enable_x64(True): jax.numpy.ones(3).sum()",
        "jax.random.uniform(jax.random.key(3))",
        "jax.jit(lambda x: x @ x)(jax.numpy.ones((8, 8)))",
    ),
}
"""By library, what programs call; what stands under "" needs none."""

PRELUDE = """
import backendcfg
import os, sys, threading
def run_a_thread():
    thread = threading.Thread(target=len, args=("",)); thread.start(); thread.join()
def attend():
    torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8)] * 3)
"""

LATER = {"sklearn": "from threadpoolctl import threadpool_info, threadpool_limits"}
"""What a program needs beside the import itself."""


def trunk(batch):
    """How the programs of a batch begin, and what they import after that: libraries by their names."""
    choose = random.Random(batch)
    order = choose.sample(sorted(IMPORTS), choose.randint(2, len(IMPORTS)))
    shared = choose.randint(0, len(order) - 1)
    return order[:shared], order[shared:]


def lines_of(library):
    """The lines that import a library."""
    return [IMPORTS[library], *filter(None, [LATER.get(library)])]


def program(batch, number):
    """The lines of one program of a batch that come after what they all begin with.

    Some raise in themselves, as where a switch was written by its older and its newer name.
    """
    choose = random.Random(f"{batch} {number}")
    begun, order = trunk(batch)
    have, lines, written = ["", *begun], [], {}
    for library in order:
        lines += [step(choose, have, written) for _ in range(choose.randint(1, 5))]
        lines += lines_of(library)
        have.append(library)
    lines += [step(choose, have, written) for _ in range(3)]
    # What a program sets after the start of a profile stays as it set it.
    kept = [f"assert {name} == {value}, {name}" for name, value in written.items() if name in ALONE]
    return lines + kept


def step(choose, have, written):
    """One line that uses what is imported; `written` gets what it assigns."""
    # PyTorch has most of the switches.
    library = choose.choice([*have, *[name for name in have if name == "torch"] * 2])
    if library != "torch" or choose.random() < 0.4:
        return choose.choice(CALLS[library])
    name = choose.choice(sorted(WRITES))
    written[name] = choose.choice(WRITES[name])
    return f"{name} = {written[name]}"


def run(lines, names):
    """Run lines one by one; those that raised, with what they raised."""
    raised = {}
    for line in lines:
        words = line.split()
        if words[0] == "assert" and any(each.startswith(f"{words[1]} = ") for each in raised):
            continue  # PyTorch refused the write, as after `disable_global_flags()`
        try:
            exec(line, names)
        except BaseException:
            raised[line] = traceback.format_exc()
    return raised


def main():
    """Run the lines that the argument has, then each program of standard input in a child of its own."""
    names = {"__name__": "__main__"}
    exec(PRELUDE, names)
    begun = run(json.loads(sys.argv[1]), names)
    for text in sys.stdin:
        number, lines = json.loads(text)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, json.dumps({**begun, **run(lines, names)}).encode())
            sys.exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            raised = json.loads(said.read() or "null")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"\n{json.dumps([number, status, raised])}", flush=True)


if __name__ == "__main__":
    main()
