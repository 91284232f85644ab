"""What a profile and a settings file may say."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from backendcfg.schema import frameworks, tables, torch_backends
from backendcfg.schema.base import Document, Flag, FlagField, Fp32, iterate

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VersionRange = Annotated[str, Field(pattern=r"^\s*(==|!=|>=|<=|>|<|~=)\s*[0-9]")]


class Flags(Document):
    """Every flag. The names are those of torch.backends where it has them."""

    fp32_precision: Annotated[
        Fp32, torch_backends.torch_flag("Root of the float32 precision tree.", "native", in_c=True)
    ] = "none"
    cuda: torch_backends.Cuda = torch_backends.Cuda()
    cudnn: torch_backends.Cudnn = torch_backends.Cudnn()
    mha: torch_backends.Mha = torch_backends.Mha()
    miopen: torch_backends.Miopen = torch_backends.Miopen()
    mkl: torch_backends.Mkl = torch_backends.Mkl()
    mkldnn: torch_backends.Mkldnn = torch_backends.Mkldnn()
    nnpack: torch_backends.Nnpack = torch_backends.Nnpack()
    opt_einsum: torch_backends.OptEinsum = torch_backends.OptEinsum()
    quantized: torch_backends.Quantized = torch_backends.Quantized()
    python_native: torch_backends.PythonNative = torch_backends.PythonNative()
    threads: tables.ThreadCounts = tables.ThreadCounts()
    blas: tables.Blas = tables.Blas()
    determinism: tables.Determinism = tables.Determinism()
    memory: tables.Memory = tables.Memory()
    python: tables.Python = tables.Python()
    seed: tables.Seed = tables.Seed()
    ops: tables.Ops = tables.Ops()
    log: tables.Log = tables.Log()
    torch: frameworks.Torch = frameworks.Torch()
    onednn: frameworks.OneDnn = frameworks.OneDnn()
    jax: frameworks.Jax = frameworks.Jax()
    tensorflow: frameworks.TensorFlow = frameworks.TensorFlow()
    cupy: frameworks.Cupy = frameworks.Cupy()
    nccl: frameworks.Nccl = frameworks.Nccl()
    environment: Annotated[
        dict[VariableName, str],
        Flag(
            "Further environment variables to set before a process starts.",
            ("environment",),
            trusted=True,
        ),
    ] = {}


class GpuCondition(Document):
    """Holds when some visible GPU meets every line."""

    vendor: Literal["nvidia", "amd", "apple", "intel"] | None = None
    compute_capability: VersionRange | None = None
    architecture: str | None = None


class CpuCondition(Document):
    """Holds when the CPU meets every line; a microarchitecture includes its descendants."""

    vendor: Literal["intel", "amd", "arm", "apple", "ibm", "nvidia"] | None = None
    architecture: Literal["x86_64", "aarch64", "ppc64le"] | None = None
    microarchitecture: str | None = None
    features: tuple[str, ...] = ()


class Condition(Document):
    """What the host must be; every line must hold."""

    gpu: GpuCondition | None = None
    cpu: CpuCondition | None = None
    os: Literal["linux", "macos", "windows"] | None = None
    libraries: dict[str, VersionRange] = {}


class When(Condition):
    """Flags that hold on hosts that meet a condition."""

    flags: Flags = Flags()


class Profile(Flags):
    """A profile file: flags, and what they extend and need, and their tier."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    description: str = ""
    extends: str | tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    requires: Condition = Condition()
    when: tuple[When, ...] = ()


class Settings(Flags):
    """backendcfg.toml, [tool.backendcfg] in pyproject.toml, or the user's config.toml."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    profile: str = ""


@cache
def flags() -> dict[str, FlagField]:
    """Every flag by name, in the order of declaration."""
    return {found.name: found for found in iterate(Flags)}


@cache
def defaults() -> dict[str, Any]:
    """The default of every flag that is not a legacy spelling, as JSON data."""
    return {name: found.default for name, found in flags().items() if not found.flag.spells}
