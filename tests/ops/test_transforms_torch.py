"""conv2d, einsum and fft beside PyTorch's own, over its tensors, in a process that has it."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

START = """
import itertools, random
import torch
import numpy as np
from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.ops import serving
from backendcfg.ops import convolution
from backendcfg.transact.compiled import Compiled

torch.manual_seed(0)
pick = random.Random(0)
double = torch.complex128
def under(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    return Scope(Prepared("test", Compiled("test", "none", named, order=("openblas", "reference"))), 0)
def served(*who):
    return sum(n for key, n in serving.counted().items() if key[:2] == who)
def close(got, wanted, limit):
    assert isinstance(got, torch.Tensor) and got.dtype == wanted.dtype, (type(got), got.dtype)
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    got, wanted = got.to(double), wanted.to(double)
    assert torch.allclose(got, wanted, rtol=limit, atol=limit * max(1, float(wanted.abs().max()))), limit
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def test_conv2d_is_torchs_by_every_way():
    run("""
limits = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
limits.update({torch.complex64: 1e-5, torch.complex128: 1e-13})
for turn in range(120):
    groups, each = pick.choice([1, 1, 2, 4]), pick.choice([1, 2, 5])
    dtype = pick.choice(list(limits))
    kernel = (pick.randint(1, 4), pick.randint(1, 4))
    options = {"dilation": pick.randint(1, 2), "groups": groups}
    if pick.random() < 0.3:
        options["padding"] = pick.choice(["same", "valid"])
    else:
        options.update(padding=(pick.randint(0, 2), pick.randint(0, 2)), stride=(pick.randint(1, 3), 1))
    kind = dtype if dtype.is_complex else torch.float32
    x = torch.randn(2, groups * each, 11, 14, dtype=kind).to(dtype)
    if pick.random() < 0.3:
        x = x.to(memory_format=torch.channels_last)
    w = torch.randn(groups * 3, each, *kernel, dtype=kind).to(dtype)
    b = torch.randn(groups * 3, dtype=kind).to(dtype) if pick.random() < 0.5 else None
    exact = double if dtype.is_complex else torch.float64
    wanted = torch.nn.functional.conv2d(
        x.to(exact), w.to(exact), None if b is None else b.to(exact), **options
    ).to(dtype)
    close(ops.conv2d(x, w, b, **options), wanted, limits[dtype])
    with under(cudnn__benchmark=True):
        close(ops.conv2d(x, w, b, **options), wanted, limits[dtype])
        close(ops.conv2d(x, w, b, **options), wanted, limits[dtype])

# oneDNN is one of the ways that are measured, where the flags let it.
x, w = torch.randn(1, 8, 9, 9), torch.randn(8, 8, 3, 3)
turns = iter([0, 9, 9, 18, 18, 27, 27, 36, 36, 37, 37, 38])
clock, convolution.time.perf_counter = convolution.time.perf_counter, lambda: next(turns)
with under(cudnn__benchmark=True):
    ops.conv2d(x, w)
    convolution.time.perf_counter = clock
    before = served("conv2d", "onednn")
    close(ops.conv2d(x, w), torch.nn.functional.conv2d(x, w), 1e-5)
    assert served("conv2d", "onednn") == before + 1
with under(cudnn__benchmark=True, mkldnn__enabled=False):
    ops.conv2d(x, w)
    assert served("conv2d", "onednn") == before + 1

parameter = torch.nn.Parameter(w)
assert not ops.conv2d(x, parameter).requires_grad
print("done")
""")


def test_einsum_is_torchs():
    run("""
equations = [
    "ij,jk->ik", "ii->i", "ii", "ij->ji", "bij,bjk,bkl->bil", "a,b,c,d->abcd",
    "...ij,...jk->...ik", "i,i->", "ab,cd->", "ij->", "bca,da", "iij,jk->ik", "ij,...->...ij",
    "...->", "ijk,ilm,njm,nlk,abc->",
]
sizes = dict(zip("abcdijklmn", [2, 3, 4, 5, 4, 3, 2, 5, 3, 2]))
for equation, dtype in itertools.product(equations, [torch.float32, torch.float64, torch.complex64]):
    terms = equation.partition("->")[0].split(",")
    operands = [
        torch.randn(*([2, 3] if "..." in t else []), *(sizes[x] for x in t.replace(".", ""))).to(dtype)
        for t in terms
    ]
    wanted = torch.einsum(equation, *operands)
    close(ops.einsum(equation, *operands), wanted, 1e-5 if dtype != torch.float64 else 1e-13)
    # Subscripts are numbered A to Z, a to z by both.
    listed = [x for t, o in zip(terms, operands) if "." not in t
              for x in (o, [ord(c) - 97 + 26 for c in t])]
    if len(listed) == 2 * len(terms):
        close(ops.einsum(*listed), torch.einsum(*listed), 1e-5)
a, b = torch.randn(8, 9).bfloat16(), torch.randn(9, 7).bfloat16()
close(ops.einsum("ij,jk->ik", a, b), (a.double() @ b.double()).bfloat16(), 1e-2)
for bad in ("ij", "ij,jk,k", "ij,jk->ii", "ij,jk->iz", "ijk,jk"):
    for function in (torch.einsum, ops.einsum):
        try:
            function(bad, a, b)
        except (RuntimeError, ValueError):
            continue
        raise AssertionError((bad, function))
print("done")
""")


def test_conv2d_computes_in_the_given_type_under_autocast_too():
    run("""
x, w = torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3)
wanted = torch.nn.functional.conv2d(x, w)
with torch.autocast("cpu", torch.bfloat16), under(cudnn__benchmark=True):
    for turn in range(2):
        close(ops.conv2d(x, w), wanted, 1e-5)
    assert torch.is_autocast_enabled("cpu")
assert any("onednn" in key for key, _ in convolution.fastest.items())
print("done")
""")


def test_fft_is_torchs():
    run("""
ones = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
many = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]
kinds = [torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool]
for name, dtype, norm in itertools.product(ones + many, kinds, [None, "ortho", "forward"]):
    x = torch.randn(3, 4, 5) > 0 if dtype is torch.bool else (4 * torch.randn(3, 4, 5)).to(dtype)
    if dtype is torch.complex64 and name.startswith(("rfft", "ihfft")):
        continue
    options = [{}, {"dim": 0}, {"dim": -2, "n": 7}, {"n": 2}]
    if name in many:
        options = [{}, {"dim": (2, 0)}, {"dim": (0, 1), "s": (-1, 6)}]
    for option in options:
        wanted = getattr(torch.fft, name)(x, norm=norm, **option)
        close(getattr(ops.fft, name)(x, norm=norm, **option), wanted, 1e-5)
x = torch.randn(5, 6)
assert torch.equal(ops.fft.fftshift(x, 1), torch.fft.fftshift(x, 1))
assert torch.equal(ops.fft.ifftshift(x), torch.fft.ifftshift(x))
print("done")
""")
