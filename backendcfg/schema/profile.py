"""What a profile and a settings file may say, and the layers that loading makes of them.

A layer has flag assignments with their places; a stack has the layers by rank.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from backendcfg.catalogue.cpu import PACKAGES, PROVIDERS
from backendcfg.catalogue.gpu import DRIVERS
from backendcfg.errors import shown_path
from backendcfg.schema import tables, torch_backends
from backendcfg.schema.base import Document, Flag, FlagField, Fp32, Rank, iterate

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableText = Annotated[str, Field(pattern=r"^[^\x00]*$")]
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
    fleet: tables.Fleet = tables.Fleet()
    python: tables.Python = tables.Python()
    seed: tables.Seed = tables.Seed()
    ops: tables.Ops = tables.Ops()
    log: tables.Log = tables.Log()
    torch: tables.Torch = tables.Torch()
    route: tables.Route = tables.Route()
    onednn: tables.OneDnn = tables.OneDnn()
    jax: tables.Jax = tables.Jax()
    tensorflow: tables.TensorFlow = tables.TensorFlow()
    cupy: tables.Cupy = tables.Cupy()
    nccl: tables.Nccl = tables.Nccl()
    environment: Annotated[
        dict[VariableName, VariableText],
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


LIBRARIES = tuple(sorted({*PACKAGES, *DRIVERS, *(each.name for each in PROVIDERS if each.kind)}))
"""What hosts list the versions of."""


class Condition(Document):
    """What the host must be; every line must hold."""

    gpu: GpuCondition | None = None
    cpu: CpuCondition | None = None
    os: Literal["linux", "macos", "windows"] | None = None
    libraries: Annotated[
        dict[str, VersionRange],
        Field(json_schema_extra={"propertyNames": {"enum": list(LIBRARIES)}}),
    ] = {}


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


class Place(Document):
    """Where a value is written: a file position, a variable or an argument.

    Attributes:
        path: the file, or None for a variable or an argument.
        line, column, length: 1-based position in `path`; 0 when there is no file.
        source: the whole line.
        name: the variable (`BACKENDCFG_THREADS_COUNT`) or the argument (`--set`), if no file.
        shipped: whether the file came with backendcfg; a reader need not be told where it lies.
    """

    path: str | None = None
    line: int = 0
    column: int = 0
    length: int = 1
    source: str = ""
    name: str = ""
    shipped: bool = False

    def __str__(self) -> str:
        if self.path and self.shipped:
            return f"{os.path.basename(self.path)}:{self.line}, shipped"
        return f"{shown_path(self.path)}:{self.line}" if self.path else self.name


class Assignment(Document):
    """One flag set at one place.

    Attributes:
        flag: canonical name; a legacy spelling is already expanded.
        value: JSON data, valid for the flag.
        place: where.
        written_as: the legacy spelling that was written, or "".
    """

    flag: str
    value: Any
    place: Place
    written_as: str = ""


class Requirement(Document):
    """A condition that a profile cannot do without."""

    condition: Condition
    place: Place


class Conditional(Document):
    """A `[[when]]` table."""

    condition: Condition
    assignments: tuple[Assignment, ...]
    place: Place


class Dropped(Document):
    """A `drop` entry: a flag (or a whole table) that parents set and this file unsets."""

    flag: str
    place: Place


class Layer(Document):
    """One file's (or one source's) contribution, at one rank.

    Attributes:
        rank: the strength of whoever picked it.
        title: what to call it in messages: "profile `fast`", "backendcfg.toml", "environment".
        profile: the profile's name, or "" for settings, variables and arguments.
        path: the file, or "".
        shipped: whether the file came with backendcfg.
        description: the profile's description.
    """

    rank: Rank
    title: str
    profile: str = ""
    path: str = ""
    shipped: bool = False
    description: str = ""
    assignments: tuple[Assignment, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    requires: tuple[Requirement, ...] = ()
    whens: tuple[Conditional, ...] = ()


NO_PROFILE = "default"
"""The name of a stack where nobody named a profile."""


class Stack(Document):
    """Every layer of a request, weakest first; a later layer wins over an earlier one.

    Attributes:
        name: what was asked for, as the user would type it: "fast", "base+tf32-off".
        layers: parents stand before the profiles that extend them; a parent that is reached twice
            stands once, at its last position, as if each `extends` were written out in full.
        files: every file that was read, with its modification time in nanoseconds and size in
            bytes; the compiled plan is stale when one of them changes.
        missing: places that were searched and held nothing; a plan is stale when one appears.
    """

    name: str
    layers: tuple[Layer, ...]
    files: dict[str, tuple[int, int]] = {}
    missing: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The profile's own description; of several that are joined, in which order they count."""
        parts = self.name.split("+")
        if len(parts) > 1 and "/" not in self.name:
            return " over ".join(f"`{part}`" for part in reversed(parts))
        return next((one.description for one in reversed(self.layers) if one.description), "")
