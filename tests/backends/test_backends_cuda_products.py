"""`backends.cuda.matmul`: forms, refusals, and what a refusal leaves."""

from __future__ import annotations

import pytest

from backendcfg.backends import cuda
from backendcfg.errors import (
    ConflictingFlagsError,
    InvalidValueError,
    UnknownAttributeError,
    WrongTypeError,
)

REDUCTIONS = ["allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"]


def reduction(name):
    return getattr(cuda.matmul, name), getattr(cuda.matmul, f"{name}_split_k")


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(
    ("given", "read"),
    [
        (True, (True, True)),
        (False, (False, True)),
        ((True,), (True, True)),
        ([False], (False, True)),
        ((False, False), (False, False)),
        ([True, True], (True, True)),
    ],
)
def test_reductions_take_every_form_that_pytorch_takes(name, given, read):
    setattr(cuda.matmul, name, given)
    assert reduction(name) == read


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("wrong", [(), (True, True, True), 1, "yes", None, (1, False), (True, 0)])
def test_other_forms_are_refused_and_leave_the_value(name, wrong):
    setattr(cuda.matmul, name, (False, False))
    with pytest.raises(InvalidValueError, match=f"{name}` must be a bool, or a tuple or list"):
        setattr(cuda.matmul, name, wrong)
    assert reduction(name) == (False, False)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_sum_in_16_bits_may_always_be_split(name):
    with pytest.raises(ConflictingFlagsError, match=r"^allow_splitk=False is not supported when"):
        setattr(cuda.matmul, name, (True, False))
    assert reduction(name) == (True, True)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_split_k_is_read_only_and_says_what_to_set(name):
    with pytest.raises(UnknownAttributeError, match="_split_k` cannot be set") as caught:
        setattr(cuda.matmul, f"{name}_split_k", False)
    assert caught.value.helps == (f"set `{name} = (False, False)` or `{name} = (False, True)`",)
    assert isinstance(caught.value, AttributeError)


def test_the_older_name_of_a_precision_and_the_newer_are_one():
    cuda.matmul.allow_tf32 = True
    assert (cuda.matmul.allow_tf32, cuda.matmul.fp32_precision) == (True, "tf32")
    cuda.matmul.fp32_precision = "ieee"
    assert (cuda.matmul.allow_tf32, cuda.matmul.fp32_precision) == (False, "ieee")
    cuda.matmul.allow_tf32 = False
    assert cuda.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize("wrong", ["bf16", "IEEE", "default", ""])
def test_a_precision_that_cuda_does_not_have_is_refused(wrong):
    cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(InvalidValueError, match=r"`cuda\.matmul\.fp32_precision` must be one of"):
        cuda.matmul.fp32_precision = wrong
    assert cuda.matmul.fp32_precision == "tf32"


@pytest.mark.parametrize("name", ["allow_tf32", "allow_fp16_accumulation"])
@pytest.mark.parametrize("wrong", [1, "true", None])
def test_bools_are_bools(name, wrong):
    with pytest.raises(WrongTypeError, match=rf"`cuda\.matmul\.{name}` must be true or false"):
        setattr(cuda.matmul, name, wrong)
    assert getattr(cuda.matmul, name) is False


def test_accumulation_in_16_bits():
    cuda.matmul.allow_fp16_accumulation = True
    assert cuda.matmul.allow_fp16_accumulation is True


def test_unknown_names_are_refused_with_the_one_that_was_meant():
    for act in (lambda: cuda.matmul.allow_tf23, lambda: setattr(cuda.matmul, "allow_tf23", True)):
        with pytest.raises(UnknownAttributeError, match="has no attribute `allow_tf23`") as caught:
            act()
        assert caught.value.helps == ("did you mean `allow_tf32`?",)


def test_a_new_module_object_shows_the_same_flags():
    cuda.matmul.allow_fp16_accumulation = True
    assert cuda.cuBLASModule().allow_fp16_accumulation is True


def test_built_for_cuda_is_no_on_a_machine_without(monkeypatch):
    from backendcfg.backends import base

    monkeypatch.setattr(base, "ask_torch", lambda question: None)
    monkeypatch.setattr(base, "library_file", lambda stem: "")
    assert cuda.is_built() is False
    monkeypatch.setattr(base, "library_file", lambda stem: f"/x/{stem}.12")
    assert cuda.is_built() is True
    monkeypatch.setattr(base, "ask_torch", lambda question: False)
    assert cuda.is_built() is False
