"""Dropout in C: numbers of an MT19937, and attention that is told which weights are kept."""

from __future__ import annotations

import numpy as np
import pytest

from backendcfg.ops import _native  # which NumPy is ready for


@pytest.mark.parametrize("start", [624, 0, 1, 623])
def test_numbers_are_those_of_numpy_s_generator_and_so_is_the_state_afterwards(start):
    theirs = np.random.RandomState(5)
    words = theirs.get_state()[1].astype(np.uint64)
    theirs.set_state(("MT19937", words.astype(np.uint32), start))
    out = np.full(2000, 7, np.float32)
    end = _native.bernoulli(words, start, 0.3, 0x3F800000, out)
    drawn = theirs.randint(0, 1 << 32, (2000, 2), dtype=np.uint32).astype(np.uint64)
    numbers = (drawn[:, 0] << np.uint64(32) | drawn[:, 1]) & np.uint64((1 << 53) - 1)
    assert (out == (numbers * 2.0**-53 < 0.3)).all()
    _, wanted, position, *_ = theirs.get_state()
    assert (words == wanted).all()
    assert end == position


WORDS, OUT = np.zeros(624, np.uint64), np.zeros(8, np.float32)
WRONG = {
    "words must be a contiguous array to write to": [
        (WORDS.astype(np.uint32), 0, 0.5, 1, OUT),
        (None, 0, 0.5, 1, OUT),
    ],
    "out must be a contiguous array to write to": [
        (WORDS, 0, 0.5, 1, OUT[::2]),
        (WORDS, 0, 0.5, 1, np.broadcast_to(OUT, (2, 8))),
    ],
    "no state, probability or size of numbers": [
        (WORDS[:600].copy(), 0, 0.5, 1, OUT),
        (WORDS, -1, 0.5, 1, OUT),
        (WORDS, 625, 0.5, 1, OUT),
        (WORDS, 0, 1.5, 1, OUT),
        (WORDS, 0, float("nan"), 1, OUT),
        (WORDS, 0, 0.5, 1, OUT.astype(np.complex128)),
    ],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_generator_is_refused_before_anything_is_drawn(message):
    for given in WRONG[message]:
        with pytest.raises(ValueError, match=f"^bernoulli: {message}$"):
            _native.bernoulli(*given)
    assert not WORDS.any()
    assert not OUT.any()


def attended(kept, dropout_p=0.25):
    arrays = [np.random.default_rng(n).standard_normal((1, 2, 5, 4)) for n in range(3)]
    return arrays, _native.attention(
        "flash", *arrays, None, True, 0.5, dropout_p, kept, "float64", 1
    )


def test_attention_keeps_the_weights_that_it_is_told_to():
    kept = np.random.default_rng(9).integers(0, 2, (1, 2, 5, 5)).astype(np.uint8)
    (query, key, value), (out, _) = attended(kept)
    scores = np.where(np.tri(5), query @ key.swapaxes(2, 3) * 0.5, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(out, weights * kept / 0.75 @ value, rtol=1e-12, atol=1e-12)
    columns = np.asfortranarray(kept)
    assert (attended(columns)[1][0] == out).all()


def test_what_does_not_say_which_weights_are_kept_is_refused():
    for wrong in (
        np.ones((1, 2, 5, 4), np.uint8),
        np.ones((5, 5), np.uint8),
        np.ones((1, 2, 5, 5)),
    ):
        with pytest.raises(
            ValueError,
            match=r"^attention: (dimension 3 of kept is|kept must have 4 dimensions and be of type uint8$)",
        ):
            attended(wrong)


class State:
    """Stands for a tensor that holds a generator's state."""

    def __init__(self, numbers):
        self.numbers = numbers

    def numpy(self):
        return self.numbers


class Generator:
    """One of PyTorch's, from which others draw between two looks."""

    def __init__(self, now):
        self.now = State(now)

    def get_state(self):
        return self.now

    def set_state(self, state):
        self.now = state


def test_a_state_is_put_back_unless_numbers_were_drawn_since():
    before, after = State(np.zeros(9, np.uint8)), State(np.ones(9, np.uint8))
    generator = Generator(np.zeros(9, np.uint8))
    assert _native.exchange_state(generator, before, after) is True
    assert generator.now is after
    for now in (np.eye(3, dtype=np.uint8).ravel(), np.zeros(8, np.uint8)):
        generator = Generator(now)
        assert _native.exchange_state(generator, before, after) is False
        assert generator.now.numbers is now


def test_errors_of_a_generator_are_the_caller_s():
    before = State(np.zeros(9, np.uint8))
    with pytest.raises(AttributeError, match="get_state"):
        _native.exchange_state(None, before, before)
    with pytest.raises(AttributeError, match="numpy"):
        _native.exchange_state(Generator(np.zeros(9, np.uint8)), None, before)
    with pytest.raises(ValueError, match=r"^exchange_state: a state is no dense tensor$"):
        _native.exchange_state(Generator(np.zeros(18, np.uint8)[::2]), before, before)
    with pytest.raises(TypeError, match=r"^exchange_state takes 3 arguments, not 2$"):
        _native.exchange_state(None, before)
