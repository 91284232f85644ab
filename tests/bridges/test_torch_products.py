"""PyTorch's products on our kernels: `route.torch.matmul`."""

from __future__ import annotations

import json

import pytest

from backendcfg.bridges.torch import routes

NATIVE = {"route.torch.matmul": "native"}
FLOAT32 = {"route.torch.matmul": "float32"}

CASES = """
import json, torch
import backendcfg
from backendcfg import _native, ops

AMX = _native.has_tiles()

def tokens(dtype, double=False):
    '''A linear layer that is given two rows.'''
    of = given(dtype, (2, 300), (29, 300), (29,))
    a, b, row = (each.double() if double else each for each in of)
    return {"a token": lambda: torch.nn.functional.linear(a, b, row)}

def given(dtype, *shapes):
    torch.manual_seed(0)
    return [torch.randn(shape).to(getattr(torch, dtype)) for shape in shapes]

def cases(dtype, double=False):
    shapes = (37, 300), (300, 29), (3, 7, 300), (3, 300, 29), (29,), (37, 29)
    of = [each.double() if double else each for each in given(dtype, *shapes)]
    a, b, x, y, row, square = of
    linear = torch.nn.functional.linear
    return {
        "mm": lambda: torch.mm(a, b),
        "mm of transposed": lambda: torch.mm(b.mT, a.mT),
        "mm into": lambda: torch.mm(a, b, out=torch.empty_like(square)),
        "mm into columns": lambda: torch.mm(a, b, out=torch.empty_like(square.mT).mT),
        "bmm": lambda: torch.bmm(x, y),
        "bmm into": lambda: torch.bmm(x, y, out=torch.empty(3, 7, 29, dtype=x.dtype)),
        "addmm": lambda: torch.addmm(square, a, b),
        "addmm of a row": lambda: torch.addmm(row, a, b),
        "addmm into": lambda: torch.addmm(row, a, b, out=torch.empty_like(square)),
        "addmm onto itself": lambda: torch.addmm(held := square.clone(), a, b, out=held),
        "baddbmm": lambda: torch.baddbmm(row, x, y),
        "baddbmm into": lambda: torch.baddbmm(row, x, y, out=torch.empty(3, 7, 29, dtype=x.dtype)),
        "linear": lambda: linear(a, b.mT),
        "linear of a batch": lambda: linear(x, b.mT, row),
        "einsum": lambda: torch.einsum("bij,bjk->bik", x, y),
        "one row": lambda: torch.mm(a[:1], b),
        "no rows": lambda: torch.mm(a[:0], b),
    } | (tokens(dtype, double) if AMX and dtype == "bfloat16" else {})

def left(dtype):
    '''What is left to PyTorch.'''
    a, b, row = given(dtype, (7, 5), (5, 3), (3,))
    return {
        "scaled": lambda: torch.addmm(row, a, b, beta=2, alpha=0.5),
        "nothing multiplied": lambda: torch.addmm(row, a[:, :0], b[:0]),
        "resized": lambda: torch.mm(a, b, out=torch.empty(0, dtype=a.dtype)),
        "a vector": lambda: torch.mv(a, b[:, 0]),
    } | ({} if AMX and dtype == "bfloat16" else tokens(dtype))

def ours(call):
    '''How many calls of ours computed it, and the result.'''
    with ops.trace() as calls:
        found = call()
    return len(calls), found
"""


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_run_on_our_kernels_and_are_no_less_exact(program, dtype):
    """Apart from the exact value by a rounding, and what sums of float32 lose before it."""
    code = f"""{CASES}
backendcfg.apply(settings={NATIVE!r})
exact = {{name: call() for name, call in cases("{dtype}", double=True).items()}}
count, wrong = {{}}, []
for name, call in cases("{dtype}").items():
    count[name], found = ours(call)
    assert (found.shape, found.dtype) == (exact[name].shape, torch.{dtype}), name
    apart = (found.double() - exact[name]).abs()
    if (apart > 0.501 * torch.finfo(torch.{dtype}).eps * exact[name].abs() + 1e-5).any():
        wrong.append(name)
print(json.dumps([count, wrong]))
"""
    count, wrong = program(code)
    assert wrong == []
    assert set(count.values()) == {1}


@pytest.mark.torch
def test_a_sum_is_rounded_once(program):
    """1 + 2**-9 and what is added are no sum of bfloat16, and rounding twice would go down."""
    code = f"""{CASES}
backendcfg.apply(settings={NATIVE!r})
a = torch.tensor([[1.0, 2.0**-8]]).bfloat16()
b = torch.tensor([[1.0], [1.0]]).bfloat16()
added = torch.tensor([[2.0**-8 + 2.0**-15]]).bfloat16()
print(json.dumps([torch.mm(a, b).item(), torch.addmm(added, a, b).item()]))
"""
    assert program(code) == [1.0, 1.0 + 2.0**-7]


@pytest.mark.torch
def test_other_calls_are_left_to_pytorch_to_the_bit(program):
    code = f"""{CASES}
def every():
    return {{
        f"{{name}} of {{dtype}}": call
        for dtype in ("bfloat16", "float16") for name, call in left(dtype).items()
    }} | {{
        f"{{name}} of {{dtype}}": call
        for dtype in ("float32", "float64") for name, call in cases(dtype).items()
    }}
theirs = {{name: call() for name, call in every().items()}}
backendcfg.apply(settings={NATIVE!r})
found = {{name: ours(call) for name, call in every().items()}}
print(json.dumps([
    [name for name, (times, _) in found.items() if times],
    [name for name, (_, one) in found.items() if not torch.equal(one, theirs[name])],
]))
"""
    assert program(code) == [[], []]


@pytest.mark.torch
@pytest.mark.parametrize(("route", "dtype"), [(NATIVE, "bfloat16"), (FLOAT32, "float32")])
def test_errors_are_those_of_pytorch(program, route, dtype):
    code = f"""{CASES}
a, b, row = given("{dtype}", (70, 50), (50, 30), (4,))
wrong = [
    lambda: torch.mm(a, a),
    lambda: torch.mm(a, b.double()),
    lambda: torch.mm(a, b[0]),
    lambda: torch.mm(a, b, out=torch.empty(70, 30).double()),
    lambda: torch.mm(a, b, out=torch.empty(1, 30, dtype=a.dtype).expand(70, 30)),
    lambda: torch.mm(a, a.mT, out=torch.empty(70, 1, dtype=a.dtype).expand(70, 70)),
    lambda: torch.addmm(row, a, b),
    lambda: torch.bmm(a[None], b.expand(2, 50, 30)),
    lambda: torch.addmm((held := torch.ones(73, 70, dtype=a.dtype))[:70], a, a.mT, out=held[3:]),
]
def said():
    found = []
    for call in wrong:
        try:
            found.append(str(call()))
        except RuntimeError as error:
            found.append(str(error).splitlines()[0])
    return found
theirs = said()
backendcfg.apply(settings={route!r})
print(json.dumps([theirs, said()]))
"""
    theirs, found = program(code)
    assert found == theirs
    assert all("tensor(" not in message for message in theirs)


SERVED = """
import backendcfg
from backendcfg import _native

# How many products our kernels have computed.
def served():
    return sum(calls for _, _, calls in _native.kernel_isas())
"""

LAYOUTS = f"""{SERVED}
import json, random
from math import prod
import torch
from backendcfg import ops

# Numbers of a shape, somewhere in memory.
def lay_out(shape):
    *batch, rows, columns = shape
    way = random.choice(["rows", "columns", "sliced", "spread", "offset"])
    if way == "columns":
        return torch.randn(*batch, columns, rows).mT
    if way == "sliced":
        return torch.randn(*batch, rows + 3, columns + 5)[..., 1:-2, 2:-3]
    if way == "spread":
        return torch.randn(*batch, 2 * rows, 3 * columns)[..., ::2, ::3]
    if way == "offset":
        return torch.randn(prod(shape) + 1)[1:].view(shape)
    return torch.randn(shape)

def cases(count):
    random.seed(0), torch.manual_seed(0)
    sizes = [1, 2, 3, 7, 8, 16, 33, 64, 100, 257]
    for at in range(count):
        m, k, n = random.choices(sizes, k=3)
        if at % 3:
            yield torch.mm, lay_out((m, k)), lay_out((k, n)), (m, n)
        else:
            batch = random.choice([1, 3])
            a, b = lay_out((batch, m, k)), lay_out((batch, k, n))
            yield torch.bmm, a, random.choice([b, b[:1].expand(b.shape)]), (batch, m, n)
    yield torch.mm, lay_out((1, 1500)), lay_out((1500, 1500)), (1, 1500)

def is_ours(a, b):
    *batch, m, k = a.shape
    n = b.shape[-1]
    if 1 in (m, n):
        return m * k * n >= 1 << 21
    return k > 1 and prod(batch) * m * k * n >= 1 << 9

# What a call returns, and what it writes into results that lie by rows, by columns and in part of some rows.
def everywhere(call, a, b, shape):
    wide = torch.empty(*shape[:-1], shape[-1] + 3)[..., :-3]
    places = torch.empty(shape), torch.empty(shape).mT.contiguous().mT, wide
    return call(a, b), *[call(a, b, out=place) for place in places], *places
"""


@pytest.mark.torch
@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.exhaustive)])
def test_float32_has_the_bits_of_our_kernels_or_of_pytorch_however_it_lies(program, count):
    code = f"""{LAYOUTS}
given = list(cases({count}))
theirs = [everywhere(*one) for one in given]
backendcfg.apply(settings={{"blas.library": "native"}})
expected = [
    [ops.matmul(a, b)] * len(own) if is_ours(a, b) else own
    for (_, a, b, _), own in zip(given, theirs)
]
backendcfg.undo()
backendcfg.apply(settings={FLOAT32!r})
wrong, ours = [], 0
for one, right in zip(given, expected):
    before = served()
    found = everywhere(*one)
    ours += served() - before
    if not found[0].is_contiguous() or not all(map(torch.equal, found, right)):
        _, a, b, _ = one
        wrong.append([list(a.shape), list(a.stride()), list(b.shape), list(b.stride())])
print(json.dumps([wrong, ours > len(given)]))
"""
    assert program(code) == [[], True]


@pytest.mark.torch
def test_float32_leaves_other_calls_to_pytorch_to_the_bit(program):
    code = f"""{CASES}
{SERVED}
def every():
    a, b, row = given("float32", (70, 50), (50, 30), (30,))
    return {{
        f"{{name}} of {{dtype}}": call
        for dtype in ("bfloat16", "float16", "float64") for name, call in cases(dtype).items()
    }} | {{
        "small": lambda: torch.mm(a[:7, :8], b[:8, :9]),
        "a row": lambda: torch.mm(a[:1], b),
        "a column": lambda: torch.mm(a, b[:, :1]),
        "an outer product": lambda: torch.mm(a[:, :1], b[:1]),
        "a vector": lambda: torch.mv(a, b[:, 0]),
        "with a bias": lambda: torch.nn.functional.linear(a, b.mT, row),
        "nothing multiplied": lambda: torch.mm(a[:, :0], b[:0]),
        "no rows": lambda: torch.mm(a[:0], b),
        "resized": lambda: torch.mm(a, b, out=torch.empty(0)),
        "spread": lambda: torch.mm(a, b, out=torch.empty(140, 90)[::2, ::3]),
        "between its rows": lambda: torch.mm((held := a.repeat(2, 1))[::2], b, out=held[1::2, :30]),
        "complex": lambda: torch.mm(a.cfloat(), b.cfloat()),
        "integers": lambda: torch.mm(a.long(), b.long()),
        "a batch of none": lambda: torch.bmm(a[None][:0], b[None][:0]),
    }}
theirs = {{name: call() for name, call in every().items()}}
backendcfg.apply(settings={FLOAT32!r})
before = served()
found = {{name: call() for name, call in every().items()}}
print(json.dumps([
    served() - before,
    [name for name, one in found.items() if not torch.equal(one, theirs[name])],
]))
"""
    assert program(code) == [0, []]


@pytest.mark.torch
def test_float32_reaches_gradients_vmap_autocast_and_compiled_code(program):
    code = f"""{SERVED}
import json, torch
backendcfg.apply(settings={FLOAT32!r})
layer = torch.nn.Linear(64, 32, bias=False)
x = torch.randn(8, 64).requires_grad_()

def trained(module):
    out = module(x)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]

def counted(call):
    before = served()
    found = call()
    return served() - before, found

counts = {{}}
counts["trained"], eager = counted(lambda: trained(layer))
counts["vmap"], _ = counted(lambda: torch.vmap(torch.mm)(torch.randn(4, 8, 9), torch.randn(4, 9, 8)))
with torch.autocast("cpu", dtype=torch.bfloat16):
    counts["autocast"], _ = counted(lambda: layer(x))  # asks for bfloat16
with torch.inference_mode():
    counts["inference"], _ = counted(lambda: layer(x))
compiled = torch.compile(layer)
trained(compiled)
counts["compiled"], quick = counted(lambda: trained(compiled))
print(json.dumps([counts, all(torch.equal(a, b) for a, b in zip(eager, quick))]))
"""
    counts = {"trained": 3, "vmap": 1, "autocast": 0, "inference": 1, "compiled": 3}
    assert program(code) == [counts, True]


@pytest.mark.torch
def test_nothing_is_printed_where_float32_is_served_and_a_call_fails(child):
    code = f"""{SERVED}
import torch
backendcfg.apply(settings={FLOAT32!r})
ones = torch.ones(40, 40)
try:
    torch.mm(ones, torch.ones(41, 40))
except RuntimeError as error:
    print(error)
print(served(), torch.mm(ones, ones).sum().item(), served())
"""
    said = "mat1 and mat2 shapes cannot be multiplied (40x40 and 41x40)\n0 64000.0 1\n"
    done = child(code, BACKENDCFG_DISABLE="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


@pytest.mark.torch
def test_kernels_that_another_thread_keeps_in_place_outlive_those_that_call_them(program):
    """While threads run, kernels stay and pass calls on; a newer one passes them to what it found."""
    code = """
import json, threading, torch
from backendcfg.ops.torch_products import FLOAT32, NARROW

a = torch.randn(40, 40)
wanted, found = torch.mm(a, a), []
def compute():
    found.append(bool(torch.allclose(torch.mm(a, a), wanted, atol=1e-4)))
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
FLOAT32.serve(torch, "first")
FLOAT32.give_back("first")
NARROW.serve(torch, "second")
compute()
end.set()
thread.join()
FLOAT32.serve(torch, "third")
FLOAT32.give_back("third")
compute()
held = [FLOAT32.is_registered, NARROW.is_registered]
NARROW.give_back("second")
compute()
print(json.dumps([found, held, [FLOAT32.is_registered, NARROW.is_registered]]))
"""
    assert program(code) == [[True] * 3, [True, True], [False, False]]


@pytest.mark.torch
def test_routes_may_follow_each_other_while_another_thread_lives(program):
    code = f"""{CASES}
{SERVED}
import threading
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
found = []
for route in ({NATIVE!r}, {FLOAT32!r}, {NATIVE!r}, {FLOAT32!r}, {NATIVE!r}):
    backendcfg.apply(settings=route)
    before = served()
    torch.mm(*given("bfloat16", (7, 300), (300, 5)))
    narrow = served() - before
    torch.mm(*given("float32", (7, 300), (300, 5)))
    found.append([narrow, served() - before - narrow])
end.set()
thread.join()
from backendcfg.ops.torch_library import _registered
most = len(_registered)
for _ in range(5):
    backendcfg.undo()
print(json.dumps([found, most, len(_registered)]))
"""
    assert program(code) == [[[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]], 3, 0]


@pytest.mark.torch
def test_float32_stays_where_another_library_has_replaced_pytorchs_products(program):
    code = f"""
import json, warnings, torch
import backendcfg
warnings.simplefilter("ignore")
theirs = torch.library.Library("aten", "IMPL")
theirs.impl("mm", lambda a, b: a.new_full((1,), 7.0), "CPU")
backendcfg.apply(settings={FLOAT32!r})
(one,) = backendcfg.verify().readings
print(json.dumps([one.state, one.because, torch.mm(torch.ones(30, 30), torch.ones(30, 30)).item()]))
"""
    because = "something else has replaced PyTorch's `aten::mm` on the CPU"
    assert program(code) == ["unsupported", because, 7.0]


@pytest.mark.torch
def test_memory_that_is_freed_is_an_error_and_shared_memory_stays_shared(program):
    code = f"""
import json, torch
import backendcfg
def said(call):
    try:
        return str(call())
    except RuntimeError as error:
        return str(error).splitlines()[0].split(".")[0]
def every():
    freed, whole = torch.ones(16, 16), torch.ones(16, 16)
    freed.untyped_storage().resize_(0)
    return [
        said(lambda: torch.mm(freed, whole)), said(lambda: torch.mm(whole, freed)),
        said(lambda: torch.mm(whole, whole, out=freed)),
    ]
theirs = every()
backendcfg.apply(settings={FLOAT32!r})
shared = torch._lazy_clone(torch.randn(64, 64))
torch.mm(shared, shared)
print(json.dumps([theirs, every(), torch._C._is_cow_tensor(shared)]))
"""
    theirs, found, is_shared = program(code)
    assert found == theirs
    assert all("not allocated" in one or "resize" in one for one in found), found
    assert is_shared


@pytest.mark.torch
def test_gradients_autocast_vmap_and_compiled_code_reach_our_kernels(program):
    code = f"""{CASES}
backendcfg.apply(settings={NATIVE!r})
layer = torch.nn.Linear(64, 32).bfloat16()
x = torch.randn(8, 64).bfloat16().requires_grad_()

def trained(module):
    out = module(x)
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), [x, *layer.parameters()])]

def cast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.Linear(64, 32)(torch.randn(8, 64))

counts = {{}}
counts["trained"], eager = ours(lambda: trained(layer))
counts["autocast"], narrow = ours(cast)
counts["vmap"], _ = ours(lambda: torch.vmap(torch.mm)(*given("float16", (4, 5, 6), (4, 6, 7))))
compiled = torch.compile(layer)
trained(compiled)
counts["compiled"], quick = ours(lambda: trained(compiled))
same = all(torch.allclose(a.float(), b.float(), rtol=0.02) for a, b in zip(eager, quick))
print(json.dumps([counts, str(narrow.dtype), same]))
"""
    counts = {"trained": 3, "autocast": 1, "vmap": 1, "compiled": 3}
    assert program(code) == [counts, "torch.bfloat16", True]


@pytest.mark.torch
def test_rows_have_the_same_bits_whatever_stands_beside_them(program):
    code = f"""{CASES}
backendcfg.apply(settings={NATIVE!r})
a, b = given("bfloat16", (130, 700), (700, 90))
whole = torch.mm(a, b)
print(json.dumps([torch.equal(torch.mm(a[i : i + n], b), whole[i : i + n])
                  for i, n in ((0, 1), (3, 7), (64, 64), (129, 1))]))
"""
    assert program(code) == [True] * 4


@pytest.mark.torch
def test_undo_gives_pytorch_its_kernels_back(program):
    code = f"""{CASES}
{SERVED}
from backendcfg.ops.torch_products import FLOAT32, NARROW
def state():
    before = served()
    for dtype in ("bfloat16", "float32"):
        torch.mm(*given(dtype, (7, 300), (300, 5)))
    return served() - before, FLOAT32.is_on, NARROW.is_on
found = [state()]
for route in ({NATIVE!r}, {FLOAT32!r}):
    backendcfg.apply(settings=route)
    read = [(one.switch, one.state, one.found) for one in backendcfg.verify().readings]
    found.append([*state(), *read])
for _ in range(2):
    backendcfg.undo()
    found.append(state())
print(json.dumps([*found, [FLOAT32.is_registered, NARROW.is_registered]]))
"""
    none, native, float32 = [0, False, False], [1, False, True], [1, True, False]
    switch = ["torch.matmul.kernels", "ok"]
    assert program(code) == [
        none,
        [*native, [*switch, "native"]],
        [*float32, [*switch, "float32"]],
        native,
        none,
        [False, False],
    ]


@pytest.mark.torch
def test_other_threads_run_while_pytorch_computes_what_is_left_to_it(program):
    """`call_boxed`, which the route calls for small ones, holds Python's lock."""
    code = f"""{CASES}
import sys, threading
backendcfg.apply(settings={NATIVE!r})
sys.setswitchinterval(1000)  # a thread gives the lock up by itself alone
torch.manual_seed(0)
calls = {{}}
for dtype in (torch.float32, torch.float64):
    a, b = torch.randn(2, 1000, 1000).to(dtype)
    x, y, row, out = a[None], b[None], b[0], torch.empty_like(a)
    calls |= {{
        f"mm {{dtype}}": lambda a=a, b=b: a @ b,
        f"mm.out {{dtype}}": lambda a=a, b=b, out=out: torch.mm(a, b, out=out),
        f"addmm {{dtype}}": lambda a=a, b=b, row=row: torch.addmm(row, a, b, beta=0.5),
        f"addmm.out {{dtype}}": lambda a=a, b=b, row=row, out=out: torch.addmm(row, a, b, out=out),
        f"bmm {{dtype}}": lambda x=x, y=y: torch.bmm(x, y),
        f"bmm.out {{dtype}}": lambda x=x, y=y, out=out: torch.bmm(x, y, out=out[None]),
        f"baddbmm {{dtype}}": lambda x=x, y=y, row=row: torch.baddbmm(row, x, y, alpha=2),
    }}
found, turns, done = {{}}, [0], threading.Event()
def count():
    while not done.wait(0.0001):
        turns[0] += 1
def run():
    routed = {{name: call().clone() for name, call in calls.items()}}
    for name, call in calls.items():
        # A turn or two come where a call begins and ends, whoever computes in between.
        for _ in range(200):
            before = turns[0]
            call()
            if turns[0] - before > 5:
                break
        found[name] = turns[0] - before > 5
    return routed
counting = threading.Thread(target=count)
counting.start()
routed = run()
done.set()
counting.join()
backendcfg.undo()
same = [name for name, call in calls.items() if not torch.equal(call(), routed[name])]
print(json.dumps([sorted(name for name, ran in found.items() if not ran), same]))
"""
    assert program(code) == [[], []]


@pytest.mark.torch
def test_threads_that_compute_while_kernels_are_switched_get_right_results(program):
    """PyTorch's table of kernels has no lock: to take one away under a call ends the process."""
    code = """
import _thread, json, threading, torch
from backendcfg.ops import torch_products
from backendcfg.ops.attention import torch_kernels

torch.set_num_threads(1)
a, b = (torch.randn(shape).bfloat16() for shape in ((16, 32), (32, 24)))
c, q = torch.randn(24, 24), torch.randn(1, 2, 8, 16)
attention = torch.nn.functional.scaled_dot_product_attention
calls = (lambda: a @ b), (lambda: q @ q.mT), (lambda: c @ c), (lambda: attention(q, q, q))
wanted, wrong, done = [call() for call in calls], [], threading.Event()

def compute():
    while not done.is_set():
        for call, right in zip(calls, wanted):
            if not torch.allclose(call().float(), right.float(), rtol=0.01, atol=1e-5):
                wrong.append(1)

# Half of them are not counted by `threading`.
ended = [threading.Event() for _ in range(16)]
def one(end):
    compute()
    end.set()
starts = [
    (lambda end=end: threading.Thread(target=one, args=(end,), daemon=True).start()) if turn % 2
    else (lambda end=end: _thread.start_new_thread(one, (end,)))
    for turn, end in enumerate(ended)
]
every = torch_products.FLOAT32, torch_products.NARROW, torch_kernels.REPLACED
for replaced in every:
    replaced.serve(torch, "test")
for start in starts:
    start()
for _ in range(1000):
    for replaced in every:
        replaced.give_back("test")
        replaced.serve(torch, "test")
done.set()
print(json.dumps([len(wrong), sum(not end.wait(60) for end in ended)]))
"""
    assert program(code) == [0, 0]


@pytest.mark.torch
def test_what_is_not_finite_is_refused_where_the_profile_says_so(program):
    code = f"""{CASES}
backendcfg.apply(settings={{**{NATIVE!r}, "ops.check_finite": True}})
a = torch.full((2, 2), 3e38).bfloat16()
said = []
for call in (lambda: torch.mm(a, a), lambda: torch.addmm(a, a, a)):
    try:
        call()
    except Exception as error:
        said.append([type(error).__name__, "matrix 0 of the result" in str(error)])
print(json.dumps(said))
"""
    assert program(code) == [["NotFiniteError", True]] * 2


@pytest.mark.torch
def test_a_token_stays_pytorchs_under_the_tier_that_leaves_amx_out(program):
    """Or whose kernels compute it, and its bits, would depend on the CPU."""
    code = f"""{CASES}
from backendcfg._native import Prepared, Scope
from backendcfg.transact.compiled import Compiled
backendcfg.apply(settings={NATIVE!r})
tier = {{"determinism.tier": "cross-machine"}}
with Scope(Prepared("p", Compiled("p", "cross-machine", tier, order=("native",))), 0):
    print(json.dumps([ours(tokens(dtype)["a token"])[0] for dtype in ("bfloat16", "float16")]))
"""
    assert program(code) == [0, 0]


@pytest.mark.torch
def test_it_is_seen_by_who_serves(backendcfg):
    said = backendcfg(
        *("--json", "explain", "torch.mm", "--profile", "fast"),
        BACKENDCFG_ROUTE_TORCH_MATMUL="native",
    )
    served = {dtype: who["library"] for dtype, who in json.loads(said)["served"].items()}
    assert served["bfloat16"] == served["float16"] == "our own kernels"
    assert served["float32"].startswith("torch's ")


def test_what_is_kept_is_not_touched():
    assert routes.collect(None, {"route.torch.matmul": "keep"}, NATIVE) == []
