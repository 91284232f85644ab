"""On the inputs that PyTorch's own tests make, ours give what PyTorch's functions give."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.skipif(
        find_spec("expecttest") is None, reason="expecttest is not installed"
    ),  # PyTorch's tests import it
]

PROGRAM = Path(__file__).with_name("torch_samples.py")
FEWEST = 10
"""Inputs that each operation has at least, in all element types together."""


@pytest.fixture(scope="module")
def report():
    """What was compared and what was wrong, by operation."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_operation_gives_what_pytorchs_gives_on_the_inputs_of_pytorchs_tests(report):
    wrong = {name: found["wrong"] for name, found in report.items() if found["wrong"]}
    assert not wrong, json.dumps(wrong, indent=1)
    assert len(report) == 38
    few = [name for name, found in report.items() if found["compared"] < FEWEST]
    assert not few
