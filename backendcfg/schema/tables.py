"""The flag tables that are ours: threads, CPU BLAS, determinism, seeds, our operations.

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
            ("native", "openblas", "mkl", "blis", "openmp", "torch", "tensorflow", "jax"),
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
        Flag("Level of the `backendcfg` logger.", ("backendcfg",), bits=False),
    ] = "warning"
