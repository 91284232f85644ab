"""The flag tables that `torch.backends` does not have: ours, and those of frameworks.

Ours are threads, CPU BLAS, determinism, seeds and our operations.

What a flag does on a GPU was read in the sources that it names, not run.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backendcfg.schema.base import SPELLED, Document, Flag, Preference, Threads, Tier

OPENBLAS = "https://github.com/OpenMathLib/OpenBLAS/blob/develop/docs/runtime_variables.md"
MKL = (
    "https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/2025-0/"
    "improving-performance-with-threading.html"
)
MKL_CNR = (
    "https://www.intel.com/content/www/us/en/docs/onemkl/developer-reference-c/2026-0/"
    "reproducibility-conditions.html"
)
BLIS = "https://github.com/flame/blis/blob/master/docs/Multithreading.md"
OPENMP = "https://www.openmp.org/spec-html/5.2/openmpch21.html"
TORCH = "https://docs.pytorch.org/docs/2.13/notes/randomness.html"

CpuBlas = Literal["openblas", "scipy-openblas", "blis", "mkl", "native", "reference"]
"""Providers of CPU products, in the order of `backendcfg.catalogue.cpu.PROVIDERS`."""


class ThreadCounts(Document):
    """`[threads]`: how many threads compute."""

    count: Annotated[
        Threads,
        Flag(
            'Threads of every pool; "auto" is the cores of this process, or of its rank.',
            ("native", "openblas", "mkl", "blis", "openmp", "torch", "tensorflow", "jax", "numba"),
            source=OPENMP,
            in_c=True,
        ),
    ] = "auto"
    interop: Annotated[
        Threads,
        Flag(
            "Threads of PyTorch's and TensorFlow's inter-operator pools; \"auto\" is 2 at most.",
            ("torch", "tensorflow"),
            bits=False,
            source=TORCH,
        ),
    ] = "auto"
    dynamic: Annotated[
        bool,
        Flag(
            "Let MKL and OpenMP use fewer threads than asked (MKL_DYNAMIC, OMP_DYNAMIC).",
            ("mkl", "openmp"),
            source=MKL,
        ),
    ] = True


class OpenBlas(Document):
    """`[blas.openblas]`."""

    core_type: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_]+$"),
        Flag(
            'Kernel set, e.g. "Haswell" (OPENBLAS_CORETYPE); "auto" lets OpenBLAS choose.',
            ("openblas",),
            source=OPENBLAS,
        ),
    ] = "auto"
    thread_timeout: Annotated[
        int,
        Field(ge=0, le=30),
        Flag(
            "Idle spin of its threads, as a power of two; 0 keeps its default.",
            ("openblas",),
            source=OPENBLAS,
            bits=False,
        ),
    ] = 0


class BlasMkl(Document):
    """`[blas.mkl]`."""

    threading_layer: Annotated[
        Literal["auto", "intel", "gnu", "tbb", "sequential"],
        Flag("Threading runtime under MKL (MKL_THREADING_LAYER).", ("mkl",), source=MKL),
    ] = "auto"
    cbwr: Annotated[
        Literal["off", "auto", "compatible", "avx2", "avx512", "avx2,strict", "avx512,strict"],
        Flag("Conditional bitwise reproducibility branch (MKL_CBWR).", ("mkl",), source=MKL_CNR),
    ] = "off"


class BlasBlis(Document):
    """`[blas.blis]`."""

    arch_type: Annotated[
        str,
        Field(pattern=r"^[a-z0-9_]+$"),
        Flag(
            'Kernel set by name, e.g. "zen3" or "skx" (BLIS_ARCH_TYPE); "auto" lets BLIS choose.',
            ("blis",),
            source=BLIS,
        ),
    ] = "auto"


class Blas(Document):
    """`[blas]`: the library behind products of CPU arrays, and the switches of each."""

    library: Annotated[
        Preference[CpuBlas],
        SPELLED,
        Flag("Library that serves our own products of CPU arrays.", ("native",)),
    ] = Preference()
    path: Annotated[
        str,
        Flag(
            "File of the library to open instead of the detected ones; absolute.",
            ("native",),
            trusted=True,
        ),
    ] = ""
    openblas: OpenBlas = OpenBlas()
    mkl: BlasMkl = BlasMkl()
    blis: BlasBlis = BlasBlis()


class Determinism(Document):
    """`[determinism]`: the tier, and PyTorch's switch for it."""

    tier: Annotated[
        Tier,
        Flag(
            "The tier: under what changes the bits stay the same.",
            ("native", "backendcfg"),
            in_c=True,
        ),
    ] = "none"
    algorithms: Annotated[
        Literal["any", "warn", "deterministic"],
        Flag(
            "torch.use_deterministic_algorithms: off, warn only, on.",
            ("torch", "native"),
            source=TORCH,
            in_c=True,
        ),
    ] = "any"
    fill_uninitialized_memory: Annotated[
        bool,
        Flag("Under deterministic algorithms, fill torch.empty.", ("torch",), source=TORCH),
    ] = True


class Memory(Document):
    """`[memory]`: what malloc does with memory that a program has freed."""

    keep_freed: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=0, le=2147483647)],
        Flag(
            "Bytes of freed memory that stay with the process for the next array; 0 leaves it to"
            ' glibc, "auto" is an eighth of the memory.',
            ("glibc",),
            source="https://man7.org/linux/man-pages/man3/mallopt.3.html",
            bits=False,
        ),
    ] = 0


class Fleet(Document):
    """`[fleet]`: ranks that compute together."""

    agree: Annotated[
        Literal["off", "warn", "refuse"],
        Flag(
            "Hold the settings of all ranks against each other when they come together, and warn or"
            " refuse where they differ.",
            ("torch", "jax"),
            bits=False,
        ),
    ] = "off"
    unlike: Annotated[
        Literal["refuse", "common"],
        Flag(
            "Where `fleet plan` meets unlike hosts: refuse, or set what they have in common.",
            ("native",),
            bits=False,
        ),
    ] = "refuse"


class Python(Document):
    """`[python]`: the interpreter."""

    hash_seed: Annotated[
        Literal["random"] | Annotated[int, Field(ge=0, le=4294967295)],
        Flag(
            "Seed of str and bytes hashes (PYTHONHASHSEED).",
            ("python",),
            source="https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHASHSEED",
        ),
    ] = "random"


class Seed(Document):
    """`[seed]`: where random generators start."""

    value: Annotated[
        Literal["off"] | Annotated[int, Field(ge=0, le=4294967295)],
        Flag(
            "Seed of the libraries' own generators; child processes get seeds derived from it.",
            ("python",),
            source=TORCH,
        ),
    ] = "off"
    python: Annotated[
        bool,
        Flag(
            "Let the seed set Python's `random`.",
            ("python",),
            source="https://docs.python.org/3/library/random.html#random.seed",
        ),
    ] = True
    numpy: Annotated[
        bool,
        Flag(
            "Let the seed set NumPy's legacy generator, and what others start from without a seed.",
            ("numpy",),
            source="https://numpy.org/doc/stable/reference/random/generated/numpy.random.seed.html",
        ),
    ] = True
    numba: Annotated[
        bool,
        Flag(
            "Let the seed set Numba's generators, which compiled functions draw from.",
            ("numba",),
            source="https://numba.readthedocs.io/en/stable/reference/numpysupported.html#initialization",
        ),
    ] = True
    torch: Annotated[
        bool,
        Flag(
            "Let the seed set PyTorch's generators (torch.manual_seed).", ("torch",), source=TORCH
        ),
    ] = True
    tensorflow: Annotated[
        bool,
        Flag(
            "Let the seed set TensorFlow's (tf.random.set_seed).",
            ("tensorflow",),
            source="https://www.tensorflow.org/api_docs/python/tf/random/set_seed",
        ),
    ] = True


class Ops(Document):
    """`[ops]`: our own operations."""

    check_finite: Annotated[
        bool,
        Flag(
            "Refuse a result with NaN or infinity of `backendcfg.ops`.",
            ("native",),
            bits=False,
            in_c=True,
        ),
    ] = False
    calibration: Annotated[
        bool,
        Flag("Serve by what `backendcfg tune` measured; never under a tier.", ("native",)),
    ] = True
    float32_emulation: Annotated[
        Literal["none", "bf16x9"],
        Flag(
            "Let cuBLAS compute float32 products by nine of bfloat16, unless TF32 is asked for.",
            ("native",),
            ("nvidia-gpu",),
            source="https://docs.nvidia.com/cuda/cublas/#floating-point-emulation",
            in_c=True,
        ),
    ] = "none"


class Log(Document):
    """`[log]`: what backendcfg says of itself."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Flag(
            "Lowest level that is logged, unless the program gives the logger `backendcfg` one.",
            ("backendcfg",),
            bits=False,
        ),
    ] = "warning"


JAX = "https://docs.jax.dev/en/latest/config_options.html"
XLA = "https://openxla.org/xla/flags_guidance"
TENSORFLOW = "https://www.tensorflow.org/api_docs/python/tf/config"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


class Torch(Document):
    """`[torch]`: what PyTorch reads outside torch.backends."""

    cpu_capability: Annotated[
        Literal["auto", "default", "avx2", "avx512"],
        Flag("ATen's kernel set (ATEN_CPU_CAPABILITY).", ("torch",), source=TORCH),
    ] = "auto"
    tunable_op: Annotated[
        bool,
        Flag("Tune GEMM at run time (PYTORCH_TUNABLEOP_ENABLED).", ("torch",), ("amd-gpu",)),
    ] = False
    cublas_workspace_config: Annotated[
        Literal["auto", ":4096:8", ":16:8"],
        Flag(
            "cuBLAS workspaces (CUBLAS_WORKSPACE_CONFIG).",
            ("torch", "cublas"),
            ("nvidia-gpu",),
            source="https://docs.nvidia.com/cuda/cublas/#results-reproducibility",
        ),
    ] = "auto"
    cudnn_lru_cache_limit: Annotated[
        int,
        Field(ge=-1, le=2147483647),
        Flag(
            "Convolution plans kept; 0: all, -1: none (TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT).",
            ("torch",),
            ("nvidia-gpu",),
            source="https://docs.pytorch.org/docs/2.13/cuda_environment_variables.html",
            bits=False,
        ),
    ] = 10000
    mkl_detection: Annotated[
        Literal["first-call", "at-load"],
        Flag(
            "When MKL, inside PyTorch, finds out what CPU this is: in its first sqrt, exp, log, ..."
            ' ("first-call"), where one of two threads that make it at once may compute to 12 bits,'
            ' or when PyTorch is loaded ("at-load").',
            ("torch-mkl",),
            source="https://github.com/pytorch/pytorch/issues/188792",
        ),
    ] = "first-call"


class TorchRoutes(Document):
    """`[route.torch]`: what a program asks of PyTorch."""

    attention: Annotated[
        Literal["keep", "native"],
        Flag(
            'Kernels of PyTorch\'s attention on the CPU, forward and backward: its own ("keep") or'
            ' ours ("native").',
            ("torch",),
            source="https://docs.pytorch.org/docs/2.13/library.html",
        ),
    ] = "keep"
    dropout: Annotated[
        Literal["keep", "native"],
        Flag(
            'Kernel that draws what PyTorch\'s dropout drops on the CPU: its own ("keep") or ours '
            '("native"), which drops the same.',
            ("torch",),
            source="https://docs.pytorch.org/docs/2.13/library.html",
            bits=False,
        ),
    ] = "keep"
    matmul: Annotated[
        Literal["keep", "float32", "native"],
        Flag(
            'Kernels of PyTorch\'s products on the CPU: its own ("keep"), ours of float32 '
            '("float32"), or ours of bfloat16 and float16 ("native").',
            ("torch",),
            source="https://docs.pytorch.org/docs/2.13/library.html",
        ),
    ] = "keep"


class NumpyRoutes(Document):
    """`[route.numpy]`: what a program asks of NumPy."""

    elementwise: Annotated[
        Literal["keep", "threads"],
        Flag(
            "Threads of NumPy's element-wise functions (+, <, sqrt, exp, ...) and sums of large "
            'arrays: the caller\'s ("keep") or as many as `threads.count` says ("threads").',
            ("numpy",),
            source="https://numpy.org/doc/stable/reference/c-api/ufunc.html",
            bits=False,
        ),
    ] = "keep"
    matmul: Annotated[
        Literal["keep", "native"],
        Flag(
            "Kernels of NumPy's matmul and `@` of float16, float32 and float64: those of its BLAS "
            '("keep") or, for large products and all of float16, ours ("native").',
            ("numpy",),
            source="https://numpy.org/doc/stable/reference/c-api/ufunc.html",
        ),
    ] = "keep"


class Route(Document):
    """`[route]`: which library computes what a program asks of another one."""

    numpy: NumpyRoutes = NumpyRoutes()
    torch: TorchRoutes = TorchRoutes()


class OneDnn(Document):
    """`[onednn]`: the library's own variables."""

    default_fpmath_mode: Annotated[
        Literal["strict", "bf16", "f16", "tf32", "any"],
        Flag(
            "Down-conversion oneDNN may do by itself (ONEDNN_DEFAULT_FPMATH_MODE).",
            ("onednn",),
            source="https://uxlfoundation.github.io/oneDNN/dev_guide_attributes_fpmath_mode.html",
        ),
    ] = "strict"
    max_cpu_isa: Annotated[
        Literal["all", "sse41", "avx", "avx2", "avx512_core", "avx512_core_bf16"],
        Flag(
            "Newest instruction set oneDNN may use (ONEDNN_MAX_CPU_ISA).",
            ("onednn",),
            source="https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html",
        ),
    ] = "all"


class Jax(Document):
    """`[jax]`."""

    default_matmul_precision: Annotated[
        Literal["default", "high", "highest", "bfloat16", "tensorfloat32", "float32"],
        Flag(
            "Precision of products (jax_default_matmul_precision).",
            ("jax",),
            source="https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html",
        ),
    ] = "default"
    threefry_partitionable: Annotated[
        bool,
        Flag(
            "Random streams that do not depend on sharding (jax_threefry_partitionable).",
            ("jax",),
            source=JAX,
        ),
    ] = True
    default_prng_impl: Annotated[
        Literal["threefry2x32", "rbg", "unsafe_rbg"],
        Flag(
            "Generator of new random keys (jax_default_prng_impl).",
            ("jax",),
            source="https://docs.jax.dev/en/latest/jax.random.html",
        ),
    ] = "threefry2x32"
    enable_x64: Annotated[
        bool,
        Flag("64-bit types, which JAX otherwise narrows (jax_enable_x64).", ("jax",), source=JAX),
    ] = False
    deterministic_ops: Annotated[
        bool,
        Flag(
            "Only deterministic GPU kernels (--xla_gpu_deterministic_ops in XLA_FLAGS).",
            ("jax",),
            ("nvidia-gpu", "amd-gpu"),
            source=XLA,
        ),
    ] = False
    autotune_level: Annotated[
        int,
        Field(ge=0, le=5),
        Flag(
            "How far GPU kernels are timed; 0 is off (--xla_gpu_autotune_level in XLA_FLAGS).",
            ("jax",),
            ("nvidia-gpu", "amd-gpu"),
            source=XLA,
        ),
    ] = 4


class TensorFlow(Document):
    """`[tensorflow]`."""

    op_determinism: Annotated[
        bool,
        Flag(
            "Only deterministic operations; random ones then need a seed, and it cannot be undone.",
            ("tensorflow",),
            source="https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism",
        ),
    ] = False
    tensor_float_32_execution: Annotated[
        bool,
        Flag(
            "TF32 in products and convolutions.",
            ("tensorflow",),
            ("nvidia-gpu",),
            source=f"{TENSORFLOW}/experimental/enable_tensor_float_32_execution",
        ),
    ] = True
    onednn_opts: Annotated[
        bool,
        Flag(
            "Operations on the CPU through oneDNN (TF_ENABLE_ONEDNN_OPTS).",
            ("tensorflow",),
            source="https://www.intel.com/content/www/us/en/developer/articles/guide/optimization-for-tensorflow-installation-guide.html",
        ),
    ] = True


class Cupy(Document):
    """`[cupy]`."""

    compute_type: Annotated[
        Literal["default", "pedantic", "fp32", "tf32"],
        Flag(
            "Compute type of products of float32 and complex64.",
            ("cupy",),
            ("nvidia-gpu", "amd-gpu"),
            source="https://github.com/cupy/cupy/blob/main/cupy/_core/_routines_linalg.pyx",
        ),
    ] = "default"


class Nccl(Document):
    """`[nccl]`: collective communication."""

    algo: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9,;:^_-]*$"),
        Flag("NCCL_ALGO; empty lets NCCL choose.", ("nccl",), ("nvidia-gpu",), source=NCCL),
    ] = ""
    proto: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9,;:^_-]*$"),
        Flag("NCCL_PROTO; empty lets NCCL choose.", ("nccl",), ("nvidia-gpu",), source=NCCL),
    ] = ""
    nvls: Annotated[
        Literal["auto", "on", "off"],
        Flag("In-network sums (NCCL_NVLS_ENABLE).", ("nccl",), ("nvidia-gpu",), source=NCCL),
    ] = "auto"
