"""The operations of PyTorch, recorded in a program that does not know of it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from backendcfg.audit.trace.reading import partings

pytestmark = pytest.mark.torch


TRAINING = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
net(torch.ones(4, 3)).sum().backward()
optimizer.step()
"""


def test_forward_backward_and_optimizer_are_recorded_with_their_lines(recorded, names):
    (stream,), _ = recorded(TRAINING, windows={"0-0": (0, 100)})
    found = names(stream)
    assert found[:2] == ["aten.uniform_", "aten.uniform_"]
    assert found[2:5] == ["aten.ones", "aten.addmm", "aten.sum"]
    assert {"aten.ones_like", "aten.mm", "aten.add_.Tensor"} <= set(found[5:])
    places = {one["name"]: one["place"] for one in stream.details.values()}
    assert places["aten.addmm"] == "script.py:6"
    assert places["aten.mm"] == "script.py:6, in its backward"
    assert places["aten.add_.Tensor"] == "script.py:7"
    of = {one["name"]: one for one in stream.details.values()}
    assert of["aten.addmm"]["outputs"] == ["float32[4, 2]"]
    assert [each["what"] for each in of["aten.addmm"]["inputs"]] == [
        "float32[2]",
        "float32[4, 3]",
        "float32[3, 2]",
    ]
    # What it writes over is none of what it reads.
    assert [each["what"] for each in of["aten.uniform_"]["inputs"]] == ["numbers", "generator"]


MIXED = """
import json
import torch

torch.manual_seed(0)
x = torch.randn(6, 5, dtype=torch.complex64)
views = x.mT, x[::2, 1:], x.conj(), x.conj().imag, x.real.expand(2, 6, 5)
results = [each @ torch.ones(each.shape[-1], dtype=each.dtype) for each in views]
results += [torch.ones(3).to(torch.bfloat16) * 2, torch.ones(2, 2).to_sparse() * 3]
results += [torch.empty(0), torch.tensor(3), torch.ones(2).equal(torch.ones(2)), x.to("meta")]
torch._foreach_mul_([y := torch.ones(3)], 2)
with torch.no_grad():
    torch.nn.functional.dropout(y, 0.5)
torch.func.vmap(torch.sin)(y)
torch.utils.checkpoint.checkpoint(torch.sin, y.requires_grad_(), use_reentrant=False).sum().backward()
print(json.dumps([str(each) for each in results] + [y.grad.tolist()]))
"""


def test_a_program_computes_the_same_while_it_is_recorded(recorded, python):
    first, printed = recorded(MIXED)
    second, again = recorded(MIXED)
    assert printed == again == python(MIXED)
    assert partings(first, second) == []
    assert len(first[0].records) > 20


def test_one_changed_bit_of_one_element_parts_at_the_operation_that_computes_it(recorded, names):
    program = """
import torch
x = torch.zeros(1000)
x[7] = {value}
y = x + 1
z = y * 0
"""
    (one,), _ = recorded(program.format(value="2.0 ** -23"))
    (same,), _ = recorded(program.format(value="2.0 ** -23"))
    (other,), _ = recorded(program.format(value="2.0 ** -22"))
    assert partings([one], [same]) == []
    (found,) = partings([one], [other])
    assert found.name in ("aten.lift_fresh", "aten.fill_.Tensor", "aten.fill_.Scalar")
    assert names(one)[-2:] == ["aten.add.Tensor", "aten.mul.Tensor"]
    differ = one.records["digest"] != other.records["digest"]
    assert differ.tolist()[-2:] == [True, False]  # what all comes to zero in is the same again


def test_threads_and_workers_of_a_loader_have_streams_of_their_own(recorded, names):
    streams, _ = recorded(
        """
import threading
import torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, number):
        return torch.full((2,), float(number)).cos()

threading.Thread(target=lambda: torch.ones(2).exp()).start()
for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2):
    batch.sin()
"""
    )
    of = {one.key: names(one) for one in streams}
    assert of["0-1"] == ["aten.ones", "aten.exp"]
    workers = [key for key in of if key.startswith("0.")]
    assert workers == ["0.1-0", "0.2-0"]
    assert all("aten.cos" in of[key] for key in workers)
    assert of["0-0"].count("aten.sin") == 2


def test_compiled_code_stays_compiled_and_is_no_operation(recorded, names):
    (stream,), printed = recorded(
        """
import torch
calls = []

def counting(graph, inputs):
    calls.append(graph)
    return graph.forward

f = torch.compile(lambda x: x.sin() + 1, backend=counting)
y = f(torch.ones(3))
print(len(calls))
y.exp()
"""
    )
    assert printed == "1\n"
    assert names(stream)[-1] == "aten.exp"


def test_an_operation_that_differs_from_call_to_call_is_found_by_running_it_twice(recorded):
    (stream,), _ = recorded(
        """
import itertools
import torch

calls = itertools.count()

@torch.library.custom_op("test::racing", mutates_args=())
def racing(x: torch.Tensor) -> torch.Tensor:
    return x + next(calls)

@torch.library.custom_op("test::steady", mutates_args=())
def steady(x: torch.Tensor) -> torch.Tensor:
    return x + 1

steady(torch.ones(2))
racing(torch.ones(2))
torch.rand(3)
""",
        again="twice",
    )
    unlike = [one for one in stream.details.values() if one.get("unlike")]
    assert [(one["name"], one["place"]) for one in unlike] == [("test.racing", "script.py:16")]


def test_arguments_are_kept_for_a_replay_as_they_were_before_the_operation(recorded):
    (stream,), _ = recorded(
        "import torch\nx = torch.ones(2)\nx.mul_(3)\n",
        windows={"0-0": (1, 1)},
        keep={"0-0": 1},
    )
    kept = stream.details[1]["kept"]
    assert kept["obstacle"] == ""
    program = """
    import json, sys, torch
    kept = torch.load(sys.argv[1], weights_only=False)
    print(json.dumps([kept["operation"], kept["args"][0].tolist(), kept["outputs"][0].tolist()]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), kept["path"]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["aten.mul_.Tensor", [1.0, 1.0], [3.0, 3.0]]


def test_elements_of_results_are_sampled_from_the_first_of_a_window_on(recorded):
    program = """
import torch
x = torch.arange(10_000, dtype=torch.float32)
x = x + 1
x = (x[:2] * 1j).conj() + 0
x.real.to_sparse() * 2
"""
    (found,), _ = recorded(program, windows={"0-0": (1, 1)}, follow=10)
    names_of = {index: found.name(index) for index in found.samples}
    assert names_of[1] == "aten.add.Tensor"
    assert len(found.samples[1]) == 3334  # every third
    assert found.samples[1][:3].tolist() == [1.0, 4.0, 7.0]
    assert [found.samples[i].tolist() for i, name in names_of.items() if name == "aten.add.Tensor"][
        1
    ] == [0.0, -1.0, 0.0, -2.0]
    assert 0 not in found.samples
