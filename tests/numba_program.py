"""A function of Numba's with threads of its own, for programs of tests."""

from __future__ import annotations

TOTAL = """
def total():
    import numba, numpy
    @numba.njit(parallel=True)
    def compiled(x):
        found = 0.0
        for i in numba.prange(x.size):
            found += x[i]
        return found
    return compiled(numpy.ones(9))
"""
"""Defines `total()`, which compiles a function anew in each call, and is 9.0."""
