"""Conflicts: which values cannot both hold, where, and why; and which of them happen on a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.catalogue.frameworks import TORCH
from backendcfg.catalogue.gpu import CUBLAS, NVIDIA
from backendcfg.catalogue.variables import VARIABLES, contradictions
from backendcfg.records import record
from backendcfg.resolve.facts import has_package, visible_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from backendcfg.resolve.ground import Ground, Subject


@record(frozen=True)
class Conflict:
    """Two subjects that cannot both hold.

    Attributes:
        name: stable, for tests and documents.
        left, right: flags, or variables as `environment.NAME`; the first pair that clashes is
            shown. One that nothing on the host reads, or that nobody sets, takes no part.
        clash: whether these two values exclude each other here.
        note: why they do.
        cure: what to do, after "in FILE, ".
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    clash: Callable[[Any, Any, Ground], bool]
    note: str
    cure: str


@record(frozen=True)
class Clash:
    """A conflict that happened, with both sides as they are set."""

    conflict: Conflict
    left: Subject
    right: Subject


def clashes(table: Iterable[Conflict], ground: Ground) -> Iterator[Clash]:
    """Every conflict of a profile on its host, in the order of the table."""
    for conflict in table:
        found = next(_pairs(conflict, ground), None)
        if found is not None:
            yield Clash(conflict, *found)


def _pairs(conflict: Conflict, ground: Ground) -> Iterator[tuple[Subject, Subject]]:
    for left in map(ground.subject, conflict.left):
        for right in map(ground.subject, conflict.right):
            if left is None or right is None or not (left.asked or right.asked):
                continue
            if conflict.clash(left.value, right.value, ground):
                yield left, right


TREE = ("fp32_precision", "cudnn.fp32_precision")
CUDA_LEAVES = (
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
)
ONEDNN_LEAVES = (
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
)

# Other names of a variable in the table; what else stands there as a rival limits the same thing
# without saying it.
_SAME_MEANING = (
    "GOTO_NUM_THREADS",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "DNNL_VERBOSE",
)

_SPLIT_K = "cuda.matmul.allow_{}_reduced_precision_reduction_split_k"
_REDUCTION = "cuda.matmul.allow_{}_reduced_precision_reduction"


def _has_tier(tier: Any) -> bool:
    return bool(tier != "none")


def _uses_cublas(ground: Ground) -> bool:
    """Whether products on an NVIDIA GPU go through cuBLAS, chosen or by default."""
    return bool(visible_gpus(ground.host, NVIDIA))


def _only_cudnn_attention(ground: Ground) -> bool:
    return ground.value("cuda.enable_cudnn_sdp") and not any(
        ground.value(f"cuda.enable_{kernel}_sdp") for kernel in ("flash", "mem_efficient", "math")
    )


def _xla_switches(text: str) -> dict[str, str]:
    """XLA_FLAGS as a table; a switch without a value is on."""
    switches = {}
    for word in text.split():
        name, _, value = word.removeprefix("--").partition("=")
        switches[name] = value.lower() or "true"
    return switches


def _xla_says_otherwise(text: str, flag: str, value: Any) -> bool:
    """Whether XLA_FLAGS sets the switch that a flag of `[jax]` drives, to something else."""
    deterministic = flag == "jax.deterministic_ops"
    switch = "xla_gpu_deterministic_ops" if deterministic else "xla_gpu_autotune_level"
    said = _xla_switches(text).get(switch)
    if deterministic:
        said = {"1": "true", "0": "false"}.get(said or "", said)
    return said is not None and said != str(value).lower()


def _xla_switch(flag: str) -> Conflict:
    """XLA_FLAGS against a flag of `[jax]` that writes the same switch."""
    return Conflict(
        f"xla-flags-and-{flag}",
        ("environment.XLA_FLAGS",),
        (flag,),
        lambda text, value, ground: ground.asked(flag) and _xla_says_otherwise(text, flag, value),
        "both write the same switch of XLA",
        "remove it from XLA_FLAGS",
    )


def _variable(flag: str, name: str) -> Conflict:
    """A variable in `[environment]` against the flag that writes it."""

    def clash(text: Any, value: Any, ground: Ground) -> bool:
        # Thread counts are written to every pool also when nobody set them.
        written = ground.asked(flag) or flag == "threads.count"
        return written and bool(contradictions({flag: value}, {flag}, {name: text}))

    return Conflict(
        f"{name}-and-{flag}",
        (f"environment.{name}",),
        (flag,),
        clash,
        f"`{flag}` writes {name} too",
        f"remove {name} and set `{flag}`",
    )


CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        "benchmark-and-tier",
        ("cudnn.benchmark",),
        ("determinism.tier",),
        # Our own convolutions measure nothing under a tier.
        lambda benchmark, tier, ground: (
            benchmark and _has_tier(tier) and bool(visible_gpus(ground.host))
        ),
        "benchmarking times the algorithms and keeps the fastest, so the next process may keep "
        "another one, also when only deterministic ones are tried",
        "set `cudnn.benchmark = false`",
    ),
    Conflict(
        "warn-only-and-tier",
        ("determinism.algorithms",),
        ("determinism.tier",),
        lambda algorithms, tier, ground: (
            algorithms == "warn" and _has_tier(tier) and has_package(ground.host, TORCH.name)
        ),
        "with `warn`, PyTorch warns and then runs the nondeterministic kernel all the same",
        'set `determinism.algorithms = "deterministic"`',
    ),
    *(
        Conflict(
            f"{kind}-reduction-and-split-k",
            (_SPLIT_K.format(kind),),
            (_REDUCTION.format(kind),),
            lambda split_k, reduction, ground: not split_k and reduction,
            "PyTorch can refuse to split K only where it also refuses to reduce in 16 bits",
            f"set `{_REDUCTION.format(kind)} = false`",
        )
        for kind in ("fp16", "bf16")
    ),
    *(
        Conflict(
            f"{kind}-split-k-and-cublas",
            (_SPLIT_K.format(kind),),
            ("cuda.preferred_blas_library",),
            lambda split_k, library, ground: (
                not split_k and library in (CUBLAS.name, "default") and _uses_cublas(ground)
            ),
            "cuBLAS cannot be told not to split K and PyTorch raises at the first product; "
            "PyTorch's own default on NVIDIA is cuBLAS",
            'set `cuda.preferred_blas_library = "cublaslt"`',
        )
        for kind in ("fp16", "bf16")
    ),
    Conflict(
        "fp16-accumulation-and-reduction",
        ("cuda.matmul.allow_fp16_accumulation",),
        (_REDUCTION.format("fp16"),),
        lambda accumulation, reduction, ground: accumulation and not reduction,
        "a product that accumulates in float16 reduces in float16; with float32 output PyTorch "
        "raises",
        "set `cuda.matmul.allow_fp16_accumulation = false`",
    ),
    Conflict(
        "cudnn-attention-and-determinism",
        ("cuda.enable_math_sdp", "cuda.enable_flash_sdp", "cuda.enable_mem_efficient_sdp"),
        ("determinism.algorithms",),
        lambda kernel, algorithms, ground: (
            not kernel
            and algorithms == "deterministic"
            and _only_cudnn_attention(ground)
            and bool(visible_gpus(ground.host, NVIDIA))
        ),
        "only cuDNN's attention kernel is left, and deterministic algorithms exclude it, so every "
        "attention raises",
        "set `cuda.enable_math_sdp = true`",
    ),
    Conflict(
        "cpu-attention",
        ("cuda.enable_mem_efficient_sdp", "cuda.enable_flash_sdp"),
        ("cuda.enable_math_sdp",),
        lambda fused, math, ground: (
            not any(
                ground.value(f"cuda.enable_{kernel}_sdp")
                for kernel in ("flash", "mem_efficient", "math")
            )
            and ground.value("cuda.enable_cudnn_sdp")
            and not visible_gpus(ground.host)
        ),
        "cuDNN has no attention for a CPU, so every attention raises",
        "set `cuda.enable_math_sdp = true`",
    ),
    Conflict(
        "no-attention",
        ("cuda.enable_math_sdp",),
        ("cuda.enable_cudnn_sdp", "cuda.enable_mem_efficient_sdp"),
        lambda math, other, ground: (
            not any(
                ground.value(f"cuda.enable_{kernel}_sdp")
                for kernel in ("flash", "mem_efficient", "math", "cudnn")
            )
        ),
        "no attention kernel is left, so every attention raises",
        "set `cuda.enable_math_sdp = true`",
    ),
    Conflict(
        "tf32-off-and-override",
        ("environment.NVIDIA_TF32_OVERRIDE",),
        (*CUDA_LEAVES, *TREE),
        lambda text, precision, ground: text == "1" and precision == "ieee",
        "NVIDIA's libraries obey NVIDIA_TF32_OVERRIDE over every framework, and no getter shows it",
        'set `NVIDIA_TF32_OVERRIDE = "0"`',
    ),
    Conflict(
        "tf32-on-and-override",
        ("environment.NVIDIA_TF32_OVERRIDE",),
        (*CUDA_LEAVES, *TREE),
        # cuDNN's leaves allow TF32 by default, and turning it off by variable is no mistake then.
        lambda text, precision, ground: (
            text == "0"
            and precision == "tf32"
            and any(
                ground.asked(flag) and ground.value(flag) == "tf32"
                for flag in (*CUDA_LEAVES, *TREE)
            )
        ),
        "NVIDIA's libraries obey NVIDIA_TF32_OVERRIDE over every framework, and no getter shows it",
        "remove NVIDIA_TF32_OVERRIDE",
    ),
    Conflict(
        "ieee-and-onednn-fpmath",
        ("onednn.default_fpmath_mode",),
        (*ONEDNN_LEAVES, "mkldnn.fp32_precision", "fp32_precision"),
        lambda mode, precision, ground: (
            mode != "strict" and precision == "ieee" and has_package(ground.host, TORCH.name)
        ),
        "oneDNN takes its default mode where PyTorch leaves it open, and may then compute float32 "
        "in fewer bits",
        'set `onednn.default_fpmath_mode = "strict"`',
    ),
    Conflict(
        "parent-tf32-and-leaf-none",
        TREE,
        ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
        lambda parent, leaf, ground: parent == "tf32" and leaf == "none",
        '"none" means that the parent decides, so it does not turn TF32 off',
        'write "ieee" instead of "none"',
    ),
    Conflict(
        "conv-and-rnn",
        ("cudnn.conv.fp32_precision",),
        ("cudnn.rnn.fp32_precision",),
        lambda conv, rnn, ground: (
            ground.precision("cudnn.conv.fp32_precision")
            != ground.precision("cudnn.rnn.fp32_precision")
        ),
        "PyTorch's `cudnn.allow_tf32` is one switch for both: where they differ, reading it, "
        "`cudnn.flags()` and `torch.export` raise",
        "give both the same value",
    ),
    Conflict(
        "mkl-and-openmp-threads",
        ("environment.MKL_NUM_THREADS",),
        ("environment.OMP_NUM_THREADS",),
        lambda mkl, openmp, ground: mkl != openmp,
        "MKL_NUM_THREADS wins inside PyTorch, OMP_NUM_THREADS everywhere else",
        "remove both and set `threads.count`",
    ),
    Conflict(
        "tunable-op-and-tier",
        ("torch.tunable_op",),
        ("determinism.tier",),
        lambda tuned, tier, ground: tuned and _has_tier(tier),
        "tuning times the kernels and keeps the fastest, so the next process may keep another one",
        "set `torch.tunable_op = false`",
    ),
    Conflict(
        "tunable-op-variable-and-tier",
        ("environment.PYTORCH_TUNABLEOP_ENABLED",),
        ("determinism.tier",),
        lambda text, tier, ground: text == "1" and _has_tier(tier),
        "tuning times the kernels and keeps the fastest, so the next process may keep another one",
        "remove PYTORCH_TUNABLEOP_ENABLED",
    ),
    Conflict(
        "xla-fast-math-and-tier",
        ("environment.XLA_FLAGS",),
        ("determinism.tier",),
        lambda text, tier, ground: (
            _has_tier(tier) and _xla_switches(text).get("xla_cpu_enable_fast_math") in ("true", "1")
        ),
        "fast math lets XLA reorder sums differently in every program that it compiles",
        "remove --xla_cpu_enable_fast_math",
    ),
    *(_xla_switch(flag) for flag in ("jax.deterministic_ops", "jax.autotune_level")),
    *(
        _variable(row.flag, name)
        for row in VARIABLES
        for name in (row.name, *(rival for rival in row.rivals if rival in _SAME_MEANING))
    ),
)
