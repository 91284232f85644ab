"""Which library serves device arrays, and how much memory two of them keep.

A library that this machine cannot use is refused and the choice stays as it was; PyTorch raises
too, but has changed its mind by then. What they do on a GPU was read in its sources, not run.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from backendcfg import environ
from backendcfg.backends import base
from backendcfg.backends.base import assign, library, read
from backendcfg.catalogue.gpu import CK, CUBLAS, CUBLASLT, HIPBLAS, HIPBLASLT
from backendcfg.errors import InvalidArgumentError, MissingLibraryError
from backendcfg.session import adjust

if TYPE_CHECKING:
    from collections.abc import Mapping

LINALG = "cuda.preferred_linalg_library"
BLAS = "cuda.preferred_blas_library"
ROCM_FA = "cuda.preferred_rocm_fa_library"

_KIBIBYTE = 1024
_MEBIBYTE = 1024 * _KIBIBYTE


class _Backend(Enum):
    """Members as PyTorch numbers them; `int(member)` is the number."""

    def __int__(self) -> int:
        return int(self.value)


class LinalgBackend(_Backend):
    """Libraries for decompositions of device arrays."""

    Default = 0
    Cusolver = 1
    Magma = 2


class BlasBackend(_Backend):
    """Libraries for products of device arrays; hipBLAS goes by cuBLAS's name, as in PyTorch."""

    Default = 0
    Cublas = 1
    Cublaslt = 2
    Ck = 3


class ROCmFABackend(_Backend):
    """Libraries for flash attention on ROCm."""

    Default = 0
    AOTriton = 1
    Ck = 2


Chosen = TypeVar("Chosen", LinalgBackend, BlasBackend, ROCmFABackend)

_LINALG = {member.name.lower(): member for member in LinalgBackend}
_BLAS = {
    "default": BlasBackend.Default,
    CUBLAS.name: BlasBackend.Cublas,
    HIPBLAS.name: BlasBackend.Cublas,
    CUBLASLT.name: BlasBackend.Cublaslt,
    HIPBLASLT.name: BlasBackend.Cublaslt,
    CK.name: BlasBackend.Ck,
}
_ROCM_FA = {member.name.lower(): member for member in ROCmFABackend}
_ON_AMD = {CUBLAS.name: HIPBLAS.name, CUBLASLT.name: HIPBLASLT.name}


def preferred_linalg_library(backend: str | LinalgBackend | None = None) -> LinalgBackend:
    """The library preferred for decompositions of device arrays, after choosing one if given.

    Args:
        backend: "default", "cusolver", "magma" or the member of that name; None only asks.

    Raises:
        InvalidArgumentError: there is no such library.
        MissingLibraryError: this machine cannot use it; the choice stays as it was.
    """
    _choose(LINALG, backend, _LINALG)
    return _LINALG[library(LINALG)]


def preferred_blas_library(backend: str | BlasBackend | None = None) -> BlasBackend:
    """The library preferred for products of device arrays, after choosing one if given.

    Args:
        backend: "default", "cublas" or "hipblas", "cublaslt" or "hipblaslt", "ck", or the member;
            None only asks.

    Returns:
        As in PyTorch, what "default" means on this machine rather than `Default`.

    Raises:
        InvalidArgumentError, MissingLibraryError: as `preferred_linalg_library`.
    """
    _choose(BLAS, backend, _BLAS)
    chosen = _BLAS[library(BLAS)]
    return _default_blas() if chosen is BlasBackend.Default else chosen


def preferred_rocm_fa_library(backend: str | ROCmFABackend | None = None) -> ROCmFABackend:
    """The library preferred for flash attention on ROCm, after choosing one if given.

    Args:
        backend: "default", "aotriton", "ck" or the member of that name; None only asks.

    Raises:
        InvalidArgumentError, MissingLibraryError: as `preferred_linalg_library`.
    """
    _choose(ROCM_FA, backend, _ROCM_FA)
    return _ROCM_FA[library(ROCM_FA)]


def is_ck_sdpa_available() -> bool:
    """Whether the PyTorch that is loaded can compute attention by Composable Kernel (ROCm)."""
    return bool(base.ask_torch(lambda torch: torch._C._is_ck_sdpa_available()))


def cublas_workspace_size(size: int | None = None) -> int:
    """The workspace of a cuBLAS handle in bytes, after setting it if given; read, not run.

    Args:
        size: bytes, for handles that are used from then on; 0 gives the default back. None only
            asks.
    """
    return _workspace("cuda.cublas_workspace_size", size, "_cuda_getCublasWorkspaceSize", _cublas)


def cublaslt_workspace_size(size: int | None = None) -> int:
    """The workspace of cuBLASLt in bytes; see `cublas_workspace_size`."""
    return _workspace(
        "cuda.cublaslt_workspace_size", size, "_cuda_getCublasLtWorkspaceSize", _cublaslt
    )


def blas_workspace_size(size: int | None = None, backend: str | BlasBackend | None = None) -> int:
    """The workspace of the preferred library or of another, after setting it if given.

    Raises:
        InvalidArgumentError: there is no such library, or it uses no workspace.
    """
    chosen = preferred_blas_library() if backend is None else _member(backend, _BLAS)
    if chosen is BlasBackend.Default:
        chosen = _default_blas()
    if chosen is BlasBackend.Ck:
        raise InvalidArgumentError(
            "CK backend does not use a workspace", helps=['name "cublas" or "cublaslt"']
        )
    return (cublaslt_workspace_size if chosen is BlasBackend.Cublaslt else cublas_workspace_size)(
        size
    )


def _choose(flag: str, backend: object, members: Mapping[str, Chosen]) -> None:
    """Prefer a library, if this machine can use it."""
    if backend is None:
        return
    name = _member(backend, members).name.lower()
    if name == "default":
        assign({flag: name})
        return
    if members[name] is not _default_blas():
        if flag == BLAS and base.gpus("amd") and not base.gpus("nvidia"):
            name = _ON_AMD.get(name, name)
        _require(flag, name)
    assign({flag: name})


def _require(flag: str, name: str) -> None:
    """Refuse what this machine cannot use: a preference would yield without a word to the caller.

    Raises:
        MissingLibraryError: with every reason.
    """
    try:
        adjust.adjusted({flag: {"require": name}})
    except MissingLibraryError as error:
        raise MissingLibraryError(
            f"`{flag}` cannot be {name!r} on this machine",
            notes=error.notes,
            helps=["name another, or 'default', which lets the machine decide"],
        ) from error


def _member(backend: object, members: Mapping[str, Chosen]) -> Chosen:
    """The member that a name, a member of ours, or PyTorch's of the same name stands for."""
    kind = type(members["default"])
    if isinstance(backend, str) and backend in members:
        return members[backend]
    if not isinstance(backend, str) and type(backend).__name__.removeprefix("_") == kind.__name__:
        return kind[backend.name]  # type: ignore[attr-defined]
    import difflib

    near = difflib.get_close_matches(str(backend).lower(), members, n=1, cutoff=0.6)
    raise InvalidArgumentError(
        f"`backend` must be one of {', '.join(members)}, not {backend!r}",
        helps=[f"did you mean {near[0]!r}?"] if near else [],
    )


def _default_blas() -> BlasBackend:
    """What "default" means: hipBLASLt on AMD's Instinct, else cuBLAS or hipBLAS."""
    if (known := base.ask_torch(lambda torch: torch._C._get_blas_default_backend())) is not None:
        return BlasBackend[known.name]
    instinct = ("gfx90a", "gfx942", "gfx950")
    amd = base.gpus("amd") if not base.gpus("nvidia") else ()
    lt = any(gpu.architecture.startswith(instinct) for gpu in amd)
    return BlasBackend.Cublaslt if lt else BlasBackend.Cublas


def _workspace(flag: str, size: int | None, getter: str, default: Any) -> int:
    if size is not None:
        assign({flag: size})
    told: int = read(flag)
    if told:
        return told
    known = base.ask_torch(lambda torch: getattr(torch._C, getter)())
    return int(known) if known is not None else default()


def _cublas() -> int:
    """PyTorch's default: CUBLAS_WORKSPACE_CONFIG, else by the GPU. Read, not run."""
    said = environ.foreign(["CUBLAS_WORKSPACE_CONFIG"]).get("CUBLAS_WORKSPACE_CONFIG", "")
    if configured := _configured(said):
        return configured
    if any(gpu.compute_capability == "9.0" for gpu in base.gpus("nvidia")):
        return 32 * _MEBIBYTE
    if amd := base.gpus("amd"):
        return (128 if any(gpu.architecture.startswith("gfx94") for gpu in amd) else 32) * _MEBIBYTE
    return _configured(":4096:2:16:8")


def _configured(text: str) -> int:
    """The bytes of a text like ":4096:2:16:8": pairs of a size in KiB and a count; 0 if wrong."""
    words = text.split(":")[1:]
    if len(words) % 2 or not all(word.isdecimal() for word in words):
        return 0
    sizes = zip(words[::2], words[1::2], strict=True)
    return sum(int(size) * int(count) for size, count in sizes) * _KIBIBYTE


def _cublaslt() -> int:
    """PyTorch's default: CUBLASLT_WORKSPACE_SIZE in KiB, else 1 MiB, on ROCm 76. Read, not run."""
    said = environ.foreign(["CUBLASLT_WORKSPACE_SIZE"]).get("CUBLASLT_WORKSPACE_SIZE", "")
    if said.isdecimal():
        return int(said) * _KIBIBYTE
    return (76 if base.gpus("amd") else 1) * _MEBIBYTE
