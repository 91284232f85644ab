"""A program that works without a profile works under every profile that ships.

Programs are made by `any_program.py` from a seed: they import NumPy, SciPy, scikit-learn, PyTorch and
JAX in any order and write and read switches in between, by older and newer names. Each of their
lines may raise, as where two names of one switch contradict each other; what is compared is which lines
raise under a profile and not without one.

Programs that begin with the same import under the same profile are forked from one interpreter that
has run it, since imports are what they wait for. The rest of each program, with every import after
its first switch, runs in a process of its own. What fails in a fork counts only if it also fails in
an interpreter that runs nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
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


def run(trunk, programs, profile):
    """What each of several programs with the same beginning raised, by its number."""
    variables = {"BACKENDCFG_PROFILE": profile} if profile else {"BACKENDCFG_DISABLE": "1"}
    done = subprocess.run(
        [sys.executable, any_program.__file__, trunk],
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


@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, len(PROFILES)),
        *[pytest.param(50 * n, 50, marks=pytest.mark.exhaustive) for n in range(10)],
    ],
)
def test_what_works_without_a_profile_works_under_each(first, count):
    for library in ("sklearn", "torch", "jax"):
        pytest.importorskip(library)
    alike = defaultdict(list)
    for seed in range(first, first + count):
        lines = any_program.program(seed)
        shared = any_program.trunk(lines)
        trunk = lines[0] if shared else ""
        alike[PROFILES[seed % len(PROFILES)], trunk].append((seed, lines[shared:]))
    found = {}
    for (profile, trunk), programs in alike.items():
        under = run(trunk, programs, profile)
        odd = [one for one in programs if under[one[0]] != (0, {})]
        without = run(trunk, odd, "")
        for program in odd:
            seed = program[0]
            if worse(under[seed], without[seed]):
                alone = run(trunk, [program], profile)[seed]
                if told := worse(alone, without[seed]):
                    found[profile, seed] = told
    assert found == {}


def test_the_comparison_sees_what_a_profile_breaks():
    assert worse((0, {"a": "ValueError"}), (0, {})) == {"a": "ValueError"}
    assert worse((0, {"a": "ValueError"}), (0, {"a": "KeyError"})) == {}
    assert worse((-11, None), (0, {})) == {"exit status": "-11, and 0 without a profile"}
    line = "torch.backends.cudnn.allow_tf32"
    assert worse((0, {line: f"RuntimeError: a {MIXED}"}), (0, {})) == {}
    assert worse((0, {line: "RuntimeError: another"}), (0, {})) == {line: "RuntimeError: another"}


def test_a_program_is_the_same_for_the_same_seed_and_programs_differ():
    programs = [any_program.program(seed) for seed in range(50)]
    assert programs == [any_program.program(seed) for seed in range(50)]
    written = {line.partition(" = ")[0] for lines in programs for line in lines}
    assert len(set(map(tuple, programs))) == 50
    assert {*any_program.IMPORTS.values()} <= written
