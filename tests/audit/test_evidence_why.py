"""Why runs differ: faults that are planted in programs, and the operation that is named for each."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from backendcfg.cli.main import main

pytestmark = pytest.mark.torch

UNSEEDED = """
import torch
x = torch.rand(4, 4)
print((x @ x).sum().item())
"""

FAULTS = {
    "the order of a set": (
        """
        import torch
        parts = {name: torch.full((4,), len(name) + 0.0) for name in ["a", "bb", "ccc", "dddd"]}
        total = torch.zeros(4)
        for name in set(parts):
            total = total * 2 + parts[name]
        """,
        {"operation": "aten.add.Tensor", "place": "script.py:6", "cause": "order"},
    ),
    "the order of threads": (
        """
        import threading, torch
        first, results = threading.Event(), []
        def work(number):
            if number != odd:
                first.wait()
            results.append(torch.full((4,), number + 1.0))
            first.set()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for one in threads: one.start()
        for one in threads: one.join()
        total = results[0] * 2 + results[1]
        """,
        {"operation": "aten.mul.Tensor", "place": "script.py:12", "cause": "order"},
    ),
    "a hash": (
        "import torch\nx = torch.tensor([hash('a')]) * 2\n",
        {"operation": "aten.lift_fresh", "place": "script.py:3", "cause": "outside"},
    ),
    "a file that another process changes": (
        """
        import os, torch
        with open("counter", "ab") as file:
            file.write(b"x")
        x = torch.full((2,), os.path.getsize("counter") / 4)
        """,
        {"operation": "aten.full", "place": "script.py:5", "cause": "outside"},
    ),
    "a number of threads that the program sets": (
        """
        import torch
        torch.set_num_threads(2 - odd)
        x = torch.ones(2)
        x.add_(odd)
        """,
        {
            "operation": "aten.add_.Tensor",
            "place": "script.py:5",
            "cause": "outside",
            "settings": ("threads 2 -> 1",),
        },
    ),
    "memory that nothing has written to": (
        """
        import ctypes, os, torch
        x = torch.empty(4)
        ctypes.memmove(x.data_ptr(), os.urandom(16), 16)
        y = x.view(2, 2) * 1
        """,
        {"operation": "aten.mul.Tensor", "place": "script.py:5", "cause": "unwritten"},
    ),
    "an operator of the program's own": (
        """
        import os, torch
        @torch.library.custom_op("mine::noisy", mutates_args=())
        def noisy(x: torch.Tensor) -> torch.Tensor:
            return torch.frombuffer(bytearray(os.urandom(8)), dtype=torch.float32).clone()
        noisy(torch.ones(2))
        """,
        {
            "operation": "mine.noisy",
            "place": "script.py:6",
            "cause": "",
            "same_inputs": True,
            "obstacle": "AttributeError: '_OpNamespace' 'mine' object has no attribute 'noisy'",
        },
    ),
    "a worker of a DataLoader": (
        """
        import torch
        from torch.utils.data import DataLoader
        def collate(rows):
            return torch.tensor(rows) * torch.rand(1)
        for batch in DataLoader(range(4), batch_size=2, num_workers=1, collate_fn=collate):
            pass
        """,
        {"operation": "aten.random_", "place": "script.py:6", "cause": "generator"},
    ),
    "one operation more": (
        "import torch\nx = torch.ones(2)\nif odd: x = x * 2\nx = x + 1\n",
        {"operation": "aten.add.Tensor", "other": "aten.mul.Tensor", "same_inputs": None},
    ),
    "a run that ends sooner": (
        "import torch\nx = torch.ones(2)\nif not odd: x = x * 2\n",
        {"operation": "aten.mul.Tensor", "other": "", "place": "script.py:4"},
    ),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("script", "expected"), FAULTS.values(), ids=FAULTS)
def test_the_first_operation_that_differs_is_named_with_what_parts_it(script, expected, searched):
    found = searched(script)
    (step,) = found.steps
    assert found.obstacle == ""
    assert {name: getattr(step, name) for name in expected} == expected


def test_a_program_that_computes_with_nothing_recorded_is_told_so(searched):
    found = searched("import os; print(os.urandom(4))")
    assert found.steps == ()
    assert found.obstacle == "no operation was recorded, as none of NumPy, PyTorch or JAX was run"


@pytest.mark.exhaustive
def test_runs_that_are_the_same_while_recorded_are_told_so(searched):
    found = searched("import torch; x = torch.ones(2); x.add_(1)")
    assert found.steps == ()
    assert found.obstacle == "while their operations were recorded, both runs computed the same 2"
    assert found.recorded == 2


def test_the_shell_names_the_operation_and_the_flag_that_cures_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(UNSEEDED)
    words = ["prove", "tf32-off", "--runs", "2", "--why", "--", sys.executable, "script.py"]
    assert main(words) == 1
    out = " ".join(capsys.readouterr().out.partition("tier ")[2].split())
    # How far draws without a seed are apart, and where most, is another each time.
    out = re.sub(r"in op \d+ \([\w.]+\)", "in op ...", out)
    assert re.sub(r"\d\.\de[-+]\d\d", "...", out) == (
        "none"
        " first op 0 aten.rand float32[4, 4]"
        " at script.py:3"
        " other inputs (the state of the generator), other output: 16 of 16 elements,"
        " relative ... at most"
        " it draws from a generator that has another state in each run"
        " steady with seed.value = 0 (run by itself in 4 processes)"
        " in the 3 operations from there, runs are apart by ... at most, in op ..."
        " cure seed.value = 0: with that, 2 runs were the same"
    )


@pytest.mark.exhaustive
def test_a_number_of_threads_that_parts_a_sum_is_cured_by_the_flag_for_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(
        "import torch; torch.manual_seed(0); print(torch.rand(3, 500_000).sum())"
    )
    words = ["prove", "tf32-off", "--runs", "3", "--also", "threads=1", "--why", "--"]
    assert main(["--json", *words, sys.executable, "script.py"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["also"]) for one in found["differences"]] == [(3, ["threads = 1"])]
    (step,) = found["why"]["steps"]
    assert (step["operation"], step["cause"]) == ("aten.sum", "surroundings")
    assert step["settings"] == [f"threads {os.cpu_count()} -> 1"]
    assert list(found["cure"]) == ["threads.count"]


@pytest.mark.exhaustive
def test_a_seed_that_the_program_takes_from_the_clock_is_cured_by_no_flag(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    script = "import time, torch; torch.manual_seed(time.time_ns()); print(torch.rand(4))"
    (tmp_path / "script.py").write_text(script)
    words = ["prove", "tf32-off", "--runs", "2", "--why", "--", sys.executable, "script.py"]
    assert main(["--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    (step,) = found["why"]["steps"]
    assert (step["operation"], step["cause"], step["cure"]) == ("aten.rand", "generator", {})
    assert found["why"]["obstacle"] == "with seed.value set, the program parts there, too"
    assert found["cure"] is None
