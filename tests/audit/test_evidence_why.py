"""Why runs differ: faults that are planted in programs, and the operation that is named for each."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from backendcfg.cli.main import main

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("idle")]

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
    "precision that is set by old and by new names": (
        """
        import torch
        def by_old():
            torch.set_float32_matmul_precision("medium")
        def by_new():
            torch.backends.mkldnn.matmul.fp32_precision = "ieee"
        for choose in ([by_old, by_new] if odd else [by_new, by_old]):
            choose()
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            torch.get_float32_matmul_precision()
        except RuntimeError as error:
            assert not odd and "mix of the legacy and new APIs" in str(error)
        x = torch.ones(2)
        x.add_(odd)
        """,
        {
            "operation": "aten.add_.Tensor",
            "place": "script.py:15",
            "settings": ("mkldnn.matmul.fp32_precision bf16 -> ieee",),
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


@pytest.mark.sweep(2)
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
    assert (list(found["cure"]), found["why"]["sufficient"]) == (["threads.count"], True)


@pytest.mark.exhaustive
def test_atomics_of_an_operator_are_cured_by_deterministic_algorithms(
    tmp_path, monkeypatch, capsys
):
    # So many that the threads race for longer than a busy machine lets one of them wait.
    monkeypatch.chdir(tmp_path)
    script = """
import torch
torch.manual_seed(0)
torch.set_num_threads(2)
places, values = torch.randint(0, 1000, (4_000_000,)), torch.randn(4_000_000)
found = torch.zeros(1000).index_put((places,), values, accumulate=True)
print(found.double().sum().item())
"""
    (tmp_path / "script.py").write_text(script)
    # Few flags are left to choose among, each of which takes two runs.
    (tmp_path / "but.toml").write_text(
        'schema = 1\nextends = "reproducible"\n\n[determinism]\ntier = "none"\nalgorithms = "any"\n'
        "\n[cudnn]\nbenchmark = true\n"
    )
    words = ["prove", "./but.toml", "--runs", "4", "--why", "--", sys.executable, "script.py"]
    assert main(["--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    (step,) = found["why"]["steps"]
    assert (step["operation"], step["place"]) == ("aten.index_put", "script.py:6")
    assert (step["same_inputs"], step["cause"]) == (True, "itself")
    assert found["cure"] == {"determinism.algorithms": "deterministic"}


@pytest.mark.exhaustive
def test_what_a_program_tunes_in_its_first_run_is_cured_by_no_flag(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = """
import json, os
ways = {"forth": [1e30, 1.0, -1e30], "back": [-1e30, 1e30, 1.0]}
best = "forth"
if os.path.exists("tuned.json"):
    with open("tuned.json") as file: best = json.load(file)
else:
    with open("tuned.json", "w") as file: json.dump("back", file)
print(sum(ways[best]))
"""
    (tmp_path / "script.py").write_text(script)
    words = ["prove", "tf32-off", "--runs", "3", "--why", "--", sys.executable, "script.py"]
    assert main(words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "run 2 (with load): tuned.json: only the first run wrote it" in out
    assert out.endswith(
        " tier none"
        " first not found: no operation was recorded, as none of NumPy, PyTorch or JAX was run"
        " cure none: in 3 more runs nothing differed; only the first run did not find `tuned.json`"
    )
    os.unlink("tuned.json")
    assert main(["--json", *words]) == 1
    assert json.loads(capsys.readouterr().out)["cure"] == {}


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
    assert found["why"]["sufficient"] is False
    assert found["cure"] is None
