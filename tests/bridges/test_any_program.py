"""A program that works without a profile works under every profile that ships.

Programs are made by `any_program.py` from a seed: they import NumPy, SciPy, scikit-learn, PyTorch and
JAX in any order and write and read switches in between, by older and newer names. Each of their
lines may raise, as where two names of one switch contradict each other; what is compared is which lines
raise under a profile and not without one.

Imports are what these programs wait for. So the programs of a batch begin with the same imports, under
the same profile, and are forked from one interpreter that has run these. The rest of each program,
from the first switch that it sets, runs in a process of its own, with its imports. What fails in a
fork counts only if it also fails in an interpreter that runs nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import any_program
import pytest

PROFILES = sorted(path.stem for path in (Path(__file__).parents[2] / "profiles").glob("*.toml"))

REFUSED = {
    "torch.backends.cudnn.allow_tf32": "both leaves of cuDNN",
    "torch.backends.cuda.matmul.allow_tf32": "both leaves of products",
    "torch.get_float32_matmul_precision()": "both leaves of products",
    "with torch.backends.cudnn.flags(enabled=True): run_a_thread()": "both leaves of cuDNN",
    "torch.backends.cudnn.set_flags(True, None, True, True, True)": "both leaves of cuDNN",
}
"""Lines that read an older switch for float32 precision: PyTorch refuses that where a program has
written one of two leaves and the profile has given the other one another value."""

MIXED = "mix of the legacy and new APIs"


needs = pytest.mark.skipif(
    not all(find_spec(name) for name in ("sklearn", "torch", "jax")),
    reason="scikit-learn, PyTorch or JAX is not installed",
)
pytestmark = [pytest.mark.torch, pytest.mark.jax]


def run(trunk, programs, profile):
    """What each of several programs with the same beginning raised, by its number."""
    variables = {"BACKENDCFG_PROFILE": profile} if profile else {"BACKENDCFG_DISABLE": "1"}
    done = subprocess.run(
        [sys.executable, any_program.__file__, json.dumps(trunk)],
        input="".join(f"{json.dumps(one)}\n" for one in programs),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(answers) == len(programs), done.stderr
    return {number: (status, raised) for number, status, raised in answers}


def worse(under, without):
    """What a program raised under a profile that it does not raise without, refusals apart."""
    if under[0] != without[0] or under[1] is None:
        return {"exit status": f"{under[0]}, and {without[0]} without a profile"}
    return {
        line: text
        for line, text in under[1].items()
        if line not in without[1] and not (line in REFUSED and MIXED in text)
    }


def check(profile, trunk, programs):
    """What the programs of a batch raise under a profile alone, by their numbers."""
    under = run(trunk, programs, profile)
    odd = [one for one in programs if under[one[0]] != (0, {})]
    without = run(trunk, odd, "") if odd else {}
    found = {}
    for program in odd:
        number = program[0]
        if worse(under[number], without[number]):
            alone = run([], [(number, [*trunk, *program[1]])], profile)[number]
            if told := worse(alone, without[number]):
                found[number] = told
    return found


@needs
@pytest.mark.parametrize(
    ("batch", "count"),
    [
        *[(batch, 1) for batch in range(len(PROFILES))],
        *[pytest.param(batch, 10, marks=pytest.mark.exhaustive) for batch in range(50)],
    ],
)
def test_what_works_without_a_profile_works_under_each(batch, count):
    begun, _ = any_program.trunk(batch)
    trunk = [line for library in begun for line in any_program.lines_of(library)]
    programs = [(number, any_program.program(batch, number)) for number in range(count)]
    assert check(PROFILES[batch % len(PROFILES)], trunk, programs) == {}


@needs
@pytest.mark.parametrize("profile", ["reproducible", "tf32-off", "debug"])
def test_programs_that_did_not_work_once_work(profile):
    programs = [
        ['torch.backends.mkldnn.matmul.fp32_precision = "bf16"', "import sklearn"],
        ["torch.set_num_interop_threads(2)"],
    ]
    answers = run(["import torch"], list(enumerate(programs)), profile)
    assert answers == {0: (0, {}), 1: (0, {})}


@needs
def test_what_the_list_says_is_refused_is_refused():
    """By PyTorch, for the leaf that the profile has given another value than the program's."""
    lines = ['torch.backends.cudnn.conv.fp32_precision = "tf32"', "torch.backends.cudnn.allow_tf32"]
    programs = [(0, lines)]
    under, without = (run(["import torch"], programs, name)[0] for name in ("tf32-off", ""))
    assert (list(under[1]), MIXED in under[1][lines[1]]) == ([lines[1]], True)
    assert (without, worse(under, without)) == ((0, {}), {})


def test_the_comparison_sees_what_a_profile_breaks():
    assert worse((0, {"a": "ValueError"}), (0, {})) == {"a": "ValueError"}
    assert worse((0, {"a": "ValueError"}), (0, {"a": "KeyError"})) == {}
    assert worse((-11, None), (0, {})) == {"exit status": "-11, and 0 without a profile"}
    line = "torch.backends.cudnn.allow_tf32"
    assert worse((0, {line: f"RuntimeError: a {MIXED}"}), (0, {})) == {}
    assert worse((0, {line: "RuntimeError: another"}), (0, {})) == {line: "RuntimeError: another"}


def test_programs_are_the_same_in_every_run_and_differ_from_each_other():
    pairs = [(batch, number) for batch in range(50) for number in range(10)]
    programs = [any_program.program(*pair) for pair in pairs]
    assert programs == [any_program.program(*pair) for pair in pairs]
    assert len(set(map(tuple, programs))) == 500
    lines = {line for program in programs for line in program}
    assert {*any_program.IMPORTS.values()} <= lines
    assert {line for lines in any_program.CALLS.values() for line in lines} <= lines
    assert any_program.WRITES.keys() <= {line.partition(" = ")[0] for line in lines}
