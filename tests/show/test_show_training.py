"""The training script of the documentation: the same bits under `reproducible`, and not without.

The script is one that people write. It sets no seed and does not know backendcfg; its workers are
spawned, so nothing reaches them but what the environment and the interpreter's start bring.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "tutorial" / "train.py"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.skipif(not SCRIPT.exists(), reason="needs the source tree"),
]


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory):
    """`trained(*words, **variables)`: what the script printed after `python` or `backendcfg`."""
    directory = tmp_path_factory.mktemp("train")
    shutil.copy(SCRIPT, directory)

    def run(*words, **variables):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=directory,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(
            r"epoch 1, loss \d\.\d{4}\nepoch 2, loss \d\.\d{4}\nepoch 3, loss \d\.\d{4}\n"
            r"weights [0-9a-f]{16}\n",
            done.stdout,
        )
        return done.stdout

    return run


RUN = ("-m", "backendcfg", "run", "reproducible", "--", sys.executable, "train.py")


@pytest.mark.exhaustive  # and the next one: .ci/run trains with the installed wheel, too
def test_without_a_profile_two_runs_learn_different_weights(trained):
    assert trained("train.py") != trained("train.py")


@pytest.mark.exhaustive
def test_under_reproducible_two_runs_learn_the_same_bits(trained):
    # However the profile is named, and whatever a shell presets.
    by_variable = [word for word in RUN if word != "reproducible"]
    preset = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    assert trained(*RUN) == trained(*by_variable, BACKENDCFG_PROFILE="reproducible", **preset)


def test_the_script_does_not_know_backendcfg_and_sets_no_seed():
    text = SCRIPT.read_text()
    assert "backendcfg" not in text
    assert "seed" not in text
    assert 'multiprocessing_context="spawn"' in text


def test_the_page_claims_what_is_tested_here():
    page = (DOCS / "tutorial-training.md").read_text()
    runs = re.findall(r"^\$ (.*)\n((?:epoch .*\n)+weights \w{16})$", page, re.MULTILINE)
    commands, (first, second, once, again, other) = zip(*runs, strict=True)
    assert commands == (
        "python train.py",
        "python train.py",
        "backendcfg run reproducible -- python train.py",
        "BACKENDCFG_PROFILE=reproducible OMP_NUM_THREADS=1 python train.py",
        "backendcfg run reproducible --set seed.value=7 -- python train.py",
    )
    assert first != second
    assert once == again != other
