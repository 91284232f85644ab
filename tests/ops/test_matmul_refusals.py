"""What ops.matmul refuses, in which words, and that it touches nothing before."""

import subprocess
import sys

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.transact.compiled import Compiled

A, B = np.ones((2, 3)), np.ones((3, 4))


def refused(*arguments, **keywords):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.matmul(*arguments, **keywords)
    assert isinstance(caught.value, ValueError)
    return caught.value.render()


def test_a_list_is_refused_with_the_way_out():
    assert refused([[1.0]], B) == (
        "error[invalid-argument]: matmul: `a` must be an array, not list\n"
        "  state: nothing was computed\n"
        "  help: pass `numpy.asarray(x)`"
    )


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint16", "longdouble", "object", "U3"])
def test_other_types_are_refused_by_name(dtype):
    b = np.ones((3, 4)).astype(dtype)
    assert refused(A, b) == (
        "error[invalid-argument]: matmul: `b` must hold float32, float64, bfloat16, float16, "
        f"complex64 or complex128, not {b.dtype}\n"
        "  note: a: float64 array of shape (2, 3)\n"
        f"  note: b: {b.dtype} array of shape (3, 4)\n"
        "  state: nothing was computed\n"
        "  help: convert it: `b.astype(numpy.float64)`"
    )


@pytest.mark.parametrize(
    ("a", "b", "line"),
    [
        (A, A, "the last dimension of `a` and the second to last dimension of `b` must be equal"),
        (A, np.ones(2), "the last dimension of `a` and the only dimension of `b` must be equal"),
        (np.ones((2, 2, 3)), np.ones((3, 3, 4)), "the leading dimensions of `a` and `b` must broadcast"),
        (np.array(1.0), B, "`a` must have at least one dimension"),
        (A, np.array(1.0), "`b` must have at least one dimension"),
    ],
)  # fmt: skip
def test_shapes_without_a_product_are_refused(a, b, line):
    assert refused(a, b).splitlines()[0] == f"error[invalid-argument]: matmul: {line}"


@pytest.mark.parametrize(
    ("out", "line"),
    [
        (np.zeros((2, 5)), "`out` must have the shape of the product"),
        (np.zeros((1, 2, 4)), "`out` must have the shape of the product"),
        (np.zeros((2, 4), "f"), "`out` must hold float64, as the product does, not float32"),
        (np.zeros((2, 4), ">f8"), "`out` must hold float64, as the product does, not >f8"),
        ([0], "`out` must be an array, not list"),
        (np.broadcast_to(np.zeros(4), (2, 4)), "`out` must be writeable"),
        (
            np.lib.stride_tricks.as_strided(np.zeros(4), (2, 4), (0, 8)),
            "`out` cannot hold the product: elements of c share memory",
        ),
    ],
)
def test_an_out_that_does_not_fit_is_refused_unwritten(out, line):
    before = np.array(out, copy=True)
    assert refused(A, B, out=out).splitlines()[0] == f"error[invalid-argument]: matmul: {line}"
    assert np.array_equal(out, before)


def test_wrong_calls_are_type_errors():
    for call in (lambda: ops.matmul(A), lambda: ops.matmul(A, B, None, None),
                 lambda: ops.matmul(A, B, axis=0), lambda: ops.matmul(a=A, b=B)):  # fmt: skip
        with pytest.raises(TypeError, match=r"^matmul takes \(a, b, out=None\)"):
            call()


def test_check_finite_refuses_and_leaves_out_alone():
    compiled = Compiled("strict", "none", {"ops.check_finite": True}, order=("openblas",))
    a, out = np.ones((2, 3)), np.full((2, 4), 9.0)
    a[1, 2] = np.inf
    assert np.isinf(ops.matmul(a, B)[1, 0])
    with Scope(Prepared("strict", compiled), 0):
        assert refused(a, B, out=out) == (
            "error[not-finite]: matmul: matrix 0 of the result has NaN or infinity at "
            "row 1, column 0, which `ops.check_finite` refuses\n"
            "  note: a: float64 array of shape (2, 3)\n"
            "  note: b: float64 array of shape (3, 4)\n"
            "  note: out: float64 array of shape (2, 4)\n"
            "  state: `out` was not written\n"
            "  help: look for NaN, infinity or overflow in the operands, or turn it off"
        )
        assert (out == 9).all()
        assert (ops.matmul(np.ones((2, 3)), B, out=out) == 3).all()


def test_the_compiled_module_alone_says_what_it_lacks():
    code = (
        "import sys; from backendcfg import _native\n"
        "assert 'numpy' not in sys.modules\n"
        "try: _native.matmul(1, 2)\n"
        "except RuntimeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set_array_api() has not been called\n"
