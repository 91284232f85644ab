"""Functions of libraries as Python's own: of no argument or an `int`, by their addresses."""

from __future__ import annotations

import ctypes
import os

import pytest

from backendcfg import _native

C = ctypes.CDLL(None)


def address(name):
    return ctypes.cast(getattr(C, name), ctypes.c_void_p).value


def test_what_a_function_returns_is_returned():
    assert _native.asking(address("getpid"))() == os.getpid()


def test_what_a_function_returns_is_true_unless_it_is_zero():
    answers = [_native.asking_whether(address(name))() for name in ("getpid", "sched_yield")]
    assert [str(answer) for answer in answers] == ["True", "False"]


def test_a_function_that_returns_nothing_is_given_a_number():
    draw, seed = _native.asking(address("rand")), _native.telling(address("srand"))
    assert seed(7) is None
    first = [draw() for _ in range(4)]
    seed(7)
    assert [draw() for _ in range(4)] == first


@pytest.mark.parametrize("number", [0, 1, -1, -(2**31) + 1, 2**31 - 1])
def test_a_function_is_given_a_number(number):
    assert _native.exchanging(address("abs"))(number) == abs(number)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**70])
def test_a_number_that_is_no_int_of_c_is_refused(number):
    with pytest.raises(OverflowError):
        _native.exchanging(address("abs"))(number)
    with pytest.raises(OverflowError):
        _native.telling(address("srand"))(number)


MAKERS = [_native.asking, _native.asking_whether, _native.exchanging, _native.telling]


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_made_of_no_address(make):
    with pytest.raises(ValueError, match="a function has no address 0"):
        make(0)
    with pytest.raises(TypeError):
        make("address")


def test_another_number_of_arguments_is_refused():
    with pytest.raises(TypeError):
        _native.asking(address("getpid"))(1)
    with pytest.raises(TypeError):
        _native.exchanging(address("abs"))()
    with pytest.raises(TypeError):
        _native.exchanging(address("abs"))(1.5)
