"""The candidates for products of CPU arrays: which are usable here, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.schema.host import Absent, Broken, Library

if TYPE_CHECKING:
    from backendcfg.schema.host import Host, LibraryKind

# BLIS before MKL: on processors that are not Intel's, MKL runs its AVX2 kernels at less than
# half the speed (measured on Zen 5), and where it is the better one a profile can prefer it.
ORDER = ("openblas", "scipy-openblas", "blis", "mkl", "native", "reference")

COMPILED_IN = ("native", "reference")
"""Those that are always there, and whose bits depend on neither threads, batch nor CPU."""

TITLES = {
    "openblas": "NumPy's OpenBLAS",
    "scipy-openblas": "SciPy's OpenBLAS",
    "blis": "BLIS",
    "mkl": "MKL",
    "native": "our own kernels",
    "reference": "the built-in reference",
}

# The copy that is most likely in the process already: a second copy of the same library brings a
# second pool of spinning threads.
_OWNERS = ("numpy", "scipy", "scipy-openblas64", "scipy-openblas32")

_KINDS: tuple[tuple[str, LibraryKind], ...] = (
    ("libmkl", "mkl"),
    ("libblis", "blis"),
    ("openblas", "openblas"),
)


def files(provider: str, host: Host, path: str = "") -> tuple[Library, ...]:
    """The library files that could serve as a provider, best first."""
    found = [
        library
        for library in host.libraries
        if library.provider == provider and library.owner != "torch"
    ]
    if path:
        return tuple(library for library in [at(path, host)] if library.provider == provider)
    ranks = {owner: rank for rank, owner in enumerate(_OWNERS)}
    return tuple(sorted(found, key=lambda one: ranks.get(one.owner, len(ranks))))


def at(path: str, host: Host) -> Library:
    """The file that `blas.path` names: as detected, else what its name says it is.

    Width, prefix and suffix stay empty when it was not detected: whoever opens it probes them.
    """
    for library in host.libraries:
        if library.path == path:
            provider = library.provider or _provider(library.kind)
            return library.model_copy(update={"provider": provider})
    name = path.rpartition("/")[2]
    kind: LibraryKind = next((kind for part, kind in _KINDS if part in name), "reference-blas")
    return Library(kind=kind, provider=_provider(kind), owner="path", path=path)


def _provider(kind: LibraryKind) -> str:
    return {"mkl": "mkl", "blis": "blis"}.get(kind, "openblas")


def unusable(provider: str, host: Host, path: str = "") -> tuple[str, ...]:
    """Why a provider cannot serve here, every reason; empty when it can."""
    if provider in COMPILED_IN:
        return ()
    if path and at(path, host).provider != provider:
        return ("`blas.path` names another library",)
    reasons = [] if path else _not_found(provider, host)
    if provider == "mkl" and not reasons:
        reasons = _mkl_hazards(host)
    return tuple(reasons)


def _not_found(provider: str, host: Host) -> list[str]:
    """Why there is no file of a provider: what is broken, else where was looked."""
    if files(provider, host):
        return []
    inside = any(one.kind == provider and one.owner == "torch" for one in host.libraries)
    if provider == "mkl" and inside:
        return ["the only MKL here is the one inside PyTorch, which serves PyTorch alone"]
    kind = "openblas" if provider.endswith("openblas") else provider
    probes = [probe for probe in host.probes if probe.probe == kind]
    broken = [
        f"{probe.path}: {probe.reason}" if probe.path else probe.reason
        for probe in probes
        if isinstance(probe, Broken) and _may_be(provider, probe.path)
    ]
    absent = [probe.reason for probe in probes if isinstance(probe, Absent)]
    return broken or absent[:1] or ["no file of it was found"]


def _may_be(provider: str, path: str) -> bool:
    """Whether a file could have been this provider's: SciPy's OpenBLAS lies in its directories."""
    directory = path.rpartition("/")[0]
    if not directory or provider in ("mkl", "blis"):
        return True
    return ("/scipy" in directory) == (provider == "scipy-openblas")


def _mkl_hazards(host: Host) -> list[str]:
    """What makes opening MKL wrong although its file is there."""
    reasons = []
    if "torch" in host.packages:
        reasons.append(
            "PyTorch is installed and carries another MKL; MKL opens its layers for the whole "
            "process, so an import of torch afterwards would bind its symbols to this version"
        )
    if host.environment.get("LD_BIND_NOW"):
        reasons.append("LD_BIND_NOW is set, under which MKL cannot load its own layers")
    return reasons
