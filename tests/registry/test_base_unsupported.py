"""A switch that cannot take its value is nobody's: the base does not claim to hold it."""

from __future__ import annotations

from fake_switches import Switch, profile, scope

from backendcfg.registry import base


class Choosy(Switch):
    """A switch whose bridge says which values the library was not built for."""

    wanted = None

    def unsupported(self):
        return f"not built for {self.wanted}" if self.wanted == "magma" else ""

    def wanting(self, value):
        """The same switch, as a bridge makes it for this value."""
        one = Choosy(self.name)
        one.__dict__ = {**self.__dict__, "wanted": value}
        one.read, one.write = self.read, self.write
        return one


def apply(name, switch, value, **options):
    prepared = profile(name, (switch.wanting(value), value))
    return [one.state for one in base.set_base(prepared, prepared.switches(), **options)]


def test_the_base_does_not_record_what_was_not_set():
    switch = Choosy("linalg", "default")
    assert apply("one", switch, "magma") == ["unsupported"]
    assert (base.applied(), switch.value) == ({}, "default")
    base.set_base(None, [])
    assert (switch.value, switch.writes) == ("default", [])


def test_what_the_next_profile_cannot_set_does_not_keep_the_value_of_the_one_before():
    switch = Choosy("linalg", "default")
    apply("one", switch, "cusolver")
    assert apply("two", switch, "magma") == ["unsupported", "set"]
    assert switch.value == "default"
    base.set_base(None, [])
    assert switch.value == "default"


def test_inside_a_scope_it_is_unsupported_too():
    switch = Choosy("linalg", "default")
    with scope("inner", (switch, "cusolver")):
        assert apply("one", switch, "magma") == ["unsupported"]
        assert switch.value == "cusolver"
    assert switch.value == "default"
