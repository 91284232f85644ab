"""What a machine is, as frozen data that can be stored as JSON and resolved against elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from backendcfg.schema.base import Document

LibraryKind = Literal["openblas", "mkl", "blis", "reference-blas", "openmp", "lapack"]


class System(Document):
    """The operating system."""

    os: Literal["linux", "macos", "windows", "other"]
    release: str = ""
    distribution: str = ""
    libc: str = ""
    name: str = ""


class Interpreter(Document):
    """The Python that detected."""

    version: str
    implementation: str = "CPython"
    executable: str = ""


class Cpu(Document):
    """The processor.

    Attributes:
        microarchitecture: archspec's name, e.g. "zen4", "sapphirerapids".
        lineage: that name and every ancestor, nearest first; a condition on a microarchitecture
            holds when its name is here.
        features: instruction set names as in /proc/cpuinfo, sorted.
        logical: logical processors of the machine.
        physical: cores of the machine.
        usable: processors this process may use: the least of the machine, affinity and cgroup
            quota (rounded up), at least 1.
        cores: cores this process should compute on: those of `usable`, divided among the ranks
            that a launcher started on this machine; 0 in a host that was captured without it.
        limits: what lowered `usable` and `cores`, in words: "affinity: 2 of 64", "cgroup v2: 1.5
            of 64", "rank 0 of 2 here, by LOCAL_RANK".
    """

    vendor: Literal["intel", "amd", "arm", "apple", "ibm", "nvidia", "other"]
    name: str
    architecture: str
    microarchitecture: str
    lineage: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    logical: int
    physical: int
    usable: int
    cores: int = 0
    limits: tuple[str, ...] = ()


class Memory(Document):
    """Main memory in bytes.

    Attributes:
        total: of the machine.
        limit: the cgroup's, or None.
        ranks: how many processes a launcher started on this machine, which share it.
    """

    total: int
    limit: int | None = None
    ranks: int = 1


class Gpu(Document):
    """One device.

    Attributes:
        index: position among the vendor's devices.
        vendor: who made it.
        name: the driver's name for it.
        compute_capability: "9.0" on NVIDIA, else "".
        architecture: "sm_90", "gfx942", "apple-m3".
        memory: bytes, 0 when unknown.
        uuid: the driver's identifier, or "".
        visible: false when CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides it.
    """

    index: int
    vendor: Literal["nvidia", "amd", "apple", "intel"]
    name: str
    compute_capability: str = ""
    architecture: str = ""
    memory: int = 0
    uuid: str = ""
    visible: bool = True


class Library(Document):
    """One shared library file.

    Attributes:
        kind: what it is.
        provider: the provider name it could serve as, or "" (see `catalogue.cpu.PROVIDERS`).
        owner: who brought it: "numpy", "scipy", "torch", "scipy-openblas64", "mkl", "system".
        path: absolute, links resolved.
        version: as the library says, or "".
        interface: integer width of its BLAS names.
        prefix, suffix: around each symbol: `scipy_` and `64_` in `scipy_cblas_dgemm64_`.
        threading: "pthreads", "openmp", "tbb", "sequential", "intel", "gnu" or "".
        core_type: the kernel set it chose, or "".
        threads: threads it would use now, 0 when unknown.
        loaded: whether it was in the process that detected.
    """

    kind: LibraryKind
    provider: str = ""
    owner: str
    path: str
    version: str = ""
    interface: Literal["lp64", "ilp64", "both", ""] = ""
    prefix: str = ""
    suffix: str = ""
    threading: str = ""
    core_type: str = ""
    threads: int = 0
    loaded: bool = False


class Found(Document):
    """A probe that found what it looked for."""

    outcome: Literal["found"] = "found"
    probe: str
    detail: str


class Absent(Document):
    """A probe that found nothing, and where it looked."""

    outcome: Literal["absent"] = "absent"
    probe: str
    reason: str


class Broken(Document):
    """A probe that found something unusable; it hides nothing else."""

    outcome: Literal["broken"] = "broken"
    probe: str
    path: str = ""
    reason: str
    # After how many seconds another probe may find it usable; None for never. The moment may be to
    # blame, as too little memory or a limit on processes. A host that is captured does not have it.
    again_after: SkipJsonSchema[float | None] = Field(default=None, exclude=True)


Probe = Annotated[Found | Absent | Broken, Field(discriminator="outcome")]


class Host(Document):
    """A machine and the Python environment on it.

    Attributes:
        drivers: versions by name: "nvidia", "cuda", "rocm".
        packages: installed distributions that matter, by import name: numpy, scipy, torch, jax...
        environment: other software's variables that are set and matter.
        probes: what every probe answered, found, absent or broken.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    system: System
    python: Interpreter
    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...] = ()
    drivers: dict[str, str] = {}
    libraries: tuple[Library, ...] = ()
    packages: dict[str, str] = {}
    environment: dict[str, str] = {}
    probes: tuple[Probe, ...] = ()

    def summary(self) -> str:
        """The host in one line."""
        names = Counter(gpu.name for gpu in self.gpus if gpu.visible)
        gpus = [name if count == 1 else f"{count} {name}" for name, count in names.items()]
        limits = f" ({'; '.join(self.cpu.limits)})" if self.cpu.limits else ""
        packages = [f"{name} {version}" for name, version in sorted(self.packages.items())]
        return (
            f"{self.cpu.name} ({self.cpu.microarchitecture}), {self.cpu.usable} of "
            f"{self.cpu.logical} processors{limits}, {', '.join(gpus) or 'no GPU'}"
            f"{'; ' + ', '.join(packages) if packages else ''}"
        )
