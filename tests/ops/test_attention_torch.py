"""PyTorch's attention runs on our kernels, trains as before, and gets its own kernels back."""

from __future__ import annotations

import copy
import sys
import threading

import pytest

from backendcfg import _native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError, MissingLibraryError
from backendcfg.ops import serving
from backendcfg.ops.attention import torch_kernels as torch_attention
from backendcfg.schema.profile import defaults
from backendcfg.transact.compiled import Compiled

# Of the largest number: what the type of the tensors can say, and some roundings.
BOUNDS = {"float32": 3e-6, "float64": 1e-14, "bfloat16": 2e-2, "float16": 3e-3}
MASKS = {
    "none": lambda torch: {},
    "causal": lambda torch: {"is_causal": True},
    "bool": lambda torch: {"attn_mask": torch.ones(29, 41, dtype=torch.bool).tril(5)},
    "added": lambda torch: {"attn_mask": torch.linspace(-2, 2, 29 * 41).view(29, 41)},
    "each head": lambda torch: {"attn_mask": torch.linspace(-2, 2, 4 * 41).view(1, 4, 1, 41)},
    "scale": lambda torch: {"scale": -0.3},
}


@pytest.fixture(name="torch")
def _torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    yield torch
    assert torch_attention._library is None


def tensors(torch, dtype="float32", heads=4, groups=4):
    shapes = [(2, heads, 29, 16), (2, groups, 41, 16), (2, groups, 41, 16), (2, heads, 29, 16)]
    return [torch.randn(shape).to(getattr(torch, dtype)) for shape in shapes]


def trained(torch, arrays, **options):
    """The result and the gradients of query, key and value."""
    *given, grad_out = arrays
    given = [x.detach().clone().requires_grad_() for x in given]
    out = torch.nn.functional.scaled_dot_product_attention(*given, **options)
    return [out.detach(), *torch.autograd.grad(out, given, grad_out)]


def same(torch, found, others):
    return all(torch.equal(a, b) for a, b in zip(found, others, strict=True))


def calls(kernel=None):
    """How many forward passes our kernels, or one of them, have served."""
    return sum(
        count
        for (operation, provider, *_), count in serving.counted().items()
        if operation == "scaled_dot_product_attention" and kernel in (None, provider)
    )


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("kind", MASKS)
def test_results_and_gradients_are_those_of_pytorch(torch, dtype, kind):
    arrays, options = tensors(torch, dtype), MASKS[kind](torch)
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype != torch.bool:
        options["attn_mask"] = mask.to(arrays[0].dtype)
    theirs = trained(torch, arrays, **options)
    before = calls()
    with ops.serve_torch():
        ours = trained(torch, arrays, **options)
    assert calls() > before
    for one, expected in zip(ours, theirs, strict=True):
        assert one.dtype == expected.dtype
        assert one.stride() == expected.stride()
        most = expected.abs().max().item()
        torch.testing.assert_close(one, expected, rtol=0, atol=BOUNDS[dtype] * max(most, 1))


def test_groups_of_heads_share_their_gradients(torch):
    arrays = tensors(torch, heads=6, groups=2)
    theirs = trained(torch, arrays, enable_gqa=True)
    with ops.serve_torch():
        ours = trained(torch, arrays, enable_gqa=True)
    for one, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": True}])
def test_gradients_are_the_slopes_of_the_function(torch, options):
    if "attn_mask" in options:
        options = {"attn_mask": torch.tensor([[True, False, True], [True, True, False]])}
    shapes = [(1, 2, 2, 3), (1, 1, 3, 3), (1, 1, 3, 3)]
    arrays = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    with ops.serve_torch():
        assert torch.autograd.gradcheck(
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, enable_gqa=True, **options
            ),
            arrays,
        )


def test_undoing_gives_pytorch_its_bits_back(torch):
    arrays = tensors(torch)
    before = trained(torch, arrays)
    served = ops.serve_torch()
    ours = trained(torch, arrays)
    served.undo()
    served.undo()
    assert same(torch, trained(torch, arrays), before)
    assert not same(torch, ours, before)


def test_the_last_of_two_to_be_undone_gives_the_kernels_back(torch):
    arrays = tensors(torch)
    theirs = trained(torch, arrays)
    first = ops.serve_torch()
    with ops.serve_torch():
        ours = trained(torch, arrays)
        first.undo()
        assert same(torch, trained(torch, arrays), ours)
    assert same(torch, trained(torch, arrays), theirs)


def test_threads_do_not_change_the_bits(torch):
    arrays = [torch.randn(1, 4, 300, 32) for _ in range(4)]
    threads = torch.get_num_threads()
    found = []
    with ops.serve_torch():
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(trained(torch, arrays, is_causal=True))
    torch.set_num_threads(threads)
    assert same(torch, found[0], found[1])
    assert same(torch, found[0], found[2])


def test_an_encoder_layer_takes_the_same_steps(torch):
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    batch = torch.randn(3, 17, 32)

    def steps():
        model = copy.deepcopy(layer)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    theirs, before = steps(), calls()
    with ops.serve_torch():
        ours = steps()
    assert calls() == before + 3
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_multi_head_attention_gives_the_same_result(torch):
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 9, 32, requires_grad=True)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    with torch.no_grad():
        theirs = attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    with ops.serve_torch():
        ours = attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    torch.testing.assert_close(ours.detach(), theirs, rtol=1e-5, atol=1e-6)


def test_transforms_of_functions_work(torch):
    query, key, value, _ = tensors(torch)

    def loss(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).square().sum()

    expected = torch.func.grad(loss)(query, key, value)
    with ops.serve_torch():
        ours = torch.func.grad(loss)(query, key, value)
        each = torch.func.vmap(torch.func.grad(loss))(query, key, value)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-5)


def test_an_exported_program_runs_on_our_kernels(torch):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    arrays = tensors(torch)[:3]
    with ops.serve_torch():
        program = torch.export.export(Model(), tuple(arrays))
        before = calls()
        ours = program.module()(*arrays)
        assert calls() == before + 1
    torch.testing.assert_close(ours, Model()(*arrays), rtol=1e-5, atol=1e-6)


def test_compiled_code_trains_on_our_kernels(torch):
    def loss(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(2 * q, k, v, is_causal=True).sum()

    arrays = [x.requires_grad_() for x in tensors(torch)[:3]]
    expected = torch.autograd.grad(loss(*arrays), arrays)
    before = calls()
    with ops.serve_torch():
        compiled = torch.compile(loss, backend="aot_eager")
        found = torch.autograd.grad(compiled(*arrays), arrays)
    assert calls() > before
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_autocast_computes_in_bfloat16(torch):
    arrays = tensors(torch)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = trained(torch, [*arrays[:3], arrays[3].bfloat16()])
        with ops.serve_torch():
            ours = trained(torch, [*arrays[:3], arrays[3].bfloat16()])
    assert ours[0].dtype == torch.bfloat16
    for one, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=3e-2)


def under(**values):
    flags = {**defaults(), **{f"cuda.{name}": value for name, value in values.items()}}
    return Scope(Prepared("test", Compiled("test", "none", flags)), 0)


def test_the_profile_of_the_forward_pass_chooses_the_kernel(torch):
    arrays = tensors(torch)
    before = calls("efficient")
    with ops.serve_torch(), under(enable_flash_sdp=False):
        trained(torch, arrays)
    assert calls("efficient") == before + 1


def test_a_call_that_the_profile_leaves_to_nobody_stays_pytorchs(torch):
    arrays, off = tensors(torch)[:3], dict.fromkeys(("flash", "mem_efficient", "math"), False)
    attention = torch.nn.functional.scaled_dot_product_attention
    theirs = attention(*arrays)
    with ops.serve_torch(), under(**{f"enable_{name}_sdp": on for name, on in off.items()}):
        ours = attention(*arrays)
    assert torch.equal(ours, theirs)


def test_dropout_stays_pytorchs(torch):
    arrays = tensors(torch)
    torch.manual_seed(1)
    theirs = trained(torch, arrays, dropout_p=0.5)
    before = calls()
    with ops.serve_torch():
        torch.manual_seed(1)
        ours = trained(torch, arrays, dropout_p=0.5)
    assert calls() == before
    assert same(torch, ours, theirs)


def test_a_mask_that_wants_its_gradient_gets_it_from_pytorch(torch):
    arrays, before = tensors(torch), calls()
    mask = torch.randn(29, 41, requires_grad=True)
    with ops.serve_torch():
        trained(torch, arrays, attn_mask=mask)
        out = torch.nn.functional.scaled_dot_product_attention(*arrays[:3], attn_mask=mask)
        out.sum().backward()
    assert mask.grad is not None
    assert calls() == before


def test_backward_runs_in_another_thread_under_another_profile(torch):
    arrays = tensors(torch)
    with ops.serve_torch():
        expected = trained(torch, arrays)
        given = [x.detach().clone().requires_grad_() for x in arrays[:3]]
        with under(enable_flash_sdp=True):
            out = torch.nn.functional.scaled_dot_product_attention(*given)
        found = []

        def backward():
            with under(enable_flash_sdp=False):
                found.extend(torch.autograd.grad(out, given, arrays[3]))

        thread = threading.Thread(target=backward)
        thread.start()
        thread.join()
    assert same(torch, found, expected[1:])


def test_without_pytorch_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingLibraryError, match="serve_torch: PyTorch cannot be imported"):
        ops.serve_torch()


def test_an_old_pytorch_is_refused_before_anything_is_changed(torch, monkeypatch):
    monkeypatch.delattr(torch.library, "get_kernel")
    with pytest.raises(MissingLibraryError, match=r"serve_torch: PyTorch .* does not give its k"):
        ops.serve_torch()


def test_the_compiled_part_is_what_serves(torch):
    arrays = tensors(torch)
    before = sum(served for _, _, served in _native.kernel_isas())
    with ops.serve_torch():
        trained(torch, arrays)
    assert sum(served for _, _, served in _native.kernel_isas()) >= before + 2


def test_a_pass_that_went_forward_goes_backward_on_pytorch_s_kernel_after_undo(torch):
    query, key, value, _ = (x.requires_grad_() for x in tensors(torch))
    mask = torch.ones(29, 41, dtype=torch.bool)
    mask[3] = False  # a query that sees nothing
    with ops.serve_torch():
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    gradients = torch.autograd.grad(out.square().sum(), (query, key, value))
    assert all(each.isfinite().all() for each in gradients)


def test_a_backward_pass_is_traced(torch):
    query, key, value, _ = (x.requires_grad_() for x in tensors(torch))
    with ops.serve_torch(), ops.trace() as calls:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        # In this thread: autograd's own threads are in no block of this one.
        torch_attention._backward(
            None, out.detach(), query, key, value, out.detach(), torch.zeros(2, 4, 29), 0.0, False
        )
    assert [(call.operation, call.dtype) for call in calls] == [
        ("scaled_dot_product_attention", "float32"),
        ("scaled_dot_product_attention_backward", "float32"),
    ]


def test_what_is_not_finite_is_refused_under_pytorch_too(torch):
    query, key, value, _ = tensors(torch)
    query[0, 0, 0, 0] = float("nan")
    values = {**defaults(), "ops.check_finite": True}
    with (
        ops.serve_torch(),
        Scope(Prepared("p", Compiled("p", "none", values)), 0),
        pytest.raises(InvalidArgumentError, match=r"which `ops\.check_finite`"),
    ):
        torch.nn.functional.scaled_dot_product_attention(query, key, value)
