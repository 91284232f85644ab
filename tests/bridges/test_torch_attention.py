"""PyTorch's attention on our kernels, in processes of their own."""

from __future__ import annotations

import pytest

BEGINS = """
import json, sys, threading, torch
from backendcfg import ops
from backendcfg.errors import MissingLibraryError
from backendcfg.ops.attention import torch_kernels

torch.manual_seed(0)
attention = torch.nn.functional.scaled_dot_product_attention
"""


@pytest.mark.torch
def test_nothing_is_printed_where_kernels_are_replaced(child):
    """PyTorch warns of it, from C++ on standard error."""
    code = f"""{BEGINS}
given = [torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3)]
with ops.serve_torch():
    attention(*given).sum().backward()
"""
    done = child(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.torch
def test_a_pytorch_that_lacks_a_function_is_refused_with_its_name(child, build):
    """A library without PyTorch's functions stands for one that has others."""
    other = build("probe_library")
    code = f"""{BEGINS}
import ctypes
ctypes.CDLL({other!r})
own, torch._C.__file__ = torch._C.__file__, {other!r}
given = torch.randn(3, 1, 2, 8, 16)
before = attention(*given)
try:
    ops.serve_torch()
except MissingLibraryError as error:
    print(error, *error.__notes__, sep="\\n")
assert torch.equal(attention(*given), before)
torch._C.__file__ = own
with ops.serve_torch(), ops.trace() as calls:
    attention(*given)
assert len(calls) == 1
"""
    done = child(code)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("serve_torch: PyTorch 2.")
    assert first.endswith(" lacks `aoti_torch_library_init_impl`")
    assert rest == [
        "  state: nothing was changed",
        "  help: PyTorch 2.9 or newer does: `pip install --upgrade torch`",
    ]


@pytest.mark.torch
def test_without_memory_a_call_fails_and_the_next_one_does_not(program):
    code = f"""{BEGINS}
import resource
torch.set_num_threads(1)
small = torch.randn(3, 1, 2, 8, 16)
large = torch.randn(1, 2, 1 << 20, 16).expand(3, 1, 2, 1 << 20, 16)
few = torch.randn(1, 2, 1, 16)
said = []
with ops.serve_torch():
    wanted = attention(*small)
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + (16 << 20), limits[1]))
    try:
        attention(large[0], few, few)
    except RuntimeError as error:
        said.append(str(error))
    same = torch.equal(attention(*small), wanted)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    same = same and attention(large[0], few, few).shape == large[0].shape
print(json.dumps([said, same]))
"""
    assert program(code) == [["backendcfg: no memory for attention"], True]


@pytest.mark.torch
def test_other_threads_run_while_attention_is_computed_by_ours_or_left_to_pytorch(program):
    code = f"""{BEGINS}
sys.setswitchinterval(1000)  # a thread gives the GIL up by itself alone
q = torch.randn(1, 2, 2000, 64, requires_grad=True)
turns, done = [0], threading.Event()
def count():
    while not done.wait(0.0001):
        turns[0] += 1
def ran(call):
    # A turn or two come where a call begins and ends, whoever computes in between.
    for _ in range(200):
        before = turns[0]
        call()
        if turns[0] - before > 5:
            return True
    return False
def both():
    out = attention(q, q, q)
    calls = (lambda: attention(q, q, q)), (lambda: torch.autograd.grad(out, q, q, retain_graph=True))
    return [ran(call) for call in calls]
counting = threading.Thread(target=count)
counting.start()
served = ops.serve_torch()
found = both()
served.undo()  # another thread runs, so ours stay and pass calls on
assert torch_kernels.REPLACED.is_registered
found += both()
done.set()
counting.join()
print(json.dumps(found))
"""
    assert program(code) == [True] * 4
