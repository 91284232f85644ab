"""The decision from measured times: pure, by numbers that are given."""

import pytest

from backendcfg.dispatch import speed, tuning
from backendcfg.dispatch.calibration import Measurable, Measured, Table
from backendcfg.native import NOT_MEASURED, size_class


def table(times, threads=1, pools=None, spread=0.01):
    names = {name for rows in times.values() for row in rows.values() for name in row}
    pools = pools or {}
    return Table(
        "digest",
        "processor",
        threads,
        0.0,
        {name: Measurable(f"/{name}", "", (), pools.get(name, name)) for name in names},
        {},
        {
            operation: {
                size: {name: Measured(seconds, spread, 7) for name, seconds in row.items()}
                for size, row in rows.items()
            }
            for operation, rows in times.items()
        },
    )


def test_the_fastest_of_each_size_serves():
    found = speed.decide(
        table({"dgemm": {6: {"a": 2.0, "b": 1.0}, 9: {"a": 1.0, "b": 2.0}}}), ["a", "b"]
    )
    assert found.fastest == {"dgemm": {6: "b", 9: "a"}}


@pytest.mark.parametrize(("seconds", "spread", "who"), [
    (1.04, 0.0, "a"), (1.06, 0.0, "b"), (1.06, 0.05, "a"), (1.5, 0.1, "b"), (1.5, 0.2, "a"),
])  # fmt: skip
def test_a_lead_within_the_noise_keeps_the_order(seconds, spread, who):
    found = speed.decide(table({"dgemm": {6: {"a": seconds, "b": 1.0}}}, spread=spread), ["a", "b"])
    assert found.fastest["dgemm"][6] == who


def test_among_equals_behind_a_slow_first_the_order_decides():
    found = speed.decide(table({"dgemm": {6: {"a": 9.0, "b": 1.02, "c": 1.0}}}), ["a", "b", "c"])
    assert found.fastest["dgemm"][6] == "b"


def test_a_lead_that_was_not_seen_three_times_keeps_the_order():
    found = table({"dgemm": {6: {"a": 9.0, "b": 1.0}}})
    row = found.times["dgemm"][6]
    for turns, who in ((1, "a"), (2, "a"), (3, "b")):
        row["b"] = Measured(1.0, 0.01, turns)
        assert speed.decide(found, ["a", "b"]).fastest["dgemm"][6] == who


def test_who_may_not_serve_is_never_chosen():
    found = speed.decide(table({"dgemm": {6: {"a": 9.0, "b": 1.0, "c": 2.0}}}), ["a", "c"])
    assert found.named() == {"c"}


def test_nobody_leads_a_first_that_was_not_measured():
    found = table({"dgemm": {6: {"b": 1.0}}})
    assert speed.decide(found, ["a", "b"]) == speed.Decision()
    assert speed.decide(found, []) == speed.Decision()


def test_a_size_at_which_the_first_was_not_measured_is_left_to_the_order():
    found = table({"dgemm": {6: {"a": 1.0, "b": 2.0}, 9: {"b": 1.0}}})
    assert speed.decide(found, ["a", "b"]).fastest == {"dgemm": {6: "a"}}


LARGE = {"dgemm": {12: {"a": 2.0, "b": 1.0}, 24: {"a": 1.1, "b": 1.0}, 27: {"a": 1.2, "b": 1.0}}}


def test_with_several_threads_one_pool_serves_what_is_worth_threads():
    found = speed.decide(table(LARGE, threads=2), ["a", "b"])
    assert found.fastest["dgemm"] == {12: "b", 16: "a", 24: "a", 27: "a"}
    assert found.pool == "a"


def test_another_pool_takes_over_for_a_clear_lead_and_then_for_every_size():
    sizes = {size: {"a": 2.0, "b": 1.0} for size in range(18, 25)} | {27: {"a": 1.0, "b": 1.1}}
    found = speed.decide(table({"dgemm": sizes}, threads=2), ["a", "b"])
    assert (found.pool, found.fastest["dgemm"]) == ("b", dict.fromkeys((16, *sizes), "b"))
    assert found.fastest["zgemv"] == {12: "b"}  # also for what nobody had time to measure


def test_a_few_measurements_move_no_pool():
    sizes = {size: {"a": 2.0, "b": 1.0} for size in range(18, 25)}
    assert speed.decide(table({"dgemm": sizes}, threads=2), ["a", "b"]).pool == "a"


def test_noise_moves_no_pool():
    times = {"dgemm": {24: {"a": 2.0, "b": 1.0}, 27: {"a": 2.0, "b": 1.0}}}
    assert speed.decide(table(times, threads=2, spread=0.5), ["a", "b"]).pool == "a"


def test_with_one_thread_or_one_pool_every_size_is_free():
    pools = {"a": "shared", "b": "shared"}
    for found in (table(LARGE), table(LARGE, threads=2, pools=pools)):
        decision = speed.decide(found, ["a", "b"])
        assert [decision.fastest["dgemm"][size] for size in (12, 24, 27)] == ["b", "b", "b"]


def test_who_has_no_threads_competes_everywhere():
    found = table(LARGE, threads=2, pools={"b": ""})
    assert speed.decide(found, ["a", "b"]).fastest["dgemm"][24] == "b"
    assert speed.decide(found, ["a", "b"]).pool == "a"
    assert speed.decide(found, ["b"]).pool == ""


def test_sizes_between_go_as_the_nearest_that_was_measured():
    decision = speed.Decision({"dgemm": {6: "a", 9: "b", 24: "c"}})
    row = decision.positions(["a", "b", "c"], 1)["dgemm"]
    assert list(row[:12]) == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert (row[16], row[17], row[63]) == (1, 2, 2)


def test_what_is_worth_threads_never_goes_as_what_is_not():
    decision = speed.Decision({"dgemm": {15: "b", 30: "a"}, "dgemv": {8: "b"}})
    row = decision.positions(["a", "b"], 2)["dgemm"]
    assert (row[15], row[16]) == (1, 0)
    assert set(decision.positions(["a", "b"], 2)["dgemv"][12:]) == {NOT_MEASURED}
    assert set(decision.positions(["a"], 1)["dgemv"]) == {NOT_MEASURED}


def test_a_library_of_products_alone_keeps_nobody_from_leading_in_linear_algebra():
    times = {"dgemm": {6: {"a": 1.0, "b": 2.0, "c": 3.0}}, "dgetrf": {18: {"b": 2.0, "c": 1.0}}}
    found = speed.decide(table(times), ["a", "b", "c"])
    assert found.fastest == {"dgemm": {6: "a"}, "dgetrf": {18: "c"}}


def test_linear_algebra_goes_by_the_pool_that_products_go_by():
    sizes = {size: {"a": 2.0, "b": 1.0} for size in range(18, 27)}
    linear = {18: {"a": 1.0, "b": 2.0}}
    found = speed.decide(table({"dgemm": sizes, "dgetrf": linear}, threads=2), ["a", "b"])
    assert (found.pool, found.fastest["dgetrf"]) == ("b", {16: "b", 18: "b"})
    assert found.fastest["cheevd"] == {16: "b"}  # also for what nobody had time to measure


def test_where_the_pool_of_products_has_no_linear_algebra_one_other_pool_serves_it():
    sizes = {size: {"a": 2.0, "b": 2.0, "c": 1.0} for size in range(18, 27)}
    linear = {18: {"a": 1.0, "b": 2.0}, 24: {"a": 2.0, "b": 1.0}}
    found = speed.decide(table({"dgemm": sizes, "dgetrf": linear}, threads=2), ["a", "b", "c"])
    assert (found.pool, found.fastest["dgetrf"]) == ("c", {16: "a", 18: "a", 24: "a"})


def test_matrices_too_small_for_threads_go_by_no_measurement_of_larger_ones():
    row = speed.Decision({"dgetrf": {18: "b", 24: "a"}}).positions(["a", "b"], 1)["dgetrf"]
    assert set(row[:16]) == {NOT_MEASURED}
    assert (row[16], row[21], row[22], row[63]) == (1, 1, 0, 0)


def test_every_operation_has_a_kind_whose_threads_are_known():
    assert {name[1:] for name in speed.MEASURED} <= speed.PARALLEL.keys()


def test_the_cases_fall_into_the_classes_by_which_the_choice_is_made():
    cases = tuning.cases()
    assert [case.size_class for case in cases] == [size_class(c.m, c.n, c.k) for c in cases]
    assert {case.operation for case in cases} == set(speed.MEASURED) - {"bgemm", "hgemm"}
    assert len({(case.operation, case.size_class) for case in cases}) == len(cases)
