"""The libraries that people have, each in a process of its own."""

import importlib.util
import json
import subprocess
import sys
from importlib import metadata

import pytest

PROGRAM = """
import json, sys
{before}
import numpy as np
from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.transact.compiled import Compiled
library = json.loads(sys.argv[1])
order = (library["provider"],)
scope = Scope(Prepared("p", Compiled("p", "none", {{}}, order=order, libraries=(library,))), 0)
for dtype in "fdFD":
    a = (np.arange(600).reshape(20, 30) % 7).astype(dtype)
    with scope:
        for x, y in ((a, a.T), (a[:, ::2], a.T[::2]), (a[0], a.T), (a, a[0])):
            assert np.array_equal(ops.matmul(x, y), x @ y), (dtype, x.shape)
print(json.dumps([s.provider for s in ops.stats() if s.calls]))
"""


def served(library, before=""):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before), json.dumps(library)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("name", "interface"), [("32", "lp64"), ("64", "ilp64")])
def test_the_openblas_wheels_serve(name, interface):
    wheel = pytest.importorskip(f"scipy_openblas{name}")
    suffix = "64_" if name == "64" else ""
    path = f"{wheel.get_lib_dir()}/{wheel.get_library(fullname=True)}"
    library = {"provider": "scipy-openblas", "path": path, "prefix": "scipy_", "suffix": suffix,
               "interface": interface, "owner": f"scipy-openblas{name}"}  # fmt: skip
    assert served(library) == ["scipy-openblas"]


def test_scipys_own_copy_serves_from_the_process():
    library = {"provider": "scipy-openblas", "path": "/nowhere", "owner": "none"}
    assert served(library, "import scipy.linalg") == ["scipy-openblas"]


@pytest.mark.mkl
def test_mkl_serves_after_torch():
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        pytest.skip("MKL is not installed")
    path = next(str(f.locate().resolve()) for f in files if f.name.startswith("libmkl_rt.so"))
    before = "import torch" if importlib.util.find_spec("torch") else ""
    library = {"provider": "mkl", "path": path, "interface": "both", "owner": "mkl"}
    assert served(library, before) == ["mkl"]
