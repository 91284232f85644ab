"""The digest of bytes by which what operations compute is compared."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest

from backendcfg import _native

WORD = (1 << 64) - 1
ODD = 0x9E3779B97F4A7C15


def rotated(word, by):
    return (word << by | word >> (64 - by)) & WORD


def following(lane, word):
    return rotated(lane ^ word, 27) * ODD & WORD


def spread(word):
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & WORD
    return word ^ word >> 33


def model(data, seed):
    """What digest.c computes, one word after the other."""
    lanes = [(seed + ODD * (i + 1)) & WORD for i in range(8)]
    padded = data + bytes(-len(data) % 64)
    for i, word in enumerate(np.frombuffer(padded, "<u8").tolist()):
        lanes[i % 8] = following(lanes[i % 8], word)
    result = spread(seed ^ len(data))
    for lane in lanes:
        result = following(result, spread(lane))
    return spread(result)


def digest(data, seed=0):
    buffer = ctypes.create_string_buffer(data, len(data))
    return _native.digest(ctypes.addressof(buffer), len(data), seed)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 127, 128, 1000, 70_000])
def test_a_digest_is_what_its_description_says(size):
    data = random.Random(size).randbytes(size)
    assert digest(data) == model(data, 0)
    assert digest(data, 7) == model(data, 7)


@pytest.mark.parametrize("size", [1, 8, 64, 200, 4096])
def test_each_bit_of_the_bytes_counts(size):
    data = bytearray(random.Random(1).randbytes(size))
    found = {digest(bytes(data))}
    for bit in range(0, 8 * size, max(1, size // 16)):
        data[bit // 8] ^= 1 << bit % 8
        found.add(digest(bytes(data)))
        data[bit // 8] ^= 1 << bit % 8
    assert len(found) == 1 + len(range(0, 8 * size, max(1, size // 16)))


def test_the_order_of_words_and_their_signs_count():
    """What the sums and exclusive ors that others take for a digest do not see."""
    a = np.arange(1.0, 65.0)
    others = [a[::-1].copy(), np.roll(a, 8), -a, np.append(a, 0.0)]
    others.append(np.where(np.arange(64) % 8 == 3, -a, a))  # signs within one lane
    assert len({digest(one.tobytes()) for one in [a, *others]}) == 6
    assert digest(np.full(4, 0.1).tobytes()) != digest(np.full(4, 0.2).tobytes())


def test_what_is_no_memory_is_refused():
    with pytest.raises(ValueError, match="no -1 bytes are at"):
        _native.digest(64, -1)
    with pytest.raises(ValueError, match="no 8 bytes are at"):
        _native.digest(0, 8)
    with pytest.raises(TypeError, match="digest takes an address, a size and a seed"):
        _native.digest(64)
    with pytest.raises(TypeError):
        _native.digest("64", 8)
