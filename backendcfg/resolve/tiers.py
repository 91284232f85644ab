"""What each determinism tier needs, one record per requirement, and whether a profile keeps it.

The tiers, each on the same versions of the same libraries:

- `run-to-run`: the same program on the same machine, allowed the same processors, gives the same
  bits again.
- `thread-invariant`: and so it does whatever number of processors it is allowed.
- `restart`: and so does a process that continues another one's work later, under other limits.
- `cross-machine`: and so does another machine of the same architecture.
- `batch-invariant`: a row of one of our own products has the same bits whatever rows stand beside
  it. No library promises that, so it says nothing of theirs beyond `run-to-run`.

Each reason is what was measured on the library or what it documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.catalogue.cpu import BLIS, COMPILED_IN, ONEDNN, OPENBLAS, OPENMP
from backendcfg.catalogue.frameworks import JAX, NUMPY, ON_DEVICES, TENSORFLOW, TORCH
from backendcfg.catalogue.gpu import AMD, NVIDIA
from backendcfg.records import record
from backendcfg.resolve import libraries
from backendcfg.resolve.conflicts import ONEDNN_LEAVES
from backendcfg.resolve.facts import (
    has_kind,
    has_mkl,
    has_mkl_inside,
    has_package,
    is_older,
    visible_gpus,
)
from backendcfg.resolve.ground import ENVIRONMENT
from backendcfg.resolve.words import assignment, listed, literal, set_by
from backendcfg.schema.plan import Check, Origin
from backendcfg.schema.profile import Place, defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.resolve.ground import Ground
    from backendcfg.schema.plan import Entry


@record(frozen=True)
class Requirement:
    """One thing that a tier needs.

    Attributes:
        tiers: those that need it.
        flag: the flag that decides it, or `environment.NAME`, or "" for the host itself.
        wanted: what it must be, after "must be".
        keeps: whether a value keeps the tier.
        why: what breaks it otherwise.
        concerns: whether this host is concerned at all.
        cure: what keeps it, as a help line.
        found: for the host itself, what is here.
    """

    tiers: tuple[str, ...]
    flag: str
    wanted: str
    keeps: Callable[[Any, Ground], bool]
    why: str
    concerns: Callable[[Ground], bool]
    cure: str
    found: Callable[[Ground], str] = lambda ground: ""


def exactly(
    tiers: tuple[str, ...], flag: str, value: Any, why: str, concerns: Callable[[Ground], bool]
) -> Requirement:
    """A flag that must have one value."""
    return Requirement(
        tiers,
        flag,
        literal(value),
        lambda found, ground: bool(found == value),
        why,
        concerns,
        f"set `{assignment(flag, value)}`",
    )


def with_torch(ground: Ground) -> bool:
    """PyTorch is installed."""
    return has_package(ground.host, TORCH.name)


def torch_on_gpu(ground: Ground) -> bool:
    """PyTorch would compute on a GPU."""
    return with_torch(ground) and bool(visible_gpus(ground.host, NVIDIA, AMD))


def old_torch_on_nvidia(ground: Ground) -> bool:
    """A PyTorch before 2.13 would compute on an NVIDIA GPU."""
    # 2.13 is the first release known to give every handle and stream a workspace of its own.
    return (
        with_torch(ground)
        and bool(visible_gpus(ground.host, NVIDIA))
        and is_older(ground.host, TORCH.name, "2.13")
    )


def jax_on_gpu(ground: Ground) -> bool:
    """JAX would compute on a GPU."""
    return has_package(ground.host, JAX.name) and bool(visible_gpus(ground.host, NVIDIA, AMD))


def several_nvidia_gpus(ground: Ground) -> bool:
    """PyTorch would see several NVIDIA GPUs, and NCCL may connect them."""
    return with_torch(ground) and len(visible_gpus(ground.host, NVIDIA)) > 1


def chooses_algorithm(algo: Any, ground: Ground) -> bool:
    """Whether NCCL_ALGO or NCCL_NVLS_ENABLE keeps NVLS out, or PyTorch does so by itself."""
    if not algo:
        return ground.value("nccl.nvls") == "off" or not is_older(ground.host, TORCH.name, "2.13")
    return bool(algo.startswith("^") == ("NVLS" in algo))


def with_openblas(ground: Ground) -> bool:
    """Some OpenBLAS is here."""
    return has_kind(ground.host, OPENBLAS.kind)


def served_by_ours(library: Any, ground: Ground) -> bool:
    """Whether a library is one of the two that are compiled in."""
    return library in COMPILED_IN


def threads_matter(ground: Ground) -> bool:
    """Whether some library here sums in another order at another thread count."""
    return (
        not served_by_ours(ground.value("blas.library"), ground)
        or with_openblas(ground)
        or has_package(ground.host, TORCH.name)
    )


def serves_blis(ground: Ground) -> bool:
    """BLIS may serve our products."""
    return any(library.provider == BLIS.name for library in ground.libraries)


def on_x86(ground: Ground) -> bool:
    """The CPU is an x86-64 one."""
    return ground.host.cpu.architecture == "x86_64"


def leaves_out_avx512(text: Any, ground: Ground) -> bool:
    """Whether NPY_DISABLE_CPU_FEATURES names AVX-512 as this NumPy does; it ignores other names."""
    name = "AVX512F" if is_older(ground.host, NUMPY.name, "2.4") else "X86_V4"
    return name in (text or "").replace(",", " ").split()


def with_jax(ground: Ground) -> bool:
    """JAX is installed."""
    return has_package(ground.host, JAX.name)


def with_framework(ground: Ground) -> bool:
    """Some framework that would compute on a GPU is installed."""
    return has_package(ground.host, *ON_DEVICES)


def gpus_found(ground: Ground) -> str:
    """The visible GPUs, in words."""
    names = sorted({gpu.name for gpu in visible_gpus(ground.host)})
    return f"{listed(names)} can be used" if names else "no GPU is visible"


def is_required(library: Any, ground: Ground) -> bool:
    """Whether another machine would refuse rather than take another library."""
    return bool(ground.required.get("blas.library") == library)


RUN = ("run-to-run", "thread-invariant", "restart", "cross-machine", "batch-invariant")
THREADS = ("thread-invariant", "cross-machine")
RESTART = ("restart", "cross-machine")
MACHINES = ("cross-machine",)
BATCHES = ("batch-invariant",)


_JAX_THREADS = "JAX takes as many threads as it may use processors, and sums by their number"


def _onednn_precision(leaf: str) -> Requirement:
    return Requirement(
        MACHINES,
        leaf,
        '"ieee" or "none"',
        lambda value, ground: ground.precision(leaf) in ("ieee", "none"),
        "oneDNN computes float32 in fewer bits only on the CPUs that are fast at it",
        with_torch,
        f'set `{leaf} = "ieee"`',
    )


REQUIREMENTS: tuple[Requirement, ...] = (
    exactly(
        RUN,
        "determinism.algorithms",
        "deterministic",
        "PyTorch has operations that are not deterministic unless it is told so",
        with_torch,
    ),
    exactly(
        RUN,
        "cudnn.benchmark",
        False,
        "timing chooses the convolution algorithm, and may choose another one next time",
        torch_on_gpu,
    ),
    exactly(
        RUN,
        "cudnn.deterministic",
        True,
        "cuDNN and MIOpen have convolution algorithms that add in any order",
        torch_on_gpu,
    ),
    exactly(
        RUN,
        "torch.tunable_op",
        False,
        "timing chooses the product's kernel, and may choose another one next time",
        lambda ground: with_torch(ground) and bool(visible_gpus(ground.host, AMD)),
    ),
    Requirement(
        RUN,
        "torch.cublas_workspace_config",
        '":4096:8" or ":16:8"',
        lambda value, ground: value != "auto",
        "before 2.13 PyTorch's cuBLAS products on several streams are reproducible only with a "
        "fixed workspace",
        old_torch_on_nvidia,
        'set `torch.cublas_workspace_config = ":4096:8"`',
    ),
    exactly(
        RUN,
        "torch.mkl_detection",
        "at-load",
        "two threads may otherwise make the first call of MKL's sqrt, exp or log in PyTorch at "
        "once, and one of them then computes to fewer bits",
        lambda ground: has_mkl_inside(ground.host),
    ),
    Requirement(
        RUN,
        "nccl.algo",
        "one without NVLS",
        chooses_algorithm,
        "NVLS, which NCCL takes where it can, reduces in any order",
        several_nvidia_gpus,
        'set `nccl.algo = "^NVLS"`',
    ),
    exactly(
        RUN,
        "jax.deterministic_ops",
        True,
        "XLA has GPU kernels that add in any order",
        jax_on_gpu,
    ),
    exactly(
        RUN,
        "jax.autotune_level",
        0,
        "XLA times its GPU kernels, and may choose another one next time",
        jax_on_gpu,
    ),
    exactly(
        RUN,
        "tensorflow.op_determinism",
        True,
        "TensorFlow has operations that are not deterministic unless it is told so",
        lambda ground: has_package(ground.host, TENSORFLOW.name),
    ),
    exactly(
        RUN,
        "threads.dynamic",
        False,
        "MKL and OpenMP may otherwise use fewer threads than asked, and sum in another order",
        lambda ground: has_mkl(ground.host) or has_kind(ground.host, OPENMP) or with_torch(ground),
    ),
    Requirement(
        RESTART[:1],
        "threads.count",
        'a number rather than "auto"',
        lambda count, ground: (
            ground.asked("threads.count") and ground.entries["threads.count"].adaptation is None
        ),
        "a process that is started again may be allowed another number of processors, and "
        "OpenBLAS gives other bits at another thread count",
        threads_matter,
        "set `threads.count` to a number",
    ),
    exactly(
        THREADS,
        "threads.count",
        1,
        "OpenBLAS gives other bits at another thread count, and so does PyTorch",
        threads_matter,
    ),
    Requirement(
        THREADS,
        "environment.NPROC",
        '"1"',
        lambda text, ground: text == "1",
        _JAX_THREADS,
        with_jax,
        'under `[environment]`, write `NPROC = "1"`, or use an environment without JAX',
    ),
    Requirement(
        RESTART[:1],
        "environment.NPROC",
        "a number",
        lambda text, ground: (text or "").isdigit(),
        _JAX_THREADS,
        with_jax,
        'under `[environment]`, write `NPROC = "1"`, or use an environment without JAX',
    ),
    Requirement(
        RESTART,
        "python.hash_seed",
        "a number",
        lambda seed, ground: seed != "random",
        "sets of strings are otherwise walked in another order in every process",
        lambda ground: True,
        "set `python.hash_seed = 0`",
    ),
    Requirement(
        MACHINES,
        "",
        "that no framework here can compute on a GPU",
        lambda value, ground: not visible_gpus(ground.host),
        "no vendor promises the same bits on two models of GPU",
        with_framework,
        "hide the GPUs: `CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= backendcfg ...`",
        gpus_found,
    ),
    Requirement(
        MACHINES,
        "blas.library",
        "required rather than preferred",
        is_required,
        "another machine may have other libraries, and would compute with one of those",
        lambda ground: True,
        'write `library = { require = "native" }` under `[blas]`',
    ),
    Requirement(
        MACHINES,
        "blas.openblas.core_type",
        'a kernel set by name rather than "auto"',
        lambda name, ground: libraries.core_type(name) is not None,
        "OpenBLAS otherwise takes the newest kernels of each CPU, and each set has its own bits; "
        "kernel sets are per architecture, so the tier is too",
        with_openblas,
        'set `blas.openblas.core_type = "Haswell"` on x86-64, or "armv8" on aarch64',
    ),
    exactly(
        MACHINES,
        "blas.mkl.cbwr",
        "compatible",
        "MKL gives the same bits on the CPUs of all vendors in its COMPATIBLE branch only",
        lambda ground: has_mkl(ground.host),
    ),
    Requirement(
        MACHINES,
        "blas.blis.arch_type",
        'a kernel set by name rather than "auto"',
        lambda name, ground: name != "auto",
        "BLIS otherwise takes the newest kernels of each CPU",
        serves_blis,
        'set `blas.blis.arch_type = "haswell"`',
    ),
    Requirement(
        MACHINES,
        "torch.cpu_capability",
        '"default", "avx2" or "avx512"',
        lambda name, ground: name != "auto",
        "PyTorch otherwise takes the newest kernels of each CPU",
        lambda ground: with_torch(ground) and on_x86(ground),
        'set `torch.cpu_capability = "avx2"`',
    ),
    exactly(
        MACHINES,
        "torch.cpu_capability",
        "default",
        "PyTorch otherwise takes the newest kernels of each CPU",
        lambda ground: with_torch(ground) and not on_x86(ground),
    ),
    exactly(
        MACHINES,
        "mkldnn.enabled",
        False,
        "oneDNN takes the newest kernels of each CPU, and only on x86-64 can be told otherwise",
        lambda ground: with_torch(ground) and not on_x86(ground),
    ),
    Requirement(
        MACHINES,
        "",
        "that JAX, which is installed, runs on x86-64",
        lambda value, ground: on_x86(ground),
        "XLA compiles for the CPU that it finds, and only on x86-64 can be told otherwise",
        with_jax,
        "use an environment without JAX",
        lambda ground: f"this CPU is {ground.host.cpu.architecture}",
    ),
    Requirement(
        MACHINES,
        "onednn.max_cpu_isa",
        'an instruction set rather than "all"',
        lambda name, ground: name != "all",
        "oneDNN otherwise takes the newest kernels of each CPU",
        lambda ground: has_package(ground.host, *ONEDNN.inside) and on_x86(ground),
        'set `onednn.max_cpu_isa = "avx2"`',
    ),
    exactly(
        MACHINES,
        "onednn.default_fpmath_mode",
        "strict",
        "oneDNN computes float32 in fewer bits only on the CPUs that are fast at it",
        lambda ground: has_package(ground.host, *ONEDNN.inside),
    ),
    *(_onednn_precision(leaf) for leaf in ONEDNN_LEAVES),
    Requirement(
        MACHINES,
        "environment.NPY_DISABLE_CPU_FEATURES",
        "a text that leaves out AVX-512",
        leaves_out_avx512,
        "NumPy takes the newest of its loops for each CPU; exp and log differ between AVX2 and "
        "AVX-512, sin and tanh between SSE and AVX2",
        lambda ground: has_package(ground.host, NUMPY.name) and on_x86(ground),
        'under `[environment]`, write `NPY_DISABLE_CPU_FEATURES = "X86_V4 AVX512_ICL AVX512_SPR"`'
        " (the names are those of NumPy 2.4)",
    ),
    Requirement(
        MACHINES,
        "environment.XLA_FLAGS",
        "a text with --xla_cpu_max_isa",
        lambda text, ground: "--xla_cpu_max_isa=" in (text or ""),
        "XLA compiles for the CPU that it finds",
        lambda ground: with_jax(ground) and on_x86(ground),
        'under `[environment]`, write `XLA_FLAGS = "--xla_cpu_max_isa=AVX2"`, or use an '
        "environment without JAX",
    ),
    Requirement(
        BATCHES,
        "blas.library",
        '"native" or "reference"',
        served_by_ours,
        "every other library takes other kernels for other shapes, so a row depends on how many "
        "rows stand beside it",
        lambda ground: True,
        'set `blas.library = "native"`',
    ),
)


TIER = "determinism.tier"


@record(frozen=True)
class Kept:
    """One requirement of a tier and what was found.

    Attributes:
        requirement: the record.
        check: whether it is met, in words.
        origin: who set what was found; None for the host itself and for what nobody set.
    """

    requirement: Requirement
    check: Check
    origin: Origin | None


def examine(tier: str, ground: Ground) -> tuple[Kept, ...]:
    """Every requirement of a tier that concerns this host, met or not."""
    return tuple(
        _look(requirement, tier, ground)
        for requirement in REQUIREMENTS
        if tier in requirement.tiers and requirement.concerns(ground)
    )


def kept(ground: Ground) -> tuple[str, ...]:
    """Every tier whose requirements all hold here, whatever the profile's tier is."""
    return tuple(tier for tier in RUN if all(one.check.met for one in examine(tier, ground)))


def unkept(tier: str, ground: Ground) -> tuple[str, ...]:
    """The flags that a tier rests on, beyond their defaults, and that nothing can set yet."""
    flags = dict.fromkeys(one.requirement.flag for one in examine(tier, ground))
    entries = [ground.entries[flag] for flag in flags if flag in ground.entries]
    return tuple(
        entry.flag
        for entry in entries
        if not entry.carried and entry.value != defaults()[entry.flag]
    )


def _written(entry: Entry) -> str:
    """A value, and what was written where the host changed it."""
    change = entry.adaptation
    value = literal(entry.value)
    return value if change is None else f"{literal(change.requested)}, which is {value} here"


def _look(requirement: Requirement, tier: str, ground: Ground) -> Kept:
    flag = requirement.flag
    table, _, variable = flag.partition(".")
    origin: Origin | None = None
    if not flag:
        value, found = None, requirement.found(ground)
    elif table == ENVIRONMENT:
        value, origin = ground.variable(variable), ground.variables.get(variable)
        found = f"{literal(value)}, {set_by(origin)}" if origin else "not set"
    else:
        entry = ground.entries[flag]
        value, origin = entry.value, entry.origin
        found = f"{_written(entry)}, {set_by(origin)}"
    need = f"`{flag}` must be {requirement.wanted}" if flag else requirement.wanted
    check = Check(
        need=need,
        found=found,
        met=requirement.keeps(value, ground),
        because=f"tier `{tier}`: {requirement.why}",
        place=origin.place if origin else Place(),
    )
    return Kept(requirement, check, origin)
