"""Whose code computes an operation."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

from backendcfg import _native
from backendcfg.audit.evidence import served
from backendcfg.audit.evidence.operations import Operation
from backendcfg.audit.evidence.served import Served, named
from backendcfg.bridges.imports import is_imported

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

BLAS, OTHER = "numpy's OpenBLAS", "numpy's own code"


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(BLAS, "kernel")] * 9, None),
        ([(BLAS, "kernel")] * 10, Served(BLAS, "kernel", 1.0)),
        ([(BLAS, "kernel")] * 6 + [(OTHER, "loop")] * 4, Served(BLAS, "kernel", 0.6)),
        ([(BLAS, "")] * 9 + [(BLAS, "kernel")] * 3, Served(BLAS, "kernel", 1.0)),
        # One name of many samples is chance; who waits is not who computes.
        ([(BLAS, "")] * 15 + [(BLAS, "kernel")] * 1, Served(BLAS, "", 1.0)),
        (
            [(BLAS, "exec_blas_async_wait")] * 20 + [(BLAS, "kernel")] * 10,
            Served(BLAS, "kernel", 1.0),
        ),
        ([(BLAS, "gomp_team_barrier_wait")] * 20, Served(BLAS, "", 1.0)),
    ],
)
def test_the_library_with_most_samples_serves(samples, expected):
    assert named(samples) == expected


@pytest.mark.parametrize(
    ("path", "symbol", "expected"),
    [
        (_native.__file__, "", "our own kernels"),
        ("/e/site-packages/numpy.libs/libscipy_openblas64_-1.so", "", "numpy's OpenBLAS"),
        ("/e/site-packages/numpy/_core/_multiarray_umath.cpython-311.so", "", "numpy's own code"),
        ("/e/site-packages/torch/lib/libtorch_cpu.so", "mkl_blas_sgemm", "torch's MKL"),
        ("/e/site-packages/torch/lib/libtorch_cpu.so", "cpublas", "torch's own code"),
        ("/usr/lib/x86_64-linux-gnu/libblis.so.4", "", "system's BLIS"),
        ("/usr/lib/libfake.so", "", "libfake.so"),
    ],
)
def test_libraries_have_the_names_that_people_use(path, symbol, expected):
    assert served._library(path, symbol) == expected


@pytest.mark.parametrize(
    "path",
    [
        *("/lib/libc.so.6", "/lib/libm-2.36.so", "/lib/libpthread.so.0", "/lib/ld-linux.so.2"),
        *("/usr/bin/python3.11", "/usr/lib/libpython3.11.so.1.0", "linux-vdso.so.1"),
        *("/lib/libstdc++.so.6", "/e/torch/lib/libgomp.so.1"),
    ],
)
def test_who_waits_copies_or_interprets_does_not_compute(path, monkeypatch):
    class Loader:
        @staticmethod
        def dladdr(_, place):
            place._obj.file = os.fsencode(path)
            return 1

    monkeypatch.setattr(served.ctypes, "CDLL", lambda _: Loader)
    assert list(served._located([1, 2], "made")) == []


def test_code_that_is_in_no_file_was_made_at_run_time():
    import mmap

    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert list(served._located([address], "oneDNN")) == [("oneDNN", "")]


def test_no_more_samples_are_looked_at_than_are_needed():
    address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    looked = []

    class Counting(list):
        def __getitem__(self, key):
            found = super().__getitem__(key)
            looked.append(len(found))
            return found

    list(served._located(Counting([address] * 1001), "made"))
    list(served._located(Counting([]), "made"))
    assert looked == [48, 0]


def test_a_library_that_computes_is_found_with_its_function(tmp_path):
    source = tmp_path / "fake.c"
    source.write_text(
        "unsigned fake_gemm(unsigned n) { volatile unsigned x = 1; while (n--) x = x * 3 + 1;"
        " return x; }"
    )
    library = tmp_path / "libfake.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    fake = ctypes.CDLL(str(library)).fake_gemm
    found = served.sampled(lambda: fake(100_000), "made")
    assert (found.library, found.kernel) == ("libfake.so", "fake_gemm")
    assert found.part > 0.8


def test_numpys_products_are_served_by_its_blas():
    import numpy as np

    found = served.served(Operation("numpy.matmul", "cpu", "float32", "product", np.matmul))
    assert found.library.startswith("numpy's ")
    assert found.library != "numpy's own code"


def test_what_a_device_computes_is_not_looked_for():
    assert served.served(Operation("torch.mm", "cuda:0", "float32", "product", None)) is None


def test_nothing_is_said_where_nothing_can_be_sampled(monkeypatch):
    monkeypatch.setattr(served._native, "sampled", lambda *_: None)
    assert served.sampled(lambda: None, "made") is None


def test_what_an_operation_raises_is_raised():
    def broken(*_):
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        served.served(Operation("torch.mm", "cpu", "float32", "product", broken))
    assert not is_imported("torch")


@pytest.mark.torch
def test_a_route_is_seen_by_who_computes(backendcfg):
    """PyTorch's attention, served by itself and by our kernels."""
    asked = "--json", "explain", "F.scaled_dot_product_attention"
    assert json.loads(backendcfg(*asked))["served"]["float32"]["library"].startswith("torch's ")
    found = json.loads(
        backendcfg(*asked, "--profile", "fast", BACKENDCFG_ROUTE_TORCH_ATTENTION="native")
    )
    assert (found["operation"], found["profile"]) == (
        "torch.nn.functional.scaled_dot_product_attention",
        "fast",
    )
    assert found["served"]["float32"]["library"] == "our own kernels"
