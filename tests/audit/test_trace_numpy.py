"""The operations of NumPy, recorded in a program that does not know of it."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

from backendcfg.audit.trace import replay
from backendcfg.audit.trace.reading import partings

OPERATIONS = """
import numpy as np
from numpy import dot, exp
x = np.arange(12.0).reshape(3, 4)
x @ x.T
exp(x) + 1
x.sum()
x += 1
np.add.at(x, [0, 1], 3.0)
dot(x, x.T)
x.T.dot(x)
np.einsum("ij,jk", x, x.T)
x.sort()
np.cumsum(x)
x > 3
np.linalg.solve(np.eye(3), x)
np.linalg.norm(x)
np.fft.rfft(x)
divmod(x, 2)
np.vdot(x, x)
np.convolve(x[0], x[1])
x.mean()
"""


def test_each_call_is_one_operation_at_the_line_that_makes_it(recorded):
    (stream,), _ = recorded(OPERATIONS, windows={"0-0": (0, 100)})
    found = [(one["place"], one["name"]) for _, one in sorted(stream.details.items())]
    at = [(place.removeprefix("script.py:"), name) for place, name in found]
    assert at == [
        ("5", "numpy.matmul float64"),
        ("6", "numpy.exp float64"),
        ("6", "numpy.add float64"),
        ("7", "numpy.add.reduce float64"),
        ("8", "numpy.add float64"),
        ("9", "numpy.add.at float64"),
        ("10", "numpy.dot float64"),
        ("11", "numpy.ndarray.dot float64"),
        ("12", "numpy.einsum float64"),
        ("13", "numpy.ndarray.sort float64"),
        ("14", "numpy.add.accumulate float64"),
        ("15", "numpy.greater bool"),
        ("16", "numpy.zeros float64"),
        ("16", "numpy.linalg.solve float64"),
        ("17", "numpy.ndarray.dot float64"),
        ("17", "numpy.sqrt float64"),
        ("18", "numpy.fft.rfft_n_even complex128"),
        ("19", "numpy.divmod float64"),
        ("20", "numpy.vdot float64"),
        ("21", "numpy.correlate float64"),
        ("22", "numpy.add.reduce float64"),
    ]


def test_what_an_operation_reads_and_computes_is_written_in_its_window(recorded, names):
    (stream,), _ = recorded(
        "import numpy as np\nx = np.array([[2, 3]], np.float32)\nnp.multiply(x, 2, out=x)\nx.mean(0)\n",
        windows={"0-0": (0, 0)},
    )
    (found,) = stream.details.values()
    assert found["outputs"] == ["float32[1, 2]"]
    # What it writes over is none of what it reads, unless it is read, too.
    assert [each["what"] for each in found["inputs"]] == ["float32[1, 2]", "numbers"]
    assert names(stream) == [
        "numpy.multiply float32",
        "numpy.add.reduce float32",
        "numpy.divide float32",
    ]


def test_generators_are_read_in_their_state_and_arrays_that_they_shuffle_are_written(recorded):
    (stream,), _ = recorded(
        """
import numpy as np
np.random.seed(3)
np.random.rand(2)
rng = np.random.default_rng(3)
rng.normal()
x = np.arange(5)
rng.shuffle(x)
rng.choice(x, 2, replace=False)
rng.shuffle([1, 2, 3])
""",
        windows={"0-0": (0, 100)},
    )
    details = [one for _, one in sorted(stream.details.items())]
    found = [one for one in details if one["inputs"] and one["inputs"][-1]["what"] == "generator"]
    assert [(one["name"], one["place"]) for one in found] == [
        ("numpy.random.RandomState.random_sample float64", "script.py:4"),
        ("numpy.random.Generator.normal float64", "script.py:6"),
        ("numpy.random.Generator.shuffle int64", "script.py:8"),
        ("numpy.random.Generator.choice int64", "script.py:9"),
    ]
    states = [one["inputs"][-1]["digest"] for one in found]
    assert len(set(states)) == len(states)


@pytest.mark.slow
def test_equal_programs_have_equal_records(recorded):
    program = OPERATIONS + "np.random.default_rng(1).normal(size=(50, 3)) @ np.ones((3, 2))\n"
    first, _ = recorded(program)
    second, _ = recorded(program)
    assert partings(first, second) == []
    assert len(first[0].records) > 20


def test_one_changed_bit_of_one_element_parts_at_the_operation_that_computes_it(recorded):
    program = """
import numpy as np
x = np.array([0.0] * 1000)
x[7] = {value}
y = x + 1
z = y * 0
"""
    (one,), _ = recorded(program.format(value="2.0 ** -52"))
    (same,), _ = recorded(program.format(value="2.0 ** -52"))
    (other,), _ = recorded(program.format(value="2.0 ** -51"))
    assert partings([one], [same]) == []
    (found,) = partings([one], [other])
    assert (found.index, found.name) == (0, "numpy.add float64")
    differ = one.records["digest"] != other.records["digest"]
    assert differ.tolist() == [True, False]  # what all comes to zero in is the same again


@pytest.mark.parametrize("made", ["x", "x.T", "x[::2]", "np.asfortranarray(x)", "x.sum()"])
def test_what_an_operation_reads_is_known_by_what_another_computed(recorded, made):
    program = (
        f"import numpy as np\nx = np.arange(24.0).reshape(4, 6)\nnp.negative(np.exp({made}))\n"
    )
    (stream,), _ = recorded(program, windows={"0-0": (0, 100)})
    last = len(stream.records) - 1
    assert stream.details[last]["name"] == "numpy.negative float64"
    (given,) = stream.details[last]["inputs"]
    assert given["digest"] == stream.records["digest"][last - 1]


TABLE = """
import hashlib
import itertools
import warnings
import numpy as np

warnings.simplefilter("ignore")
np.seterr(all="ignore")
rng = np.random.default_rng(0)
found = hashlib.sha256()

def take(what):
    if isinstance(what, (tuple, list)):
        for one in what:
            take(one)
    elif isinstance(what, np.ndarray):
        found.update(f"{what.dtype}{what.shape}{what.strides}".encode())
        # Objects have addresses, and longdouble bytes that nobody writes.
        by_value = what.dtype.hasobject or what.dtype.char in "gG"
        found.update(repr(what.tolist()).encode() if by_value else what.tobytes())
    else:
        found.update(f"{type(what)} {what!r}".encode())

def attempt(call):
    try:
        take(call())
    except Exception as error:
        found.update(f"{type(error)} {error}".encode())

def layouts(x):
    yield x
    yield np.asfortranarray(x)
    yield x[::2, ::-1]
    yield x.T
    yield x.astype(x.dtype.newbyteorder())
    if not x.dtype.hasobject:
        yield np.frombuffer(b"_" + x.tobytes(), x.dtype, offset=1).reshape(x.shape)
    yield x[0, 0]
    yield x[:0]
    yield x.view(np.matrix)
    yield np.ma.masked_array(x, x == x.flat[0])

names = [n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)]
dtypes = "? b B h i l L e f d g F D G O M8[s] m8[s] U3".split()
for dtype in dtypes:
    base = rng.integers(0, 3, (4, 4)).astype("i8").astype(dtype)
    for x in layouts(base):
        for name in names:
            f = getattr(np, name)
            given = (x,) * f.nin
            attempt(lambda: f(*given))
            if f.nout == 1 and f.signature is None and isinstance(x, np.ndarray):
                out = np.ones_like(x)
                attempt(lambda: f(*given, out=out, where=x == x, casting="unsafe"))
                attempt(lambda: f(*given, out, casting="unsafe"))
                take(out)
            if f.nin == 2 and f.nout == 1 and f.signature is None:
                attempt(lambda: f.reduce(x, axis=0, keepdims=True))
                attempt(lambda: f.reduce(x, axis=None, where=x == x, initial=1))
                attempt(lambda: f.accumulate(x))
                attempt(lambda: f.reduceat(x, [0, 2, 1]))
                attempt(lambda: f.outer(x, x))
                target = np.array(x)
                attempt(lambda: f.at(target, [0, 0, 1], x[:1]))
                take(target)
        for name in "dot sort argsort partition argpartition sum prod cumsum mean std any".split():
            if name == "dot" and dtype == "m8[s]":
                continue  # NumPy's own products of these differ from run to run
            y = np.array(x, subok=True)
            more = {"dot": (y,), "partition": (1,), "argpartition": (1,)}.get(name, ())
            attempt(lambda: getattr(y, name)(*more))
            take(y)
        attempt(lambda: np.einsum("ij,jk", x, x))
        if dtype != "m8[s]":
            attempt(lambda: np.inner(x, x))
        attempt(lambda: np.linalg.svd(x))
        attempt(lambda: np.linalg.eigh(x))
        attempt(lambda: np.fft.fft(x))
        attempt(lambda: np.interp(x, np.arange(3.0), np.arange(3.0)))
attempt(lambda: np.vectorize(lambda a: np.exp(a) + 1)(np.arange(3.0)))
attempt(lambda: np.add())
attempt(lambda: np.add(1, 2, 3, 4, 5))
attempt(lambda: np.add(1, b=2))
attempt(lambda: np.add.reduce())
attempt(lambda: np.dot(1))
for kind in (np.random.Generator(np.random.PCG64(1)), np.random.RandomState(1)):
    for name in dir(kind):
        if not name.startswith("_") and name not in ("bit_generator", "get_state", "spawn"):
            for given in itertools.chain([()], [(0.5,) * n for n in (1, 2, 3)], [(3,), (3, 0.5)]):
                attempt(lambda: getattr(kind, name)(*given))
            attempt(lambda: getattr(kind, name)(0.5, size=3))
print(found.hexdigest())
"""


@pytest.mark.slow
def test_a_program_computes_the_same_while_it_is_recorded(recorded, python):
    plain = python(TABLE)
    streams, printed = recorded(TABLE)
    assert printed == plain
    assert len(streams[0].records) > 10_000
    _, printed = recorded(TABLE, windows={"0-0": (0, 400)})
    assert printed == plain


def test_elements_that_nobody_wrote_are_not_told(recorded, names):
    program = """
import numpy as np
x = np.arange(99.0)
np.add(x, 1, where=x > 2)
np.copyto(np.empty(99), x, where=x > 2)
np.copyto(x, 1)
"""
    (one,), _ = recorded(program)
    greater, add, copy = "numpy.greater bool", "numpy.add float64", "numpy.copyto float64"
    assert names(one) == [greater, add, greater, copy, copy]
    assert [bool(digest) for digest in one.records["digest"]] == [True, False, True, False, True]


def test_objects_text_and_longdouble_are_not_told(recorded, names):
    streams, _ = recorded(
        """
import numpy as np
np.array([1, 2], object) + 1
np.longdouble([1, 2]) + 1
np.char.add(np.array(["a"]), "b")
"""
    )
    assert streams == [] or names(streams[0]) == []


def test_threads_and_forked_processes_have_streams_of_their_own(recorded, names):
    streams, printed = recorded(
        """
import os
import threading
import numpy as np

x = np.random.default_rng(0).normal(size=(300, 300))
results = [None] * 4

def work(number):
    y = x
    for _ in range(20):
        y = np.tanh(y @ x)
    results[number] = y.tobytes()

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(set(results)))
if (child := os.fork()) == 0:
    np.exp(x)
    import atexit
    atexit._run_exitfuncs()
    os._exit(0)
os.waitpid(child, 0)
np.sin(x)
"""
    )
    assert printed == "1\n"
    of = {one.key: names(one) for one in streams}
    assert sorted(of) == ["0-0", "0-1", "0-2", "0-3", "0-4", "0.1-0"]
    assert of["0-0"][-1] == "numpy.sin float64"
    assert of["0.1-0"] == ["numpy.exp float64"]
    assert {tuple(of[f"0-{n}"]) for n in range(1, 5)} == {
        ("numpy.matmul float64", "numpy.tanh float64") * 20
    }
    assert len({one.records.tobytes() for one in streams if "-0" not in one.key}) == 1


def test_exceptions_and_warnings_come_from_where_they_came_from(recorded, python):
    program = """
import signal
import sys
import threading
import warnings
import numpy as np

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    np.divide(np.ones(2), 0)
print([(one.filename.rpartition("/")[2], one.lineno) for one in caught])

def deep(x):
    return deep(x + 1)

try:
    deep(np.ones(2))
except RecursionError as error:
    print(error)

class Late(Exception):
    pass

def late(*ignored):
    raise Late

signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    while True:
        np.add(1.0, 2.0)
except Late:
    print("late")
try:
    np.add([1, 2], [1, 2, 3])
except ValueError as error:
    print(error)
"""
    _, printed = recorded(program)
    lines = printed.splitlines()
    assert lines[0] == "[('script.py', 10)]"
    assert lines[1].startswith("maximum recursion depth exceeded")
    assert lines[2] == "late"
    assert lines[3].startswith("operands could not be broadcast together with shapes (2,) (3,)")


def test_calls_that_a_call_makes_are_told_in_its_place(recorded, names):
    (stream,), _ = recorded(
        """
import numpy as np

class Wrapped:
    def __init__(self, x):
        self.x = x
    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        return getattr(ufunc, method)(*(getattr(one, "x", one) for one in inputs), **more)

np.multiply(Wrapped(np.arange(2.0)), 3)
np.add.reduce(Wrapped(np.arange(2.0)))
"""
    )
    assert names(stream) == ["numpy.multiply float64", "numpy.add.reduce float64"]


KEPT = {
    "x @ x.T[::-1]": "numpy.matmul",
    "x.sum(0)": "numpy.add.reduce",
    "np.add.at(x, [0, 0], x[:1])": "numpy.add.at",
    "np.linalg.solve(x @ x.T, x)": "numpy.linalg.solve",
    "x.T.sort(0)": "numpy.ndarray.sort",
    "np.einsum('ij,kj->i', x, x)": "numpy.einsum",
    "np.fft.fft(x)": "numpy.fft.fft",
    "np.multiply(x, 2, out=x)": "numpy.multiply",
}


@pytest.mark.slow
@pytest.mark.parametrize("statement", KEPT)
def test_an_operation_is_run_again_from_what_was_kept_as_it_was_before(recorded, statement):
    program = f"import numpy as np\nx = np.linspace(1, 2, 33).reshape(3, 11) ** 3\n{statement}\n"
    (stream,), _ = recorded(program)
    index = len(stream.records) - 1
    (stream,), _ = recorded(program, windows={"0-0": (index, index)}, keep={"0-0": index})
    detail = stream.details[index]
    assert detail["name"].startswith(KEPT[statement] + " ")
    path = detail["kept"]["path"]
    digest = int(stream.records["digest"][index])
    found = replay.replayed(run_here, sys.executable, path)
    assert found.by_place == dict.fromkeys(replay.PLACES, (digest,) * replay.REPEATS)
    elements = math.prod(json.loads("[" + detail["outputs"][0].partition("[")[2])) or 1
    assert replay.apart(run_here, sys.executable, path, path) == replay.Apart(elements, 0, 0.0)


def run_here(words):
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.mark.slow
def test_what_draws_is_run_again_by_a_generator_that_starts(recorded):
    program = "import numpy as np\nnp.random.seed(1)\nnp.random.normal(size=3)\n"
    (stream,), _ = recorded(program)
    last = len(stream.records) - 1
    (stream,), _ = recorded(program, windows={"0-0": (last, last)}, keep={"0-0": last})
    path = stream.details[last]["kept"]["path"]
    one, other = (replay.replayed(run_here, sys.executable, path).by_place for _ in range(2))
    assert [len(each) for each in one.values()] == [1]
    assert one != other  # nobody gave it a seed


def test_how_far_results_are_apart_is_told_by_elements(tmp_path):
    paths = []
    for number, outputs in enumerate(([[1.0, 2.0, np.nan]], [[1.0, 2.5, np.nan]])):
        paths.append(str(tmp_path / f"{number}.pickle"))
        with open(paths[-1], "wb") as file:
            pickle.dump({"outputs": [np.array(one) for one in outputs]}, file)
    assert replay.apart(run_here, sys.executable, *paths) == replay.Apart(3, 1, 0.2)
