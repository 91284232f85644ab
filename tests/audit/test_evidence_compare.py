"""What runs in turns say: ratios and their noise, outputs and their distance, the flags that matter."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys

import pytest

from backendcfg import errors
from backendcfg.audit.evidence import compare
from backendcfg.audit.evidence.outputs import Distance, Part, distance
from backendcfg.audit.evidence.pairs import ORDER, ratio
from backendcfg.audit.evidence.runs import Run, Side, run
from backendcfg.audit.evidence.sides import differing, variant
from backendcfg.transact.compiled import Compiled


def measured(a, b, *, rounds=6, noise=0.01, seed=0):
    """Times of runs in turns, of sides that take so long, with normal noise."""
    draw = random.Random(seed)
    return [(a, b)[side] * math.exp(draw.gauss(0, noise)) for _ in range(rounds) for side in ORDER]


@pytest.mark.parametrize(("b", "verdict"), [(1.0, ""), (0.8, "less"), (1.25, "more")])
def test_a_difference_beyond_the_noise_is_told_and_no_other(b, verdict):
    found = ratio(measured(1.0, b))
    assert found.verdict == verdict
    assert found.low < found.ratio < found.high
    assert abs(found.ratio * b - 1) < 0.02
    assert 0 < found.noise < 0.02


def test_a_difference_within_the_noise_is_none():
    found = ratio(measured(1.0, 0.9, noise=0.2))
    assert found.verdict == ""
    assert found.noise > 0.1


@pytest.mark.slow
def test_equal_sides_are_told_apart_in_few_of_many_comparisons():
    wrong = sum(ratio(measured(1, 1, seed=seed)).verdict != "" for seed in range(100))
    assert wrong <= 5


def test_a_machine_that_slows_down_favours_no_side():
    drifting = [one * 1.1**i for i, one in enumerate(measured(1.0, 1.0, noise=0.001))]
    found = ratio(drifting)
    assert abs(found.ratio - 1) < 0.01
    assert found.verdict == ""


def test_times_too_short_for_the_clock_are_compared_all_the_same():
    assert ratio([0.0] * 8).ratio == 1


EQUAL = "epoch 1: loss 0.25, took 1.5s\nabc123 -3e-7 nan\n"


def test_the_same_output_is_equal():
    assert distance([EQUAL, EQUAL], [EQUAL, EQUAL]) == Distance("equal", numbers=5)
    assert distance([""], [""]) == Distance("equal")


@pytest.mark.parametrize(
    ("old", "new", "line"), [("0.25", "0.25000000000000006", 1), ("-3e-7", "-3.0000001e-7", 2)]
)
def test_a_single_bit_of_a_number_is_found_with_its_line(old, new, line):
    other = EQUAL.replace(old, new)
    found = distance([EQUAL] * 2, [other] * 2)
    assert (found.state, found.numbers, found.differing) == ("numbers differ", 5, 1)
    assert (found.first, found.line) == ((old, new), line)
    assert 0 < found.apart < 1e-7


@pytest.mark.parametrize("new", ["nan", "-inf"])
def test_a_number_that_is_not_finite_is_infinitely_far(new):
    assert distance([EQUAL], [EQUAL.replace("0.25", new)]).apart is None


def test_numbers_that_change_from_run_to_run_of_a_side_are_left_out():
    other = EQUAL.replace("-3e-7", "7")
    found = distance([EQUAL, other], [EQUAL, EQUAL])
    assert (found.state, found.numbers) == ("equal", 4)
    assert found.left_out == (Part("number", "-3e-7", 2),)
    lossy = other.replace("0.25", "0.5")
    found = distance([EQUAL, other], [lossy, lossy])
    assert (found.differing, len(found.left_out), found.apart) == (1, 1, 0.5)


TIMES = [
    "took 1.5s",
    "3.25 ms",
    "12.5 it/s",
    "1e3 samples/sec",
    "time: 0.25",
    "wall_time = 3",
    "2026-11-24 02:11:05",
    "2026-11-24T02:11",
    "00:12",
    "Tue Nov 24",
    "Tue, 24 Nov 2026",
    "elapsed (h) 3",
    "seconds 3.5",
]


@pytest.mark.parametrize("time", TIMES)
def test_what_reads_as_a_time_is_left_out_where_it_differs(time):
    one = f"loss 0.5 {time} done\n"
    other = one.replace(time, re.sub(r"\d(?!.*\d)", "9", time))
    found = distance([one], [other])
    assert (found.state, found.numbers, len(found.left_out)) == ("equal", 1, 1)
    assert found.left_out[0].kind == "time"


@pytest.mark.parametrize("text", ["step 3", "times 4", "x 5 y", "1.5 samples", "runtimes 3", "s 3"])
def test_what_does_not_read_as_a_time_is_compared(text):
    found = distance([text], [re.sub(r"\d$|\d(?= )", "9", text)])
    assert (found.state, found.left_out) == ("numbers differ", ())


def test_other_words_are_another_text():
    found = distance([EQUAL], [EQUAL.replace("abc123", "abd123")])
    assert found == Distance("text differs", first=found.first, line=2)
    assert found.first[1] == found.first[0].replace("abc123", "abd123") != found.first[0]
    assert distance([EQUAL], [EQUAL + "more\n"]).line == 3
    assert distance([EQUAL], [EQUAL + "1\n"]).line == 3
    assert distance([EQUAL], [""]).line == 1


def test_words_that_change_from_run_to_run_are_named_by_their_side():
    other = EQUAL.replace("epoch", "step")
    assert distance([EQUAL, other], [EQUAL, EQUAL]) == Distance("unsteady", line=1, changing=(0,))
    assert distance([EQUAL, EQUAL], [EQUAL, other]).changing == (1,)
    assert distance([EQUAL, other], [EQUAL, other]).changing == (0, 1)


def here(**variables):
    return Side("here", {**os.environ, **variables})


def python(program, **variables):
    return run([sys.executable, "-c", program], here(**variables))


def test_a_run_has_its_time_its_memory_and_its_text():
    found = python("import os; b = bytearray(200 << 20); print(os.environ['X'], 1.5)", X="y")
    assert found.text == "y 1.5\n"
    assert found.memory > 200 << 20
    assert 0 < found.processor < 60
    assert found.seconds > 0
    # The peak is the program's own, not that of the process that compares.
    assert python("pass").memory < 100 << 20


def test_a_run_has_nothing_on_standard_input_and_its_complaints_are_not_its_text():
    program = "import sys; print(repr(sys.stdin.read())); print('no', file=sys.stderr)"
    assert python(program).text == "''\n"


def test_what_only_an_uncounted_run_has_is_not_in_the_others():
    program = [sys.executable, "-c", "import os; print(os.environ.get('FIRST', 'no'))"]
    side = Side("here", dict(os.environ), {"FIRST": "yes"})
    assert [run(program, side, counts=counts).text for counts in (False, True)] == ["yes\n", "no\n"]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("raise SystemExit(3)", "exited with 3"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    ],
)
def test_a_program_that_fails_is_not_compared(end, told):
    program = f"import sys; print('one\\ntwo\\nthree\\nfour', file=sys.stderr, flush=True); {end}"
    with pytest.raises(errors.CommandFailedError) as caught:
        python(program)
    assert caught.value.message == f"the command {told} under here"
    assert caught.value.notes == ("two", "three", "four")


def test_a_program_that_is_not_there_or_is_none_is_named(tmp_path):
    with pytest.raises(errors.CommandNotFoundError, match="command `trian` was not found"):
        run(["trian"], here())
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    with pytest.raises(errors.CommandNotExecutableError, match="Permission denied"):
        run([str(script)], here())


def test_runs_are_taken_in_turns_and_each_side_warms_up(monkeypatch):
    taken = []

    def noted(command, side, *, counts=True):
        taken.append((side.name, counts))
        return Run(1.0, 1.0, 1, "")

    monkeypatch.setattr(compare, "run", noted)
    a, b = Side("a", {}), Side("b", {})
    runs = compare.turns(["x"], a, b, seconds=0)
    assert taken[:2] == [("a", False), ("b", False)]
    assert "".join(name for name, _ in taken[2:]) == "abbaabba"
    assert len(runs) == 8
    compare.turns(["x"], a, b, seconds=60)
    assert len(taken) == 10 + 2 + 4 * compare.MOST_ROUNDS


FLAGS = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("size", range(1, 6))
def test_the_flags_that_matter_are_found_and_no_others(size):
    for wanted in itertools.combinations(FLAGS, size):
        found = compare.smallest(FLAGS, lambda some, wanted=wanted: set(wanted) <= set(some))
        assert found == wanted


def answers(text_of, seconds_of=lambda without: 1.0):
    """`run` and `without` of a program whose output depends on the flags that are left out."""

    def run_(command, side, *, counts=True):
        without = side.environment["without"]
        return Run(seconds_of(without), 1.0, 1, text_of(without))

    return run_, lambda some: Side("variant", {"without": frozenset(some)})


def told(monkeypatch, text_of, seconds_of=lambda without: 1.0):
    run_, without = answers(text_of, seconds_of)
    monkeypatch.setattr(compare, "run", run_)
    a, b = without(FLAGS), without(())
    runs = compare.turns(["x"], a, b, seconds=0)
    return compare.why(["x"], runs, b, FLAGS, without, seconds=0)


def test_why_names_the_flags_that_change_the_numbers(monkeypatch):
    found = told(monkeypatch, lambda without: "1.0" if {"b", "d"} <= without else "1.5")
    assert found == compare.Why({}, {}, ("b", "d"))


def test_why_says_when_it_is_none_of_the_flags(monkeypatch):
    texts = iter(f"{i}.0" for i in range(100))
    _, without = answers(lambda _: "")
    b = without(())
    monkeypatch.setattr(compare, "run", lambda *_, **__: Run(1.0, 1.0, 1, next(texts)))
    runs = [Run(1.0, 1.0, 1, text) for text in ("a", "b", "b", "a") * 2]
    found = compare.why(["x"], runs, b, FLAGS, without, seconds=0)
    assert found == compare.Why({}, {}, because="the output differs without these flags, too")


def test_why_measures_what_each_flag_is_worth(monkeypatch):
    found = told(monkeypatch, lambda _: "1.0", lambda without: 2.0 if "c" in without else 1.0)
    assert {flag: one.ratio for flag, one in found.worth.items()} == {
        flag: pytest.approx(2.0 if flag == "c" else 1.0) for flag in FLAGS
    }
    assert found.numbers == ()


def test_a_flag_that_cannot_be_left_out_is_named(monkeypatch):
    run_, without = answers(lambda _: "1.0", lambda without: 2.0 if without else 1.0)
    monkeypatch.setattr(compare, "run", run_)

    def refusing(some):
        if "c" in some:
            raise errors.TierNotKeptError("the tier needs it")
        return without(some)

    runs = [run_(["x"], without(FLAGS if side == 0 else ())) for side in ORDER * 2]
    found = compare.why(["x"], runs, without(()), FLAGS, refusing, seconds=0)
    assert found.untried == {"c": "the tier needs it"}
    assert sorted(found.worth) == ["a", "b", "d", "e"]


def plan(**values):
    values = {flag.replace("__", "."): value for flag, value in values.items()}
    return Compiled("x", "none", values, asked=tuple(values))


def test_a_variant_has_some_flags_as_the_other_side_has_them():
    a = plan(threads__count=1, cudnn__benchmark=True)
    b = plan(threads__count=2, jax__autotune_level=4, cudnn__benchmark=True)
    assert differing(a, b) == ["jax.autotune_level", "threads.count"]
    assert differing(None, b) == ["cudnn.benchmark", "jax.autotune_level", "threads.count"]
    assert differing(b, None) == differing(None, b)
    assert variant(a, b, {"threads.count"}) == (
        "schema = 1\ncudnn.benchmark = true\njax.autotune_level = 4\nthreads.count = 1\n"
    )
    assert variant(a, b, {"jax.autotune_level"}) == (
        "schema = 1\ncudnn.benchmark = true\nthreads.count = 2\n"
    )
    assert variant(None, b, ["cudnn.benchmark", "jax.autotune_level", "threads.count"]) == (
        "schema = 1\n"
    )
    assert variant(b, None, {"threads.count"}) == "schema = 1\nthreads.count = 2\n"


def test_what_has_no_effect_here_is_in_no_variant():
    b = Compiled(
        "x", "none", {"cudnn.benchmark": True}, ("cudnn.benchmark",), {"cudnn.benchmark": "no GPU"}
    )
    assert differing(None, b) == []
    assert variant(None, b, ()) == "schema = 1\n"


PROGRAM = "import os; print('threads', os.environ.get('OMP_NUM_THREADS', '7'))"


@pytest.mark.slow
def test_the_shell_compares_and_says_why(backendcfg, tmp_path):
    (tmp_path / "one.toml").write_text("schema = 1\nthreads.count = 1\nlog.level = 'info'\n")
    words = (
        "nothing",
        "./one.toml",
        "--seconds",
        "0",
        "--why",
        "--",
        sys.executable,
        "-c",
        PROGRAM,
    )
    printed = backendcfg("compare", *words)
    assert "compared  2 rounds of nothing, ./one.toml, ./one.toml, nothing\n" in printed
    assert (
        "output    numbers differ: 1 of 1, apart by 8.6e-01 of the larger one at most, first in line"
        " 1\n"
    ) in printed
    assert printed.endswith("output    differs by threads.count\n")
    assert not [name for name in os.listdir(tmp_path) if name != "one.toml"]


def test_a_program_that_no_profile_reaches_is_told(tmp_path):
    words = ["--json", "compare", "nothing", "fast", "--seconds", "0", "--", "true"]
    done = subprocess.run(
        [sys.executable, "-m", "backendcfg", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stderr == (
        "no Python with backendcfg ran, so a profile set no more than the variables that a process"
        " starts with\n"
    )
    found = json.loads(done.stdout)
    assert (found["a"], found["b"], found["rounds"]) == ("nothing", "fast", 2)
    assert found["output"]["state"] == "equal"
    assert sorted(found["seconds"]) == [
        "a",
        "b",
        "high",
        "low",
        "noise",
        "own",
        "pairs",
        "ratio",
        "verdict",
    ]
