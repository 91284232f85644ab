"""What fuzzing found to reach most of each reader, and parts of it put together."""

from __future__ import annotations

import fuzzing
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_what_fuzzing_found_is_read_or_refused(name):
    kept = fuzzing.inputs(name)
    assert len(kept) >= 10
    for data in kept:
        fuzzing.TARGETS[name](data)


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_parts_of_it_put_together_are_read_or_refused(name):
    parts = st.sampled_from(fuzzing.inputs(name))
    pieces = st.tuples(parts, st.integers(0, 400), st.integers(0, 400)).map(
        lambda drawn: drawn[0][drawn[1] : drawn[1] + drawn[2]]
    )

    @settings(max_examples=examples(20), deadline=None)
    @given(st.lists(pieces, max_size=4).map(b"".join))
    def attempt(data):
        fuzzing.TARGETS[name](data)

    attempt()
