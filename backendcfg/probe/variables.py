"""Other software's environment variables: which flag each one decides, and how it is spelled.

`contradictions` compares an environment with a plan; what a child process needs is made of the
same table by `backendcfg.bridges.environment`. Standard library only. Sources are those of the
flags in `backendcfg.schema.tables`; what decides in whose place was measured where the vendors do
not say.
"""

from __future__ import annotations

from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

PRECISION_FLAGS = (
    "fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
)
"""The flags that NVIDIA_TF32_OVERRIDE silently outranks in every NVIDIA library."""

TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


@record(frozen=True)
class Variable:
    """One row: a flag, the variable that carries it, and who reads that when.

    Attributes:
        flag: the flag.
        name: the variable.
        latch: until when the reader looks: a value of `backendcfg.transact.knob.Latch`.
        reader: who reads it: "openblas", "openmp", "mkl", "mkl_rt" (not the MKL in torch), "blis",
            "torch", "onednn", "cublas", "nccl", "tensorflow" or "interpreter".
        values: how flag values are spelled; a value that is not here is spelled as `str` does.
            None means that the variable must be unset for the flag value to hold.
        rivals: variables that decide the same, or part of it, when they are set.
        cap: a variable that limits what this one says; it may have reasons of its own.
        runtime: whether a running library can be told the same by a call.
        unset: what the reader takes when the variable is not set, if that is one of the texts.
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

    def encode(self, value: Any) -> str | None:
        """The text that carries a flag value, or None for a variable that must be unset."""
        return self.values[value] if value in self.values else str(value)

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

VARIABLES = (
    Variable(
        "threads.count",
        "OPENBLAS_NUM_THREADS",
        "before-import",
        "openblas",
        rivals=("GOTO_NUM_THREADS",),
        runtime=True,
    ),
    Variable(
        "threads.count",
        "OMP_NUM_THREADS",
        "before-import",
        "openmp",
        cap="OMP_THREAD_LIMIT",
        runtime=True,
    ),
    Variable(
        "threads.count",
        "MKL_NUM_THREADS",
        "before-import",
        "mkl",
        rivals=("MKL_DOMAIN_NUM_THREADS",),
        runtime=True,
    ),
    Variable(
        "threads.count",
        "BLIS_NUM_THREADS",
        "before-import",
        "blis",
        rivals=BLIS_WAYS,
        runtime=True,
    ),
    Variable(
        "threads.dynamic",
        "OMP_DYNAMIC",
        "before-import",
        "openmp",
        TRUE_FALSE,
        runtime=True,
        unset="FALSE",
    ),
    Variable(
        "threads.dynamic",
        "MKL_DYNAMIC",
        "before-import",
        "mkl",
        TRUE_FALSE,
        runtime=True,
        unset="TRUE",
    ),
    Variable(
        "blas.openblas.core_type",
        "OPENBLAS_CORETYPE",
        "before-import",
        "openblas",
        {"auto": None},
        # It sizes the blocks of the kernels that the core type chooses, and thereby the sums.
        rivals=("OPENBLAS_L2_SIZE",),
    ),
    Variable(
        "blas.openblas.thread_timeout",
        "OPENBLAS_THREAD_TIMEOUT",
        "before-import",
        "openblas",
        {0: None},
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
    ),
    Variable(
        "blas.mkl.cbwr",
        "MKL_CBWR",
        "before-first-use",
        "mkl",
        {"off": None, **{name: name.upper() for name in CBWR}},
    ),
    # The names are turned into the numbers of the BLIS at hand: see bridges/blis_architectures.py.
    Variable("blas.blis.arch_type", "BLIS_ARCH_TYPE", "before-import", "blis", {"auto": None}),
    Variable(
        "python.hash_seed", "PYTHONHASHSEED", "before-process", "interpreter", {"random": None}
    ),
    Variable(
        "torch.cpu_capability",
        "ATEN_CPU_CAPABILITY",
        "before-first-use",
        "torch",
        {"auto": None},
    ),
    Variable("torch.tunable_op", "PYTORCH_TUNABLEOP_ENABLED", "before-first-use", "torch", ON_OFF),
    Variable(
        "torch.cublas_workspace_config",
        "CUBLAS_WORKSPACE_CONFIG",
        "before-first-use",
        "cublas",
        {"auto": None},
    ),
    Variable(
        "onednn.default_fpmath_mode",
        "ONEDNN_DEFAULT_FPMATH_MODE",
        "before-first-use",
        "onednn",
        {name: name.upper() for name in ("strict", "bf16", "f16", "tf32", "any")},
        rivals=("DNNL_DEFAULT_FPMATH_MODE",),
        unset="STRICT",
    ),
    Variable(
        "onednn.max_cpu_isa",
        "ONEDNN_MAX_CPU_ISA",
        "before-first-use",
        "onednn",
        {
            name: name.upper()
            for name in ("all", "sse41", "avx", "avx2", "avx512_core", "avx512_core_bf16")
        },
        rivals=("DNNL_MAX_CPU_ISA",),
        unset="ALL",
    ),
    Variable("mkl.verbose", "MKL_VERBOSE", "before-first-use", "mkl", unset="0"),
    Variable(
        "mkldnn.verbose",
        "ONEDNN_VERBOSE",
        "before-first-use",
        "onednn",
        rivals=("DNNL_VERBOSE",),
        unset="0",
    ),
    Variable(
        "tensorflow.op_determinism",
        "TF_DETERMINISTIC_OPS",
        "before-import",
        "tensorflow",
        ON_OFF,
        unset="0",
    ),
    Variable(
        "tensorflow.onednn_opts", "TF_ENABLE_ONEDNN_OPTS", "before-import", "tensorflow", ON_OFF
    ),
    Variable("nccl.algo", "NCCL_ALGO", "before-first-use", "nccl", {"": None}),
    Variable("nccl.proto", "NCCL_PROTO", "before-first-use", "nccl", {"": None}),
)
"""Every variable that a flag decides, in the order in which they are set and reported."""


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
    wanted = [flag for flag in PRECISION_FLAGS if flag in asked and values.get(flag) != "none"]
    for flag in wanted:
        if values[flag] == "tf32":
            return flag, "1"
    return (wanted[0], "0") if wanted else None


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
    own = values.get("environment") if "environment" in asked else None
    words += [
        f"{name}={environment[name]} contradicts `environment.{name} = {_toml(text)}`"
        for name, text in (own or {}).items()
        if environment.get(name) and environment[name] != text
    ]
    return words


def _truth(text: str) -> bool | None:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    return False if lowered in ("0", "false", "no", "off") else None


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
