"""What the README promises in code is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
README = TREE / "README.md"

pytestmark = pytest.mark.skipif(
    not (TREE / "docs" / "tutorial.md").exists(), reason="needs the source tree"
)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def run(code, *, cwd):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_python_on_the_page_runs(tmp_path):
    pages = blocks("python")
    prelude = (
        "import warnings, backendcfg\n"
        "warnings.simplefilter('ignore', backendcfg.errors.PendingWarning)\n"
        "import numpy as np\na, b = np.ones((2, 3)), np.ones((3, 2))\n"
        "query = key = value = np.ones((1, 2, 8, 4), 'float32')\n"
        "def import_and_run_somebody_elses_code(): np.ones(3)\n"
    )
    proof = "\nassert (c == 3).all()\nassert evaluate(None) is None\nassert isinstance(key, str)\n"
    done = run(prelude + "\n".join(pages) + proof, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_table_of_profiles_is_the_shipped_ones():
    named = re.findall(r"^\| `([a-z0-9-]+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (TREE / "profiles").glob("*.toml"))


def test_the_first_block_is_the_two_commands_that_ci_runs():
    first = blocks("sh")[0].splitlines()
    assert len(first) == 2
    assert first[0].endswith("&& backendcfg apply reproducible")
    assert first[1].endswith("&& pytest")
