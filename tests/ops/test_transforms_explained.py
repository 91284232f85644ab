"""Explanations of conv2d, einsum and fft come from the code that makes their choices."""

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import convolution, explanation
from backendcfg.ops.convolution import shapes
from backendcfg.ops.fft.choice import TRANSFORMS
from backendcfg.transact.compiled import Compiled


def under(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    return Scope(
        Prepared("test", Compiled("test", "none", named, order=("openblas", "reference"))), 0
    )


def explained(operation, shapes, dtype="float32", **options):
    return explanation.answer(explanation.Question(operation, shapes, dtype, options, {}))


SHAPES = ((2, 3, 8, 8), (4, 3, 3, 3))


def test_every_operation_is_registered():
    assert {"conv2d", "einsum", *(f"fft.{name}" for name in TRANSFORMS)} <= set(explanation.names())


def test_a_convolution_says_why_each_other_way_does_not_serve():
    answer = explained("conv2d", SHAPES, stride=2, padding=1)
    assert (answer.provider, answer.because) == ("direct", "`cudnn.benchmark` is off")
    assert answer.sizes == (2, 4, 4, 4)
    assert answer.what == "conv2d of (2, 3, 8, 8) by (4, 3, 3, 3)"
    why = {reason.provider: reason.why for reason in answer.reasons}
    assert set(why) == {"im2col", "pointwise", "onednn"}
    assert why["im2col"] == "`cudnn.benchmark` is off"
    assert why["pointwise"] == "the kernel is not 1 by 1 at stride 1 without padding"


def test_a_convolution_that_was_measured_says_what_won():
    convolution.fastest.clear()
    x, w = (np.ones(shape, np.float32) for shape in SHAPES)
    with under(cudnn__benchmark=True):
        before = explained("conv2d", SHAPES)
        ops.conv2d(x, w)
        after = explained("conv2d", SHAPES)
        won = [way for _, way in convolution.fastest.items()]
    assert before.because == "not measured yet: a call of this shape measures"
    assert ([after.provider], after.because) == (won, "the fastest when it was measured")
    convolution.fastest.clear()


@pytest.mark.parametrize("element", shapes.ARITHMETIC)
@pytest.mark.parametrize("benchmark", [False, True])
def test_what_is_explained_is_what_serves_for_every_type(element, benchmark, monkeypatch):
    name = pytest.importorskip("ml_dtypes").bfloat16 if element == "bfloat16" else element
    dtype = np.dtype(name)
    convolution.fastest.clear()
    x, w = (np.ones(shape).astype(dtype) for shape in SHAPES)
    # The second of the ways is made the faster one, so that it is not the fixed rule that answers.
    turns = iter([0, 9, 9, 18, 18, 19, 19, 20])
    with under(cudnn__benchmark=benchmark, mkldnn__enabled=False):
        if benchmark:
            monkeypatch.setattr(convolution.time, "perf_counter", lambda: next(turns))
        ops.conv2d(x, w)
        with ops.trace() as calls:
            ops.conv2d(x, w)
        answer = explained("conv2d", SHAPES, element)
    (call,) = [call for call in calls if call.operation == "conv2d"]
    assert (answer.provider, answer.because) == (call.provider, call.because)
    assert answer.provider == ("im2col" if benchmark else "direct")
    assert answer.sizes == call.sizes == (2, 4, 6, 6)
    convolution.fastest.clear()


def test_an_einsum_says_who_chooses_the_order():
    shapes = ((2, 3), (3, 4), (4, 5))
    with under(opt_einsum__enabled=False):
        answer = explained("einsum", shapes, equation="ij,jk,kl->il")
    assert (answer.provider, answer.because) == ("left to right", "`opt_einsum.enabled` is off")
    assert answer.sizes == (2, 5)


def test_a_transform_says_why_mkl_does_not_serve():
    with under():
        answer = explained("fft.rfft", [(3, 4)])
    assert answer.provider in ("scipy", "numpy")
    assert answer.reasons[0].provider == "mkl"
    assert answer.reasons[0].why == "the chosen library is openblas, which has no transforms"


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("conv2d", [(1, 2)]), {}, "explain: `shapes` must be 2 or 3 shapes"),
        (("conv2d", SHAPES, "int32"), {}, "explain: `input` must hold float32"),
        (("conv2d", SHAPES), {"groups": 2}, "explain: `input` must have 6 channels"),
        (
            ("conv2d", SHAPES, "what"),
            {},
            "explain: `dtype` must be NumPy's or PyTorch's, not 'what'",
        ),
        (("conv2d", SHAPES, "bool"), {}, "explain: `input` must hold float32"),
        (("einsum", SHAPES), {}, "explain: `equation` must be the text"),
        (("einsum", SHAPES), {"equation": "ij"}, "explain: `equation` 'ij' must have as many"),
        (("fft.fft", [(3, 4)], "float16"), {}, "explain: `input` must hold float32"),
        (("fft.rfft2", [(3, 4)], "complex64"), {}, "explain: `input` must be real, not complex64"),
        (
            ("fft.ihfft", [(3, 4)], "complex128"),
            {},
            "explain: `input` must be real, not complex128",
        ),
        (("fft.fft", (3, 4)), {}, "explain: `shapes` must be one shape in a list"),
    ],
)
def test_a_question_that_does_not_fit_is_refused(arguments, options, text):
    with pytest.raises(InvalidArgumentError, match=text):
        explained(*arguments, **options)
