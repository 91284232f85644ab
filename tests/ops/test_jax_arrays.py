"""Arrays of JAX in operations: memory shared, the same kind back, refusals by name."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CASES = [
    *(["shared_memory", element] for element in
      ("float32", "float16", "bfloat16", "complex64", "int32")),
    ["unaligned_result"],
    ["traced"],
    ["deleted"],
    *(["attention", element] for element in ("float32", "bfloat16", "float16")),
]  # fmt: skip

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


@pytest.fixture(scope="module")
def outcomes():
    script = Path(__file__).with_name("jax_cases.py")
    done = subprocess.run(
        [sys.executable, script, json.dumps(CASES)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", ["-".join(case) for case in CASES])
def test_a_jax_array_is_taken_and_given_as_it_should(outcomes, case):
    assert outcomes[case] == ""
