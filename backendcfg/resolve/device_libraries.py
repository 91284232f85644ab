"""The candidates for products and decompositions of device arrays, by who made the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.resolve.facts import VENDORS, is_older, visible_gpus

if TYPE_CHECKING:
    from backendcfg.schema.host import Host

TITLES = {
    "cublas": "cuBLAS",
    "cublaslt": "cuBLASLt",
    "cusolver": "cuSOLVER",
    "magma": "MAGMA",
    "hipblas": "hipBLAS",
    "hipblaslt": "hipBLASLt",
    "ck": "Composable Kernel",
    "aotriton": "AOTriton",
}

# PyTorch gives hipSOLVER under the name of cuSOLVER, so that one serves both.
_MADE_FOR = {
    "cublas": ("nvidia",),
    "cublaslt": ("nvidia",),
    "hipblas": ("amd",),
    "hipblaslt": ("amd",),
    "ck": ("amd",),
    "aotriton": ("amd",),
    "cusolver": ("nvidia", "amd"),
    "magma": ("nvidia", "amd"),
}

STAND_INS = {
    "cublas": "hipblas",
    "cublaslt": "hipblaslt",
    "hipblas": "cublas",
    "hipblaslt": "cublaslt",
}


def unusable(library: str, host: Host) -> tuple[str, ...]:
    """Why a library cannot serve device arrays here, every reason; empty when it can."""
    vendors = _MADE_FOR.get(library, ())
    reasons = []
    if vendors and not visible_gpus(host, *vendors):
        makers = " or ".join(VENDORS[vendor] for vendor in vendors)
        others = sorted({gpu.name for gpu in visible_gpus(host)})
        here = f"the GPU here is {', '.join(others)}" if others else "no GPU is visible here"
        reasons.append(f"{TITLES[library]} needs a GPU by {makers}; {here}")
    if library == "magma" and "torch" in host.packages and not is_older(host, "torch", "2.11"):
        reasons.append(
            f"PyTorch deprecated MAGMA in 2.11 and ignores it for several decompositions; "
            f"{host.packages['torch']} is here"
        )
    return tuple(reasons)
