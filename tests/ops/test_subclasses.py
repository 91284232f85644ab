"""Subclasses of NumPy's array: every operation takes the same ones, and refuses the same ones."""

import re

import numpy as np
import pytest

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError


class Length(np.ndarray):
    """Numbers with a unit, as libraries for units make them."""

    def __array_finalize__(self, source):
        self.unit = getattr(source, "unit", "m")


PLAIN = "must be a plain array: what"
WITH_A_MEANING = {
    "mask": (np.ma.asarray, "must have no mask"),
    "matrix": (lambda a: a.view(np.matrix), f"{PLAIN} numpy.matrix means"),
    "unit": (lambda a: a.view(Length), f"{PLAIN} {Length.__module__}.Length means"),
}
_SQUARE = np.eye(4, dtype=np.float32)
_STACK = _SQUARE[None]
_IMAGES = _SQUARE[None, None]
OPERATIONS = {
    "matmul": (ops.matmul, (_SQUARE, _SQUARE)),
    "addmm": (ops.addmm, (_SQUARE, _SQUARE, _SQUARE)),
    "bmm": (ops.bmm, (_STACK, _STACK)),
    "baddbmm": (ops.baddbmm, (_STACK, _STACK, _STACK)),
    "einsum": (lambda *given: ops.einsum("...ij,...jk", *given), (_SQUARE, _SQUARE)),
    "conv2d": (ops.conv2d, (_IMAGES, _IMAGES)),
    "attention": (ops.scaled_dot_product_attention, (_IMAGES, _IMAGES, _IMAGES, _SQUARE)),
    **{
        name: (getattr(ops.linalg, name), (_SQUARE,))
        for name in (
            *("cholesky", "cholesky_ex", "cholesky_inverse", "eigh", "eigvalsh", "inv", "inv_ex"),
            *("lu", "lu_factor", "lu_factor_ex", "qr", "svd", "svdvals"),
        )
    },
    **{
        name: (getattr(ops.linalg, name), (_SQUARE, _SQUARE))
        for name in (*("solve", "solve_ex", "cholesky_solve"),)
    },
    "lu_solve": (
        lambda lu, b: ops.linalg.lu_solve(lu, np.arange(1, 5, dtype="int32"), b),
        (_SQUARE, _SQUARE),
    ),
    **{
        name: (getattr(ops.fft, name), (_SQUARE,))
        for name in (
            *("fft", "fft2", "fftn", "hfft", "ifft", "ifft2", "ifftn", "ihfft", "irfft", "irfft2"),
            *("irfftn", "rfft", "rfft2", "rfftn", "fftshift", "ifftshift"),
        )
    },
}


@pytest.mark.parametrize("kind", WITH_A_MEANING)
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_drops_what_a_subclass_means(name, kind):
    operation, plain = OPERATIONS[name]
    changed, text = WITH_A_MEANING[kind]
    for at in range(len(plain)):
        if kind == "matrix" and plain[at].ndim > 2:
            continue  # there is none
        given = [changed(one) if here == at else one for here, one in enumerate(plain)]
        with pytest.raises(InvalidArgumentError, match=re.escape(text)):
            operation(*given)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_takes_a_file_of_numbers_and_a_record_array(name, tmp_path):
    operation, plain = OPERATIONS[name]
    wanted = operation(*plain)
    for at, one in enumerate(plain):
        np.save(tmp_path / "numbers.npy", one)
        for changed in (np.load(tmp_path / "numbers.npy", mmap_mode="r"), one.view(np.recarray)):
            given = [changed if here == at else each for here, each in enumerate(plain)]
            np.testing.assert_equal(operation(*given), wanted)


@pytest.mark.parametrize("kind", WITH_A_MEANING)
def test_no_product_is_written_into_a_subclass_with_a_meaning(kind):
    changed, text = WITH_A_MEANING[kind]
    out = changed(np.zeros((4, 4), np.float32))
    with pytest.raises(InvalidArgumentError, match=re.escape(text)):
        ops.matmul(_SQUARE, _SQUARE, out=out)
    assert not np.asarray(out).any()


def test_a_product_goes_into_a_file_that_may_be_written_and_into_no_other(tmp_path):
    np.save(tmp_path / "numbers.npy", np.zeros((4, 4), np.float32))
    out = np.load(tmp_path / "numbers.npy", mmap_mode="r+")
    assert ops.matmul(_SQUARE, _SQUARE, out=out) is out
    assert np.array_equal(out, _SQUARE)
    with pytest.raises(InvalidArgumentError, match="`out` must be writeable"):
        ops.matmul(_SQUARE, _SQUARE, out=np.load(tmp_path / "numbers.npy", mmap_mode="r"))
