"""PyTorch's attention on our kernels, forward and backward, by one line.

    serving = ops.serve_torch()      # or: with ops.serve_torch(): ...
    model(batch).sum().backward()
    serving.undo()

What is replaced are the two kernels that `torch.nn.functional.scaled_dot_product_attention` comes
down to on the CPU, below autograd, vmap, autocast and the compiler, so that all of these work as
they do with PyTorch's own. Which calls reach them is PyTorch's choice, as ever. Ours are in C
(`native/src/python/torch_attention.c`), and ask Python once for each profile.

PyTorch's fused kernel has no dropout, so calls with dropout come down to plain products: a third
operator, which is replaced where autograd records, by Python. Which weights are kept is drawn as
PyTorch draws it, so the same ones are. The backward pass needs to know them, for which PyTorch's
operator has no place, so it is a function of autograd's own kind. What traces or transforms a
program cannot look into such a function and gets PyTorch's operator.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np

from backendcfg import _native
from backendcfg.cache import ProfileCache
from backendcfg.dispatch import attention
from backendcfg.dispatch.array_facts import dense_facts
from backendcfg.dispatch.attention_facts import Call
from backendcfg.errors import MissingLibraryError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import serving, torch_library
from backendcfg.ops.attention import calls
from backendcfg.ops.torch_library import array, tensor_of

FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"
PLAIN = "_scaled_dot_product_attention_math"
"""The operator of plain products, which PyTorch calls where no fused kernel can serve."""

FEW = 1 << 14
"""Calls with dropout and fewer weights stay PyTorch's: ours, made by Python, are slower there."""

COARSE = 1 << 10
"""A logsumexp of this size is rounded by 2^-14 in float32, and weights that are made of it with it.
Masks of -1e9 lead to such ones; plain products need none."""


class _Options(NamedTuple):
    """What a call was asked for, for its backward pass.

    Attributes:
        mask: bool, or added to the scores; or None.
        is_causal: whether query i sees keys 0 to i alone.
        scale: of the scores.
        dropout_p: the probability that a weight is dropped.
        kept: uint8 (batch, heads, queries, keys), 1 for each weight that is kept.
    """

    mask: Any
    is_causal: bool
    scale: float
    dropout_p: float
    kept: Any


class TorchAttention:
    """PyTorch's attention runs on our kernels until this is undone, or its `with` block ends."""

    def undo(self) -> None:
        """Give PyTorch its kernels back, once nobody else is served; twice does nothing."""
        REPLACED.give_back(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()


def serve_torch() -> TorchAttention:
    """Let `torch.nn.functional.scaled_dot_product_attention` run on our kernels on the CPU.

    It holds for the whole process, in every thread, with autograd, in float32, float64, bfloat16
    and float16, for the calls that PyTorch gives to its fused kernel, and for those with dropout;
    not for a gradient of the mask. What is dropped is what PyTorch would drop after the same
    `torch.manual_seed`. The kernel is chosen by the profile in force where the forward pass runs:
    `flash` or `efficient`. A call for which it has neither stays PyTorch's, and so does one that
    PyTorch computes by plain products. The backward pass has one kernel, which needs no flag, so
    that it does not matter in which thread autograd runs it.

    What `ops.check_finite` refuses is a `RuntimeError` there, as every error of PyTorch's kernels
    is, and a `NotFiniteError` in a call with dropout.

    Returns:
        What undoes it. Asking twice is fine: the last to be undone gives the kernels back.

    Raises:
        MissingLibraryError: PyTorch is not installed, or older than 2.9.
    """
    torch = _torch()
    serving = TorchAttention()
    REPLACED.serve(torch, serving)
    return serving


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
    if reason := REPLACED.why_not(torch):
        raise MissingLibraryError(
            f"serve_torch: {reason}",
            state="nothing was changed",
            helps=["PyTorch 2.9 or newer does: `pip install --upgrade torch`"],
        )
    return torch


def _choice() -> tuple[str, str, str]:
    """How the forward passes that PyTorch calls are served: asked once for each profile, by C too.

    Returns:
        The kernel, "" for none; why that one; and the words that refuse a result that is not
        finite, "" where it may be so.
    """
    flags = FlagsInForce()
    plain = dense_facts((1, 1, 1, 1), "float32")  # of these, only flags decide
    choice = attention.choose(Call(plain, plain, plain, None), flags.values)
    refusal = ""
    if flags["ops.check_finite"]:
        error = calls.not_finite(calls.OPERATION)
        refusal = "\n".join((str(error), *error.__notes__))
    return choice.kernel, choice.because, refusal


_native.bind(attention_choice=_choice)

_choices: ProfileCache[str, tuple[str, str, str]] = ProfileCache(8)
"""What was chosen for calls with dropout, by profile."""


def _gradients(
    grad_out: Any,
    given: tuple[Any, Any, Any],
    results: tuple[Any, Any],
    options: _Options,
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value, by our kernel; `results` are out and logsumexp."""
    query, key, value = given
    element = _element(query)
    own = array(query), array(key), array(value)
    made: Any = tuple(np.empty(x.shape, x.dtype) for x in own)  # dense, as products give them
    produced = array(results[0]), array(results[1])
    _native.attention_backward(
        *(array(grad_out), *own, _mask(given, options), *produced, options.is_causal),
        *(options.scale, options.dropout_p, array(options.kept), element, 0),
        made,
    )
    serving.served(
        f"{calls.OPERATION}_backward",
        "flash",
        "the kernel of PyTorch's backward pass",
        (*_scores(query, key), query.shape[3]),
        element,
    )
    first, second, third = (tensor_of(each, query.dtype) for each in made)
    return first, second, third


def _result(given: tuple[Any, Any, Any], options: _Options, choice: tuple[str, str, str]) -> Any:
    """The result by the kernel that was chosen, and its logsumexp: not rounded to 16 bits."""
    import torch

    kernel, because, refusal = choice
    query, key, value = given
    element = _element(query)
    own = array(query), array(key), array(value)
    out, logsumexp = _native.attention(
        *(kernel, *own, _mask(given, options), options.is_causal, options.scale),
        *(options.dropout_p, array(options.kept), element, 0),
    )
    sizes = (*_scores(query, key), query.shape[3])
    serving.served(calls.OPERATION, kernel, because, sizes, element)
    if refusal and not np.isfinite(out).all():
        raise calls.not_finite(calls.OPERATION)
    return torch.from_numpy(out), torch.from_numpy(logsumexp)


def _scores(query: Any, key: Any) -> tuple[int, ...]:
    """The shape of scores and weights."""
    return *query.shape[:3], key.shape[2]


def _mask(given: tuple[Any, Any, Any], options: _Options) -> Any:
    """The mask for our kernels, which take one of the scores' shape; or None."""
    return None if options.mask is None else array(options.mask.expand(_scores(*given[:2])))


def _plain(  # noqa: PLR0917 - PyTorch's
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """(result, weights); where ours serves, the weights are empty: attention does not read them."""
    import torch

    if 0 < dropout_p < 1 and dropout_mask is None:
        given = query, key, value, attn_mask
        if _is_eager(torch, given) and _drops(
            torch, given, is_causal=is_causal, enable_gqa=enable_gqa
        ):
            choice = _choices.find(calls.OPERATION, _choice)
            if choice[0] in ("flash", "efficient"):
                scale = query.shape[3] ** -0.5 if scale is None else scale
                kept = _drawn(torch, query, key, dropout_p)
                options = _Options(attn_mask, is_causal, scale, float(dropout_p), kept)
                out = _dropped(torch).apply(query, key, value, options, choice)
                return out, query.new_empty(0)
    return NotImplemented


def _drawn(torch: Any, query: Any, key: Any, dropout_p: float) -> Any:
    """1 for each weight that PyTorch would keep: it draws for the weights as they lie in memory.

    It draws other numbers for float64 than for all others where it is built to draw by MKL.
    """
    dtype = torch.float64 if query.dtype is torch.float64 else torch.uint8
    weights = query.new_empty(_scores(query, key), dtype=dtype)
    return weights.bernoulli_(1 - dropout_p).to(torch.uint8)


def _is_eager(torch: Any, given: tuple[Any, ...]) -> bool:
    """Whether a call only computes, and autograd at most records it."""
    return (
        all(each is None or _is_plain(torch, each) for each in given)
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch.autograd.forward_ad._current_level < 0
    )


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether what a tensor holds is what lies in its memory."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and not tensor.is_inference()  # which cannot be kept for the backward pass
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def _drops(torch: Any, given: tuple[Any, ...], *, is_causal: bool, enable_gqa: bool) -> bool:
    """Whether our kernels take a call with dropout."""
    query, key, value, mask = given
    return (
        _fits(torch, (query, key, value), mask, _element(query))
        and prod(_scores(query, key)) >= FEW
        and min(key.numel(), value.numel()) > 0
        and (query.shape[0], query.shape[3]) == (key.shape[0], key.shape[3])
        and key.shape[2] == value.shape[2]
        and (enable_gqa or query.shape[1] == key.shape[1])
        and (mask is None or (not is_causal and _hides(mask, _scores(query, key))))
        # Who turned both off, as `sdpa_kernel(SDPBackend.MATH)` does, wants plain products.
        and (torch._C._get_flash_sdp_enabled() or torch._C._get_mem_efficient_sdp_enabled())
    )


def _hides(mask: Any, scores: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to scores of that shape, and needs no gradient."""
    return (
        not mask.requires_grad
        and mask.ndim <= len(scores)
        and all(own in (1, size) for own, size in zip(mask.shape[::-1], scores[::-1], strict=False))
    )


def _element(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@functools.cache
def _dropped(torch: Any) -> Any:
    """What autograd records of attention with dropout, of PyTorch's own kind."""
    functorch = torch._C._functorch

    class DroppedAttention(torch.autograd.Function):  # type: ignore[misc]
        """Attention with dropout by our kernels, forward and backward."""

        @staticmethod
        def forward(  # noqa: PLR0917 - autograd's
            context: Any, query: Any, key: Any, value: Any, options: _Options, choice: Any
        ) -> Any:
            given = query, key, value
            out, logsumexp = _result(given, options, choice)
            context.save_for_backward(*given, options.mask, options.kept, out, logsumexp)
            context.options = options._replace(mask=None, kept=None)
            return out.to(query.dtype, copy=True)  # the program may change its own

        @staticmethod
        def backward(context: Any, grad_out: Any) -> tuple[Any, ...]:
            query, key, value, mask, kept, *results = context.saved_tensors
            given = query, key, value
            options = context.options._replace(mask=mask, kept=kept)
            batched = functorch.is_batchedtensor, functorch.is_legacy_batchedtensor
            if (
                torch.is_grad_enabled()  # gradients of gradients are wanted
                or any(is_batched(grad_out) for is_batched in batched)  # many gradients at once
                or (mask is not None and mask.dtype != torch.bool and _is_coarse(results[1]))
            ):
                found = _by_products(grad_out, given, options, context.needs_input_grad[:3])
            else:
                if not _is_plain(torch, grad_out):
                    grad_out = torch.zeros_like(results[0], dtype=query.dtype) + grad_out
                found = _gradients(grad_out, given, tuple(results), options)
            return *found, None, None

    return DroppedAttention


def _is_coarse(logsumexp: Any) -> bool:
    return bool(((logsumexp.abs() >= COARSE) & logsumexp.isfinite()).any())


def _by_products(
    grad_out: Any,
    given: tuple[Any, Any, Any],
    options: _Options,
    wanted: tuple[bool, ...],
) -> tuple[Any, ...]:
    """The gradients as PyTorch's own operations, which have gradients; all scores are in memory."""
    import torch

    with torch.enable_grad():
        # Tensors of its own: if one was computed from another, only the last step is wanted here.
        own = tuple(each.view_as(each) for each in given)
        # As PyTorch computes it, not in 16 bits.
        work = torch.float64 if own[0].dtype is torch.float64 else torch.float32
        query, key, value = (each.to(work) for each in own)
        mask, queries, keys = options.mask, query.shape[2], key.shape[2]
        shared = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(shared, 1) for each in (key, value))
        scores = query @ key.mT * options.scale
        if options.is_causal:
            mask = query.new_ones((queries, keys), dtype=torch.bool).tril()
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores + mask
        # The result of a query that sees nothing is 0.
        blind = scores.isneginf().all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
        out = (weights * options.kept / (1 - options.dropout_p)) @ value
    needed = [each for each, is_wanted in zip(own, wanted, strict=True) if is_wanted]
    found = iter(
        torch.autograd.grad(out, needed, grad_out.to(work), create_graph=torch.is_grad_enabled())
    )
    return tuple(next(found) if is_wanted else None for is_wanted in wanted)


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


REPLACED = torch_library.Replaced(
    [torch_library.Kernel(PLAIN, _plain, "AutogradCPU")],
    torch_library.KernelsInC(
        (FORWARD, BACKWARD),
        _native.torch_lacks,
        _native.serve_torch_attention,
        _native.restore_torch_attention,
    ),
)
"""PyTorch's attention on the CPU."""
