"""What `test_numpy_suite.py` puts in NumPy's place: its signatures, over ours.

Types that are not ours are done as NumPy does them: integers and lists are converted, `matmul` of
integers and bool is NumPy's, a subclass is given back its class. Nothing else is added, so that
what fails is an operation of ours.
"""

import numpy as np

from backendcfg import ops
from backendcfg.ops import linalg

FLOATING = "efdFD"


def _numbers(value):
    array = np.asanyarray(value)
    return array.astype(float) if array.dtype.kind in "biu" else array


def _as(result, like):
    """NumPy gives a subclass back what it came as."""
    wanted = type(like) if isinstance(like, np.ndarray) else np.ndarray
    return result.view(wanted)


class Linalg:
    """`numpy.linalg`, whose functions are ours where we have them."""

    def __getattr__(self, name):
        return getattr(np.linalg, name)

    def inv(self, a):
        return _as(linalg.inv(_numbers(a)), a)

    def solve(self, a, b):
        left, right = _numbers(a), _numbers(b)
        if right.ndim > 1:  # for NumPy 2 only one dimension makes a vector; for PyTorch also fewer
            right = right.reshape((1,) * (left.ndim - right.ndim) + right.shape)
        return _as(linalg.solve(left, right), b)

    def cholesky(self, a, /, *, upper=False):
        return linalg.cholesky(_numbers(a), upper=upper)

    def qr(self, a, mode="reduced"):
        if mode == "raw":  # which PyTorch does not have
            return np.linalg.qr(a, mode)
        factors = linalg.qr(_numbers(a), mode)
        return factors.R if mode == "r" else factors

    def eigh(self, a, UPLO="L"):  # noqa: N803
        return linalg.eigh(_numbers(a), UPLO)

    def eigvalsh(self, a, UPLO="L"):  # noqa: N803
        return linalg.eigvalsh(_numbers(a), UPLO)

    def svd(self, a, full_matrices=True, compute_uv=True, hermitian=False):
        """`hermitian` only promises what may be used."""
        if not compute_uv:
            return linalg.svdvals(_numbers(a))
        return linalg.svd(_numbers(a), full_matrices)

    def svdvals(self, x, /):
        return linalg.svdvals(_numbers(x))

    def matmul(self, x1, x2, /):
        return matmul(x1, x2)


def matmul(x1, x2, /, out=None, **others):
    arrays = [np.asanyarray(x) for x in (x1, x2)]
    if others or any(array.dtype.kind in "biu" for array in arrays):
        return np.matmul(x1, x2, out=out, **others)
    return ops.matmul(*arrays, out=out)


def einsum(*operands, out=None, dtype=None, casting="safe", optimize=False):
    """The dtype and `out` by conversions around ours; how to optimise is a flag of ours."""
    equation = isinstance(next(iter(operands), None), str)
    last = len(operands) if equation else len(operands) // 2 * 2
    places = range(1, last) if equation else range(0, last, 2)
    np.can_cast(float, float, casting)  # refuses what NumPy has no such casting for
    given = list(operands)
    for place in places:
        given[place] = np.asanyarray(given[place])
        if dtype is not None:
            given[place] = given[place].astype(dtype, casting=casting)
    for place, labels in enumerate(given):
        if place not in places and isinstance(labels, np.ndarray):
            given[place] = labels.tolist()
    result = ops.einsum(*given)
    if out is None:
        return result
    np.copyto(out, result, casting="unsafe")
    return out


class Numpy:
    """The module `numpy`, with ours in it."""

    def __init__(self):
        self.linalg = Linalg()
        self.matmul = matmul
        self.einsum = einsum

    def __getattr__(self, name):
        return getattr(np, name)
