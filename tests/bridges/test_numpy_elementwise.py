"""NumPy's element-wise functions on the thread team: `route.numpy.elementwise`."""

from __future__ import annotations

import os
import platform
import sys

import pytest

THREADS = {"route.numpy.elementwise": "threads", "threads.count": 3}

BEGINS = f"""
import json, threading, warnings
import numpy as np
import backendcfg
from backendcfg import _native

THREADS = {THREADS!r}
LARGE = (1 << 17) + 4099  # no whole number of parts, nor of vectors
random = np.random.default_rng(0)

def numbers(dtype, count=LARGE):
    found = random.standard_normal(count) * 10.0 ** random.integers(-9, 9, count)
    found[:: 1013] = [0.0, -0.0, np.inf, -np.inf, np.nan][count % 5]
    found[5:: 911], found[7:: 887] = np.inf, np.nan
    if np.dtype(dtype).kind == "c":
        found = found + 1j * np.roll(found, 3)
    with np.errstate(all="ignore"):
        return found.astype(dtype)

def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()

def with_route(calls):
    '''What each gives without the route, and whether it gives the same with it.'''
    with np.errstate(all="ignore"):
        theirs = {{name: call() for name, call in calls.items()}}
        backendcfg.apply(settings=THREADS)
        return [name for name, call in calls.items() if not same(call(), theirs[name])]
"""

RUNNING = """
def running():
    [line] = [line for line in open("/proc/self/status") if line.startswith("Threads:")]
    return int(line.split()[1])
"""
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no /proc")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_no_bit_of_any_ufunc_changes(program, dtype):
    code = f"""{BEGINS}
a, b = numbers("{dtype}"), numbers("{dtype}")
calls = {{}}
for name, ufunc in vars(np).items():
    if isinstance(ufunc, np.ufunc) and ufunc.signature is None and ufunc.nout == 1:
        given = (a, b)[: ufunc.nin]
        try:
            with np.errstate(all="ignore"):
                ufunc(*(each[:9] for each in given))
        except TypeError:
            continue
        calls[name] = lambda ufunc=ufunc, given=given: ufunc(*given)
assert len(calls) > (50 if "float" in "{dtype}" else 20), sorted(calls)
print(json.dumps(with_route(calls)))
"""
    assert program(code) == []


@pytest.mark.slow
def test_whatever_lies_otherwise_in_memory_is_the_same(program):
    code = f"""{BEGINS}
a, b = numbers("float64"), numbers("float64")
wide, square = numbers("float64", 3 * LARGE), numbers("float64", 600 * 600).reshape(600, 600)
def into(call):
    out = a.copy()
    call(out)
    return out
calls = {{
    "a number": lambda: a * 2.5,
    "a number first": lambda: 1.0 / a,
    "in place": lambda: into(lambda out: np.multiply(out, b, out=out)),
    "in place by +=": lambda: into(lambda out: out.__iadd__(b)),
    "squared in place": lambda: into(lambda out: np.multiply(out, out, out=out)),
    "every third": lambda: wide[::3] + wide[1::3],
    "backwards": lambda: a[::-1] - b,
    "into backwards": lambda: into(lambda out: np.add(a, b, out=out[::-1])),
    "into every third": lambda: (out := wide.copy(), np.add(a, b, out=out[::3]))[0],
    "by columns": lambda: square.T + square.T,
    "in both orders": lambda: square + square.T,
    "a row each": lambda: square + square[0],
    "a column each": lambda: square * square[:, :1],
    "one place read by all": lambda: into(lambda out: np.add(out, out[5:6], out=out)),
    "shifted": lambda: into(lambda out: np.add(out[:-1], out[1:], out=out[1:])),
    "shifted backwards": lambda: into(lambda out: np.add(out[:-1], out[1:], out=out[:-1])),
    "unaligned": lambda: np.frombuffer(b" " + a.tobytes(), "f8", offset=1) + b,
    "other byte order": lambda: a.astype(">f8") + b,
    "of two types": lambda: a.astype("f4") * b,
    "where": lambda: np.add(a, b, out=np.zeros_like(a), where=b > 0),
    "compared": lambda: np.less(a, b),
    "compared into every second": lambda: np.less(a, b, out=np.zeros(2 * LARGE, bool)[::2]),
    "a sum": lambda: np.add.reduce(np.nan_to_num(a)),
    "a product": lambda: np.multiply.reduce(1 + 1e-9 * np.nan_to_num(a, posinf=1, neginf=1)),
    "a maximum": lambda: np.maximum.reduce(a),
    "sums by rows": lambda: np.add.reduce(square, axis=0),
    "running": lambda: np.add.accumulate(a),
    "running in place": lambda: into(lambda out: np.add.accumulate(out, out=out)),
    "running by rows": lambda: np.multiply.accumulate(square, axis=0),
    "by pieces": lambda: np.add.reduceat(a, [0, LARGE // 2]),
    "at places": lambda: into(lambda out: np.add.at(out, np.arange(LARGE), b)),
    "outer": lambda: np.multiply.outer(a[:700], b[:700]),
    "a subclass": lambda: np.asarray(np.asmatrix(square) + square),
    "none": lambda: a[:0] + b[:0],
    "few": lambda: a[:9] + b[:9],
    "a stack": lambda: square[None] + square[None],
    "sums by wide rows": lambda: np.add.reduce(np.nan_to_num(wide[: 2 * LARGE]).reshape(2, -1), axis=0),
    "beside the result": lambda: into(lambda out: np.add(out[:70000], 1, out=out[70000:140000])
                                      if len(out) > 140000 else None),
}}
print(json.dumps(with_route(calls)))
"""
    assert program(code) == []


def test_large_calls_are_shared_by_the_team_and_small_ones_are_not(program):
    """The team's threads start with its first work, one for each other processor at most."""
    code = f"""{BEGINS}
{RUNNING}
backendcfg.apply(settings=THREADS)
x, wide = np.ones(1 << 20), np.ones(1 << 21)[::2]
counts = [running()]
for call in (lambda: x[:1000] + x[:1000], lambda: np.multiply.reduce(x), lambda: np.add.accumulate(x),
             lambda: x.astype("f4") + x, lambda: wide + x):
    call()
    counts.append(running())
print(json.dumps([count - counts[0] for count in counts]))
"""
    assert program(code) == [0, 0, 0, 0, 0, min(PROCESSORS, 3) - 1]


SUMS = f"""{BEGINS}
MANY = 3 * LARGE * 5 + 3  # no multiple of 8, and more than a thread is worth
def sums(dtype):
    '''By name, what is summed at once.'''
    x = (random.standard_normal(2 * MANY) * 10.0 ** random.integers(-4, 5, 2 * MANY)).astype(dtype)
    odd, zero, several = x.copy(), np.full(MANY, -0.0, dtype), x.copy()
    several[[7, MANY, -3]] = np.array([np.nan, -np.nan, np.nan], dtype)
    odd[MANY // 3], odd[-1] = np.inf, np.nan
    raw = np.frombuffer(b" " + x.tobytes(), dtype, offset=1)
    return {{
        "all": lambda: np.add.reduce(x), "odd": lambda: odd.sum(), "zero": lambda: zero.sum(),
        "several": lambda: several.sum(), "several backwards": lambda: several[::-1].sum(),
        "mean": lambda: x.mean(), "deviation": lambda: x[:MANY].std(),
        "others": lambda: x[::2].sum(), "backwards": lambda: x[::-1].sum(),
        "rows": lambda: x.reshape(2, -1).sum(axis=1), "columns": lambda: x.reshape(2, -1).sum(axis=0),
        "square": lambda: x.reshape(2, -1).sum(), "initial": lambda: x.sum(initial=3),
        "some": lambda: x.sum(where=x > 0), "unaligned": lambda: raw.sum(),
        "wider": lambda: x.sum(dtype="f8"), "pieces": lambda: np.add.reduceat(x, [0, 9, MANY]),
        "into": lambda: np.add.reduce(x, out=np.zeros((), dtype)),
        "into itself": lambda: (y := x.copy(), np.add.reduce(y, out=y[5:6].reshape(())), y[:9].copy())[2],
        "least": lambda: x[: (1 << 22) // x.itemsize + 1].sum(),
        "less": lambda: x[: (1 << 22) // x.itemsize - 8].sum(),
    }}
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_bit_of_any_sum_changes(program, dtype):
    assert program(f"""{SUMS}print(json.dumps(with_route(sums("{dtype}"))))""") == []


def test_large_sums_are_shared(program):
    code = f"""{SUMS}{RUNNING}
named = sums("float64")
backendcfg.apply(settings=THREADS)
counts = [running()]
for name in ("less", "all"):
    named[name]()
    counts.append(running())
print(json.dumps([count - counts[0] for count in counts]))
"""
    assert program(code)[1:] == [0, min(PROCESSORS, 3) - 1]


def test_a_numpy_that_sums_otherwise_sums_alone(program, build):
    code = f"""{SUMS}{RUNNING}
import ctypes, pathlib, re
header = pathlib.Path(np.get_include(), "numpy", "__ufunc_api.h").read_text()
[index] = re.findall(r"define PyUFunc_ReplaceLoopBySignature[^#]*PyUFunc_API\\[(\\d+)\\]", header)
take = ctypes.pythonapi.PyCapsule_GetPointer
take.restype, take.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = ctypes.cast(take(np._core._multiarray_umath._UFUNC_API, None), ctypes.POINTER(ctypes.c_void_p))
replace = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, *[ctypes.c_void_p] * 3)(table[int(index)])
add_in_order = ctypes.CDLL({build("numpy_add")!r}).add_in_order
double = (ctypes.c_int * 3)(12, 12, 12)
before = ctypes.c_void_p()
x = random.standard_normal(MANY)
theirs = x.sum()
assert replace(np.add, add_in_order, double, ctypes.byref(before)) == 0
in_order = x.sum()
assert not same(in_order, theirs)
backendcfg.apply(settings=THREADS)
started = running()
alone = [same(x.sum(), in_order), running() - started]
np.sqrt(np.abs(x))
print(json.dumps([*alone, running() - started]))
"""
    assert program(code) == [True, 0, min(PROCESSORS, 3) - 1]


def test_warnings_and_errors_are_numpys(program):
    code = f"""{BEGINS}
cases = {{
    "divide": lambda x: 1 / x, "invalid": lambda x: np.sqrt(x - 1), "overflow": lambda x: np.exp(x + 1000),
    "underflow": lambda x: np.exp(x - 1000), "none": lambda x: x + 1,
    "sum": lambda x: np.sum(np.tile(np.where(x == 0, 1e300, -1e300) * 1e8, 8)),
}}
def said():
    found = {{}}
    x = np.zeros(LARGE)
    for name, call in cases.items():
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
            warnings.simplefilter("always")
            call(x)
        found[name] = [str(each.message) for each in caught]
        with np.errstate(all="raise"):
            try: call(x); found[name].append("")
            except FloatingPointError as error: found[name].append(str(error))
        # One element alone, in the last part.
        y = np.ones(LARGE) * 2; y[-1] = 0
        with np.errstate(all="raise"):
            try: call(y); found[name].append("")
            except FloatingPointError as error: found[name].append(str(error))
    return found
theirs = said()
backendcfg.apply(settings=THREADS)
print(json.dumps([theirs, said()]))
"""
    theirs, ours = program(code)
    assert theirs["divide"] == ["divide by zero encountered in divide"] * 3
    assert ours == theirs


def test_how_the_calling_thread_rounds_holds_for_all_parts(program):
    """PyTorch's `set_flush_denormal` and C libraries set it for their thread."""
    upwards = 0x800 if platform.machine() == "x86_64" else 0x400000
    code = f"""{BEGINS}
import ctypes
c = ctypes.CDLL("libm.so.6")
x = np.full(LARGE, 1.0); y = np.full(LARGE, 1e-17)
backendcfg.apply(settings=THREADS)
assert c.fesetround({upwards}) == 0
found = x + y
left = c.fegetround()
c.fesetround(0)
print(json.dumps([left == {upwards}, bool((found > 1).all()), bool((x + y == 1).all())]))
"""
    assert program(code) == [True, True, True]


def test_threads_of_a_program_compute_the_right_thing_at_once(program):
    code = f"""{BEGINS}
backendcfg.apply(settings=THREADS)
x = [np.full(LARGE, float(i)) for i in range(8)]
wrong = []
def work(i):
    for turn in range(60):
        if not ((x[i] * 2 + 1) == 2 * i + 1).all(): wrong.append(i)
several = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for each in several: each.start()
for turn in range(30):
    backendcfg.undo(); backendcfg.apply(settings=THREADS)
for each in several: each.join()
print(json.dumps(wrong))
"""
    assert program(code) == []


@pytest.mark.slow
def test_a_forked_child_computes_alone_and_so_does_its_own(program):
    """Also when it was forked while another thread computed on the team."""
    code = f"""{BEGINS}
import os
{RUNNING}
backendcfg.apply(settings=THREADS)
x = np.arange(LARGE, dtype=float)
right, ended = x + x, threading.Event()
def work():
    out = np.empty_like(x)
    while not ended.is_set(): np.add(x, x, out)
busy = threading.Thread(target=work)
busy.start()
bad = []
def alone():
    before = running()
    return bool((x + x == right).all()) and running() == before == 1
for turn in range(40):
    if (child := os.fork()) == 0:
        if (grandchild := os.fork()) == 0: os._exit(0 if alone() else 1)
        os._exit(os.waitpid(grandchild, 0)[1] or not alone())
    bad.append(os.waitpid(child, 0)[1])
ended.set()
busy.join()
print(json.dumps(bad))
"""
    assert program(code) == [0] * 40


def test_no_thread_is_there_when_the_process_forks(program):
    """Python 3.12 and later warns of a fork with threads."""
    code = f"""{BEGINS}
import os
{RUNNING}
backendcfg.apply(settings=THREADS)
before = running()
x = np.ones(1 << 20)
x + x
during = running()
if (child := os.fork()) == 0: os._exit(0)
after = running()
os.waitpid(child, 0)
x + x
print(json.dumps([during - before, after, running()]))
"""
    others = min(PROCESSORS, 3) - 1
    assert program(code, OPENBLAS_NUM_THREADS="1") == [others, 1, 1 + others]


def test_threads_run_where_their_caller_may(program):
    code = f"""{BEGINS}
import os
{RUNNING}
backendcfg.apply(settings=THREADS)
x, every = np.ones(1 << 20), os.sched_getaffinity(0)
def masks():
    return [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
os.sched_setaffinity(0, {{min(every)}})
before = running()
x + x
pinned = running() - before
os.sched_setaffinity(0, every)
x + x
print(json.dumps([pinned, running() - before, all(mask == every for mask in masks())]))
"""
    assert program(code, OPENBLAS_NUM_THREADS="1") == [0, min(PROCESSORS, 3) - 1, True]


def test_no_openmp_runtime_is_loaded_for_it(program):
    """libgomp binds the thread that loads it to one processor where OMP_PROC_BIND is set."""
    code = f"""{BEGINS}
import os
backendcfg.apply(settings=THREADS)
x, every = np.ones(1 << 20), os.sched_getaffinity(0)
x + x
print(json.dumps([os.sched_getaffinity(0) == every, "libgomp" in open("/proc/self/maps").read()]))
"""
    assert program(code, OMP_PROC_BIND="true") == [True, False]


@pytest.mark.slow
def test_workers_stay_on_one_thread_each(lines):
    """They have siblings on the other cores."""
    script = f"""
import json, multiprocessing, backendcfg, numpy as np
from backendcfg import _native
def served(_):
    return _native.numpy_elementwise()
if __name__ == "__main__":
    backendcfg.apply(settings={THREADS!r})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(json.dumps([served(0) > 100, pool.map(served, [0])]))
"""
    assert lines(script, BACKENDCFG_DISABLE="0") == [[True, [0]]]


def test_the_switch_is_set_read_and_undone(program):
    code = f"""{BEGINS}
report = backendcfg.apply(settings=THREADS)
[one] = [each for each in report.outcomes if each.flag == "route.numpy.elementwise"]
held = [one.switch, one.before, one.state, _native.numpy_elementwise() > 100]
[read] = [each for each in backendcfg.verify().readings if each.switch == "numpy.elementwise"]
backendcfg.undo()
print(json.dumps([*held, read.state, _native.numpy_elementwise()]))
"""
    assert program(code) == ["numpy.elementwise", "keep", "set", True, "ok", 0]


def test_a_function_that_something_replaced_is_left_and_the_others_are_shared(program):
    code = f"""{BEGINS}
exp = np.exp
np.exp = lambda x: exp(x)
del np.hypot
report = backendcfg.apply(settings=THREADS)
count = _native.numpy_elementwise()
np.exp = exp
[one] = [each for each in report.outcomes if each.switch == "numpy.elementwise"]
print(json.dumps([count, one.state]))
"""
    count, state = program(code)
    assert (count > 100, state) == (True, "set")


def test_other_arguments_are_refused(program):
    code = """
import json
from backendcfg import _native
said = []
for given in ((1,), (True, False), ("add",)):
    try: _native.numpy_elementwise(*given)
    except TypeError as error: said.append(str(error))
print(json.dumps(said))
"""
    assert program(code) == ["numpy_elementwise takes at most one bool"] * 3
