"""`prove --twice`: each operation run a second time shows the one that races."""

from __future__ import annotations

import json
import sys

import pytest

from backendcfg.cli.main import main

RACING = """
import os, torch
@torch.library.custom_op("mine::racing", mutates_args=())
def racing(x: torch.Tensor) -> torch.Tensor:
    return x + int.from_bytes(os.urandom(4), "little")
x = torch.ones(3)
racing(x)
y = x * 2 + 1
y.add_(torch.rand(3))
print("done")
"""


@pytest.mark.torch
@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["nothing", "tf32-off"])
def test_an_operation_that_gives_something_else_the_second_time_is_named(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(RACING)
    words = ["prove", name, "--runs", "2", "--twice", "--", sys.executable, "script.py"]
    assert main(["--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    # Not `add_`, which writes to its argument, and not `rand`, which draws.
    assert found["twice"]["operations"] == 4
    assert found["twice"]["unlike"] == [
        {"operation": "mine.racing", "index": 1, "place": "script.py:7", "shapes": ["float32[3]"]}
    ]


@pytest.mark.torch
@pytest.mark.exhaustive
def test_the_shell_says_what_equal_operations_bound(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import torch; x = torch.ones(2) * 2")
    words = ["prove", "tf32-off", "--runs", "2", "--twice", "--", sys.executable]
    assert main([*words, "script.py"]) == 0
    assert " ".join(capsys.readouterr().out.split()).endswith(
        "twice 2 operations run twice gave the same; a race in 78 % of them or more would have shown"
        " (95 %)"
    )
    assert main([*words, "-c", "import torch; torch.manual_seed(0)"]) == 0
    assert capsys.readouterr().out.endswith("twice     no operation was recorded\n")


@pytest.mark.slow
def test_operations_of_numpy_are_run_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("import numpy as np; x = np.ones(2) * 2; x += x.sum()")
    words = ["prove", "tf32-off", "--runs", "2", "--twice", "--", sys.executable, "script.py"]
    assert main(["--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    # Not the `copyto` of `ones`, which writes to its argument.
    assert (found["twice"]["operations"], found["twice"]["unlike"]) == (3, [])
