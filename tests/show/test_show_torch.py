"""PyTorch's own public behaviour under every shipped profile, and its state afterwards.

A process in which the shipped profiles were applied and taken back a hundred times in random order
must look like one that never had any, to everybody who asks PyTorch. What cannot be put back is
listed by backendcfg beforehand, and is the only difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


OLDER = {
    "debug": ["highest", False, False],
    "fast": ["high", True, True],
    "max-throughput": ["medium", True, True],
    "reproducible": ["highest", False, False],
    "reproducible-anywhere": ["highest", False, False],
    "tf32-off": ["highest", False, False],
}
"""What the older getters say of the precision under each profile."""


@pytest.fixture(scope="module", name="walk")
def _walk(tmp_path_factory):
    """`walk("held", 3)`: what walk_torch.py prints, run once for its arguments."""
    told = {}
    directory = tmp_path_factory.mktemp("walk")
    # One for all of them: each test has directories of its own.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *_paths()])}

    def run(*words):
        if words not in told:
            done = subprocess.run(
                [sys.executable, str(HERE / "walk_torch.py"), *map(str, words)],
                cwd=directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            told[words] = json.loads(done.stdout.splitlines()[-1])
        return told[words]

    return run


def _paths():
    return filter(None, [os.environ.get("PYTHONPATH")])


def difference(one, other):
    """What two states do not have in common, by its whole name."""
    found = {}
    for part in one:
        for name in {*one[part], *other[part]}:
            if one[part].get(name) != other[part].get(name):
                found[name] = [one[part].get(name), other[part].get(name)]
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_after_a_hundred_profiles_pytorch_is_as_if_it_had_never_had_any(walk, seed):
    never, had = walk("never"), walk("switched", seed)
    assert len(never["before"]["switches"]) > 50
    assert difference(never["before"], had["before"]) == {}
    assert had["rounds"] == 100
    assert had["applied"] == sorted(had["shipped"])
    assert had["wrong"] == []
    assert difference(never["before"], had["after"]) == {}
    generators, afterwards = had["generators"]
    assert generators == afterwards
    # PyTorch's hidden default of cuDNN's precision has no setter, nor what glibc had chosen by itself;
    # the report says so.
    assert never["under a parent"] == ["ieee", "ieee"]
    assert had["under a parent"] == ["tf32", "tf32"]
    assert had["irreversible"] == [
        "malloc.keep_freed",
        "torch.backends.cudnn.fp32_precision_unset",
    ]


def test_exporting_compiling_and_computing_work_under_every_profile(walk):
    never, had = walk("never computing"), walk("computing")
    assert sorted(had["results"]) == sorted(had["shipped"])
    for profile, results in had["results"].items():
        assert results["export"] == "exported", profile
        for name, error in results["errors"].items():
            # bfloat16 inside float32 is what the profile of that name allows.
            allowed = 2e-2 if profile == "max-throughput" else 1e-5
            assert error < allowed, (profile, name, error)
        assert results["getters"] == OLDER[profile], profile
    assert difference(never["after"], had["after"]) == {}
