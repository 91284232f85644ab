"""Operations that are run a second time, in programs that do not know of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backendcfg.audit.trace import again
from backendcfg.audit.trace.again import MOST_BITS, Exactness, bits_of, error

NUMPYS = """
import hashlib
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((20, 20), dtype=np.float32)
b = a @ a.T
b += 1.5
b += np.eye(20)
c = np.zeros((20, 20), np.float32)
np.dot(a, b, out=c)
np.cumsum(c, axis=0, out=c)
s = c.sum(axis=1)
np.add.reduce(c, 0, None, s)
f = np.fft.fft(a)
x = np.linalg.solve(b + 300 * np.eye(20, dtype=np.float32), a)
s.sort()
np.add.at(s, [0, 0, 1], np.float32(2))
np.exp(a, where=a > 0, out=c)
a[:, 1] *= 2
a[::2] += 1
np.add(b, 1, out=b[::-1])
e = np.asfortranarray(a)
e += a
np.clip(a, -1, 1, out=a)
i = np.arange(9)
i *= np.arange(9, dtype=np.int64)
np.float32(2) ** a
np.datetime64("2020-01-01") < np.datetime64("2021-01-01")
class Odd(np.ndarray):
    def __array_finalize__(self, other):
        made.append(1)
made = []
np.negative(a.view(Odd))
try:
    np.add(a, a, out=3)
except TypeError:
    print("refused")
digest = hashlib.sha256()
for name in "abcefisx":
    digest.update(globals()[name].tobytes())
print(digest.hexdigest(), len(made))
"""


@pytest.mark.slow
def test_operations_of_numpy_that_run_twice_compute_and_write_the_same(recorded):
    (plain,), printed = recorded(NUMPYS)
    assert plain.repeated == 0
    assert printed.startswith("refused\n")
    for how in ("twice", "float64"):
        (stream,), same = recorded(NUMPYS, again=how)
        assert same == printed
        assert (stream.records == plain.records).all()
        assert 8 < stream.repeated < len(stream.records)
        assert not [one for one in stream.details.values() if one.get("unlike")]


def test_results_of_numpy_are_as_exact_as_their_types_allow(recorded):
    program = """
import numpy as np
x = np.ones(16, np.float16)
x /= 3
y = np.arange(1, 17, dtype=np.float32) / 3
-y
np.sort(y)
np.zeros(16) + 1
np.random.default_rng(0).standard_normal(16, dtype=np.float32)
np.float32([3e38] * 16) * 10
np.add.reduce(np.float32([[1e8] * 16, [1] * 16, [-1e8] * 16]))
np.add.reduce(y)  # one number has more bits right or fewer by luck
"""
    (stream,), _ = recorded(program, again="float64")
    bits = {
        name: [number for number, calls in enumerate(one.calls) for _ in range(calls)]
        for name, one in stream.exactness.items()
    }
    assert bits == {
        "numpy.copyto float16": [MOST_BITS],
        "numpy.divide float16": [12],
        "numpy.divide float32": [25],
        "numpy.negative float32": [MOST_BITS],
        "numpy.ndarray.sort float32": [MOST_BITS],
        "numpy.multiply float32": [0],  # 3e39 is not finite in float32
        "numpy.add.reduce float32": [0],
    }
    places = {name: one.place for name, one in stream.exactness.items()}
    assert places["numpy.divide float32"] == "script.py:5"


RACING = """
import ctypes, subprocess
import numpy as np
source = "void *count(volatile int *x) { for (;;) ++*x; }"
compile = ["cc", "-O1", "-shared", "-fPIC", "-xc", "-", "-o", "./count.so"]
subprocess.run(compile, input=source, text=True, check=True)
thread, libc = ctypes.c_ulong(), ctypes.CDLL(None)
libc.calloc.restype = ctypes.c_void_p
memory = libc.calloc(1000, 4)  # never freed, as the thread writes to it until the very end
x = np.frombuffer((ctypes.c_int32 * 1000).from_address(memory), np.int32)
count = ctypes.cast(ctypes.CDLL("./count.so").count, ctypes.c_void_p)
libc.pthread_create(ctypes.byref(thread), None, count, ctypes.c_void_p(memory))
counter = ctypes.c_int32.from_address(memory)
for _ in range(2000):
    before = counter.value
    while counter.value == before: pass  # on a busy machine the thread may have no processor
    np.negative(x)
"""


def test_an_operation_of_numpy_whose_memory_another_thread_writes_to_is_named(recorded):
    (stream,), _ = recorded(RACING, again="twice")
    unlike = [one for one in stream.details.values() if one.get("unlike")]
    assert unlike
    assert {(one["name"], one["place"], *one["outputs"]) for one in unlike} == {
        ("numpy.negative int32", "script.py:17", "int32[1000]")
    }


@pytest.mark.torch
def test_results_of_pytorch_are_held_against_float64(recorded):
    program = """
import torch
@torch.library.custom_op("mine::rough", mutates_args=())
def rough(x: torch.Tensor) -> torch.Tensor:
    return (x * x).bfloat16().to(x.dtype) if x.dtype == torch.float32 else x * x
@torch.library.custom_op("mine::single", mutates_args=())
def single(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32: raise TypeError("only float32")
    return x + 1
torch.manual_seed(0)
x = torch.rand(100, requires_grad=True)
rough(x)
single(x)
y = x * 2
y.add_(1 / 3)
y.sqrt().sum().backward()
torch.rand(3)
torch.linalg.svd(torch.rand(3, 3))
torch.ones(3, dtype=torch.float64) - 3
print(y.sum().item(), x.grad.sum().item())
"""
    _, printed = recorded(program)
    (stream,), same = recorded(program, again="float64")
    assert same == printed
    found = {
        name: next((bits for bits, calls in enumerate(one.calls) if calls), None)
        for name, one in stream.exactness.items()
    }
    assert 7 <= found.pop("mine.rough") <= 9
    assert 23 <= found.pop("aten.add_.Tensor") <= 26
    assert 23 <= found.pop("aten.sqrt") <= 26
    assert found.pop("mine.single") is None
    assert stream.exactness["mine.single"].failed == 1
    assert stream.exactness["mine.rough"].place == "script.py:12"
    assert not [name for name in found if "rand" in name or "svd" in name or "sub" in name]
    assert found["aten.mul.Tensor"] == MOST_BITS


@pytest.mark.parametrize(
    ("found", "bits"),
    [(0.0, MOST_BITS), (2.0**-24, 24), (0.75, 0), (8.0, 0), (math.inf, 0), (1e-300, MOST_BITS)],
)
def test_bits_are_told_from_a_relative_error(found, bits):
    assert bits_of(found) == bits


def test_the_worst_of_all_results_counts_and_what_is_not_finite_in_float64_does_not(monkeypatch):
    def many(*numbers, dtype=np.float64):
        return np.array(numbers * 16, dtype)

    def narrow(*numbers):
        return many(*numbers, dtype=np.float32)

    for piece in (1 << 20, 7):
        monkeypatch.setattr(again, "_PIECE", piece)
        exact = [many(1, np.inf, np.nan), many(2)]
        found = [narrow(1, 7, 7), narrow(3)]
        assert error(np, found, exact) == 0.5
        assert error(np, found[:1], exact[:1]) == 0.0
        assert error(np, [narrow(1e-9)], [many(0)]) == math.inf
        assert error(np, [narrow(np.inf)], [many(1)]) == math.inf
        assert error(np, [narrow(1), narrow(np.nan)], [many(1), many(1)]) == math.inf
    assert error(np, [np.arange(16)], [np.arange(16)]) is None
    assert error(np, [narrow(1)], [narrow(1)]) is None
    assert error(np, [narrow(1)[:15]], [many(1)[:15]]) is None


def test_the_place_of_the_call_with_the_fewest_bits_is_kept():
    found = Exactness()
    for distance, place in ((2.0**-20, "a"), (2.0**-10, "b"), (2.0**-10, "c"), (2.0**-30, "d")):
        found.add(distance, place)
    assert found.place == "b"
    assert [found.calls[bits] for bits in (10, 20, 30)] == [2, 1, 1]


PYTORCHS = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
torch.manual_seed(0)
norm = torch.nn.BatchNorm1d(3)
norm(torch.rand(8, 3))
torch.ones(3, device="meta") * 2
with FakeTensorMode():
    torch.ones(3) * 2
torch.ones(2, 2).to_sparse() * 3
torch.relu(torch.ones(3, 4).to_mkldnn())
torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2
@torch.library.custom_op("mine::drawing", mutates_args=())
def drawing(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)
x = torch.zeros(20)
torch._foreach_add_([x, x], 1)
print(norm.running_mean.tolist(), drawing(torch.ones(2)).tolist(), torch.rand(2).tolist(), x.sum())
"""


@pytest.mark.torch
@pytest.mark.parametrize("how", ["twice", "float64"])
def test_operations_of_pytorch_that_run_twice_compute_and_write_the_same(how, recorded):
    (plain,), printed = recorded(PYTORCHS)
    (stream,), same = recorded(PYTORCHS, again=how)
    assert same == printed
    assert len(stream.records) == len(plain.records)
    assert not [one for one in stream.details.values() if one.get("unlike")]
    assert all(not any(one.calls[:20]) for one in stream.exactness.values())


SIGNALS = """
import signal, numpy as np
class Timeout(Exception): pass
def raises(*ignored): raise Timeout
signal.signal(signal.SIGALRM, raises)
x, met = np.ones(2_000_000, np.float32), 0
for _ in range(5):
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        while True:
            np.exp(x)
    except Timeout:
        met += 1
print(met)
"""


@pytest.mark.parametrize("how", ["twice", "float64"])
def test_what_a_handler_of_signals_raises_meanwhile_reaches_the_program(how, recorded):
    _, printed = recorded(SIGNALS, again=how)
    assert printed == "5\n"
