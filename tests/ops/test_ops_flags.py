"""What is to be True or False is one of both: a word, a number or an array is a mistake."""

import numpy as np
import pytest

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import linalg

EYE = np.eye(3)
PIVOTS = np.arange(1, 4, dtype=np.int32)
QUERY = np.ones((1, 2, 4, 8), "float32")
OUT, SUMS = ops.scaled_dot_product_attention(QUERY, QUERY, QUERY, return_logsumexp=True)
SQUARE = ((3, 3), (3, 2))
ATTENTION = "scaled_dot_product_attention"


def explained(operation, shapes, dtype="float32"):
    return lambda **flag: ops.explain(operation, shapes, dtype, **flag)


def of(function, *arrays):
    return lambda **flag: function(*arrays, **flag)


FLAGS = {
    "linalg.inv_ex": (of(linalg.inv_ex, EYE), ["check_errors"]),
    "linalg.cholesky": (of(linalg.cholesky, EYE), ["upper"]),
    "linalg.cholesky_ex": (of(linalg.cholesky_ex, EYE), ["upper", "check_errors"]),
    "linalg.cholesky_solve": (of(linalg.cholesky_solve, EYE, EYE), ["upper"]),
    "linalg.cholesky_inverse": (of(linalg.cholesky_inverse, EYE), ["upper"]),
    "linalg.lu": (of(linalg.lu, EYE), ["pivot"]),
    "linalg.lu_factor": (of(linalg.lu_factor, EYE), ["pivot"]),
    "linalg.lu_factor_ex": (of(linalg.lu_factor_ex, EYE), ["pivot", "check_errors"]),
    "linalg.lu_solve": (of(linalg.lu_solve, EYE, PIVOTS, EYE), ["left", "adjoint"]),
    "linalg.svd": (of(linalg.svd, EYE), ["full_matrices"]),
    "linalg.solve": (of(linalg.solve, EYE, EYE), ["left"]),
    "linalg.solve_ex": (of(linalg.solve_ex, EYE, EYE), ["left", "check_errors"]),
    ATTENTION: (
        of(ops.scaled_dot_product_attention, QUERY, QUERY, QUERY),
        ["is_causal", "enable_gqa", "return_logsumexp"],
    ),
    f"{ATTENTION}_backward": (
        of(ops.scaled_dot_product_attention_backward, OUT, QUERY, QUERY, QUERY, OUT, SUMS),
        ["is_causal", "enable_gqa"],
    ),
    "explain of linalg.solve": (explained("linalg.solve", SQUARE), ["left"]),
    "explain of linalg.lu_solve": (explained("linalg.lu_solve", SQUARE), ["left"]),
    f"explain of {ATTENTION}": (
        explained(ATTENTION, [QUERY.shape] * 3),
        ["is_causal", "enable_gqa"],
    ),
}
ALL = [(name, flag) for name, (_, flags) in FLAGS.items() for flag in flags]


@pytest.mark.parametrize("value", ["yes", "", 1, 0, None, 1.0, EYE > 2, np.array(True), np.int8(1)])
@pytest.mark.parametrize(("name", "flag"), ALL)
def test_what_is_neither_true_nor_false_is_refused_by_name(name, flag, value):
    with pytest.raises(InvalidArgumentError) as caught:
        FLAGS[name][0](**{flag: value})
    first = "explain" if name.startswith("explain") else name
    assert caught.value.message == f"{first}: `{flag}` must be a bool, not {value!r}"


@pytest.mark.parametrize(("name", "flag"), ALL)
def test_true_and_false_of_numpy_are_those_of_python(name, flag):
    call = FLAGS[name][0]
    for value in (True, False):
        if (flag, value) in {("left", False), ("pivot", False)}:
            continue  # another shape; and what no provider has, by its own message
        mine, theirs = call(**{flag: value}), call(**{flag: np.bool_(value)})
        if name.startswith("explain"):
            assert mine == theirs
            continue
        for one, other in zip(
            *(x if isinstance(x, tuple) else (x,) for x in (mine, theirs)), strict=True
        ):
            assert np.array_equal(one, other)


def test_every_flag_of_linear_algebra_is_looked_at_here():
    flags = {"upper", "pivot", "left", "adjoint", "full_matrices", "check_errors"}
    named = {
        (f"linalg.{function}", flag)
        for function in linalg.__all__
        if function != "LinAlgError"
        for flag in flags
        if f"{flag}=" in (getattr(linalg, function).__text_signature__ or "")
    }
    assert named == {(name, flag) for name, flag in ALL if name.startswith("linalg.")}
