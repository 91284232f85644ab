"""A process without arrays on a device loads nothing that only these need."""

from __future__ import annotations

import json
import subprocess
import sys

COUNT = """
import json, sys
import numpy as np
from backendcfg import ops

a = np.ones((4, 4))
ops.matmul(a, a)
ops.conv2d(np.ones((1, 1, 4, 4)), np.ones((1, 1, 3, 3)))
ops.einsum("ij,jk->ik", a, a)
ops.fft.fft(a)
ops.linalg.solve(a + np.eye(4), a)
ops.scaled_dot_product_attention(a[None, None], a[None, None], a[None, None])
ops.explain("matmul", ((4, 4), (4, 4)), "float64")
before = [name for name in sys.modules if name.startswith("backendcfg.gpu")]
ops.explain("matmul", ((4, 4), (4, 4)), "float64", device="cuda:0")
after = [name for name in sys.modules if name.startswith("backendcfg.gpu")]
print(json.dumps([before, len(after)]))
"""


def test_operations_on_the_cpu_import_no_module_of_the_gpu_and_a_device_imports_them():
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert before == []
    assert after > 10
