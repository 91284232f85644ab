"""Records are frozen dataclasses to whoever uses them, without the import of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from backendcfg.records import field, record, replace


@record(frozen=True)
class Point:
    """A record with every kind of field."""

    x: int
    y: int = 2
    tags: list = field(default_factory=list)
    secret: str = field(default_factory=str, repr=False)

    @property
    def total(self):
        return self.x + self.y


@dataclasses.dataclass(frozen=True)
class Twin:
    """The same as a dataclass."""

    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)
    secret: str = dataclasses.field(default_factory=str, repr=False)


def test_a_record_is_made_shown_and_compared_as_a_dataclass_is():
    point = Point(1, tags=["a"])
    assert repr(point) == repr(Twin(1, tags=["a"])).replace("Twin", "Point")
    assert vars(point) == vars(Twin(1, tags=["a"]))
    assert point == Point(1, 2, ["a"], "")
    assert point != Point(1, 3, ["a"])
    assert point != Twin(1, tags=["a"])
    assert point.total == 3
    assert Point(1).tags is not Point(1).tags


def test_a_record_is_hashed_by_its_values():
    @record(frozen=True)
    class Name:
        first: str
        last: str = ""

    assert len({Name("a"), Name("a", ""), Name(last="", first="a"), Name("b")}) == 2
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        hash(Point(1))


def test_a_record_cannot_be_changed():
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot change field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot change field 'x'"):
        del point.x
    assert point.x == 1
    assert replace(point, x=5) == Point(5)


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        ((), {}, "Point needs a value for 'x'"),
        ((1, 2, [], "", 5), {}, "Point has 4 fields, not 5"),
        ((1,), {"x": 1}, "Point has two values for 'x'"),
        ((1,), {"z": 1}, "Point has no field 'z'"),
    ],
)
def test_a_record_refuses_what_is_not_its_fields(values, named, message):
    with pytest.raises(TypeError) as caught:
        Point(*values, **named)
    assert str(caught.value) == message


def test_a_record_cannot_be_thawed():
    with pytest.raises(TypeError, match="a record is frozen"):
        record(frozen=False)


def test_dataclasses_take_a_record_for_one_of_theirs():
    point = Point(1, tags=[Point(2)])
    assert dataclasses.is_dataclass(Point)
    assert [each.name for each in dataclasses.fields(point)] == ["x", "y", "tags", "secret"]
    assert dataclasses.asdict(point) == {
        "x": 1,
        "y": 2,
        "tags": [{"x": 2, "y": 2, "tags": [], "secret": ""}],
        "secret": "",
    }
    assert dataclasses.replace(point, y=3) == Point(1, 3, [Point(2)])


def test_a_record_can_be_copied_and_pickled():
    point = Point(1, tags=["a"])
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
