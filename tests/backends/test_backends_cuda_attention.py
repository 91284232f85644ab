"""Attention in `backends.cuda`: switches, scopes, and which kernel could serve a call."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from backendcfg.backends import base, cuda
from backendcfg.backends.base import read
from backendcfg.backends.cuda import SDPBackend
from backendcfg.errors import (
    ConflictingFlagsError,
    InvalidArgumentError,
    UnknownAttributeError,
    WrongTypeError,
)
from backendcfg.schema.host import Gpu

PAIRS = {
    "flash": (cuda.enable_flash_sdp, cuda.flash_sdp_enabled),
    "mem_efficient": (cuda.enable_mem_efficient_sdp, cuda.mem_efficient_sdp_enabled),
    "math": (cuda.enable_math_sdp, cuda.math_sdp_enabled),
    "cudnn": (cuda.enable_cudnn_sdp, cuda.cudnn_sdp_enabled),
}
QUERIES = {
    "flash": cuda.can_use_flash_attention,
    "efficient": cuda.can_use_efficient_attention,
    "cudnn": cuda.can_use_cudnn_attention,
}


def enabled():
    return [name for name, (_, is_enabled) in PAIRS.items() if is_enabled()]


def params(dtype=np.float16, width=8, mask=None, dropout=0.0, causal=False):
    array = np.zeros((2, 3, 4, width), dtype)
    return cuda.SDPAParams(array, array, array, mask, dropout, causal, False)


def told(function, made):
    """What is answered, and what is warned of, with `debug=True`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = function(made, debug=True)
    assert all(each.filename == __file__ for each in caught)
    assert all(each.category is UserWarning for each in caught)
    return answer, [str(each.message) for each in caught]


@pytest.fixture(name="h200")
def _h200(monkeypatch):
    """A PyTorch that brings every kernel, and an H200: facts, read and not run."""
    calls = SimpleNamespace(
        _is_flash_attention_available=lambda: True,
        _has_cuda=True,
        _has_cudnn=True,
        _get_fa3_sdp_enabled=lambda: False,
    )
    torch = SimpleNamespace(_C=calls, version=SimpleNamespace(hip=None))
    gpu = Gpu(index=0, vendor="nvidia", name="H200", compute_capability="9.0")
    monkeypatch.setattr(base, "ask_torch", lambda question: question(torch))
    monkeypatch.setattr(base, "gpus", lambda *vendors: (gpu,) * ("nvidia" in vendors))
    monkeypatch.setattr("backendcfg.backends.cudnn.version", lambda: 91600)


class OnCuda:
    """An array on a GPU, as far as anybody can see."""

    def __init__(self, *shape, dtype="torch.float16"):
        self.shape, self.dtype = shape, dtype
        self.device = SimpleNamespace(type="cuda", index=0)


def on_cuda(**more):
    array = OnCuda(2, 3, 4, 64, **more)
    return cuda.SDPAParams(array, array, array, None, 0.0, False, False)


def test_the_kernels_have_pytorchs_names_and_numbers():
    assert {member.name: int(member) for member in SDPBackend} == {
        "ERROR": -1,
        "MATH": 0,
        "FLASH_ATTENTION": 1,
        "EFFICIENT_ATTENTION": 2,
        "CUDNN_ATTENTION": 3,
        "OVERRIDEABLE": 4,
    }


@pytest.mark.parametrize("name", PAIRS)
def test_a_kernel_is_forbidden_and_allowed_again(name):
    enable, is_enabled = PAIRS[name]
    assert is_enabled() is True
    assert enable(False) is None
    assert (is_enabled(), len(enabled())) == (False, 3)
    enable(True)
    assert is_enabled() is True


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("wrong", [1, "false", None])
def test_a_switch_takes_a_bool_and_nothing_else(name, wrong):
    enable, is_enabled = PAIRS[name]
    with pytest.raises(WrongTypeError, match=rf"^`cuda\.enable_{name}_sdp` must be true or false"):
        enable(wrong)
    assert is_enabled() is True


def test_sums_in_16_bits():
    assert cuda.fp16_bf16_reduction_math_sdp_allowed() is False
    cuda.allow_fp16_bf16_reduction_math_sdp(True)
    assert cuda.fp16_bf16_reduction_math_sdp_allowed() is True
    with pytest.raises(WrongTypeError):
        cuda.allow_fp16_bf16_reduction_math_sdp(1)


def test_a_scope_with_some_kernels_gives_the_others_back():
    cuda.enable_cudnn_sdp(False)
    with cuda.sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert enabled() == ["flash", "math"]
        with cuda.sdpa_kernel(SDPBackend.MATH):
            assert enabled() == ["math"]
        assert enabled() == ["flash", "math"]
    assert enabled() == ["flash", "mem_efficient", "math"]


def test_the_order_of_kernels_is_set_on_request_and_is_always_whole():
    wanted = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with cuda.sdpa_kernel(wanted, set_priority=True):
        outer = ["math", "flash", "efficient", "cudnn", "overrideable"]
        assert list(read("cuda.sdp_priority")) == outer
        with cuda.sdpa_kernel(wanted):
            assert list(read("cuda.sdp_priority")) == outer
    assert list(read("cuda.sdp_priority")) == []


@pytest.mark.parametrize(
    "wrong", ["flash", ["flash"], [1], 1, None, (SDPBackend.MATH,), SDPBackend.ERROR]
)
def test_what_is_no_kernel_is_refused(wrong):
    """PyTorch turns every kernel off for ints and strings (T40), and takes ERROR (T11)."""
    with pytest.raises(InvalidArgumentError, match=r"^`backends` must be an SDPBackend or a list"):
        cuda.sdpa_kernel(wrong)


def test_the_order_is_asked_for_by_a_bool():
    with pytest.raises(InvalidArgumentError, match=r"^`set_priority` must be a bool, not 1(?m:$)"):
        cuda.sdpa_kernel(SDPBackend.MATH, set_priority=1)


def test_a_scope_that_leaves_no_kernel_is_refused():
    # Two rules say so, each with its own way out.
    with (
        pytest.raises(ValueError, match=r"errors in profile|cannot both hold"),
        cuda.sdpa_kernel([]),
    ):
        pytest.fail("the scope was entered")
    assert len(enabled()) == 4


def test_the_deprecated_scope_warns_where_it_is_called_and_works():
    with pytest.warns(FutureWarning, match=r"sdp_kernel\(\)` is deprecated") as caught:
        scope = cuda.sdp_kernel(enable_flash=False, enable_cudnn=False)
    assert caught[0].filename == __file__
    with scope:
        assert enabled() == ["mem_efficient", "math"]
    assert len(enabled()) == 4


def test_parameters_keep_what_they_were_given_and_are_read_only():
    mask = np.zeros((4, 4), np.float32)
    made = params(mask=mask, dropout=1, causal=True)
    assert made.attn_mask is mask
    assert made.query is made.key is made.value
    assert (made.dropout, made.is_causal, made.enable_gqa) == (1.0, True, False)
    for name in ("query", "key", "value", "attn_mask", "dropout", "is_causal", "enable_gqa"):
        with pytest.raises(AttributeError):
            setattr(made, name, None)


def test_parameters_are_seven_and_positional():
    array = np.zeros((1, 1, 1, 8))
    with pytest.raises(TypeError, match="enable_gqa"):
        cuda.SDPAParams(array, array, array, None, 0.0, False)
    with pytest.raises(TypeError, match="positional-only"):
        cuda.SDPAParams(array, array, array, None, 0.0, False, enable_gqa=False)


@pytest.mark.parametrize(
    ("at", "wrong", "message"),
    [
        (0, 3, "`query` must be an array, not int"),
        (2, None, "`value` must be an array, not NoneType"),
        (3, "mask", "`attn_mask` must be an array, not str"),
        (4, "0", "`dropout` must be a number, not '0'"),
        (4, True, "`dropout` must be a number, not True"),
        (5, 1, "`is_causal` must be a bool, not 1"),
        (6, None, "`enable_gqa` must be a bool, not None"),
    ],
)
def test_each_parameter_is_of_its_kind(at, wrong, message):
    array = np.zeros((1, 1, 1, 8))
    given = [array, array, array, None, 0.0, False, False]
    given[at] = wrong
    with pytest.raises(InvalidArgumentError) as caught:
        cuda.SDPAParams(*given)
    assert caught.value.message == message


def test_cudnn_serves_no_array_of_the_cpu_and_debug_tells_every_reason():
    answer, why = told(cuda.can_use_cudnn_attention, params(np.float64, width=5))
    assert answer is False
    assert "All tensors need to be on cuda device. Got query on device: cpu" in why[1]
    assert [text.partition(" ")[0] for text in why].count("Expected") == 1
    assert len(why) >= 4


@pytest.mark.parametrize("kernel", ["flash", "efficient"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_ours_serve_arrays_of_the_cpu_of_any_width_with_dropout_and_masks(kernel, dtype):
    assert cuda.is_flash_attention_available() is True
    assert told(QUERIES[kernel], params(dtype, width=5, dropout=0.1, causal=True)) == (True, [])
    assert told(QUERIES[kernel], params(dtype, mask=np.zeros((4, 4), dtype))) == (True, [])


@pytest.mark.parametrize(
    ("kernel", "flag", "text"),
    [
        ("flash", cuda.enable_flash_sdp, "Flash attention has been runtime disabled."),
        (
            "efficient",
            cuda.enable_mem_efficient_sdp,
            "Memory Efficient attention has been runtime disabled.",
        ),
    ],
)
def test_ours_obey_their_switches_and_tell_every_reason(kernel, flag, text):
    flag(False)
    assert told(QUERIES[kernel], params(np.int32)) == (
        False,
        [text, "`query` must hold float32, float64, bfloat16 or float16, not int32"],
    )


def test_without_debug_nothing_is_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuda.can_use_flash_attention(params()) is True
        assert cuda.can_use_cudnn_attention(params()) is False


@pytest.mark.parametrize("kernel", QUERIES)
def test_a_kernel_that_is_here_serves_arrays_of_the_gpu(h200, kernel):
    assert told(QUERIES[kernel], on_cuda()) == (True, [])
    assert cuda.is_flash_attention_available() is True


def test_the_switches_in_force_are_obeyed(h200):
    with cuda.sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        assert told(cuda.can_use_flash_attention, on_cuda()) == (
            False,
            ["Flash attention has been runtime disabled."],
        )
        assert cuda.can_use_efficient_attention(on_cuda()) is True
    assert cuda.can_use_flash_attention(on_cuda()) is True


def test_a_profile_that_forbids_what_varies_forbids_cudnn(h200):
    from backendcfg.session import adjust

    with adjust.overlay({"determinism.algorithms": "deterministic"}):
        assert told(cuda.can_use_cudnn_attention, on_cuda()) == (
            False,
            ["cuDNN SDPA is not deterministic."],
        )


def test_ragged_tensors_need_the_variable_that_pytorch_reads(h200, monkeypatch):
    ragged = SimpleNamespace(
        shape=(2,), dtype="float16", is_nested=True, size=lambda at: 2, device="cuda:0"
    )
    made = cuda.SDPAParams(ragged, ragged, ragged, None, 0.0, False, False)
    assert cuda.can_use_cudnn_attention(made) is False
    monkeypatch.setenv("TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED", "1")
    assert cuda.can_use_cudnn_attention(made) is True


@pytest.mark.parametrize("function", QUERIES.values())
def test_wrong_questions_are_refused(function):
    with pytest.raises(
        InvalidArgumentError, match=r"^`params` must be an SDPAParams, not NoneType"
    ):
        function(None)
    with pytest.raises(InvalidArgumentError, match=r"^`debug` must be a bool, not 1(?m:$)"):
        function(params(), 1)


def test_misspelt_switches_are_refused():
    with pytest.raises(UnknownAttributeError, match="has no attribute `enable_flsh_sdp`") as caught:
        cuda.enable_flsh_sdp(False)
    assert caught.value.helps == ("did you mean `enable_flash_sdp`?",)
    with pytest.raises(UnknownAttributeError):
        cuda.flash_sdp = False


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorchs_tensors_parameters_and_kernels_are_taken_and_its_switches_follow(python):
    code = """
    import json, torch
    from backendcfg.backends import cuda
    theirs = torch.backends.cuda
    query = torch.zeros(2, 4, 8, 64, requires_grad=True)
    made = theirs.SDPAParams(query, query, query, None, 0.0, False, False)
    # Ours answer for our own kernels, which PyTorch does not have.
    found = [[ours(made), wanted] for ours, wanted in (
        (cuda.can_use_flash_attention, True),
        (cuda.can_use_efficient_attention, True),
        (cuda.can_use_cudnn_attention, theirs.can_use_cudnn_attention(made)),
    )]
    facts = cuda.SDPAParams(query, query, query, None, 0.0, False, False)._call
    with torch.no_grad():
        quiet = cuda.SDPAParams(query, query, query, None, 0.0, False, False)._call
    found.append([facts.query.requires_grad, True])
    found.append([quiet.query.requires_grad, False])
    found.append([list(facts.query.strides), list(query.stride())])
    with cuda.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found.append([theirs.flash_sdp_enabled(), False])
        found.append([theirs.math_sdp_enabled(), True])
    found.append([theirs.flash_sdp_enabled(), True])
    print(json.dumps(found))
    """
    found = json.loads(python(code))
    assert len(found) == 9
    assert [ours for ours, _ in found] == [theirs for _, theirs in found]


def test_a_scope_that_the_cpu_could_not_serve_is_refused():
    if base.gpus("nvidia", "amd"):
        pytest.skip("this machine has a GPU")
    with (
        pytest.raises(ConflictingFlagsError, match="cannot both hold"),
        cuda.sdpa_kernel(SDPBackend.CUDNN_ATTENTION),
    ):
        pytest.fail("the scope was entered")
    with cuda.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert enabled() == ["mem_efficient"]
