"""The `ranks` bridge: ranks of programs that do not know of it are asked to agree."""

from __future__ import annotations

import json
import sys

import pytest
from side_by_side import free_port, run_side_by_side

from backendcfg.bridges import ranks

# Each rank writes what it met, because engines mix up what ranks print.
TORCH = """
import json, os, sys, warnings
import torch, torch.distributed as dist
if os.environ["RANK"] == "1":
    torch.set_default_dtype(torch.float64)
met = []
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        dist.init_process_group("gloo")
    except Exception as error:
        met.append([type(error).__name__, str(error)])
met += [[type(one.message).__name__, str(one.message).splitlines()[0]] for one in seen]
with open(f"met-{dist.get_rank()}.json", "w") as file:
    json.dump(met, file)
dist.barrier()
os._exit(0)  # threads of gloo may end the process with a signal
"""

JAX = """
import json, sys, jax
rank = int(sys.argv[1])
if rank:
    jax.config.update("jax_default_matmul_precision", "highest")
met = []
try:
    jax.distributed.initialize(sys.argv[2], 2, rank)
except Exception as error:
    met.append([type(error).__name__, str(error)])
with open(f"met-{rank}.json", "w") as file:
    json.dump(met, file)
"""

REFUSED = "2 ranks do not compute alike"


@pytest.fixture(name="met")
def _met(tmp_path):
    """Run a script as two ranks under a profile with this flag, and give what each met."""

    def run(script, agree, *commands):
        (tmp_path / "script.py").write_text(script)
        (tmp_path / "ranks.toml").write_text(f'schema = 1\nfleet.agree = "{agree}"\n')
        under = [sys.executable, "-m", "backendcfg", "run", "./ranks.toml", "--"]
        run_side_by_side([[*under, *command] for command in commands], cwd=tmp_path)
        return [json.loads((tmp_path / f"met-{rank}.json").read_text()) for rank in range(2)]

    return run


@pytest.mark.torch
@pytest.mark.parametrize(
    ("agree", "wanted"),
    [
        ("refuse", [["FleetDisagreesError", REFUSED]]),
        ("warn", [["FleetWarning", f"error[fleet-disagrees]: {REFUSED}"]]),
        ("off", []),
    ],
)
def test_ranks_of_pytorch_are_asked_when_their_group_is_made(agree, wanted, met):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    assert met(TORCH, agree, [*command, "--nproc-per-node=2", "script.py"]) == [wanted] * 2


@pytest.mark.jax
def test_processes_of_jax_are_asked_when_they_come_together(met):
    address = f"127.0.0.1:{free_port()}"
    commands = [[sys.executable, "script.py", str(rank), address] for rank in range(2)]
    assert met(JAX, "refuse", *commands) == [[["FleetDisagreesError", REFUSED]]] * 2


# A module in the place of PyTorch's, whose function tells how often it was called.
FAKE = """
import sys, types
import backendcfg
from backendcfg.fleet import agreement
calls, asked = [], []
def first(*words):
    calls.append(words)
    return "made"
agreement.agree_or = lambda *words: asked.append(words)
fakes = []
for name in ("torch.distributed.distributed_c10d", "torch.distributed"):
    fake = sys.modules[name] = types.ModuleType(name)
    fake.init_process_group = first
    fakes.append(fake)
"""


def test_a_profile_that_is_taken_back_leaves_the_function_as_it_was_to_call(python):
    program = (
        FAKE
        + """
from backendcfg.bridges import ranks
switch = ranks.Agree()
switch.write("refuse")
switch.write("refuse")
assert fakes[0].init_process_group is fakes[1].init_process_group is not first
assert fake.init_process_group("gloo") == "made"
switch.write("off")
assert fake.init_process_group("nccl") == "made"
print(calls, asked, switch.read())
"""
    )
    assert python(program) == "[('gloo',), ('nccl',)] [('refuse', 'torch')] off\n"


def test_nothing_is_set_unless_a_profile_asks():
    assert ranks.settings({"fleet.agree": "off"}, set()) == []
    (setting,) = ranks.settings({"fleet.agree": "warn"}, {"fleet.agree"})
    assert (setting.switch.name, setting.wanted) == ("fleet.agree", "warn")
    assert setting.switch.read() == "off"
