"""The libraries that compute on CPU arrays, and the OpenMP runtimes whose threads they use.

A provider serves our own products and factorisations. `PROVIDERS` has them in the order that holds
where no profile prefers one and no calibration has measured them.
"""

from __future__ import annotations

import os

from backendcfg.catalogue.frameworks import FRAMEWORKS, NUMPY, SCIPY, TENSORFLOW, TORCH
from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@record(frozen=True)
class Hazard:
    """What makes opening a library wrong, although its file is there.

    A plan is made for a host and answers for all of its processes; what passes inside a process is
    asked there, when the library is about to be opened.

    Attributes:
        reason: why the library must not be opened now.
        variable: the hazard holds where this variable of the environment is set.
        framework: the hazard holds where this framework is installed, until it is imported.
        until: for one that passes, under which condition the library may serve.
    """

    reason: str
    variable: str = ""
    framework: str = ""
    until: str = ""


@record(frozen=True)
class CpuLibrary:
    """A library of CPU arrays, or an OpenMP runtime.

    Attributes:
        name: as profiles, plans and flags spell it.
        title: as people call the library.
        kind: of its files, as hosts list them (`schema.host.LibraryKind`); "" for one that has no
            file of its own.
        role: as people call it where it serves our products, if that is not the title.
        summary: what it is, where it serves our products.
        patterns: regular expressions of the names of its files.
        stem: a part of the names of its files, enough to guess what a path in a profile names.
        hints: parts of paths, one of which every file that the patterns match has.
        places: of its files, below the root of the system.
        wheels: the distributions that bring it: by name, where its files lie beside the package.
        listed: the distributions that bring it outside their package; their lists of files say
            where.
        modules: the packages whose version a host lists: by import name, the distributions.
        symbol: a function that only this library has.
        threading: for an OpenMP runtime, whose it is.
        variables: that say how many threads it starts with; the first that is set wins.
        owners: whose copy to take first when there are several.
        affixes: prefix and suffix of its symbols and the width of its integers, where detection's
            are not the ones to use.
        pool: whose threads it computes with: None for its own, "" for no threads.
        inside: the frameworks that carry a copy of it inside.
        hazards: what makes opening it wrong.
        install: how one installs it.
    """

    name: str
    title: str
    kind: str = ""
    role: str = ""
    summary: str = ""
    patterns: tuple[str, ...] = ()
    stem: str = ""
    hints: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    wheels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    symbol: str = ""
    threading: str = ""
    variables: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    affixes: tuple[str, str, str] | None = None
    pool: str | None = None
    inside: tuple[str, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    install: str = ""


OPENBLAS = CpuLibrary(
    "openblas",
    "OpenBLAS",
    kind="openblas",
    role="NumPy's OpenBLAS",
    summary="the OpenBLAS that NumPy computes with",
    patterns=(r"lib(scipy_)?openblas[\w.+-]*",),
    stem="openblas",
    hints=("blas",),
    places=(
        "usr/lib/*-linux-gnu/openblas*/*",
        "usr/lib64/lib*blas*",
        "usr/local/lib/lib*blas*",
        "opt/homebrew/opt/openblas/lib/libopenblas*",
    ),
    symbol="openblas_get_config",
    variables=(
        *("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"),
        *("OMP_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS"),
    ),
    owners=(NUMPY.name,),
    install="install NumPy from its wheel, which brings OpenBLAS",
)
SCIPY_OPENBLAS = CpuLibrary(
    "scipy-openblas",
    "OpenBLAS",
    kind=OPENBLAS.kind,
    role="SciPy's OpenBLAS",
    summary="the OpenBLAS that SciPy computes with",
    wheels={
        "scipy-openblas64": ("scipy_openblas64/lib/*",),
        "scipy-openblas32": ("scipy_openblas32/lib/*",),
    },
    modules={
        "scipy_openblas64": ("scipy-openblas64",),
        "scipy_openblas32": ("scipy-openblas32",),
    },
    # The copy that is most likely in the process already: a second copy of the same library brings
    # a second pool of spinning threads.
    owners=(SCIPY.name, "scipy-openblas64", "scipy-openblas32"),
    install="install it with `pip install scipy-openblas64`",
)
BLIS = CpuLibrary(
    "blis",
    "BLIS",
    kind="blis",
    summary="BLIS",
    patterns=(r"libblis(64)?(-\w+)?[.-].*",),
    stem="libblis",
    hints=("blis",),
    places=(
        *("usr/lib/*-linux-gnu/blis*/*", "usr/lib64/libblis*"),
        "usr/local/lib/libblis*",
    ),
    wheels={"blis": ("blis/cy.*",)},
    modules={"blis": ("blis",)},
    symbol="bli_info_get_version_str",
    variables=("BLIS_NUM_THREADS", "OMP_NUM_THREADS"),
    install="install BLIS from the system's packages, for instance `libblis4`",
)
MKL_RT = "libmkl_rt"
"""How the file of MKL begins that programs open; it opens the others, its layers."""

MKL_CORE = "libmkl_core."
"""How the file of MKL's core begins. While it is not loaded, libmkl_rt has not opened its layers,
and any question would make it open them."""

MKL = CpuLibrary(
    "mkl",
    "MKL",
    kind="mkl",
    summary="Intel's MKL",
    # PyTorch's x86 builds carry MKL inside; other builds answer that they do not.
    patterns=(rf"{MKL_RT}\b.*", r"libtorch_cpu\..*"),
    stem="libmkl",
    hints=("mkl", "libtorch_cpu"),
    places=(f"opt/intel/oneapi/mkl/latest/lib/{MKL_RT}*",),
    listed=("mkl",),
    modules={"mkl": ("mkl",)},
    symbol="MKL_Get_Version_String",
    variables=("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    # Every build has the 64-bit names; the bare names are 32-bit.
    affixes=("", "_64", "ilp64"),
    inside=(TORCH.name,),
    hazards=(
        Hazard(
            "LD_BIND_NOW is set, under which MKL cannot load its own layers and ends the process",
            variable="LD_BIND_NOW",
        ),
        # MKL opens its layers RTLD_GLOBAL, and PyTorch exports thousands of MKL symbols of its own
        # without binding to them. Imported after MKL was called, it binds 4,872 of them to the
        # other version; imported before, none (measured with PyTorch 2.13 and MKL 2026.2).
        Hazard(
            "PyTorch is installed and not imported yet, and would bind to this MKL: import it "
            "first",
            framework=TORCH.name,
            until="only in a process that has imported PyTorch before: imported later, PyTorch "
            "would bind to this MKL",
        ),
    ),
    install="install it with `pip install mkl`",
)
NATIVE = CpuLibrary(
    "native",
    "our own kernels",
    summary="our own kernels, compiled in: the same bits at any threads, in any batch",
)
REFERENCE = CpuLibrary(
    "reference",
    "the built-in reference",
    summary="ours, compiled in: slow, serial, the same bits everywhere",
    pool="",
)

# Which serve our products, best first where nobody chooses. The two OpenBLAS lead because NumPy
# and SciPy have them, and their threads, in the process already. BLIS comes before MKL: it may be
# opened at any time, so what serves does not depend on when PyTorch is imported; and where it knows
# the CPU it beats MKL on AMD's (Zen 5 with its kernels for AVX-512: 267 against 110 GFLOP/s), where
# MKL has AVX2 alone. Which of the two is faster on Intel's is for `backendcfg tune` to measure.
PROVIDERS = (OPENBLAS, SCIPY_OPENBLAS, BLIS, MKL, NATIVE, REFERENCE)

COMPILED_IN = (NATIVE.name, REFERENCE.name)
"""Those that are always there, and whose bits depend on neither threads, batch nor CPU."""

NETLIB_BLAS = CpuLibrary(
    "reference-blas",
    "reference BLAS",
    kind="reference-blas",
    patterns=(r"lib(c?blas)(64)?[.-].*",),
    hints=("blas",),
    places=("usr/lib/*-linux-gnu/blas*/*",),
    symbol="dgemm_",
)
NETLIB_LAPACK = CpuLibrary(
    "lapack",
    "LAPACK",
    kind="lapack",
    patterns=(r"liblapacke?(64)?[.-].*",),
    hints=("lapack",),
    places=("usr/lib/*-linux-gnu/lapack*/*",),
    symbol="dgesv_",
)
ONEDNN = CpuLibrary("onednn", "oneDNN", stem="libdnnl", inside=(TORCH.name, TENSORFLOW.name))

OPENMP = "openmp"


def _runtime(
    name: str, title: str, threading: str, *, places: tuple[str, ...] = (), listed: str = ""
) -> CpuLibrary:
    """An OpenMP runtime, whose name is how its files begin."""
    return CpuLibrary(
        name,
        title,
        kind=OPENMP,
        patterns=(rf"{name}[.-].*",),
        hints=(name,),
        symbol="omp_get_max_threads",
        threading=threading,
        variables=("OMP_NUM_THREADS",),
        places=places,
        listed=(listed,) if listed else (),
    )


LIBGOMP = _runtime("libgomp", "GNU OpenMP", "gnu")
LIBIOMP5 = _runtime("libiomp5", "Intel OpenMP", "intel", listed="intel-openmp")
LIBOMP = _runtime("libomp", "LLVM OpenMP", "llvm", places=("opt/homebrew/opt/libomp/lib/libomp*",))
RUNTIMES = (LIBGOMP, LIBIOMP5, LIBOMP)

LIBRARIES = (
    *(OPENBLAS, SCIPY_OPENBLAS, MKL, BLIS, NETLIB_BLAS, NETLIB_LAPACK, *RUNTIMES),
    *(ONEDNN, NATIVE, REFERENCE),
)
BY_NAME = {library.name: library for library in LIBRARIES}

KINDS = {
    **{library.kind: library.title for library in LIBRARIES if library.kind},
    OPENMP: "OpenMP runtime",
}
"""Titles of the kinds of files, as hosts list them."""

PACKAGES = {
    **{each.name: each.packages for each in FRAMEWORKS if each.in_host},
    **{name: packages for each in LIBRARIES for name, packages in each.modules.items()},
}
"""The packages whose versions a host lists: by import name, their distributions."""

# Texts, which `re` compiles when they are first used and keeps: most processes never ask.
_PATTERNS = tuple((each.kind, pattern) for each in LIBRARIES for pattern in each.patterns)
_ANY_NAME = "|".join(f"(?P<_{at}>{pattern})" for at, (_, pattern) in enumerate(_PATTERNS))
_SHARED = r"\.(so(\.[\w.]+)?|dylib)$"
_BLIS_EXTENSION = r"/blis/cy\.[^/]+$"


def kind_of(path: str) -> str:
    """The kind that a file's name promises, or ""; what the file answers decides what it is."""
    import re  # most processes start without any of these files

    name = os.path.basename(path)
    if not re.search(_SHARED, name):
        return ""
    if re.search(_BLIS_EXTENSION, path):
        return BLIS.kind
    found = re.fullmatch(_ANY_NAME, name)
    return _PATTERNS[int((found.lastgroup or "")[1:])][0] if found else ""


def is_torch(path: str) -> bool:
    """Whether this is PyTorch's own library, which has an MKL inside."""
    return os.path.basename(path).startswith("libtorch_cpu.")


def provider_of(kind: str, owner: str, *, serves: bool) -> str:
    """The provider that a file could serve as, or "".

    Args:
        kind: what it is.
        owner: who brought it; SciPy's own OpenBLAS is a provider apart from NumPy's.
        serves: whether it exports the C interface (`cblas_dgemm` and so on).
    """
    if not serves:
        return ""
    if kind == OPENBLAS.kind:
        return (SCIPY_OPENBLAS if owner.startswith(SCIPY.name) else OPENBLAS).name
    return kind if any(kind == provider.name for provider in PROVIDERS) else ""
