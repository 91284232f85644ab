"""What the operations ask of devices; `backendcfg.ops.devices.gpu()` imports it.

Each function serves the operation of `backendcfg.ops` that it is named for, or answers `explain`.
"""

from __future__ import annotations

from backendcfg import _native
from backendcfg.gpu.attention.backward import attend
from backendcfg.gpu.attention.backward import backward as attend_backward
from backendcfg.gpu.attention.rules import choose_at as choose_attention
from backendcfg.gpu.convolution import convolve
from backendcfg.gpu.convolution import explain as explain_convolution
from backendcfg.gpu.einsum import contract
from backendcfg.gpu.einsum import explain as explain_einsum
from backendcfg.gpu.fft import explain as explain_transform
from backendcfg.gpu.fft import shifted, transform
from backendcfg.gpu.fft import take as take_signal
from backendcfg.gpu.linalg import call as linalg
from backendcfg.gpu.linalg.steps import explain as explain_linalg
from backendcfg.gpu.products import CALLBACKS
from backendcfg.gpu.products.recipes import explain as explain_product
from backendcfg.gpu.sparse import (
    explain_sparse,
    sparse_compress,
    sparse_matmul,
    sparse_search,
)

__all__ = [
    "CALLBACKS",
    "attend",
    "attend_backward",
    "bind",
    "choose_attention",
    "contract",
    "convolve",
    "explain_convolution",
    "explain_einsum",
    "explain_linalg",
    "explain_product",
    "explain_sparse",
    "explain_transform",
    "linalg",
    "shifted",
    "sparse_compress",
    "sparse_matmul",
    "sparse_search",
    "take_signal",
    "transform",
]


def bind() -> None:
    """Hand C what it asks of Python for products on devices."""
    _native.device_bind(**CALLBACKS)
