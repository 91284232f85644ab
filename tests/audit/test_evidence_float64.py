"""`compare --float64`: how exact each operation is under two profiles."""

from __future__ import annotations

import json
import sys

import pytest

from backendcfg.audit.evidence.float64 import Bits, Float64, bits
from backendcfg.audit.report import words
from backendcfg.audit.trace.again import MOST_BITS, Exactness
from backendcfg.cli.main import main

# An operator that does what the switch asks for on any processor.
PROGRAM = """
import torch
@torch.library.custom_op("mine::product", mutates_args=())
def product(x: torch.Tensor) -> torch.Tensor:
    rough = torch.backends.mkldnn.matmul.fp32_precision == "bf16" and x.dtype == torch.float32
    return (x * x).bfloat16().to(x.dtype) if rough else x * x
@torch.library.custom_op("mine::single", mutates_args=())
def single(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32:
        raise TypeError("only float32")
    return x + 1
torch.manual_seed(0)
x = torch.rand(50, 50)
for _ in range(3):
    product(x)
single(x) * 2
print("done")
"""


@pytest.mark.exhaustive
@pytest.mark.torch
def test_the_shell_names_the_operation_that_a_profile_makes_less_exact(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(PROGRAM)
    (tmp_path / "rough.toml").write_text("schema = 1\nmkldnn.matmul.fp32_precision = 'bf16'\n")
    sides = ["nothing", "./rough.toml"]
    command = ["--seconds", "0", "--float64", "--", sys.executable, "script.py"]
    assert main(["compare", *sides, *command]) == 0
    out = capsys.readouterr().out.partition("float64 ")[2]
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "2 operations below float64, 1 less exact under one of the two",
        "operation calls nothing ./rough.toml least",
        "mine.product 3 25 bits 9 bits 9 bits, script.py:15",
        "do not run in float64: `mine.single`",
    ]
    assert main(["--json", "compare", *sides[::-1], *command]) == 0
    found = json.loads(capsys.readouterr().out)["float64"]
    assert {name: one["median"] for name, one in found["a"].items()} == {
        "mine.product": 9,
        "mine.single": 0,
        "aten.mul.Tensor": MOST_BITS,
    }


@pytest.mark.slow
def test_a_program_without_operations_of_fewer_bits_is_told_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = "import numpy as np; np.ones(3) / 3"
    command = ["--seconds", "0", "--float64", "--", sys.executable, "-c", script]
    assert main(["compare", "nothing", "tf32-off", *command]) == 0
    assert capsys.readouterr().out.endswith(
        "float64   no operation below float64 was recorded under both\n"
    )


def exactness(calls, place="", failed=0):
    """Of calls by their bits."""
    return Exactness([calls.get(number, 0) for number in range(MOST_BITS + 1)], place, failed)


def test_what_streams_say_of_an_operation_is_put_together():
    streams = [
        {"mm": exactness({20: 1, 22: 5}, "b.py:2"), "add": exactness({}, failed=3)},
        {"mm": exactness({12: 1, 23: 5}, "a.py:1", failed=1)},
        {"mm": exactness({12: 1}, "c.py:3")},
    ]
    assert bits(streams) == {
        "add": Bits(0, 0, 0, "", 3),
        "mm": Bits(13, 22, 12, "a.py:1", 1),
    }


@pytest.mark.parametrize(
    ("calls", "median"), [({5: 1}, 5), ({1: 1, 2: 1}, 1), ({1: 1, 2: 1, 3: 1}, 2), ({1: 2**62}, 1)]
)
def test_the_lower_median_of_all_calls_counts(calls, median):
    (found,) = bits([{"mm": exactness(calls)}, {"mm": exactness(calls)}]).values()
    assert found.median == median


def test_operations_that_differ_by_two_bits_are_named_those_first_that_differ_most():
    def of(**medians):
        return {name: Bits(1, n, n, "x.py:1", 0) for name, n in medians.items()}

    found = Float64(of(a=22, b=22, c=22, d=9, e=3), of(a=21, b=20, c=9, d=22, f=3))
    assert found.compared == ["a", "b", "c", "d"]
    assert found.telling == ["c", "d", "b"]
    assert words.bits(found)[1] == ("d", "1", "9 bits", "22 bits", "9 bits, x.py:1")
    assert words.exactness(found) == (
        "4 operations below float64, 3 less exact under one of the two"
    )
    same = Float64(found.a, found.a)
    assert words.exactness(same) == "5 operations below float64, equally exact under both"


def test_of_many_operations_the_first_are_named():
    failing = {f"op{number:02}": Bits(0, 0, 0, "", 1) for number in range(14)}
    named = ", ".join(f"`op{number:02}`" for number in range(12))
    assert words.not_in_float64(Float64(failing, {})) == f"{named} and 2 more"
