"""A precision that PyTorch's leaves take from a parent which the program set is seen as it acts."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_a_parent_that_the_program_sets_is_in_the_token_and_in_what_is_captured(python):
    printed = python(
        """
import torch, backendcfg
tokens = set()
for value in ("none", "ieee", "tf32", "bf16"):
    torch.backends.fp32_precision = value
    tokens.add(backendcfg.numerics_token())
    captured = backendcfg.capture().flags
    print(value, captured.get("mkldnn.matmul.fp32_precision"),
          captured.get("cuda.matmul.fp32_precision"))
print(len(tokens))
"""
    )
    assert printed.splitlines() == [
        "none None None",
        "ieee ieee ieee",
        "tf32 tf32 tf32",
        "bf16 bf16 None",
        "4",
    ]


def test_verify_takes_what_a_parent_decides_for_what_is_there(python):
    printed = python(
        """
import torch, backendcfg
backendcfg.apply(settings={"cuda.matmul.fp32_precision": "none"})
torch.backends.fp32_precision = "tf32"
[found] = [(one.state, one.found) for one in backendcfg.verify().readings
           if one.switch == "torch.backends.cuda.matmul.fp32_precision"]
print(found)
"""
    )
    assert printed == "('differs', 'tf32')\n"
