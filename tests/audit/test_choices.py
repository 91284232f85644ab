"""What choices are worth: the order of runs, ratios and their noise, verdicts, and the winners."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from backendcfg import errors
from backendcfg.audit.choices import candidates
from backendcfg.audit.choices.candidates import Candidate, choices
from backendcfg.audit.choices.program import profile
from backendcfg.audit.choices.turns import Contender, Program, Rounds
from backendcfg.audit.choices.verdicts import best, floor, judged, winners
from backendcfg.audit.evidence.runs import Run, Side, TookTooLongError
from backendcfg.load.stack import NO_PROFILE
from backendcfg.transact.compiled import Asked, Compiled


def of(seconds, *, memory=100, text="loss 0.5\n"):
    return Run(seconds, 2 * seconds, memory, text)


def verdict(own, base=((1.0, 1.0),) * 3, **named):
    """What is said of a choice whose runs are given."""
    runs = [one if isinstance(one, Run) else of(one, **named) for one in own]
    rounds = Rounds([(of(a), of(b)) for a, b in base], {"x": runs})
    return judged([Contender("x", Side("x", {}), {"a.b": 1})], rounds)[0]


def test_the_speed_is_the_median_of_ratios_to_the_two_runs_of_the_base_in_the_same_round():
    found = verdict([0.5, 1.0, 2.0], base=((1.0, 1.0), (1.9, 2.1), (4.0, 4.4)))
    assert found.speed == pytest.approx(2.0)
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(2.1))
    assert found.processor == pytest.approx(0.5)
    assert found.verdict == "faster"
    assert found.rounds == 3


def test_memory_is_that_of_the_choice_over_that_of_the_base():
    assert verdict([1.0] * 3, memory=150).memory == pytest.approx(1.5)


def test_the_floor_is_the_largest_ratio_of_two_runs_of_the_base_and_two_percent_at_least():
    assert floor([(of(1.0), of(1.0))]) == 1.02
    assert floor([(of(1.0), of(1.0)), (of(1.0), of(1.25))]) == 1.25
    assert floor([(of(1.25), of(1.0))]) == 1.25


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ((0.8, 0.81, 0.79), "faster"),
        ((1.3, 1.31, 1.29), "slower"),
        ((0.99, 0.99, 0.99), "noise"),
        ((1.01, 1.01, 1.01), "noise"),
        ((0.5, 1.0, 0.5), "noise"),
        ((0.5,), "noise"),
        ((0.5, 0.5), "noise"),
        ((0.5, 1.0), "noise"),
    ],
)
def test_faster_or_slower_is_what_lies_beyond_the_floor_with_its_whole_interval(own, word):
    assert verdict(own, base=((1.0, 1.0),) * len(own)).verdict == word


def test_a_base_that_is_not_quiet_makes_a_lead_noise():
    assert verdict([0.9] * 3).verdict == "faster"
    assert verdict([0.9] * 3, base=((1.0, 1.0), (1.1, 0.9), (1.0, 1.0))).verdict == "noise"


def test_a_choice_that_failed_wins_never_and_one_that_took_too_long_is_slower():
    rounds = Rounds([(of(1.0), of(1.0))], {"x": [], "y": []}, {"x": "exited", "y": "long"}, {"y"})
    contenders = [Contender(name, Side(name, {}), {name: 1}) for name in ("x", "y")]
    found = judged(contenders, rounds)
    assert [(one.verdict, one.because) for one in found] == [
        ("failed", "exited"),
        ("slower", "long"),
    ]
    assert winners(found) == []


@pytest.mark.parametrize(
    ("texts", "same"),
    [
        (["loss 0.5\n"] * 3, True),
        (["loss 0.5000001\n"] * 3, False),
        (["loss nan\n"] * 3, False),
        (["another\n"] * 3, False),
        (["loss 0.5\n", "loss 0.6\n", "loss 0.7\n"], True),  # a number that changes by itself
        (["loss 0.5\n", "more\n", "loss 0.5\n"], False),
    ],
)
def test_a_choice_that_prints_something_else_is_no_winner(texts, same):
    found = verdict([of(0.5, text=text) for text in texts])
    assert (found.verdict, found.prints_the_same) == ("faster", same)
    assert bool(winners([found])) is same


def test_where_the_base_prints_something_else_each_time_nothing_is_known():
    base = [(of(1.0, text="a\n"), of(1.0, text="b\n"))]
    rounds = Rounds(base, {"x": [of(0.5, text="c\n")]})
    (found,) = judged([Contender("x", Side("x", {}), {"a.b": 1})], rounds)
    assert found.output.changing == (0,)
    assert found.prints_the_same


def named(name, flags, own, text="loss 0.5\n"):
    from dataclasses import replace

    return replace(verdict(own, text=text), name=name, flags=flags)


def test_of_two_values_of_one_flag_the_faster_one_wins():
    one, two = named("1", {"f": 1}, [0.5] * 3), named("2", {"f": 2}, [0.4] * 3)
    other = named("3", {"g": 1}, [0.45] * 3)
    nothing = named("nothing", {}, [0.1] * 3)
    assert winners([one, two, other, nothing]) == [two, other]


def test_all_winners_are_written_where_they_are_worth_more_together():
    won = [named("2", {"f": 2}, [0.4] * 3), named("3", {"g": 1}, [0.45] * 3)]
    good = named("together", {"f": 2, "g": 1}, [0.3] * 3)
    assert best(won, good) is good
    assert best(won, named("together", {"f": 2, "g": 1}, [0.42] * 3)) is won[0]
    assert best(won, named("together", {"f": 2, "g": 1}, [0.3] * 3, text="no\n")) is won[0]
    assert best(won, None) is won[0]
    assert best([], None) is None


class Fake:
    """A program whose runs take given times by a clock that only they move on."""

    def __init__(self, **times):
        self.times, self.now, self.order, self.prepared = times, 0.0, [], []

    def start(self, command, side, *, seconds):
        self.order.append(side.name)
        took = self.times[side.name]
        if isinstance(took, Exception):
            raise took
        if took > seconds:
            self.now += seconds
            raise TookTooLongError(f"did not end within {seconds:g} s")
        self.now += took
        return of(took)

    def program(self, seconds):
        return Program(
            ["python", "train.py"],
            Side("base", {}),
            seconds,
            start=self.start,
            clock=lambda: self.now,
            prepare=lambda side: self.prepared.append(side.name),
        )


def contenders(*names):
    return [Contender(name, Side(name, {}), {name: 1}) for name in names]


def test_each_round_has_every_contender_between_two_runs_of_the_base_in_an_order_of_its_own():
    fake = Fake(base=1.0, a=1.0, b=2.0, c=3.0)
    program = fake.program(1000)
    program.warm_up()
    found = program.rounds(contenders("a", "b", "c"), 8)
    assert fake.order[0] == "base"
    rounds = [fake.order[1 + 5 * i : 6 + 5 * i] for i in range(8)]
    assert all(one[0] == one[-1] == "base" for one in rounds)
    assert all(sorted(one) == ["a", "b", "base", "base", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 2
    assert [one.seconds for one in found.runs["b"]] == [2.0] * 8
    assert fake.prepared == ["base", "a", "b", "c"]
    again = Fake(base=1.0, a=1.0, b=2.0, c=3.0)
    program = again.program(1000)
    program.warm_up()
    program.rounds(contenders("c", "b", "a"), 8)
    assert len(again.order) == len(fake.order)


def test_no_round_begins_that_would_not_end_in_time():
    fake = Fake(base=1.0, a=2.0)
    program = fake.program(10)
    program.warm_up()
    assert len(program.rounds(contenders("a"), 8).base) == 2
    assert fake.now == 9.0


def test_a_time_that_is_too_short_for_one_round_is_refused_after_one_run():
    fake = Fake(base=3.0, a=1.0)
    program = fake.program(10)
    program.warm_up()
    with pytest.raises(errors.UsageError) as caught:
        program.refuse_unless_fits(contenders("a"))
    assert caught.value.render() == (
        "error[usage]: one round of 3 runs takes about 9 s, more than is left of the 10 s of "
        "`--seconds`\n"
        "  state: nothing was written\n"
        "  help: give the command less to do: fewer steps, or fewer data\n"
        "  help: or more time, as `--seconds 3600`"
    )
    fake = Fake(base=30.0)
    with pytest.raises(errors.UsageError, match="the command takes longer than the 10 s of"):
        fake.program(10).warm_up()


def test_a_contender_that_fails_or_takes_too_long_is_in_no_further_round():
    failure = errors.CommandFailedError("the command exited with 1 under a", notes=["x", "no"])
    fake = Fake(base=2.0, a=failure, b=100.0, c=1.0)
    program = fake.program(1000)
    program.warm_up()
    found = program.rounds(contenders("a", "b", "c"), 3)
    assert found.failed == {
        "a": "the command exited with 1 under a: no",
        "b": "did not end within 20 s",
    }
    assert found.stopped == {"b"}
    assert len(found.runs["c"]) == 3
    assert fake.order.count("a") == fake.order.count("b") == 1


def test_a_base_that_fails_ends_it():
    fake = Fake(base=2.0, a=1.0)
    program = fake.program(1000)
    program.warm_up()
    fake.times["base"] = 100.0
    with pytest.raises(errors.CommandFailedError) as caught:
        program.rounds(contenders("a"), 3)
    assert caught.value.message == "the command did not end within 20 s under base"


def plan(values, asked=(), dormant=None, name="base", arguments=None):
    request = Asked(name, "profile-by-argument", arguments or {})
    return Compiled(name, "none", values, asked, dormant or {}, request=request)


AT_FIRST = {
    "memory.keep_freed": 0,
    "route.numpy.elementwise": "keep",
    "route.numpy.matmul": "keep",
    "route.torch.attention": "keep",
    "route.torch.dropout": "keep",
    "route.torch.matmul": "keep",
    "threads.count": 4,
    "threads.interop": 2,
    "blas.openblas.thread_timeout": 0,
}


def planned(settings):
    """A machine of four cores without PyTorch, under a tier that leaves threads alone."""
    if "1" in settings.values() and "threads.count" in settings:
        raise errors.ConflictingFlagsError("one thread cannot be had")
    values = {**AT_FIRST, **{flag: tomllib.loads(f"a = {t}")["a"] for flag, t in settings.items()}}
    if values["threads.count"] == "auto":
        values["threads.count"] = 4
    of_torch = (*(flag for flag in values if flag.startswith("route.torch.")), "threads.interop")
    dormant = dict.fromkeys(of_torch, "no PyTorch is here")
    return plan(values, ("threads.count", *settings), dormant)


def test_what_has_no_reader_what_is_refused_and_what_the_base_has_is_left_out_with_the_reason():
    found, left_out = choices(planned({}), planned)
    assert [one.name for one in found] == [
        'memory.keep_freed = "auto"',
        'route.numpy.elementwise = "threads"',
        'route.numpy.matmul = "native"',
        "blas.openblas.thread_timeout = 14",
        "threads.count = 2",
    ]
    assert left_out == {
        "memory.keep_freed = 0": "as under base",
        'route.numpy.elementwise = "keep"': "as under base",
        'route.numpy.matmul = "keep"': "as under base",
        'route.torch.attention = "native"': "no PyTorch is here",
        'route.torch.attention = "keep"': "no PyTorch is here",
        'route.torch.dropout = "native"': "no PyTorch is here",
        'route.torch.dropout = "keep"': "no PyTorch is here",
        'route.torch.matmul = "float32"': "no PyTorch is here",
        'route.torch.matmul = "native"': "no PyTorch is here",
        'route.torch.matmul = "keep"': "no PyTorch is here",
        "threads.count = 1": "one thread cannot be had",
        'threads.count = "auto"': "as under base",
        "threads.interop = 1": "no PyTorch is here",
        "blas.openblas.thread_timeout = 0": "as under base",
    }


@pytest.mark.parametrize(("cores", "half"), [(1, []), (2, []), (3, []), (4, [2]), (9, [4])])
def test_half_of_the_cores_is_tried_where_that_is_neither_one_nor_all(cores, half):
    more = [*candidates.candidates(cores)][len(candidates.CANDIDATES) :]
    assert [one.value for one in more] == half


def test_no_candidate_is_a_switch_of_precision_and_each_says_why():
    from backendcfg.schema.profile import flags

    for one in candidates.candidates(8):
        assert one.flag in flags()
        assert "precision" not in one.flag
        assert one.why.endswith(".")


REASONS = {str(one): one.why for one in candidates.candidates(8)}


def test_the_profile_extends_the_base_and_says_what_was_measured():
    won = named("x", {"threads.count": 4, "memory.keep_freed": "auto"}, [0.5] * 3)
    text = profile(
        plan({}, name="fast+mine"), won, ["python", "a b.py", "\x1b\n[threads]"], REASONS
    )
    assert text == (
        "# 2.00 times the speed of fast+mine, as measured here with\n"
        "#   python 'a b.py' '\\x1b\\n[threads]'\n"
        "schema = 1\n"
        'extends = ["fast", "mine"]\n'
        "# Half of the cores may have all of the memory's speed.\n"
        "threads.count = 4\n"
        "# Pages of freed arrays are not cleared anew.\n"
        'memory.keep_freed = "auto"\n'
    )


def test_a_base_that_a_settings_file_picks_is_extended():
    won = named("x", {"threads.count": 1}, [0.5] * 3)
    base = replace(plan({}, name="team"), request=Asked(rank="project-file"))
    assert tomllib.loads(profile(base, won, ["x"], REASONS)) == {
        "schema": 1,
        "extends": "team",
        "threads": {"count": 1},
    }


def test_what_was_set_beside_the_base_is_in_the_profile_but_for_what_wins_over_it():
    won = named("x", {"threads.count": 1}, [0.5] * 3)
    base = plan({}, name="fast", arguments={"threads.count": "2", "python.hash_seed": "0"})
    assert tomllib.loads(profile(base, won, ["x"], REASONS)) == {
        "schema": 1,
        "extends": "fast",
        "python": {"hash_seed": 0},
        "threads": {"count": 1},
    }


@pytest.mark.parametrize("name", ["./mine.toml", NO_PROFILE])
def test_a_base_that_no_profile_can_extend_is_written_out(name):
    won = named("x", {"threads.count": 1}, [0.5] * 3)
    values = {"threads.count": 4, "python.hash_seed": 0}
    text = profile(plan(values, tuple(values), name=name), won, ["x"], REASONS)
    assert tomllib.loads(text) == {
        "schema": 1,
        "python": {"hash_seed": 0},
        "threads": {"count": 1},
    }


def test_a_candidate_reads_as_a_profile_has_it():
    assert str(Candidate("route.torch.attention", "native", "")) == (
        'route.torch.attention = "native"'
    )
