"""Flags are found by every name that people have for them."""

import pytest

from backendcfg.resolve.explain import OTHER_NAMES, find_flags
from backendcfg.schema import profile


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("tf32", "cuda.matmul.allow_tf32"),
        ("torch.backends.cuda.matmul.allow_tf32", "cuda.matmul.allow_tf32"),
        ("set_float32_matmul_precision", "fp32_precision"),
        ("_set_cudnn_benchmark", "cudnn.benchmark"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "cuda.matmul.fp32_precision"),
        ("flash kernel", "cuda.enable_flash_sdp"),
        ("use_deterministic_algorithms", "determinism.algorithms"),
        ("CUDNN", "cudnn.enabled"),
        ("seed", "seed.value"),
        ("How many threads", "threads.count"),
        ("number of threads", "threads.count"),
        ("How do I turn off TF32?", "cuda.matmul.allow_tf32"),
    ],
)
def test_the_flag_that_is_meant_comes_first(words, first):
    assert find_flags(words)[0] == first


def test_values_lead_to_the_flags_that_take_them():
    assert "cuda.sdp_priority" in find_flags("flash")
    assert "cuda.preferred_linalg_library" in find_flags("magma")
    assert find_flags("overrideable") == ("cuda.sdp_priority",)


def test_every_word_must_lead_to_the_flag():
    assert set(find_flags("cudnn fp32_precision")) < set(find_flags("cudnn"))
    assert find_flags("cudnn frobnicate") == find_flags("") == ()


def test_every_flag_is_found_by_its_own_name():
    assert [name for name in profile.flags() if find_flags(name)[0] != name] == []


def test_other_names_are_of_flags_that_there_are():
    assert set(OTHER_NAMES) <= set(profile.flags())
