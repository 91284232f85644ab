"""Functions of libraries as Python's own: `int f(void)` and `int f(int)`, by their addresses."""

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


@pytest.mark.parametrize("number", [0, 1, -1, -(2**31) + 1, 2**31 - 1])
def test_a_function_is_given_a_number(number):
    assert _native.exchanging(address("abs"))(number) == abs(number)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**70])
def test_a_number_that_is_no_int_of_c_is_refused(number):
    with pytest.raises(OverflowError):
        _native.exchanging(address("abs"))(number)


@pytest.mark.parametrize("make", [_native.asking, _native.exchanging])
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
