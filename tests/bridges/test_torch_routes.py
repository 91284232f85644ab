"""What a program calls PyTorch for, and a profile gives to others."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from backendcfg.bridges.torch import routes

NATIVE = {"route.torch.attention": "native"}

COUNTS = """
import json, torch
from torch.nn.functional import scaled_dot_product_attention as attention

torch.manual_seed(0)
given = [torch.randn(2, 4, 29, 16, requires_grad=True) for _ in range(3)]

def trained():
    out = attention(*given, is_causal=True)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), given)]

def served():
    from backendcfg.ops.serving import counted
    return sorted(operation for operation, *_ in counted())

def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
"""
BOTH = ["scaled_dot_product_attention", "scaled_dot_product_attention_backward"]


@pytest.mark.torch
def test_attention_of_a_program_runs_on_our_kernels_forward_and_backward(program):
    code = f"""{COUNTS}
import backendcfg
theirs = trained()
before = served()
backendcfg.apply(settings={NATIVE!r})
ours = trained()
found = [one.found for one in backendcfg.verify().readings if one.flag == "route.torch.attention"]
inside = served(), found, all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs))
backendcfg.undo()
print(json.dumps([before, *inside, same(theirs, trained()), served() == inside[0]]))
"""
    assert program(code) == [[], BOTH, ["native"], True, True, True]


@pytest.mark.torch
def test_a_variable_is_enough_for_a_program_and_its_workers(program):
    code = f"""
import backendcfg, multiprocessing
{COUNTS}
def child(sender):
    trained()
    sender.send(served())

receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
worker = multiprocessing.get_context("fork").Process(target=child, args=[sender])
worker.start()
of_worker = receiver.recv()
worker.join()
trained()
print(json.dumps([of_worker, served()]))
"""
    assert program(code, BACKENDCFG_ROUTE_TORCH_ATTENTION="native") == [BOTH, BOTH]


@pytest.mark.torch
def test_scopes_leave_the_kernels_alone(program, routed):
    routed('torch.attention = "native"')
    code = f"""{COUNTS}
import backendcfg, warnings
warnings.simplefilter("ignore")
with backendcfg.profile("routed"):
    trained()
print(json.dumps(served()))
"""
    assert program(code) == []


@pytest.mark.torch
def test_what_a_program_serves_itself_stays_served_after_undo(program):
    code = f"""{COUNTS}
import backendcfg
from backendcfg import ops
own = ops.serve_torch()
backendcfg.apply(settings={NATIVE!r})
backendcfg.undo()
trained()
print(json.dumps(served()))
own.undo()
"""
    assert program(code) == BOTH


@pytest.mark.torch
@pytest.mark.skipif(find_spec("expecttest") is None, reason="expecttest is not installed")
@pytest.mark.parametrize(
    ("matmul", "times"),
    [
        ("native", 5),
        pytest.param("native", 20, marks=pytest.mark.exhaustive),
        pytest.param("float32", 20, marks=pytest.mark.exhaustive),
    ],
)
def test_with_every_route_pytorchs_functions_are_as_exact_on_the_inputs_of_its_tests(
    python, matmul, times
):
    """The inputs come with PyTorch's wheel, whose tests import expecttest."""
    program = Path(__file__).with_name("torch_routed.py").read_text()
    found = json.loads(python(program, matmul, str(times)))
    wrong = {name: report["wrong"] for name, report in found.items() if report["wrong"]}
    assert not wrong, json.dumps(wrong, indent=1)
    assert all(report["compared"] > 5 for report in found.values())
    # Results and each gradient, on average over some 80 calls where the inputs come 20 times.
    errors = {
        f"{name}, {kind}": error
        for name, report in found.items()
        for kind, (calls, error) in report["error"].items()
        if calls >= 2.5 * times
    }
    assert len(errors) >= 12
    most = 1.3 if times == 20 else 1.6
    assert {kind: error for kind, error in errors.items() if error > most} == {}
    served = {name for name, report in found.items() if report["served"]}
    attention = {"nn.functional.scaled_dot_product_attention"}
    # Vectors are PyTorch's; of products in float32 nothing is traced.
    products = {*found} - attention - {"addmv", "inner", "mv"}
    assert served == (attention | products if matmul == "native" else attention)


def test_a_pytorch_that_gives_no_kernels_out_is_not_served():
    torch = SimpleNamespace(
        __version__="2.8.0", library=SimpleNamespace(), ops=SimpleNamespace(aten=SimpleNamespace())
    )
    (setting,) = routes.collect(torch, NATIVE, NATIVE)
    assert setting.switch.unsupported() == "PyTorch 2.8.0 does not give its kernels out"


def test_what_is_kept_is_not_touched():
    assert routes.collect(None, {"route.torch.attention": "keep"}, NATIVE) == []
