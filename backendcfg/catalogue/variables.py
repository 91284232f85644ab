"""Other software's environment variables: which flag each one decides, and how it is spelled.

`contradictions` compares an environment with a plan; what a child process needs is made of the
same table by `backendcfg.bridges.environment`. Standard library only. Sources are those of the
flags in `backendcfg.schema.tables`; what decides in whose place was measured where the vendors do
not say. Each row tells on what evidence it stands: measured means that a change of the variable was
seen to act, with the versions of the day; read means that its reader's sources or documents say so,
and that nothing was run, mostly for want of a GPU.
"""

from __future__ import annotations

from backendcfg.catalogue import xla_text
from backendcfg.catalogue.cpu import BLIS, MKL, ONEDNN, OPENBLAS, OPENMP
from backendcfg.catalogue.frameworks import CUPY, JAX, NUMBA, TENSORFLOW, TORCH
from backendcfg.catalogue.gpu import (
    AOTRITON,
    CK,
    CUBLAS,
    CUBLASLT,
    CUDNN,
    CUSOLVER,
    HIPBLAS,
    HIPBLASLT,
    MAGMA,
    NCCL,
)
from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any, Literal


@record(frozen=True)
class Variable:
    """One row: a flag, the variable that carries it, and who reads that when.

    Attributes:
        flag: the flag.
        name: the variable.
        latch: until when the reader looks: a value of `backendcfg.transact.protocol.Latch`.
        reader: who reads it: "openblas", "openmp", "mkl", "mkl_rt" (not the MKL in torch), "blis",
            "torch", "onednn", "cublas", "cudnn" (that in torch), "nccl", "tensorflow", "jax",
            "cupy", "numba" or "interpreter".
        values: how flag values are spelled; a value that is not here is spelled as `str` does.
            None means that the variable must be unset for the flag value to hold.
        rivals: variables that decide the same, or part of it, when they are set.
        cap: a variable that limits what this one says; it may have reasons of its own.
        runtime: whether a running library can be told the same by a call.
        unset: what the reader takes when the variable is not set, if that is one of the texts.
        unit: for a size, the bytes that one in the text stands for; 0 for what is no size.
        for_children: whether it is set for child processes alone, because a bridge sets the same by
            a call when its reader is imported here, and what the reader takes from a variable could
            not be undone.
        kept: why it is not given back once its reader has read it, or "".
        initial: whether it gives a switch of PyTorch its first value (`INITIALS` of the schema),
            so that, found in an environment, it is a wish.
        evidence: "measured" or "read".
    """

    flag: str
    name: str
    latch: str
    reader: str
    values: Mapping[Any, str | None] = field(default_factory=dict)
    rivals: tuple[str, ...] = ()
    cap: str = ""
    runtime: bool = False
    unset: str = ""
    unit: int = 0
    for_children: bool = False
    kept: str = ""
    initial: bool = False
    evidence: Literal["measured", "read"] = "measured"

    def encode(self, value: Any) -> str | None:
        """The text that carries a flag value, or None for a variable that must be unset."""
        if isinstance(value, dict):
            return None  # a choice of library that nobody made
        if value in self.values:
            return self.values[value]
        if self.unit:
            return str(-(-value // self.unit))
        return str(value)

    def says(self, found: str | None, wanted: str | None) -> bool:
        """Whether a reader that finds one text does what the other would tell it."""
        if not found:
            return wanted is None or wanted == self.unset
        if wanted is None:
            # Some variables spell the library's own choice out.
            return self.values.get(found.lower(), "") is None
        return found.lower() == wanted.lower() or _truth(found) == _truth(wanted) is not None


ON_OFF = {True: "1", False: "0"}
TRUE_FALSE = {True: "TRUE", False: "FALSE"}
CBWR = ("auto", "compatible", "avx2", "avx512", "avx2,strict", "avx512,strict")
BLIS_WAYS = ("BLIS_JC_NT", "BLIS_PC_NT", "BLIS_IC_NT", "BLIS_JR_NT", "BLIS_IR_NT")

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "threads.count",
        "OPENBLAS_NUM_THREADS",
        "before-import",
        OPENBLAS.name,
        rivals=("GOTO_NUM_THREADS",),
        runtime=True,
    ),
    Variable(
        "threads.count",
        "OMP_NUM_THREADS",
        "before-import",
        OPENMP,
        cap="OMP_THREAD_LIMIT",
        runtime=True,
    ),
    Variable(
        "threads.count",
        "MKL_NUM_THREADS",
        "before-import",
        MKL.name,
        rivals=("MKL_DOMAIN_NUM_THREADS",),
        runtime=True,
    ),
    Variable(
        "threads.count",
        "BLIS_NUM_THREADS",
        "before-import",
        BLIS.name,
        rivals=BLIS_WAYS,
        runtime=True,
        evidence="read",
    ),
    # What sizes XLA's pool on the CPU, and Numba's; without it the affinity does.
    Variable("threads.count", "NPROC", "before-first-use", JAX.name),
    Variable(
        "threads.count",
        "NUMBA_NUM_THREADS",
        "before-import",
        NUMBA.name,
        kept="it refuses to compile once it has threads and the variable changes",
    ),
    Variable(
        "threads.dynamic",
        "OMP_DYNAMIC",
        "before-import",
        OPENMP,
        TRUE_FALSE,
        runtime=True,
        unset="FALSE",
    ),
    Variable(
        "threads.dynamic",
        "MKL_DYNAMIC",
        "before-import",
        MKL.name,
        TRUE_FALSE,
        runtime=True,
        unset="TRUE",
    ),
    Variable(
        "blas.openblas.core_type",
        "OPENBLAS_CORETYPE",
        "before-import",
        OPENBLAS.name,
        {"auto": None},
        # It sizes the blocks of the kernels that the core type chooses, and thereby the sums.
        rivals=("OPENBLAS_L2_SIZE",),
    ),
    Variable(
        "blas.openblas.thread_timeout",
        "OPENBLAS_THREAD_TIMEOUT",
        "before-import",
        OPENBLAS.name,
        {0: None},
        evidence="read",
    ),
    Variable(
        "blas.mkl.threading_layer",
        "MKL_THREADING_LAYER",
        "before-first-use",
        "mkl_rt",
        {
            "auto": None,
            "intel": "INTEL",
            "gnu": "GNU",
            "tbb": "TBB",
            "sequential": "SEQUENTIAL",
        },
        evidence="read",
    ),
    Variable(
        "blas.mkl.cbwr",
        "MKL_CBWR",
        "before-first-use",
        MKL.name,
        {"off": None, **{name: name.upper() for name in CBWR}},
    ),
    # The names are turned into the numbers of the BLIS at hand: see bridges/blis_architectures.py.
    Variable(
        "blas.blis.arch_type",
        "BLIS_ARCH_TYPE",
        "before-import",
        BLIS.name,
        {"auto": None},
        evidence="read",
    ),
    Variable(
        "python.hash_seed", "PYTHONHASHSEED", "before-process", "interpreter", {"random": None}
    ),
    Variable(
        "torch.cpu_capability",
        "ATEN_CPU_CAPABILITY",
        "before-first-use",
        TORCH.name,
        {"auto": None},
    ),
    Variable(
        "torch.tunable_op",
        "PYTORCH_TUNABLEOP_ENABLED",
        "before-first-use",
        TORCH.name,
        ON_OFF,
        evidence="read",
    ),
    Variable(
        "torch.cublas_workspace_config",
        "CUBLAS_WORKSPACE_CONFIG",
        "before-first-use",
        CUBLAS.name,
        {"auto": None},
        evidence="read",
    ),
    Variable(
        "torch.cudnn_lru_cache_limit",
        "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
        "before-first-use",
        CUDNN.name,
        unset="10000",
        evidence="read",
    ),
    Variable(
        "onednn.default_fpmath_mode",
        "ONEDNN_DEFAULT_FPMATH_MODE",
        "before-first-use",
        ONEDNN.name,
        {name: name.upper() for name in ("strict", "bf16", "f16", "tf32", "any")},
        rivals=("DNNL_DEFAULT_FPMATH_MODE",),
        unset="STRICT",
    ),
    Variable(
        "onednn.max_cpu_isa",
        "ONEDNN_MAX_CPU_ISA",
        "before-first-use",
        ONEDNN.name,
        {
            name: name.upper()
            for name in ("all", "sse41", "avx", "avx2", "avx512_core", "avx512_core_bf16")
        },
        rivals=("DNNL_MAX_CPU_ISA",),
        unset="ALL",
    ),
    Variable("mkl.verbose", "MKL_VERBOSE", "before-first-use", MKL.name, runtime=True, unset="0"),
    Variable(
        "mkldnn.verbose",
        "ONEDNN_VERBOSE",
        "before-first-use",
        ONEDNN.name,
        rivals=("DNNL_VERBOSE",),
        runtime=True,
        unset="0",
    ),
    Variable(
        "tensorflow.op_determinism",
        "TF_DETERMINISTIC_OPS",
        "before-import",
        TENSORFLOW.name,
        ON_OFF,
        for_children=True,
        unset="0",
    ),
    Variable(
        "tensorflow.onednn_opts", "TF_ENABLE_ONEDNN_OPTS", "before-import", TENSORFLOW.name, ON_OFF
    ),
    Variable(
        "cuda.matmul.fp32_precision",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "before-import",
        TORCH.name,
        {"tf32": "1", "ieee": None, "none": None, "0": None},
        for_children=True,
        initial=True,
    ),
    Variable(
        "cuda.preferred_linalg_library",
        "TORCH_LINALG_PREFER_CUSOLVER",
        "before-import",
        TORCH.name,
        {CUSOLVER.name: "1", MAGMA.name: None, "default": None, "0": None},
        rivals=("TORCH_LINALG_PREFER_HIPSOLVER",),
        for_children=True,
        initial=True,
    ),
    Variable(
        "cuda.preferred_blas_library",
        "TORCH_BLAS_PREFER_CUBLASLT",
        "before-import",
        TORCH.name,
        # PyTorch takes hipBLASLt's variable for the same.
        {
            CUBLASLT.name: "1",
            HIPBLASLT.name: "1",
            CUBLAS.name: "0",
            HIPBLAS.name: "0",
            CK.name: None,
            "default": None,
        },
        rivals=("TORCH_BLAS_PREFER_HIPBLASLT",),
        for_children=True,
        initial=True,
    ),
    Variable(
        "cuda.preferred_rocm_fa_library",
        "TORCH_ROCM_FA_PREFER_CK",
        "before-import",
        TORCH.name,
        {CK.name: "1", AOTRITON.name: None, "default": None, "0": None},
        for_children=True,
        initial=True,
    ),
    Variable(
        "cuda.cublaslt_workspace_size",
        "CUBLASLT_WORKSPACE_SIZE",
        "before-first-use",
        CUBLAS.name,
        {0: None},
        unit=1024,
        for_children=True,
        initial=True,
        evidence="read",
    ),
    Variable(
        "jax.default_matmul_precision",
        "JAX_DEFAULT_MATMUL_PRECISION",
        "before-import",
        JAX.name,
        {"default": None},
        for_children=True,
    ),
    Variable(
        "jax.threefry_partitionable",
        "JAX_THREEFRY_PARTITIONABLE",
        "before-import",
        JAX.name,
        ON_OFF,
        for_children=True,
        unset="1",
    ),
    Variable(
        "jax.default_prng_impl",
        "JAX_DEFAULT_PRNG_IMPL",
        "before-import",
        JAX.name,
        for_children=True,
        unset="threefry2x32",
    ),
    Variable(
        "jax.enable_x64",
        "JAX_ENABLE_X64",
        "before-import",
        JAX.name,
        ON_OFF,
        for_children=True,
        unset="0",
    ),
    # It knows of TF32 alone: the other types are set by a call when CuPy is imported.
    Variable(
        "cupy.compute_type",
        "CUPY_TF32",
        "before-first-use",
        CUPY.name,
        {"tf32": "1", "default": None, "pedantic": None, "fp32": None, "0": None},
        for_children=True,
        evidence="read",
    ),
    Variable("nccl.algo", "NCCL_ALGO", "before-first-use", NCCL.name, {"": None}, evidence="read"),
    Variable(
        "nccl.proto", "NCCL_PROTO", "before-first-use", NCCL.name, {"": None}, evidence="read"
    ),
    Variable(
        "nccl.nvls",
        "NCCL_NVLS_ENABLE",
        "before-first-use",
        NCCL.name,
        {"auto": None, "on": "1", "off": "0"},
        evidence="read",
    ),
)
"""Every variable that a flag decides, in the order in which they are set and reported."""


def _truth(text: str) -> bool | None:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    return False if lowered in ("0", "false", "no", "off") else None


_TORCH = {"tf32": "1", "ieee": "0", "bf16": "0"}
PRECISIONS: dict[str, dict[Any, str]] = {
    "fp32_precision": _TORCH,
    "cuda.matmul.fp32_precision": _TORCH,
    "cudnn.fp32_precision": _TORCH,
    "cudnn.conv.fp32_precision": _TORCH,
    "cudnn.rnn.fp32_precision": _TORCH,
    "jax.default_matmul_precision": {"tensorfloat32": "1", "highest": "0", "float32": "0"},
    "tensorflow.tensor_float_32_execution": {True: "1", False: "0"},
    "cupy.compute_type": {"tf32": "1", "pedantic": "0", "fp32": "0"},
}
"""What each value of the flags that NVIDIA_TF32_OVERRIDE outranks needs that variable to be; other
values need nothing. NVIDIA documents 0; that 1 forces TF32 was read, not run."""

TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def names() -> tuple[str, ...]:
    """Every variable that the table knows, rivals and caps included."""
    found = dict.fromkeys((TF32_OVERRIDE,))
    for row in VARIABLES:
        found.update(dict.fromkeys(filter(None, (row.name, *row.rivals, row.cap))))
    return tuple(found)


def tf32_override(values: Mapping[str, Any], asked: Collection[str]) -> tuple[str, str] | None:
    """What the asked precisions need of NVIDIA_TF32_OVERRIDE.

    Returns:
        `(flag, "1")` when an asked flag wants TF32, which a 0 would deny; `(flag, "0")` when all
        asked ones want more than TF32, which a 1 would deny; None when none was asked.
    """
    needs = {
        flag: need
        for flag, meanings in PRECISIONS.items()
        if flag in asked and (need := meanings.get(values.get(flag)))
    }
    for need in ("1", "0"):
        for flag, mine in needs.items():
            if mine == need:
                return flag, need
    return None


def contradictions(
    values: Mapping[str, Any], asked: Collection[str], environment: Mapping[str, str]
) -> list[str]:
    """The variables that say otherwise than the flags somebody asked for, in words.

    Args:
        values: every flag with its planned value.
        asked: the flags that somebody set; of others nothing is said.
        environment: the environment to look at; a variable that is set and empty counts as unset.
    """
    words = []
    for row in VARIABLES:
        if row.flag not in asked or row.flag not in values:
            continue
        value = values[row.flag]
        found = environment.get(row.name)
        if found and not row.says(found, row.encode(value)):
            words.append(f"{row.name}={found} contradicts `{row.flag} = {_toml(value)}`")
        words += [
            f"{name}={environment[name]} contradicts `{row.flag} = {_toml(value)}`"
            for name in row.rivals
            if environment.get(name) and not row.says(environment[name], row.encode(value))
        ]
        cap = environment.get(row.cap, "")
        if cap.isdecimal() and int(cap) < value:
            words.append(f"{row.cap}={cap} contradicts `{row.flag} = {_toml(value)}`")
    need = tf32_override(values, asked)
    override = environment.get(TF32_OVERRIDE)
    if need and override in ("0", "1") and override != need[1]:
        flag = need[0]
        words.append(f"{TF32_OVERRIDE}={override} contradicts `{flag} = {_toml(values[flag])}`")
    words += xla_text.contradictions(values, asked, environment)
    own = values.get("environment") if "environment" in asked else None
    words += [
        f"{name}={environment[name]} contradicts `environment.{name} = {_toml(text)}`"
        for name, text in (own or {}).items()
        if name != xla_text.VARIABLE and environment.get(name) and environment[name] != text
    ]
    return words


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
