"""The loops over a scope's switches: what they take, and what they leave when something raises."""

from __future__ import annotations

import pytest

from backendcfg._native import CellFields, enter_lines, leave_lines


def line(values, name, wanted, **cell):
    """A switch that is an entry of a dictionary, and what is wanted of it."""
    fields = CellFields()
    for field, value in {"_claims": {}, **cell}.items():
        setattr(fields, field, value)
    return (
        fields,
        wanted,
        lambda: values[name],
        lambda value: values.update({name: value}),
        name,
    )


def refuse(wanted, found):
    raise ValueError(f"{found} is not {wanted}")


def names(lines):
    return [line[4] for line in lines]


def test_what_differs_is_written_and_given_back():
    values = {"one": 1, "two": 2}
    lines = [line(values, "one", 5), line(values, "two", 2)]
    held, begun, before = [], [], []
    assert enter_lines(lines, held, begun, before, refuse)
    assert (values, held, before) == ({"one": 5, "two": 2}, lines, [1, 2])
    assert begun == [(lines[0], 1)]
    assert leave_lines(held, before)
    assert (values, held) == ({"one": 1, "two": 2}, [])


def test_where_nothing_differs_no_value_is_kept():
    values = {"one": 1}
    lines = [line(values, "one", 1)]
    held, begun, before = [], [], []
    assert enter_lines(lines, held, begun, before, refuse)
    assert (held, begun, before) == (lines, [], [])
    assert leave_lines(held, before)
    assert held == []


def test_what_is_known_is_given_back_and_not_what_was_found():
    values = {"one": 1}
    held, before = [], []
    assert enter_lines([line(values, "one", 1, known=True, _base=7)], held, [], before, refuse)
    assert before == [1]
    assert leave_lines(held, before)
    assert values == {"one": 7}


def test_what_becomes_known_while_a_scope_is_open_is_given_back():
    values = {"one": 1, "two": 2}
    lines = [line(values, "one", 5), line(values, "two", 2)]
    held, before = [], []
    assert enter_lines(lines, held, [], before, refuse)
    for cell, *_ in lines:
        cell.known, cell._base = True, 9
    assert leave_lines(held, before)
    assert values == {"one": 9, "two": 9}


def test_leaving_stops_once_somebody_has_looked_at_the_cells():
    values = {"one": 1, "two": 2}
    one, two = line(values, "one", 5), line(values, "two", 6)

    def write(value):
        values["two"] = value
        one[0]._claims["claim"] = 5
        two[0]._claims["claim"] = 6

    held, before = [one, (*two[:3], write, "two")], [1, 2]
    values.update(one=5, two=6)
    assert not leave_lines(held, before)
    assert (values, names(held)) == ({"one": 5, "two": 2}, ["one", "two"])


def test_where_somebody_claims_one_nothing_is_done():
    values = {"one": 1, "two": 2}
    lines = [line(values, "one", 5), line(values, "two", 6, _claims={"somebody": 2})]
    held, begun, before = [], [], []
    assert not enter_lines(lines, held, begun, before, refuse)
    assert (values, held, begun, before) == ({"one": 1, "two": 2}, [], [], [])


def test_a_switch_that_does_not_take_its_value_is_refused_with_both():
    values = {"one": 1, "two": 2}
    lines = [line(values, "one", 5), (*line(values, "two", 6)[:3], lambda value: None, "two")]
    held, begun = [], []
    with pytest.raises(ValueError, match="2 is not 6"):
        enter_lines(lines, held, begun, [], refuse)
    assert (names(held), begun) == (["one"], [(lines[0], 1), (lines[1], 2)])


def test_a_refusal_that_does_not_refuse_is_an_error():
    values = {"one": 1}
    lines = [(*line(values, "one", 5)[:3], lambda value: None, "one")]
    with pytest.raises(RuntimeError, match=r"refuse\(\) has to raise"):
        enter_lines(lines, [], [], [], lambda *_: None)


@pytest.mark.parametrize("broken", ["read", "write"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_raises_while_entering_comes_through(broken, error):
    def fail(*_):
        raise error

    values = {"one": 1, "two": 2}
    other = line(values, "two", 6)
    other = (*other[:2], *((fail, other[3]) if broken == "read" else (other[2], fail)), "two")
    held, begun = [], []
    with pytest.raises(error):
        enter_lines([line(values, "one", 5), other], held, begun, [], refuse)
    assert (values, names(held)) == ({"one": 5, "two": 2}, ["one"])
    assert len(begun) == (1 if broken == "read" else 2)


@pytest.mark.parametrize("broken", ["read", "write"])
def test_leaving_stops_at_a_switch_that_fails_and_an_interrupt_comes_through(broken):
    def fail(*_):
        raise errors.pop()

    values = {"one": 1, "two": 2, "three": 3}
    lines = [line(values, name, 5) for name in values]
    other = lines[1]
    lines[1] = (*other[:2], *((fail, other[3]) if broken == "read" else (other[2], fail)), "two")
    held, before = [*lines], [1, 2, 3]
    errors = [KeyboardInterrupt, OSError]
    assert not leave_lines(held, before)
    assert names(held) == ["one", "two"]
    with pytest.raises(KeyboardInterrupt):
        leave_lines(held, before)
    assert names(held) == ["one", "two"]
    held[1] = other
    assert leave_lines(held, before)
    assert values == {"one": 1, "two": 2, "three": 3}


def test_leaving_stops_at_a_switch_that_holds_something_else():
    values = {"one": 1, "two": 4}
    held = [line(values, "one", 1), line(values, "two", 2)]
    assert not leave_lines(held, [])
    assert names(held) == ["one", "two"]


def test_lists_that_a_switch_empties_meanwhile_are_no_longer_read():
    values = {"one": 1, "two": 2}
    lines = []
    lines += [(*line(values, "one", 5)[:2], lambda: lines.clear() or 5, None, "one")]
    lines += [line(values, "two", 6)]
    held = []
    assert enter_lines(lines, held, [], [], refuse)
    assert (names(held), values) == (["one"], {"one": 1, "two": 2})


@pytest.mark.parametrize("given", [(), ([], [], [], []), ((), [], [], [], refuse)])
def test_entering_takes_four_lists_and_a_function(given):
    with pytest.raises(TypeError, match="enter_lines takes four lists and a function"):
        enter_lines(*given)


@pytest.mark.parametrize("given", [(), ([],), ([], ())])
def test_leaving_takes_two_lists(given):
    with pytest.raises(TypeError, match="leave_lines takes two lists"):
        leave_lines(*given)


@pytest.mark.parametrize("wrong", [None, (), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
def test_a_line_is_a_tuple_of_five(wrong):
    with pytest.raises(TypeError, match="a line is a tuple of five, a cell first"):
        enter_lines([wrong], [], [], [], refuse)
    with pytest.raises(TypeError, match="a line is a tuple of five, a cell first"):
        leave_lines([wrong], [])


def test_more_lines_than_values_are_refused():
    values = {"one": 1}
    with pytest.raises(IndexError, match="more lines are held than have a value before"):
        leave_lines([line(values, "one", 5)] * 2, [1])
