"""What a program records for `prove` and `compare`: written, read, and compared by name."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from backendcfg import errors
from backendcfg.audit.evidence import record as writing
from backendcfg.audit.evidence import recorded
from backendcfg.audit.evidence.outputs import Deviation
from backendcfg.audit.evidence.prove import prove
from backendcfg.audit.evidence.runs import Side, run
from backendcfg.audit.report.words import MOST_RECORDS, produced

pytestmark = pytest.mark.usefixtures("idle")


@pytest.fixture(name="told")
def _told(tmp_path):
    """Run a program to its end, and give what its processes recorded."""

    def tell(program, *, script="script.py"):
        path = tmp_path / script
        path.write_text(f"import numpy as np, os\nfrom backendcfg import record\n{program}\n")
        return run([sys.executable, str(path)], Side("here", dict(os.environ))).records

    return tell


@pytest.fixture(name="here")
def _here(tmp_path, monkeypatch):
    """Record in this process, and give a function that reads what it recorded."""
    folder = tmp_path / "records"
    folder.mkdir()
    monkeypatch.setattr(writing, "_FOLDER", str(folder))
    monkeypatch.setattr(writing._Here, "file", None)
    return lambda: recorded.read(str(folder))


def values(*arrays):
    """What a process recorded that gave these to one name."""
    made = []
    for each in arrays:
        array = np.asarray(each)
        content = array.tobytes()
        made.append(recorded.Record(array.dtype.name, array.shape, hash(content), content))
    return (recorded.Stream(1, {"x": tuple(made)}),)


def differing(a, b):
    """What a run recorded otherwise, in words."""
    return [one.words for one in recorded.differing(a, b)]


KINDS = {
    "number": ("0.25", "float64"),
    "whole number": ("3", "int64"),
    "truth": ("True", "bool"),
    "complex number": ("1 + 2j", "complex128"),
    "list": ("[1.5, 2.5]", "float64[2]"),
    "list of lists": ("[[1, 2], [3, 4]]", "int64[2, 2]"),
    "array": ("np.ones((2, 3), np.float32)", "float32[2, 3]"),
    "array the other way round": ("np.ones((2, 3), np.float32).T", "float32[3, 2]"),
    "number of NumPy": ("np.float16(1)", "float16"),
    "times": ("np.array(['2026-01-01'], 'M8[D]')", "datetime64[D][1]"),
    "nothing": ("np.empty((0, 3))", "float64[0, 3]"),
}


@pytest.mark.parametrize(("value", "kind"), KINDS.values(), ids=KINDS)
def test_each_kind_of_value_is_recorded_with_its_type_and_shape(value, kind, told):
    (stream,) = told(f"record('x', {value})")
    assert [one.kind for one in stream.records["x"]] == [kind]
    assert differing((stream,), told(f"record('x', {value})")) == []


TENSORS = {
    "torch.ones(2, requires_grad=True)": "float32[2]",
    "torch.ones(2, dtype=torch.bfloat16)": "bfloat16[2]",
    "torch.ones(2).to(torch.float8_e4m3fn)": "float8_e4m3fn[2]",
    "torch.ones(2, dtype=torch.complex64).conj()": "complex64[2]",
    "torch.arange(6).reshape(2, 3).t()": "int64[3, 2]",
    "torch.tensor(1.5)": "float32",
    "torch.empty(0)": "float32[0]",
}


@pytest.mark.torch
def test_each_kind_of_tensor_is_recorded_with_its_type_and_shape(told):
    (stream,) = told("\n".join(["import torch", *(f"record({one!r}, {one})" for one in TENSORS)]))
    assert {name: [one.kind for one in each] for name, each in stream.records.items()} == {
        name: [kind] for name, kind in TENSORS.items()
    }


@pytest.mark.torch
def test_the_bits_are_those_that_the_tensor_shows(told):
    (stream,) = told(
        "import torch\n"
        "plain = torch.tensor([1 + 2j, 3 - 4j])\n"
        "record('x', plain.conj())\n"
        "record('y', plain.conj().resolve_conj().numpy())\n"
    )
    assert stream.records["x"][0].values == stream.records["y"][0].values


@pytest.mark.jax
def test_arrays_of_jax_are_recorded_where_they_have_values(told):
    (stream,) = told(
        "import jax\n"
        "from backendcfg.errors import InvalidArgumentError\n"
        "record('x', jax.numpy.ones(2, jax.numpy.bfloat16))\n"
        "try:\n"
        "    jax.jit(lambda x: record('y', x))(1.0)\n"
        "except InvalidArgumentError as error:\n"
        "    record('refused', str(error).startswith('record `y`: an object of type'))\n"
    )
    assert sorted(stream.records) == ["refused", "x"]
    assert [one.kind for one in stream.records["x"]] == ["bfloat16[2]"]
    assert [one.values for one in stream.records["refused"]] == [b"\x01"]


REFUSED = {
    "text": ("x", "0.5"),
    "nothing": ("x", None),
    "texts": ("x", ["a"]),
    "objects": ("x", np.array([None])),
    "too large a number": ("x", 2**70),
}


@pytest.mark.parametrize(("name", "value"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_number_is_refused(name, value, here):
    with pytest.raises(errors.InvalidArgumentError) as refused:
        writing.record(name, value)
    assert str(refused.value) == (
        f"record `x`: an object of type `{type(value).__name__}` is no number, list of numbers or"
        " array of numbers"
    )
    assert refused.value.state == "nothing was recorded"
    assert refused.value.helps == (
        "record numbers, or arrays of NumPy, PyTorch or JAX; print what is text",
    )
    assert here() == ()


def test_a_name_that_is_no_text_is_refused(here):
    with pytest.raises(errors.InvalidArgumentError) as refused:
        writing.record(3, 0.5)
    assert str(refused.value) == "the name of a record is a text, not an object of type `int`"
    assert here() == ()


def test_lists_that_are_no_array_are_refused_with_the_reason(here):
    with pytest.raises(errors.InvalidArgumentError, match="has no values that can be read: "):
        writing.record("x", [[1], [1, 2]])
    assert here() == ()


def test_without_the_variable_nothing_happens_whatever_is_given(python, tmp_path):
    program = "import backendcfg; backendcfg.record(3, object()); print('numpy' in __import__('sys').modules)"
    assert python(program) == "False\n"
    assert os.listdir(tmp_path) == []


FLOATS = [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64", "bool", "float16"])
def test_a_single_bit_of_a_record_is_found(dtype):
    old = np.array(FLOATS).astype(dtype)
    new = old.copy()
    new.view(np.uint8)[2 * old.itemsize] ^= 1
    assert differing(values(old), values(old.copy())) == []
    (words,) = differing(values(old), values(new))
    assert words.startswith(f"record `x` has {new[2]!s}, not {old[2]!s} at [2], apart by ")


def test_records_are_compared_in_their_order_and_told_with_the_first_and_the_largest():
    old = [0.1, 0.2, 0.3, 0.4, 100.0, 600.0, 7.0]
    new = [0.1, 0.2, 0.31, 0.4, 101.0, 600.0, 8.0]
    assert differing(values(*old), values(*new)) == [
        "record `x`: the 3rd of 7 has 0.31, not 0.3; 3 of 7 differ, apart by 1.2e-01 at most"
    ]


DIFFERENCES = {
    "a type": (
        [np.ones(2)],
        [np.ones(2, np.float32)],
        " is float32[2], not float64[2]",
    ),
    "a shape": (
        [np.ones((2, 1))],
        [np.ones((1, 2))],
        " is float64[1, 2], not float64[2, 1]",
    ),
    "a sign": (
        [0.0],
        [-0.0],
        " has -0.0, not 0.0, apart by 0.0e+00 at most",
    ),
    "what is not finite": ([1.0], [np.inf], " has inf, not 1.0"),
    "their number": ([1.0, 2.0], [1.0], ": 1 of them, not 2"),
}


@pytest.mark.parametrize(("old", "new", "words"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_each_difference_is_told_in_words(old, new, words):
    assert differing(values(*old), values(*new)) == [f"record `x`{words}"]


def test_nan_is_the_same_as_nan_and_another_nan_is_not():
    nan = np.array(np.nan)
    other = nan.copy()
    other.view(np.uint64)[()] ^= 1
    assert differing(values(nan), values(nan.copy())) == []
    assert differing(values(nan), values(other)) == [
        "record `x` has another nan, apart by 0.0e+00 at most"
    ]


def test_a_name_that_one_run_has_alone_is_told():
    assert differing(values(1.0), (recorded.Stream(1, {}),)) == [
        "record `x`: only one of them has it"
    ]


def test_a_record_too_large_to_be_kept_is_compared_without_a_distance(here, monkeypatch):
    monkeypatch.setattr(writing, "LARGEST_KEPT", 8)
    writing.record("x", 0.5)
    writing.record("x", [0.5, 0.5])
    (stream,) = here()
    assert [one.values is None for one in stream.records["x"]] == [False, True]
    other = recorded.Record("float64", (2,), 7, None)
    changed = recorded.Stream(1, {"x": (stream.records["x"][0], other)})
    assert differing((stream,), (changed,)) == [
        "record `x`: the 2nd of 2 has other elements; 1 of 2 differ"
    ]


def test_values_are_kept_up_to_a_limit_and_digests_beyond_it(here, monkeypatch):
    monkeypatch.setattr(writing, "MOST_KEPT", 16)
    for _ in range(3):
        writing.record("x", 0.5)
    (stream,) = here()
    assert [one.values is None for one in stream.records["x"]] == [False, False, True]
    assert len({one.digest for one in stream.records["x"]}) == 1


def test_too_many_records_are_no_difference_and_are_told(here, monkeypatch):
    monkeypatch.setattr(writing, "MOST_RECORDS", 2)
    for _ in range(5):
        writing.record("x", 0.5)
    (stream,) = here()
    assert len(stream.records["x"]) == 2
    assert recorded.obstacles((stream,)) == [
        "records of process 1 after the 2nd: it recorded more than 2 values"
    ]
    assert differing((stream,), (recorded.Stream(1, {}),)) == []


def test_a_full_disk_ends_no_program_and_is_told(told):
    # A limit of the size of files fails as a full disk does.
    (stream,) = told(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "for i in range(20): record('x', np.full(100, float(i)))\n"
        "print('done')"
    )
    assert len(stream.records["x"]) == 4
    assert recorded.obstacles((stream,)) == ["records of process 1 after the 4th: File too large"]


def test_a_folder_that_is_gone_ends_no_program(python, tmp_path):
    program = "import backendcfg; backendcfg.record('x', 1); print('done')"
    assert python(program, BACKENDCFG_RECORDS=str(tmp_path / "gone")) == "done\n"


def test_a_process_that_is_killed_leaves_what_it_recorded(here):
    writing.record("x", 1.0)
    writing.record("x", 2.0)
    path = writing._Here.file.path
    with open(path, "rb") as file:
        content = file.read()
    for cut in (1, 9, 30):
        with open(path, "wb") as file:
            file.write(content[:-cut])
        (stream,) = here()
        assert len(stream.records["x"]) == 1
    with open(path, "wb") as file:
        file.write(content[:5])
    assert here() == (recorded.Stream(1, {}),)


FORKS = """
record("x", 1)
for i in {order}:
    child = os.fork()
    if not child:
        record("of child", i)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_each_process_has_its_own_records_and_which_begins_first_says_nothing(told):
    one, other = told(FORKS.format(order=(1, 2))), told(FORKS.format(order=(2, 1)))
    assert [sorted(stream.records) for stream in one] == [["x"], ["of child"], ["of child"]]
    assert differing(one, other) == []
    (words,) = differing(one, told(FORKS.format(order=(1, 3))))
    assert words == ("process 3: record `of child` has 3, not 2, apart by 3.3e-01 at most")
    assert differing(one, told(FORKS.format(order=(1,)))) == ["2 processes recorded values, not 3"]


TASKS = """
import sys
import backendcfg
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pool
def work(item):
    record("item", item + {odd} * (item == 3))
    return item
if __name__ == "__main__":
    if {profile!r}: backendcfg.apply({profile!r})
    record("before", 1)
    with ProcessPoolExecutor({workers}) as pool: list(pool.map(work, range(5), chunksize=2))
    with Pool({workers}) as pool: pool.map(work, range(5), chunksize=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["reproducible", "fast"])
def test_tasks_of_pools_are_compared_by_task_whichever_worker_takes_them(told, profile):
    one, other, odd = [
        told(TASKS.format(profile=profile, workers=workers, odd=odd))
        for workers, odd in ((1, 0), (2, 0), (1, 7))
    ]
    assert differing(one, other) == []
    assert recorded.number_of(one) == recorded.number_of(other) == 11
    assert [(each.task, [*each.records]) for each in one][:2] == [
        ((), ["before"]),
        (("pool", "1", "0", "0"), ["item"]),
    ]
    assert differing(one, odd) == [
        f"task pool/{task}: record `item` has 10, not 3, apart by 7.0e-01 at most"
        for task in ("1/1/1", "2/0/3")
    ]
    without = told(TASKS.format(profile="", workers=1, odd=0))
    assert {each.task for each in without} == {()}
    assert differing(without, one) == differing(one, without) == []


def test_what_a_run_records_in_no_such_task_is_told_unless_recording_ended(here):
    def task(number, ended=""):
        return recorded.Stream(1, values(number)[0].records, ended, task=("pool", str(number)))

    assert differing([task(10), task(1), task(2)], [task(1)]) == [
        "0 processes recorded values in task pool/2, not 1",
        "0 processes recorded values in task pool/10, not 1",
    ]
    assert differing([task(1), task(2)], [task(2, "it is full")]) == []
    assert recorded.obstacles([task(1, "it is full"), task(2, "it is full")]) == [
        "records of process 1 after the 2nd: it is full"
    ]


def test_of_many_differences_the_first_are_told():
    odd = [Deviation("x", f"the {number}.") for number in range(MOST_RECORDS + 2)]
    output = SimpleNamespace(words=list)
    one = SimpleNamespace(output=output, ranks=(), records=odd, files=())
    assert [*produced(one)][MOST_RECORDS - 1 :] == ["the 4.", "2 more differences of records"]


def test_records_of_threads_are_all_there(told):
    (stream,) = told(
        "from threading import Thread\n"
        "def work(n):\n"
        "    for i in range(200): record(f'x{n}', i)\n"
        "made = [Thread(target=work, args=(n,)) for n in range(8)]\n"
        "for one in made: one.start()\n"
        "for one in made: one.join()"
    )
    assert {name: len(each) for name, each in stream.records.items()} == dict.fromkeys(
        (f"x{n}" for n in range(8)), 200
    )


def test_what_goes_on_after_the_program_records_into_no_folder(told):
    (stream,) = told(
        "import subprocess, sys\n"
        "record('x', 1)\n"
        "sys.stdout.flush()\n"
        "if not os.fork():\n"
        "    parent = os.getppid()\n"
        "    while os.getppid() == parent: pass\n"
        "    for i in range(2000): record('late', i)\n"
        "    os._exit(0)"
    )[:1]
    assert stream.records["x"][0].kind == "int64"


@pytest.mark.slow
def test_a_proof_compares_records_and_says_how_many(tmp_path):
    program = (
        "import backendcfg, os\n"
        "for step in range(10):\n"
        "    backendcfg.record('loss', 0.5 + (step > 1 and len(os.environ.get('SURROUNDINGS', '')) > 100))\n"
    )
    words = [sys.executable, "-c", program]
    found = prove(words, Side("here", dict(os.environ)), {}, runs=3, folder=str(tmp_path))
    assert found.records == 10
    (difference,) = found.differences
    assert difference.run == 3
    (odd,) = difference.records
    assert odd.name == "loss"
    assert odd.words == (
        "record `loss`: the 3rd of 10 has 1.5, not 0.5; 8 of 10 differ, apart by 6.7e-01 at most"
    )


def test_the_shell_tells_what_was_recorded(tmp_path, monkeypatch, capsys):
    from backendcfg.cli.main import main

    monkeypatch.chdir(tmp_path)
    program = "import backendcfg; backendcfg.record('x', 1); open('y', 'w').close()"
    words = ["nothing", "--runs", "2", "--", sys.executable, "-c", program]
    assert main(["prove", *words]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "equal     2 runs under nothing printed the same text and 0 numbers, recorded the same 1 value, and",
        "          wrote the same 1 file",
    ]


SIDES = "import backendcfg, os; backendcfg.record('x', 1.0 + ('BACKENDCFG_DISABLE' in os.environ))"


@pytest.mark.slow
def test_a_comparison_tells_records_that_differ(tmp_path, monkeypatch, capsys):
    from backendcfg.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.toml").write_text("schema = 1\n")
    words = ["--seconds", "0", "--", sys.executable, "-c", SIDES]
    assert main(["compare", "./empty.toml", "nothing", *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "records   record `x` has 2.0, not 1.0, apart by 5.0e-01 at most"
    )
    same = [*words[:-1], "import backendcfg; backendcfg.record('x', 1.0)"]
    assert main(["--json", "compare", "./empty.toml", "nothing", *same]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["records"] == {"records": 1, "differing": [], "left_out": []}


def test_records_that_change_from_run_to_run_of_a_side_are_left_out():
    one, other = values(1.0), values(2.0)
    found = recorded.between([one, one], [other, one])
    assert found == recorded.Between(0, (), ("x",))
    assert recorded.between([one, one], [other, other]).differing == (
        "record `x` has 2.0, not 1.0, apart by 5.0e-01 at most",
    )
