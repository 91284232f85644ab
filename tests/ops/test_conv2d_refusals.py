"""What ops.conv2d refuses, in which words, before anything is computed."""

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.transact.compiled import Compiled

X, W = np.ones((2, 3, 8, 8)), np.ones((4, 3, 3, 3))


def test_the_whole_message():
    with pytest.raises(InvalidArgumentError) as caught:
        ops.conv2d(X, W.astype("int64"))
    assert caught.value.render() == (
        "error[invalid-argument]: conv2d: `weight` must hold float32, float64, complex64, "
        "complex128, float16 or bfloat16, not int64\n"
        "  state: nothing was computed\n"
        "  help: convert it: `weight.astype(numpy.float32)`"
    )


@pytest.mark.parametrize(
    ("arguments", "keywords", "line"),
    [
        (([[1.0]], W), {}, "`input` must be an array, not list"),
        ((X, [[1.0]]), {}, "`weight` must be an array, not list"),
        ((X, W, [1.0]), {}, "`bias` must be an array, not list"),
        ((X.astype("i4"), W), {}, "`input` must hold float32, float64, complex64, complex128, float16 or bfloat16, not int32"),
        ((X.astype("c16"), W), {}, "`weight` must hold complex128, as `input` does, not float64"),
        ((X.astype("f4"), W), {}, "`weight` must hold float32, as `input` does, not float64"),
        ((X, W, np.ones(4, "f4")), {}, "`bias` must hold float64, as `input` does, not float32"),
        ((X[0, 0], W), {}, "`input` must have 4 dimensions, or 3 for one image, not 2"),
        ((X, W[0]), {}, "`weight` must have 4 dimensions, not 3"),
        ((X, W[:, :, :0]), {}, "`weight` must have a kernel, not one of 0 by 3"),
        ((X, W[:, :2]), {}, "`input` must have 2 channels, as `weight` has 2 in each of 1 group, not 3"),
        ((X, W), {"groups": 2}, "`input` must have 6 channels, as `weight` has 3 in each of 2 groups, not 3"),
        ((X, W[:, :1]), {"groups": 3}, "`weight` must have a multiple of 3 outputs (`groups`), not 4"),
        ((X, W[:0]), {}, "`weight` must have a multiple of 1 outputs (`groups`), not 0"),
        ((X, W, np.ones(3)), {}, "`bias` must have the shape (4,), not (3,)"),
        ((X, W, np.ones((4, 1))), {}, "`bias` must have the shape (4,), not (4, 1)"),
        ((X, W), {"stride": 0}, "`stride` must be at least 1, not 0"),
        ((X, W), {"stride": (1, 2, 3)}, "`stride` must be one number or two, not 3"),
        ((X, W), {"stride": 1.5}, "`stride` must be a whole number, not 1.5"),
        ((X, W), {"stride": True}, "`stride` must be a whole number, not True"),
        ((X, W), {"stride": np.array([1, 2])}, "`stride` must be a whole number, not array([1, 2])"),
        ((X, W), {"dilation": 0}, "`dilation` must be at least 1, not 0"),
        ((X, W), {"dilation": 2**40}, "`dilation` must be below 2147483648, not 1099511627776"),
        ((X, W), {"padding": -1}, "`padding` must be at least 0, not -1"),
        ((X, W), {"padding": "full"}, '`padding` must be numbers, "valid" or "same", not \'full\''),
        ((X, W), {"padding": "same", "stride": 2}, '`padding` "same" needs a `stride` of 1'),
        ((X, W), {"groups": 0}, "`groups` must be at least 1, not 0"),
        ((X, W), {"dilation": 9}, "`weight` must fit the padded input of 8 by 8, not reach over 19 by 19"),
        ((X[:, :, :0], W), {"padding": 1}, "`weight` must fit the padded input of 2 by 10, not reach over 3 by 3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(arguments, keywords, line):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.conv2d(*arguments, **keywords)
    assert isinstance(caught.value, ValueError)
    rendered = caught.value.render().splitlines()
    assert rendered[0] == f"error[invalid-argument]: conv2d: {line}"
    assert rendered[1] == "  state: nothing was computed"


def test_check_finite_refuses_a_result_with_its_place():
    x = X.copy()
    x[1, 0, 4, 5] = np.inf
    values = {"ops.check_finite": True}
    with (
        Scope(Prepared("test", Compiled("test", "none", values, order=("openblas",))), 0),
        pytest.raises(InvalidArgumentError) as caught,
    ):
        ops.conv2d(x, W)
    assert caught.value.render().splitlines()[:2] == [
        (
            "error[not-finite]: conv2d: the result is inf at (1, 0, 2, 3), which "
            "`ops.check_finite` refuses"
        ),
        "  state: nothing was returned",
    ]
