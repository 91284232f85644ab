"""NumPy's matmul on our kernels: `route.numpy.matmul`."""

from __future__ import annotations

import json
import sys

import pytest

from backendcfg.bridges import numpy as bridge

NATIVE = {"route.numpy.matmul": "native"}
SWITCHES = [f"numpy.matmul.{dtype}" for dtype in ("float16", "float32", "float64")]

CASES = """
import json, numpy as np
import backendcfg
from backendcfg import ops

random = np.random.default_rng(0)
def given(dtype, *shapes):
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]

def cases(dtype):
    '''Name: the call, its operands as arrays of one type, or what they were cast to.'''
    a, b, x, y, wide = given(dtype, (130, 120), (120, 110), (7, 60, 70), (3, 1, 70, 50), (260, 240))
    (s,) = given(dtype, (100, 30, 30))
    columns, out = np.asfortranarray(b), np.empty((130, 110), dtype)
    step, turned = wide[::2, ::-2], x.mT.copy()
    return {
        "@": (lambda: a @ b, a, b),
        "matmul": (lambda: np.matmul(a, b), a, b),
        "by columns": (lambda: a @ columns, a, b),
        "of transposed": (lambda: b.T @ a.T, b.T, a.T),
        "into": (lambda: np.matmul(a, b, out=out), a, b),
        "into columns": (lambda: np.matmul(a, b, out=np.empty((110, 130), dtype).T), a, b),
        "into an operand": (lambda: np.matmul(held := a[:120].copy(), b[:, :1] + a[:120], out=held),
                            a[:120], b[:, :1] + a[:120]),
        "strided": (lambda: step @ b, step, b),
        "unaligned": (lambda: np.frombuffer(b" " + a.tobytes(), dtype, offset=1).reshape(a.shape) @ b,
                      a, b),
        "a stack": (lambda: x @ turned, x, turned),
        "a stack against another": (lambda: x @ y, x, y),
        "one matrix against its turned stack": (lambda: s[0] @ s.mT, s[0], s.mT.copy()),
        "small squares": (lambda: s @ s.mT, s, s.mT.copy()),
        "one matrix against a stack": (lambda: a[:60, :60] @ x, a[:60, :60], x),
        "in the other byte order": (lambda: a.astype(a.dtype.newbyteorder()) @ b, a, b),
        "axes": (lambda: np.matmul(turned, y[0], axes=[(2, 1), (1, 2), (1, 2)]), x, y[0]),
        "a subclass": (lambda: np.asarray(np.asmatrix(a) @ b), a, b),
        "power": (lambda: np.linalg.matrix_power(a[:110, :110], 2), a[:110, :110], a[:110, :110]),
    } | ({
        # Older releases contract by `tensordot`, and that by `dot`.
        "einsum": (lambda: np.einsum("bij,bjk->bik", x, y[0], optimize=True), x, y[0]),
    } if np.lib.NumpyVersion(np.__version__) >= "2.4.0" else {})

def left(dtype):
    '''What is left to NumPy.'''
    a, b, x = given(dtype, (130, 120), (120, 110), (200, 4, 4))
    return {
        "small": lambda: a[:90, :90] @ b[:90, :90],
        "a small stack": lambda: x @ x,
        "a vector": lambda: a @ b[:, 0],
        "a row": lambda: a[:1] @ b,
        "a column": lambda: a @ b[:, :1],
        "a times its transpose": lambda: a @ a.T,
        "a stack of such": lambda: (y := np.stack([a, a + 1])) @ y.mT,
        "dot": lambda: a.dot(b),
        "inner": lambda: np.inner(a, b.T),
        "nothing": lambda: a[:0] @ b,
        "nothing summed": lambda: a[:, :0] @ b[:0],
        "no stack": lambda: x[:0] @ x[:0],
    }

def served():
    return sum(sum(one.calls.values()) for one in ops.stats() if one.provider == "native")

def ours(call):
    '''How many products our kernels computed for it, and the result.'''
    before = served()
    found = call()
    return served() - before, found
"""


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_products_have_the_bits_of_our_kernels(program, dtype):
    code = f"""{CASES}
every = cases("{dtype}")
backendcfg.apply(settings={{"blas.library": {{"require": "native"}}}})
wanted = {{name: np.array(ops.matmul(a, b)) for name, (_, a, b) in every.items()}}
backendcfg.undo()
backendcfg.apply(settings={NATIVE!r})
count, wrong = {{}}, []
for name, (call, _, _) in every.items():
    count[name], found = ours(call)
    if found.dtype != np.{dtype} or found.tobytes() != wanted[name].tobytes():
        wrong.append(name)
print(json.dumps([[name for name, times in count.items() if not times], wrong]))
"""
    assert program(code) == [[], []]


def test_half_precision_is_ours_whatever_its_size(program):
    """NumPy has no BLAS for it, and rounds once as we do."""
    code = f"""{CASES}
every = left("float16")
theirs = {{name: call() for name, call in every.items()}}
backendcfg.apply(settings={NATIVE!r})
found = {{name: ours(call) for name, call in every.items()}}
print(json.dumps([
    sorted(name for name, (times, _) in found.items() if not times),
    [name for name, (_, one) in found.items()
     if one.shape != theirs[name].shape or not np.allclose(one, theirs[name], atol=0.02, rtol=0.002)],
]))
"""
    assert program(code) == [["dot", "inner", "no stack", "nothing", "nothing summed"], []]


def test_other_calls_are_left_to_numpy_to_the_bit(program):
    code = f"""{CASES}
def every():
    global random
    random = np.random.default_rng(0)
    return {{
        f"{{name}} of {{dtype}}": call
        for dtype in ("float32", "float64") for name, call in left(dtype).items()
    }} | {{
        f"{{name}} of {{dtype}}": call
        for dtype in ("complex64", "complex128", "longdouble", "int32", "object")
        for name, (call, _, _) in cases(dtype).items() if name in ("@", "a stack")
    }}
theirs = {{name: call() for name, call in every().items()}}
backendcfg.apply(settings={NATIVE!r})
found = {{name: ours(call) for name, call in every().items()}}
print(json.dumps([
    [name for name, (times, _) in found.items() if times],
    # Objects, and the padding of long doubles, have no bytes to compare.
    [name for name, (_, one) in found.items() if not np.array_equal(one, theirs[name])
     or one.dtype.char not in "Og" and one.tobytes() != theirs[name].tobytes()],
]))
"""
    assert program(code) == [[], []]


def test_errors_and_warnings_are_those_of_numpy(program):
    code = f"""{CASES}
import warnings
a, b = given("float32", (130, 120), (120, 110))
half = np.full((40, 40), 300, np.float16)
endless = np.ones((200, 120), np.float32)
endless[0, 0] = np.inf
calls = [
    lambda: a @ a,
    lambda: a @ np.float32(1),
    lambda: np.matmul(a, b, out=np.empty((130, 111), np.float32)),
    lambda: np.matmul(a, b, out=np.empty((130, 110), np.float16)),
    lambda: a @ b,
    lambda: (a * np.float32(1e30)) @ (b * np.float32(1e30)),
    lambda: half @ half.T.copy(),
    lambda: (a * np.float32(np.inf)) @ np.zeros_like(b),
    lambda: (a * np.float32(np.nan)) @ b,
    *[lambda width=width: endless @ np.ones((120, width), np.float32) for width in (101, 110, 128)],
]
def said():
    found = []
    for call in calls:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                call()
            except (TypeError, ValueError) as error:
                found.append(str(error))
            else:
                found.append(sorted({{str(one.message) for one in heard}}))
    return found
theirs = said()
backendcfg.apply(settings={NATIVE!r})
print(json.dumps([theirs, said()]))
"""
    theirs, found = program(code)
    assert found == theirs
    overflow, invalid = (
        [f"{what} encountered in matmul"] for what in ("overflow", "invalid value")
    )
    assert theirs[4:] == [[], overflow, overflow, invalid, *[[]] * 4]


@pytest.mark.slow
def test_an_overflow_is_told_whichever_thread_meets_it(program):
    code = f"""{CASES}
import warnings
backendcfg.apply(settings={{**{NATIVE!r}, "threads.count": 2}})
a, b = given("float32", (300, 200), (200, 300))
high, low = a.copy(), a.copy()
high[0], low[-1] = 3e38, 3e38
heard = []
for one in (high, low, a) * 100:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one @ b
    heard.append([str(each.message) for each in caught])
overflow = ["overflow encountered in matmul"]
print(json.dumps([found == [overflow, overflow, []][turn % 3] for turn, found in
                  enumerate(heard)].count(False)))
"""
    assert program(code) == 0


def test_sums_have_the_same_bits_with_any_number_of_threads(program):
    code = f"""{CASES}
a, b = given("float32", (300, 700), (700, 500))
found = []
for threads in (1, 2, 3):
    backendcfg.apply(settings={{**{NATIVE!r}, "threads.count": threads}})
    found.append((a @ b).tobytes())
    backendcfg.undo()
print(json.dumps([one == found[0] for one in found]))
"""
    assert program(code) == [True] * 3


def test_a_numpy_that_is_imported_later_is_served_too(program):
    code = f"""
import json, sys
import backendcfg
backendcfg.apply(settings={NATIVE!r})
before = "numpy" in sys.modules
{CASES}
count, _ = ours(cases("float32")["@"][0])
print(json.dumps([before, count]))
"""
    assert program(code) == [False, 1]


def test_undo_gives_numpy_its_loops_back(program):
    code = f"""{CASES}
call = cases("float32")["@"][0]
theirs = call().tobytes()
before = ours(call)[0]
backendcfg.apply(settings={NATIVE!r})
during = ours(call)[0], [(one.switch, one.state) for one in backendcfg.verify().readings]
backendcfg.undo()
count, found = ours(call)
print(json.dumps([before, *during, count, found.tobytes() == theirs]))
"""
    assert program(code) == [0, 1, [[name, "ok"] for name in SWITCHES], 0, True]


def test_scopes_leave_the_loops_alone(program, routed):
    routed('numpy.matmul = "native"')
    code = f"""{CASES}
call = cases("float32")["@"][0]
with backendcfg.profile("routed"):
    inside = ours(call)[0]
backendcfg.apply("routed")
with backendcfg.profile("tf32-off"):
    print(json.dumps([inside, ours(call)[0]]))
"""
    assert program(code) == [0, 1]


REPLACING = """
import ctypes
from numpy._core import _multiarray_umath
LOOP = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
table = ctypes.cast(pointer(_multiarray_umath._UFUNC_API, None), ctypes.POINTER(ctypes.c_void_p))
exchange = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p,
                             ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_void_p))(table[30])
def replace(loop):
    '''Another loop for matmul of float32; the one that was there.'''
    before = ctypes.c_void_p()
    types = (ctypes.c_int * 3)(*[np.dtype(np.float32).num] * 3)
    assert exchange(np.matmul, loop, types, ctypes.byref(before)) == 0
    return before.value
calls = []
def wrapped(*arguments):
    calls.append(1)
    LOOP(inner)(*arguments)
loop = LOOP(wrapped)
wrapping = ctypes.cast(loop, ctypes.c_void_p)
"""


@pytest.mark.slow
def test_a_loop_that_something_else_put_over_ours_stays(program):
    """It calls ours, which go on to NumPy's once they are no longer wanted."""
    code = f"""{CASES}{REPLACING}
call = cases("float32")["@"][0]
theirs = call().tobytes()
backendcfg.apply(settings={NATIVE!r})
inner = replace(wrapping)
found = []
for _ in range(2):
    found += ours(call)[0], [one.state for one in backendcfg.verify().readings]
    backendcfg.undo()
    count, product = ours(call)
    found += count, product.tobytes() == theirs
    backendcfg.apply(settings={NATIVE!r})
print(json.dumps([found, len(calls) > 6, replace(inner) == wrapping.value]))
"""
    assert program(code) == [[1, ["ok"] * 3, 0, True] * 2, True, True]


@pytest.mark.slow
def test_a_loop_that_something_else_put_in_the_place_of_ours_is_reported(program):
    """Looking changes nothing: ours computes again once that loop is gone."""
    code = f"""{CASES}{REPLACING}
inner = replace(wrapping)  # which goes on to NumPy's
replace(inner)
call, found = cases("float32")["@"][0], []
for other in (wrapping, inner):
    backendcfg.apply(settings={NATIVE!r})
    ours_was = replace(other)
    found += [one.state for one in backendcfg.verify().readings], ours(call)[0]
    replace(ours_was)
    found += [one.state for one in backendcfg.verify().readings], ours(call)[0]
    backendcfg.apply(settings={NATIVE!r})
    replace(other)
    while backendcfg.active():
        backendcfg.undo()
    found += [[ours(cases(dtype)["@"][0])[0] for dtype in ("float16", "float32", "float64")]]
    backendcfg.apply(settings={NATIVE!r})  # over that loop
    found += [ours(call)[0]]
    backendcfg.undo()
    found += [ours(call)[0], replace(inner) == (other if other == inner else other.value)]
print(json.dumps(found))
"""
    one = [["ok", "differs", "ok"], 0, ["ok"] * 3, 1, [0, 0, 0], 1, 0, True]
    assert program(code) == one * 2


def test_a_loop_over_ours_that_calls_it_now_and_then_ends(program):
    """Ours is put over it then, and calls the first loop of all where it would come back."""
    code = f"""{CASES}{REPLACING}
call = cases("float32")["@"][0]
theirs = call().tobytes()
first, through = replace(wrapping), [False]
replace(first)
def wrapped(*arguments):
    LOOP(inner if through[0] else first)(*arguments)
backendcfg.apply(settings={NATIVE!r})
inner = replace(wrapping)
backendcfg.undo()
backendcfg.apply(settings={NATIVE!r})
through[0] = True
count, product = ours(call)
backendcfg.undo()
print(json.dumps([count, ours(call)[0], call().tobytes() == theirs]))
"""
    assert program(code) == [1, 0, True]


def test_a_loop_that_was_there_before_may_go_before_the_next_apply(program):
    code = f"""{CASES}{REPLACING}
call = cases("float32")["@"][0]
inner = replace(wrapping)
found = []
for loop in (wrapping, inner):
    backendcfg.apply(settings={NATIVE!r})
    found += ours(call)[0], [one.state for one in backendcfg.verify().readings]
    backendcfg.undo()
    found += ours(call)[0], replace(inner) == (loop if isinstance(loop, int) else loop.value)
print(json.dumps(found))
"""
    assert program(code) == [1, ["ok"] * 3, 0, True] * 2


def test_undo_finds_matmul_where_a_program_put_another_in_its_place(program):
    code = f"""{CASES}
call = cases("float32")["@"][0]
backendcfg.apply(settings={NATIVE!r})
original, np.matmul = np.matmul, lambda *given, **named: original(*given, **named)
states = [one.state for one in backendcfg.verify().readings]
during = ours(call)[0]
backendcfg.undo()
print(json.dumps([states, during, ours(call)[0]]))
"""
    assert program(code) == [["ok"] * 3, 1, 0]


def test_a_matmul_that_is_not_numpys_is_left_alone(program):
    code = f"""{CASES}
original, np.matmul = np.matmul, lambda *given, **named: original(*given, **named)
backendcfg.apply(settings={NATIVE!r})
said = [(one.switch, one.state, one.because) for one in backendcfg.verify().readings]
print(json.dumps([said, ours(cases("float32")["@"][0])[0]]))
"""
    because = "numpy.matmul is no ufunc: something replaced it"
    assert program(code) == [[[name, "unsupported", because] for name in SWITCHES], 0]


def test_threads_that_compute_while_loops_are_switched_get_right_results(program):
    code = f"""{CASES}
import threading
from backendcfg import _native
a, b, half = *given("float64", (110, 110), (110, 110)), given("float16", (20, 20))[0]
calls = (lambda: a @ b), (lambda: half @ half)
wanted, wrong, done = [call() for call in calls], [], threading.Event()
def compute():
    while not done.is_set():
        for call, right in zip(calls, wanted):
            if not np.allclose(call(), right, rtol=0.01, atol=0.01):
                wrong.append(1)
threads = [threading.Thread(target=compute, daemon=True) for _ in range(16)]
for thread in threads:
    thread.start()
types = "float16", "float64"
states = [_native.numpy_matmul(dtype, turn % 2 == 0) for turn in range(1000) for dtype in types]
done.set()
for thread in threads:
    thread.join(60)
print(json.dumps([len(wrong), sum(states), sum(thread.is_alive() for thread in threads)]))
"""
    assert program(code) == [0, 1000, 0]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_forked_child_computes_alone(program):
    code = f"""{CASES}
import os, warnings
warnings.simplefilter("ignore")
backendcfg.apply(settings={NATIVE!r})
a, b = given("float32", (300, 300), (300, 300))
wanted = a @ b
reading, writing = os.pipe()
if os.fork() == 0:
    try:
        count, found = ours(lambda: a @ b)
        os.write(writing, json.dumps([count, found.tobytes() == wanted.tobytes()]).encode())
    finally:
        os._exit(0)
os.close(writing)
os.wait()
print(os.read(reading, 100).decode())
"""
    assert program(code) == [1, True]


def test_it_is_seen_by_who_serves(backendcfg):
    said = backendcfg(
        *("--json", "explain", "np.matmul", "--profile", "fast"),
        BACKENDCFG_ROUTE_NUMPY_MATMUL="native",
    )
    served = {dtype: who["library"] for dtype, who in json.loads(said)["served"].items()}
    assert set(served.values()) == {"our own kernels"}


@pytest.mark.slow
def test_numpys_own_tests_of_products_pass(program):
    code = f"""
import json, pytest
import backendcfg
from backendcfg import ops
backendcfg.apply(settings={NATIVE!r})
tests = "numpy._core.tests.test_multiarray", "numpy._core.tests.test_einsum", "numpy.linalg"
words = "atmul or atMul or insum or inalg or multi_dot"
status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", words, "--pyargs", *tests])
counted = sum(one.calls for one in ops.stats().operations if one.provider == "native")
print(json.dumps([status, counted > 1000]))
"""
    assert program(code) == [0, True]


def test_what_is_kept_is_not_touched():
    assert bridge.settings({"route.numpy.matmul": "keep"}, NATIVE) == []
