"""What a program pays that sweeps a flag: a snapshot of known size for each value, nothing else."""

import ctypes
import gc
import subprocess
import sys

import numpy as np
import pytest

from backendcfg import native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.dispatch.snapshots import Listing
from backendcfg.transact.compiled import Compiled

SWEEP = """
import ctypes
import sys
from backendcfg import native

class Heap(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

ask = ctypes.CDLL(None).mallinfo2
ask.restype = Heap

def in_use():
    return ask().uordblks

handles = [native.own(), native.reference()] * 3
preferred = {name: bytes(64) for name in (*native.OPERATIONS[:8], *native.FACTORISATIONS)}
made = {native.intern({"cuda.cublas_workspace_size": -1}, handles, preferred)}
before = in_use()
rounds = int(sys.argv[1])
for value in range(rounds):
    made.add(native.intern({"cuda.cublas_workspace_size": value}, handles, preferred))
print(len(made), (in_use() - before) / rounds)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc on Linux")
@pytest.mark.parametrize("rounds", [2_000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_a_snapshot_costs_less_than_a_kilobyte_however_many_providers_it_lists(rounds):
    words = [sys.executable, "-c", SWEEP, str(rounds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    count, cost = done.stdout.split()
    assert int(count) == rounds + 1
    # Its values, five pointers, and what malloc adds. How much memory the process has says less: one
    # flag more or less moves the holes between what lives and what a call needs for a moment.
    assert 8 * len(native.flags()) < float(cost) < 8 * len(native.flags()) + 250 < 1024


def test_what_explain_needs_of_a_profile_goes_with_the_profile():
    a = np.ones((2, 2))

    def alive():
        gc.collect()
        return sum(isinstance(one, Listing) for one in gc.get_objects())

    before = alive()
    for value in range(20):
        plan = Compiled("p", "none", {"cuda.cublas_workspace_size": value}, order=("reference",))
        with Scope(Prepared("p", plan), 0):
            ops.matmul(a, a)
            assert "mkl" in {
                one.provider for one in ops.explain("matmul", ((2, 2), (2, 2))).reasons
            }
    assert alive() == before
