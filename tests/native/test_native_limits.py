"""Where the system has no thread for a team, operations compute with fewer, and nobody dies."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource
import numpy as np
from backendcfg import ops

query = np.random.default_rng(0).standard_normal((1, 8, 128, 64)).astype("float32")
ops.scaled_dot_product_attention(*[query[:, :1, :1]] * 3)  # what is imported late is there
if os.getuid() == 0:  # whom the limit does not bind
    os.setuid(54321)
if MOST:
    resource.setrlimit(resource.RLIMIT_NPROC, (MOST, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
first = ops.scaled_dot_product_attention(query, query, query)
again = ops.scaled_dot_product_attention(query, query, query)
print(len(os.listdir("/proc/self/task")), np.array_equal(first, again), float(first.sum()))
"""


def threads(limit):
    """How many a process has after attention with a team of 8, and what the result adds up to.

    Args:
        limit: of the processes and threads of its user; 0 leaves it.
    """
    program = PROGRAM.replace("MOST", str(limit))
    counts = {"OMP_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **counts},
        capture_output=True,
        text=True,
        check=False,
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("root may not become another user here, and the limit does not bind root")
    assert (done.returncode, done.stderr) == (0, "")
    count, same, total = done.stdout.split()
    assert same == "True"
    return int(count), float(total)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_NPROC counts on Linux")
def test_a_process_that_may_have_no_thread_computes_alone_with_the_same_bits():
    few, alone = threads(1)
    assert few == 1
    many, together = threads(0)
    assert many in {1, 8}  # 1 where threads are made for each region
    assert alone == together
