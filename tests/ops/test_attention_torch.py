"""PyTorch's attention runs on our kernels, trains as before, and gets its own kernels back."""

from __future__ import annotations

import copy
import sys
import threading

import pytest

from backendcfg import _native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import MissingLibraryError, NotFiniteError
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
    assert not torch_attention.REPLACED.is_on


@pytest.fixture(autouse=True)
def _small_calls_with_dropout_are_served(monkeypatch):
    monkeypatch.setattr(torch_attention, "FEW", 0)


def tensors(torch, dtype="float32", heads=4, groups=4):
    shapes = [(2, heads, 29, 16), (2, groups, 41, 16), (2, groups, 41, 16), (2, heads, 29, 16)]
    return [torch.randn(shape).to(getattr(torch, dtype)) for shape in shapes]


def trained(torch, arrays, **options):
    """The result and the gradients of query, key and value."""
    *given, grad_out = arrays
    given = [x.detach().clone().requires_grad_() for x in given]
    out = torch.nn.functional.scaled_dot_product_attention(*given, **options)
    return [out.detach(), *torch.autograd.grad(out, given, grad_out)]


def operators(torch):
    """The two of PyTorch that our kernels serve: forward and backward."""
    names = torch_attention.FORWARD, torch_attention.BACKWARD
    return [getattr(torch.ops.aten, name) for name in names]


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


def dropping(torch, seed, arrays, **options):
    """The result and the gradients of a pass with dropout, after the generator was set."""
    torch.manual_seed(seed)
    return trained(torch, arrays, dropout_p=0.25, **options)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("kind", MASKS)
def test_dropout_drops_what_pytorch_drops_and_leaves_its_generator_where_pytorch_does(
    torch, dtype, kind
):
    arrays, options, before = tensors(torch, dtype), MASKS[kind](torch), calls()
    if dtype == "float64" and kind in ("added", "each head"):
        options["attn_mask"] = options["attn_mask"].double()
    with ops.serve_torch():
        found = dropping(torch, 7, arrays, **options)
        next_of_ours = torch.rand(3)
    assert calls() == before + 1
    # Over equal weights and a value for each key, attention shows which weights are left.
    torch.manual_seed(7)
    left = torch.nn.functional.scaled_dot_product_attention(
        *(torch.zeros_like(x) for x in arrays[:2]),
        torch.eye(41).to(arrays[0].dtype).expand(2, 4, 41, 41),
        dropout_p=0.25,
    )
    assert torch.equal(next_of_ours, torch.rand(3))
    assert 0.2 < (left == 0).double().mean() < 0.3
    *given, grad_out = [x.double() for x in arrays]
    given = [x.requires_grad_() for x in given]
    mask = options.get("attn_mask", torch.zeros(()))
    if options.get("is_causal"):
        mask = torch.ones(29, 41, dtype=torch.bool).tril()
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    scores = given[0] @ given[1].mT * options.get("scale", 0.25) + mask.to(arrays[0].dtype).double()
    out = (scores.softmax(-1) * (left != 0) / 0.75) @ given[2]
    wanted = [out, *torch.autograd.grad(out, given, grad_out)]
    for mine, other in zip(found, wanted, strict=True):
        largest = other.abs().max()
        assert (mine.double() - other).abs().max() <= BOUNDS[dtype] * largest * 1.5


def test_dropout_follows_from_the_generator_alone(torch):
    arrays = tensors(torch)
    with ops.serve_torch():
        first, again, other = (dropping(torch, seed, arrays) for seed in (1, 1, 2))
        with torch.no_grad():
            torch.manual_seed(1)
            unrecorded = torch.nn.functional.scaled_dot_product_attention(
                *arrays[:3], dropout_p=0.25
            )
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            alone = dropping(torch, 1, arrays)
        finally:
            torch.set_num_threads(threads)
    assert same(torch, first, again)
    assert same(torch, first, alone)
    assert torch.equal(first[0], unrecorded)
    assert not torch.equal(first[0], other[0])


def test_a_checkpoint_drops_the_same_again(torch):
    attention = torch.nn.functional.scaled_dot_product_attention
    *given, grad_out = tensors(torch)
    with ops.serve_torch():
        wanted = dropping(torch, 3, (*given, grad_out))[1:]
        for reentrant in (False, True):
            leaves = [x.clone().requires_grad_() for x in given]
            torch.manual_seed(3)
            torch.utils.checkpoint.checkpoint(
                lambda *x: attention(*x, dropout_p=0.25), *leaves, use_reentrant=reentrant
            ).backward(grad_out)
            assert same(torch, [x.grad for x in leaves], wanted)


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"enable_gqa": True, "scale": -0.5}, {"attn_mask": "blind"}],
    ids=str,
)
def test_gradients_of_dropout_have_gradients(torch, options):
    def attend(*given):
        torch.manual_seed(5)
        return torch.nn.functional.scaled_dot_product_attention(*given, dropout_p=0.3, **options)

    if "attn_mask" in options:
        mask = torch.rand(3, 4, dtype=torch.float64)
        mask[2] = float("-inf")  # this query sees nothing
        options = {"attn_mask": mask}
    heads = 1 if "enable_gqa" in options else 2
    shapes = (1, 2, 3, 2), (1, heads, 4, 2), (1, heads, 4, 2)
    given = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    with ops.serve_torch():
        assert torch.autograd.gradcheck(attend, given)
        assert torch.autograd.gradgradcheck(attend, given)
        given[1].requires_grad_(False)
        assert torch.autograd.gradgradcheck(attend, given)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_gradients_of_dropout_have_gradients_where_a_key_is_computed_from_the_query(torch, dtype):
    def both():
        x = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(2))
        x = x.to(getattr(torch, dtype)).requires_grad_()
        torch.manual_seed(5)
        out = torch.nn.functional.scaled_dot_product_attention(x, x, 2 * x, dropout_p=0.3)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return first, second

    theirs, before = both(), calls()
    with ops.serve_torch():
        ours = both()
    assert calls() > before
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            mine, other, rtol=1e-2 if dtype == "float16" else 1e-10, atol=1e-3
        )


def changed_in_place(torch, out, query):
    out += query.detach()
    return torch.autograd.grad(out.sum(), query)


def many_at_once(torch, out, query):
    gradients = torch.stack([torch.ones_like(out), out.detach()])
    return torch.autograd.grad(out, query, gradients, is_grads_batched=True)


AFTERWARDS = {
    "changed in place": changed_in_place,
    "many gradients at once": many_at_once,
    "a negative gradient": lambda torch, out, query: torch.autograd.grad(
        out, query, torch.complex(out.detach(), out.detach()).conj().imag
    ),
    "no gradient": lambda torch, out, query: torch.autograd.grad(
        out, query, torch._efficientzerotensor(out.shape)
    ),
}


@pytest.mark.parametrize("kind", AFTERWARDS)
def test_what_a_program_does_with_a_result_of_dropout_is_what_it_does_with_pytorch_s(torch, kind):
    def computed():
        query = tensors(torch)[0].clone().requires_grad_()
        torch.manual_seed(1)
        out = torch.nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=0.5)
        return AFTERWARDS[kind](torch, out, query)[0]

    torch.manual_seed(0)
    theirs, before = computed(), calls()
    torch.manual_seed(0)
    with ops.serve_torch():
        ours = computed()
    assert calls() > before
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hidden", [-1e4, -1e9, -3.4028234663852886e38], ids=str)
def test_gradients_of_a_query_whose_keys_are_all_hidden_by_a_number_are_pytorch_s(torch, hidden):
    """Its weights are equal ones, which no float32 of that size can tell."""

    def computed():
        given = [x.clone().requires_grad_() for x in arrays[:3]]
        torch.manual_seed(1)
        out = torch.nn.functional.scaled_dot_product_attention(
            *given, attn_mask=mask, dropout_p=0.5
        )
        return [out.detach(), *torch.autograd.grad(out, given, arrays[3])]

    arrays, mask = tensors(torch), torch.zeros(29, 41)
    mask[3:5] = hidden
    theirs, before = computed(), calls()
    with ops.serve_torch():
        ours = computed()
    assert calls() > before
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def by_products(torch, attend, query):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return attend(query)


def forward_mode(torch, attend, query):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, torch.ones_like(query))
        return torch.autograd.forward_ad.unpack_dual(attend(dual)).tangent


def few(attend, query):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_attention, "FEW", 2 * 4 * 29 * 29 + 1)
        return attend(query)


def unrecorded(torch):
    with torch.inference_mode():
        return torch.ones(29, 29)


def failed(torch, call):
    """The words of an error, and what is drawn after it."""
    try:
        call()
    except RuntimeError as error:
        words = str(error).splitlines()[0]
    else:
        words = ""
    return torch.tensor([*words.encode(), int(torch.randint(1000, ()))])


OTHERS = {
    "few weights": lambda torch, attend, query: few(attend, query),
    "products are asked for": by_products,
    "a gradient of functions": lambda torch, attend, query: torch.func.grad(
        lambda x: attend(x).square().sum()
    )(query),
    "each sample": lambda torch, attend, query: torch.func.vmap(attend, randomness="same")(
        query[None]
    ),
    "a forward gradient": forward_mode,
    "compiled": lambda torch, attend, query: torch.compile(attend, backend="aot_eager")(query),
    "a mask's gradient": lambda torch, attend, query: attend(
        query, attn_mask=torch.zeros(29, 29, requires_grad=True)
    ).detach(),
    "three dimensions": lambda torch, attend, query: attend(query[0]),
    "always": lambda torch, attend, query: attend(query, dropout_p=1.0),
    "nothing": lambda torch, attend, query: attend(query[:0]),
    "the other sign": lambda torch, attend, query: attend(torch.complex(query, query).conj().imag),
    "a mask of inference": lambda torch, attend, query: attend(query, attn_mask=unrecorded(torch)),
    "a mask beside is_causal": lambda torch, attend, query: failed(
        torch, lambda: attend(query, attn_mask=torch.ones(29, 29), is_causal=True)
    ),
    "a mask of other sizes": lambda torch, attend, query: failed(
        torch, lambda: attend(query, attn_mask=torch.ones(7, 11))
    ),
    "a mask of five dimensions": lambda torch, attend, query: failed(
        torch, lambda: attend(query, attn_mask=torch.ones(1, 1, 1, 29, 29))
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_dropout_stays_pytorchs_where_our_kernels_cannot_compute_it(torch, kind):
    def attend(x, **options):
        options = {"dropout_p": 0.5, **options}
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, **options)

    def computed():
        torch.manual_seed(1)
        return OTHERS[kind](torch, attend, query)

    query, before = tensors(torch)[0], calls()
    theirs = computed()
    with ops.serve_torch():
        ours = computed()
    assert calls() == before
    assert torch.equal(ours, theirs)


def test_dropout_that_the_profile_leaves_to_nobody_is_pytorch_s_to_the_bit(torch):
    arrays = tensors(torch)
    theirs = dropping(torch, 1, arrays)
    off = dict.fromkeys(("flash", "mem_efficient", "math"), False)
    with ops.serve_torch(), under(**{f"enable_{name}_sdp": on for name, on in off.items()}):
        ours = dropping(torch, 1, arrays)
    assert same(torch, ours, theirs)


def test_dropout_is_pytorch_s_again_after_undo_and_what_went_forward_goes_backward(torch):
    arrays = tensors(torch)
    theirs = dropping(torch, 1, arrays)
    leaves = [x.clone().requires_grad_() for x in arrays[:3]]
    with ops.serve_torch():
        wanted = dropping(torch, 1, arrays)
        torch.manual_seed(1)
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, dropout_p=0.25)
    out.backward(arrays[3])
    assert same(torch, [x.grad for x in leaves], wanted[1:])
    assert same(torch, dropping(torch, 1, arrays), theirs)


def test_a_model_trains_with_dropout_on_our_kernels(torch):
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    before = calls("flash")
    with ops.serve_torch(), torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.randn(2, 19, 32)).float().square().mean().backward()
    assert calls("flash") == before + 1
    assert all(x.grad.isfinite().all() for x in layer.parameters())


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
        operators(torch)[1](
            out.detach(), query, key, value, out.detach(), torch.zeros(2, 4, 29), 0.0, False
        )
    sizes = (2, 4, 29, 41, 16)
    first, second = (
        "first in the order flash, efficient, math",
        "the kernel of PyTorch's backward pass",
    )
    assert [tuple(getattr(call, name) for name in call.__slots__) for call in calls] == [
        ("scaled_dot_product_attention", sizes, "float32", "flash", first),
        ("scaled_dot_product_attention_backward", sizes, "float32", "flash", second),
    ]


CHECKED = """\
scaled_dot_product_attention: the result has NaN or infinity, which `ops.check_finite` refuses
  state: nothing was returned
  help: look for NaN, infinity or overflow in the operands, or turn it off"""


def test_what_is_not_finite_is_refused_under_pytorch_too(torch):
    query, key, value, _ = tensors(torch)
    checked = Prepared("p", Compiled("p", "none", {**defaults(), "ops.check_finite": True}))
    attention = torch.nn.functional.scaled_dot_product_attention
    with ops.serve_torch(), Scope(checked, 0):
        assert attention(query, key, value).isfinite().all()
        query[0, 0, 0, 0] = float("nan")
        with pytest.raises(RuntimeError) as refused:
            attention(query, key, value)
        with pytest.raises(NotFiniteError) as dropped:
            attention(query, key, value, dropout_p=0.5)
    assert str(refused.value) == CHECKED
    assert str(dropped.value) == CHECKED.splitlines()[0]


LAYOUTS = {
    "dense": lambda torch: torch.randn(3, 2, 4, 12, 16),
    "heads behind lengths": lambda torch: torch.randn(3, 2, 12, 4, 16).transpose(2, 3),
    "one matrix of all three": lambda torch: torch.randn(2, 12, 3, 4, 16).permute(2, 0, 3, 1, 4),
    "batches behind lengths": lambda torch: torch.randn(3, 12, 2, 4, 16).permute(0, 2, 3, 1, 4),
    "one batch for all": lambda torch: torch.randn(3, 1, 4, 12, 16).expand(3, 2, 4, 12, 16),
    "one head for all": lambda torch: torch.randn(3, 2, 1, 12, 16).expand(3, 2, 4, 12, 16),
    "every second row": lambda torch: torch.randn(3, 2, 4, 24, 16)[..., ::2, :],
    "a part of the width": lambda torch: torch.randn(3, 2, 4, 12, 20)[..., 3:19],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", BOUNDS)
def test_results_lie_in_memory_as_those_of_pytorch(torch, dtype, layout):
    """Compiled code counts on it."""
    given = LAYOUTS[layout](torch).to(getattr(torch, dtype))
    assert given.shape == (3, 2, 4, 12, 16)
    forward, backward = operators(torch)
    theirs = forward(*given)
    gradients = backward(given[1], *given, *theirs, 0.0, False)
    with ops.serve_torch():
        ours = forward(*given)
        mine = backward(given[1], *given, *theirs, 0.0, False)
    assert not torch.equal(ours[0], theirs[0]) or dtype in ("bfloat16", "float16")
    for one, expected in zip((*ours, *mine), (*theirs, *gradients), strict=True):
        assert (one.dtype, one.stride()) == (expected.dtype, expected.stride())
        assert one.device == expected.device
        most = expected.abs().max().item()
        torch.testing.assert_close(one, expected, rtol=0, atol=BOUNDS[dtype] * max(most, 1))


@pytest.mark.parametrize(
    "shape", [(29, 41), (1, 1, 29, 41), (2, 1, 1, 41), (2, 4, 29, 1), (1, 4, 1, 41)]
)
def test_masks_of_every_shape_are_those_of_pytorch(torch, shape):
    *given, _ = tensors(torch)
    attention = torch.nn.functional.scaled_dot_product_attention
    for mask in (torch.rand(shape) > 0.3, torch.randn(shape)):
        theirs, before = attention(*given, attn_mask=mask), calls()
        with ops.serve_torch():
            ours = attention(*given, attn_mask=mask)
        assert calls() == before + 1
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def wrong_calls(torch):
    """Calls of the operators that PyTorch's kernels refuse, and one where nothing is to be done."""
    x, mask = torch.randn(1, 2, 3, 4), torch.ones(3, 3, dtype=torch.int64)
    forward, backward = operators(torch)
    passed = (x, x, x, *forward(x, x, x))
    return {
        "dropout": lambda: forward(x, x, x, 0.5),
        "three dimensions": lambda: forward(x[0], x[0], x[0]),
        "other types": lambda: forward(x, x.double(), x),
        "integers": lambda: forward(x.int(), x.int(), x.int()),
        "another width": lambda: forward(x, x[..., :2], x),
        "a mask of integers": lambda: forward(x, x, x, attn_mask=mask),
        "another logsumexp": lambda: backward(x, *passed[:4], passed[4].double(), 0.0, False),
        "no gradient": lambda: backward(None, *passed, 0.0, False),
    }


def outcomes(torch):
    found = {}
    for kind, call in wrong_calls(torch).items():
        try:
            found[kind] = call()
        except RuntimeError as error:
            found[kind] = str(error)
    return found


def test_what_pytorch_s_kernels_refuse_they_refuse_in_their_own_words(torch):
    theirs = outcomes(torch)
    with ops.serve_torch():
        assert outcomes(torch) == theirs
    assert theirs.pop("no gradient") == (None, None, None)
    assert all(isinstance(text, str) for text in theirs.values())


@pytest.mark.parametrize("empty", ["queries", "keys", "batches"])
def test_nothing_to_attend_to_gives_zeros(torch, empty):
    """PyTorch's kernel ends the process where there are no queries or no keys."""
    query = key = torch.randn(2, 3, 5, 4)
    if empty == "queries":
        query = query[:, :, :0]
    elif empty == "keys":
        key = key[:, :, :0]
    else:
        query = key = key[:0]
    forward, backward = operators(torch)
    with ops.serve_torch():
        out, logsumexp = forward(query, key, key)
        gradients = backward(out, query, key, key, out, logsumexp, 0.0, False)
    assert [x.shape for x in (out, *gradients)] == [x.shape for x in (query, query, key, key)]
    assert logsumexp.shape == query.shape[:3]
    assert not any(x.count_nonzero() for x in (out, logsumexp, *gradients))


def test_a_call_for_which_the_profile_wants_plain_products_stays_pytorchs(torch):
    arrays, before = tensors(torch)[:3], calls()
    attention = torch.nn.functional.scaled_dot_product_attention
    theirs = attention(*arrays)
    with ops.serve_torch(), under(enable_flash_sdp=False, enable_mem_efficient_sdp=False):
        ours = attention(*arrays)
    assert torch.equal(ours, theirs)
    assert calls() == before


@pytest.fixture(name="unchosen")
def _unchosen():
    """`unchosen(choose)`: how forward passes are served is asked of this function."""
    before = {}

    def replace(choose):
        before.update(_native.bind(attention_choice=choose))

    yield replace
    _native.bind(**before)


def test_a_call_is_pytorch_s_where_nobody_can_say_which_kernel_serves_it(
    torch, unchosen, monkeypatch
):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: told.append(repr(found.exc_value)))
    arrays, before = tensors(torch)[:3], calls()
    attention = torch.nn.functional.scaled_dot_product_attention
    theirs = attention(*arrays)

    def broken():
        raise KeyError("broken")

    for choose in (broken, lambda: ("flash", 1, "")):
        unchosen(choose)
        with ops.serve_torch(), under():
            assert torch.equal(attention(*arrays), theirs)
    assert calls() == before
    assert told == ["KeyError('broken')", "TypeError('argument 2 must be str, not int')"]


def test_ctrl_c_in_the_choice_of_a_kernel_comes_after_the_call(torch, unchosen):
    arrays, before = tensors(torch)[:3], calls()

    def interrupted():
        raise KeyboardInterrupt

    def call():
        torch.nn.functional.scaled_dot_product_attention(*arrays)
        for _ in range(1000):  # what is pending is raised between two instructions
            pass

    unchosen(interrupted)
    with ops.serve_torch(), under(), pytest.raises(KeyboardInterrupt):
        call()
    assert calls() == before


def test_a_profile_is_asked_once_how_it_serves(torch, unchosen):
    arrays, asked = tensors(torch)[:3], []
    attention = torch.nn.functional.scaled_dot_product_attention

    def choose():
        asked.append(1)
        return ("efficient", "because", "")

    unchosen(choose)
    before = calls("efficient")
    scope = under()
    with ops.serve_torch():
        for _ in range(3):
            with scope:
                attention(*arrays)
    assert (len(asked), calls("efficient") - before) == (1, 3)
