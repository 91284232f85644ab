"""torch.backends of PyTorch 2.13, walked name by name, against ours."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from listed_differences import DIFFERENCES

HERE = Path(__file__).parent
# Not importorskip: an imported PyTorch would answer for us in the other tests of this process.
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(name="walked", scope="module")
def _walked():
    """What both have, from two fresh interpreters: `{side: {module: {name: description}}}`."""
    found = {}
    for package in ("torch.backends", "backendcfg.backends"):
        child = subprocess.run(
            [sys.executable, str(HERE / "walk_backends.py"), package],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert child.returncode == 0, child.stderr
        found[package.partition(".")[0]] = json.loads(child.stdout)
    return found


def differences(theirs, ours):
    """Every `(module, name, what)` in which ours is not as theirs, with both sides."""
    for module, names in theirs.items():
        for name, described in names.items():
            mine = ours.get(module, {}).get(name)
            if mine is None:
                yield (module, name, "missing"), described, None
                continue
            for what, wanted in described.items():
                if what == "members":
                    if lacking := sorted(set(wanted) - set(mine.get(what, ()))):
                        yield (module, name, what), lacking, None
                elif mine.get(what) != wanted:
                    yield (module, name, what), wanted, mine.get(what)


def test_pytorch_is_the_version_whose_names_ours_are(walked):
    assert metadata.version("torch").startswith("2.13.")
    assert {"cuda", "cudnn", "cudnn.rnn", "mkldnn", "xnnpack"} <= set(walked["torch"])
    assert sum(map(len, walked["torch"].values())) > 120


def test_every_public_name_is_here_and_the_same_but_for_the_listed_differences(walked):
    found = {key: (theirs, ours) for key, theirs, ours in differences(**_sides(walked))}
    unlisted = {key: sides for key, sides in found.items() if key not in DIFFERENCES}
    assert unlisted == {}


def test_every_listed_difference_is_one(walked):
    found = {key for key, _, _ in differences(**_sides(walked))}
    assert set(DIFFERENCES) - found == set()


def _sides(walked):
    return {"theirs": walked["torch"], "ours": walked["backendcfg"]}


def test_a_name_that_is_missing_and_a_default_that_differs_are_found():
    theirs = {"m": {"f": {"signature": "(a=1)"}, "g": {"signature": "()"}}}
    ours = {"m": {"f": {"signature": "(a=2)"}}}
    assert [key for key, _, _ in differences(theirs, ours)] == [
        ("m", "f", "signature"),
        ("m", "g", "missing"),
    ]
