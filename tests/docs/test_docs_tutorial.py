"""The tutorial is true: every command on the page is run, and what is equal there is equal here.

Digests depend on the processor, so they are not compared with the page's. What is compared is which
of them are equal and which differ, within each section: that is what the page claims.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorial.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: there is no classifier to compare",
)
_RAN: dict[str, list[Run]] = {}
"""What each section's commands printed here: two tests look at each section, one run serves both."""


@dataclass(frozen=True)
class Run:
    """One command of the page and what is printed under it, as `{first word: second word}`."""

    command: str
    printed: dict[str, str]


def words(lines):
    """The lines of two words: `{first: second}`."""
    return dict(line.split() for line in lines if len(line.split()) == 2)


def commands(section):
    """Every `$ command` of the console blocks of one section, with what the page prints."""
    text = PAGE.read_text()
    title = re.escape(section)
    body = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    runs = []
    for block in re.findall(r"^```console\n(.*?)^```$", body, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = part.splitlines()
            runs.append(Run(command, words(printed)))
    return runs


@pytest.fixture(name="shell")
def _shell(tmp_path):
    """Runs a command line in a directory that holds the script and nothing else of this project."""
    shutil.copy(DOCS / "tutorial" / "digits.py", tmp_path)
    # Names that reach this interpreter, whether or not its environment is activated.
    names = tmp_path / "bin"
    names.mkdir()
    for name, arguments in (("python", ""), ("backendcfg", "-m backendcfg")):
        shim = names / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{names}{os.pathsep}{os.environ['PATH']}",
    }
    environment.pop("PYTHONHASHSEED", None)

    def shell(command):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    return shell


def pattern(runs, key):
    """Which runs print the same for a key: one bool for each pair of runs."""
    values = [run.printed[key] for run in runs if key in run.printed]
    return [a == b for a, b in itertools.combinations(values, 2)]


def compare(section, shell, key):
    page = commands(section)
    if section not in _RAN:
        _RAN[section] = [Run(run.command, words(shell(run.command).splitlines())) for run in page]
    learned = [run for run in _RAN[section] if "digits.py" in run.command]
    assert len(learned) >= 4
    assert all(re.fullmatch(r"[0-9a-f]{16}", run.printed[key]) for run in learned)
    assert pattern(page, key) == pattern(learned, key), "\n".join(
        f"{run.command}: {run.printed[key]}" for run in learned
    )


def enough_processors():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("hardware: one processor computes with one thread whatever anybody asks")


@pytest.mark.exhaustive
def test_without_a_profile_the_components_differ_as_the_page_says(shell):
    enough_processors()
    compare("Without a profile", shell, "components")


def test_with_reproducible_the_components_are_equal_whatever_the_shell_presets(shell):
    compare("With the profile `reproducible`", shell, "components")


@pytest.mark.torch
@needs_torch
@pytest.mark.exhaustive
def test_without_a_profile_the_weights_differ_as_the_page_says(shell):
    enough_processors()
    compare("Without a profile", shell, "weights")


@pytest.mark.torch
@needs_torch
def test_with_reproducible_the_weights_are_equal_whatever_the_shell_presets(shell):
    compare("With the profile `reproducible`", shell, "weights")


@pytest.mark.torch
@needs_torch
def test_under_fast_the_classifier_learns_as_well_and_says_how_long_it_took(shell):
    (run,) = commands("With the profile `fast`")
    printed = words(shell(run.command).splitlines())
    assert [*run.printed] == [*printed]
    assert float(printed["accuracy"]) > 0.95
    assert float(printed["seconds"]) > 0


def test_the_script_does_not_know_backendcfg():
    assert "backendcfg" not in (DOCS / "tutorial" / "digits.py").read_text()


def test_the_page_makes_both_claims():
    without = pattern(commands("Without a profile"), "components")
    within = pattern(commands("With the profile `reproducible`"), "components")
    assert not all(without)
    assert all(within)
    assert len(within) >= 3
