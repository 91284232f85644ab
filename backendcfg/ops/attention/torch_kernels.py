"""PyTorch's attention on our kernels, forward and backward, by one line.

    serving = ops.serve_torch()      # or: with ops.serve_torch(): ...
    model(batch).sum().backward()
    serving.undo()

What is replaced are the two kernels that `torch.nn.functional.scaled_dot_product_attention` comes
down to on the CPU, below autograd, vmap, autocast and the compiler, so that all of these work as
they do with PyTorch's own. Which calls reach them is PyTorch's choice, as ever.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any, Self

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError, MissingLibraryError
from backendcfg.ops import serving
from backendcfg.ops.attention import calls, scaled_dot_product_attention

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"

_lock = threading.Lock()
_serving: set[TorchAttention] = set()
_library: Any = None
_theirs: dict[str, Any] = {}


class TorchAttention:
    """PyTorch's attention runs on our kernels until this is undone, or its `with` block ends."""

    def undo(self) -> None:
        """Give PyTorch its kernels back, once nobody else is served; twice does nothing."""
        global _library
        with _lock:
            if self in _serving:
                _serving.remove(self)
                if not _serving:
                    _library._destroy()
                    _library = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()


def serve_torch() -> TorchAttention:
    """Let `torch.nn.functional.scaled_dot_product_attention` run on our kernels on the CPU.

    It holds for the whole process, in every thread, with autograd, in float32, float64, bfloat16
    and float16, for the calls that PyTorch gives to its fused kernel: those without dropout and
    without a gradient of the mask. The kernel is chosen by the profile in force where the forward
    pass runs; a call that it leaves to nobody, and those that PyTorch computes by plain products,
    stay PyTorch's. The backward pass has one kernel, which needs no flag, so that it does not
    matter in which thread autograd runs it.

    Returns:
        What undoes it. Asking twice is fine: the last to be undone gives the kernels back.

    Raises:
        MissingLibraryError: PyTorch is not installed, or older than 2.9.
    """
    global _library
    torch = _torch()
    serving = TorchAttention()
    with _lock:
        if _library is None:
            made = torch.library.Library("aten", "IMPL")
            try:
                for name, kernel in ((FORWARD, _forward), (BACKWARD, _backward)):
                    _theirs[name] = torch.library.get_kernel(f"aten::{name}", "CPU")
                    with warnings.catch_warnings():
                        # That a kernel is replaced is what was asked for.
                        warnings.simplefilter("ignore")
                        made.impl(name, kernel, "CPU", with_keyset=True)
            except BaseException:
                made._destroy()
                raise
            _library = made
        _serving.add(serving)
    return serving


def why_not(torch: Any) -> str:
    """Why a PyTorch cannot be served, or ""."""
    if hasattr(torch.library, "get_kernel") and hasattr(torch.ops.aten, FORWARD):
        return ""
    return f"PyTorch {torch.__version__} does not give its kernels out"


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError(
            "serve_torch: PyTorch cannot be imported",
            notes=[str(error)],
            state="nothing was changed",
            helps=["install it: `pip install torch`"],
        ) from error
    if reason := why_not(torch):
        raise MissingLibraryError(
            f"serve_torch: {reason}",
            state="nothing was changed",
            helps=["PyTorch 2.9 or newer does: `pip install --upgrade torch`"],
        )
    return torch


def _forward(  # noqa: PLR0917 - PyTorch's
    keys: Any,
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any]:
    import torch

    try:
        out, logsumexp = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale,
            enable_gqa=query.shape[1] != key.shape[1],
            return_logsumexp=True,
        )
    except calls.NotFiniteError:
        raise
    except InvalidArgumentError:
        return _theirs[FORWARD].call_boxed(  # type: ignore[no-any-return]
            keys, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )
    # In memory as PyTorch's kernel has them, because compiled code counts on it.
    expected = torch.empty_like(query)
    if out.stride() != expected.stride():
        out = expected.copy_(out)
    # 0 where a query sees nothing, as PyTorch's kernel says: its backward may come after `undo`.
    logsumexp = logsumexp.masked_fill(logsumexp == float("-inf"), 0.0)
    return out, logsumexp.transpose(1, 2).contiguous().transpose(1, 2)


def _backward(  # noqa: PLR0917 - PyTorch's
    keys: Any,
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any, Any]:
    import torch

    if grad_out is None:  # nobody asked: no gradients, as PyTorch's kernel answers
        return None, None, None
    element = str(query.dtype).removeprefix("torch.")
    given = (query, key, value)
    if dropout_p or not _fits(torch, given, attn_mask, element):
        return _theirs[BACKWARD].call_boxed(  # type: ignore[no-any-return]
            keys,
            grad_out,
            *given,
            out,
            logsumexp,
            dropout_p,
            is_causal,
            attn_mask=attn_mask,
            scale=scale,
        )
    # As PyTorch's kernel lays them out in memory: (batch, length, heads, width).
    first, second, third = (
        torch.empty_permuted(x.shape, (0, 2, 1, 3), dtype=x.dtype) for x in given
    )
    mask = None
    if attn_mask is not None:
        mask = _array(attn_mask.expand(*query.shape[:3], key.shape[2]))
    factor: float = query.shape[3] ** -0.5 if scale is None else scale
    own = _array(query), _array(key), _array(value)
    into = _array(first), _array(second), _array(third)
    produced = _array(out), _array(logsumexp)
    _native.attention_backward(
        _array(grad_out), *own, mask, *produced, is_causal, factor, 0.0, 0, element, 0, into
    )
    serving.served(
        f"{calls.OPERATION}_backward",
        "flash",
        "the kernel of PyTorch's backward pass",
        (*query.shape[:3], key.shape[2], query.shape[3]),
        element,
    )
    return first, second, third


def _fits(torch: Any, given: tuple[Any, ...], mask: Any, element: str) -> bool:
    """Whether our backward pass takes a call; a mask may be bool, float32, or as the query."""
    query, key, value = given
    return (
        element in ("float32", "float64", "bfloat16", "float16")
        and query.dtype == key.dtype == value.dtype
        and query.ndim == key.ndim == value.ndim == 4
        and query.shape[3] > 0
        and key.shape[:2] == value.shape[:2]
        and key.shape[1] > 0
        and query.shape[1] % key.shape[1] == 0
        and (mask is None or mask.dtype in (torch.bool, torch.float32, query.dtype))
    )


def _array(tensor: Any) -> NDArray[Any]:
    """The tensor's memory; bfloat16, which NumPy lacks, as uint16."""
    import torch

    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()  # type: ignore[no-any-return]
