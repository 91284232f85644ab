"""What a shared library file is, judged by its name and place alone. Standard library only.

The name decides how a file is asked (`symbols.py`); what it answers decides what it is.
"""

from __future__ import annotations

import os
import re

# Texts, which `re` compiles when they are first used and keeps: most processes never ask.
_KINDS = (
    (r"lib(scipy_)?openblas[\w.+-]*", "openblas"),
    (r"libmkl_rt\b.*", "mkl"),
    # PyTorch's x86 builds carry MKL inside; other builds answer that they do not.
    (r"libtorch_cpu\..*", "mkl"),
    (r"libblis(64)?(-\w+)?[.-].*", "blis"),
    (r"lib(c?blas)(64)?[.-].*", "reference-blas"),
    (r"liblapacke?(64)?[.-].*", "lapack"),
    (r"lib(gomp|iomp5|omp)[.-].*", "openmp"),
)
_SHARED = r"\.(so(\.[\w.]+)?|dylib)$"
_PACKAGE = r"/(?:site|dist)-packages/([\w-]+?)(?:\.libs)?/"
_BUNDLE = r"/([\w-]+)\.libs/[^/]+$"
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_BY_FILE = (("libmkl_rt", "mkl"), ("libiomp5", "intel-openmp"))


def kind_of(path: str) -> str:
    """The kind that the file's name promises, as in `schema.host.LibraryKind`, or ""."""
    name = os.path.basename(path)
    if not re.search(_SHARED, name):
        return ""
    if re.search(r"/blis/cy\.[^/]+$", path):
        return "blis"
    return next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, name)), "")


def is_torch(path: str) -> bool:
    """Whether this is PyTorch's own library, which has an MKL inside."""
    return os.path.basename(path).startswith("libtorch_cpu.")


def owner_of(path: str, prefix: str) -> str:
    """Who brought the file: a distribution's name, "conda" or "system".

    Args:
        path: absolute.
        prefix: the environment's directory, as `sys.prefix`.
    """
    found = re.search(_PACKAGE, path) or re.search(_BUNDLE, path)
    if found:
        name = found.group(1)
        return _DISTRIBUTIONS.get(name, name.replace("_", "-"))
    if path.startswith((os.path.join(prefix, ""), os.path.join(os.path.realpath(prefix), ""))):
        if os.path.isdir(os.path.join(prefix, "conda-meta")):
            return "conda"
        name = os.path.basename(path)
        return next((owner for start, owner in _BY_FILE if name.startswith(start)), "system")
    return "system"


def provider_of(kind: str, owner: str, *, serves: bool) -> str:
    """The provider that such a file could serve as (`schema.tables.CPU_BLAS`), or "".

    Args:
        kind: what it is.
        owner: who brought it; SciPy's own OpenBLAS is a provider apart from NumPy's.
        serves: whether it exports the C interface (`cblas_dgemm` and so on).
    """
    if not serves:
        return ""
    if kind == "openblas":
        return "scipy-openblas" if owner.startswith("scipy") else "openblas"
    return kind if kind in {"mkl", "blis"} else ""
