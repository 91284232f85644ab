"""The libraries that compute on device arrays, and the drivers that they stand on.

What of them a profile may choose is in `schema.torch_backends`; which of them our own operations
call, and how, is in native/include/backendcfg_device.h, whose numbers stand here as `kind`.
"""

from __future__ import annotations

from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NVIDIA, AMD, INTEL, APPLE = "nvidia", "amd", "intel", "apple"

VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel", APPLE: "Apple"}
"""Who makes GPUs, as people spell them."""


@record(frozen=True)
class GpuLibrary:
    """A library that computes on devices, and how its files are called.

    Attributes:
        name: as profiles and the native part spell it.
        title: as its vendor spells it.
        vendor: whose devices it is for.
        kind: its number in `native/include/backendcfg_device.h`; -1 for one that C does not call.
        stem: of its file's name, before the major version of its interface.
        majors: of its interface, those that are served, newest first, each with the major version
            of the toolkit (CUDA, ROCm) that it belongs to.
        is_driver: whether it comes with the driver, and so never from a wheel or a toolkit.
        plain: whether its own file carries no version.
        variables: that lead to directories of its own.
        places: of its own, as patterns below the root.
        absent: what else there is to say when no file is found.
        also: other vendors whose devices a framework serves under the name.
        stand_in: the library that does its work on another vendor's devices.
        dropped: the release of PyTorch that ignores it for some operations, or "".
    """

    name: str
    title: str
    vendor: str
    kind: int = -1
    stem: str = ""
    majors: Mapping[int, int] = field(default_factory=dict)
    is_driver: bool = False
    plain: bool = False
    variables: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    absent: str = ""
    also: tuple[str, ...] = ()
    stand_in: str = ""
    dropped: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Of its files, in the order to try them."""
        numbered = tuple(f"{self.stem}.{major}" for major in self.majors)
        return (self.stem, *numbered) if self.plain else numbered

    @property
    def vendors(self) -> tuple[str, ...]:
        """Whose devices it can serve when a profile names it."""
        return (self.vendor, *self.also)


def _magma(name: str, vendor: str, also: tuple[str, ...] = ()) -> GpuLibrary:
    """A build of MAGMA for one vendor's devices. Debian's file is numbered, others are not."""
    return GpuLibrary(
        name,
        "MAGMA",
        vendor,
        -1,
        "libmagma.so",
        {2: 0},
        plain=True,
        variables=("MAGMA_HOME",),
        places=("usr/local/magma*", "opt/magma*"),
        absent="the one that PyTorch's wheels carry is inside PyTorch's own library, out of reach",
        also=also,
        dropped="2.11",
    )


CUDA = GpuLibrary("cuda", "the CUDA driver", NVIDIA, 0, "libcuda.so", {1: 0}, is_driver=True)
CUBLAS = GpuLibrary(
    "cublas", "cuBLAS", NVIDIA, 1, "libcublas.so", {13: 13, 12: 12}, stand_in="hipblas"
)
CUBLASLT = GpuLibrary(
    "cublaslt", "cuBLASLt", NVIDIA, 2, "libcublasLt.so", {13: 13, 12: 12}, stand_in="hipblaslt"
)
HIP = GpuLibrary("hip", "the HIP runtime", AMD, 3, "libamdhip64.so", {7: 7, 6: 6})
HIPBLAS = GpuLibrary(
    "hipblas", "hipBLAS", AMD, 4, "libhipblas.so", {3: 7, 2: 6}, stand_in=CUBLAS.name
)
HIPBLASLT = GpuLibrary(
    "hipblaslt", "hipBLASLt", AMD, 5, "libhipblaslt.so", {1: 7, 0: 6}, stand_in=CUBLASLT.name
)
# PyTorch gives hipSOLVER under the name of cuSOLVER, so that a profile's one name serves both.
CUSOLVER = GpuLibrary(
    "cusolver", "cuSOLVER", NVIDIA, -1, "libcusolver.so", {12: 13, 11: 12}, also=(AMD,)
)
CUFFT = GpuLibrary("cufft", "cuFFT", NVIDIA, -1, "libcufft.so", {12: 13, 11: 12})
CUDNN = GpuLibrary("cudnn", "cuDNN", NVIDIA, -1, "libcudnn.so", {9: 0})  # one for every CUDA
# One number for every toolkit.
CUSPARSELT = GpuLibrary("cusparselt", "cuSPARSELt", NVIDIA, -1, "libcusparseLt.so", {0: 0})
MAGMA = _magma("magma", NVIDIA, (AMD,))
HIPSOLVER = GpuLibrary("hipsolver", "hipSOLVER", AMD, -1, "libhipsolver.so", {1: 7, 0: 6})
MAGMA_HIP = _magma("magma_hip", AMD)
CK = GpuLibrary("ck", "Composable Kernel", AMD)
AOTRITON = GpuLibrary("aotriton", "AOTriton", AMD)
NCCL = GpuLibrary("nccl", "NCCL", NVIDIA, stem="libnccl.so", majors={2: 0})
MIOPEN = GpuLibrary("miopen", "MIOpen", AMD, stem="libMIOpen.so", majors={1: 0})

# In the order of their numbers in the native part.
CALLED = (
    *(CUDA, CUBLAS, CUBLASLT, HIP, HIPBLAS, HIPBLASLT, CUSOLVER, CUFFT, CUDNN, CUSPARSELT),
    *(MAGMA, HIPSOLVER, MAGMA_HIP),
)
"""Those that our own operations call."""

LIBRARIES = (*CALLED, CK, AOTRITON, NCCL, MIOPEN)
BY_NAME = {library.name: library for library in LIBRARIES}


def preferred_first(names: tuple[str, ...], preferred: str) -> tuple[str, ...]:
    """Libraries in order, beginning with the preferred one, or else the one that stands in."""
    known = BY_NAME.get(preferred)
    for first in (preferred, known.stand_in if known else ""):
        if first in names:
            return (first, *(name for name in names if name != first))
    return names


DRIVERS = {"cuda": "CUDA", "rocm": "ROCm", "nvidia": "NVIDIA driver"}
"""Titles of what a host lists the versions of beside packages."""
