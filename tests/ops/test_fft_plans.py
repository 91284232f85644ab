"""The plans that are kept, and MKL's transforms, in a process that may open MKL."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import backendcfg
from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.fft.plans import PlanCache, plan_cache
from backendcfg.transact.compiled import Compiled


def keeping(most):
    values = {"cuda.cufft_plan_cache.max_size": most}
    return Scope(
        Prepared("test", Compiled("test", "none", values, order=("openblas", "reference"))), 0
    )


class Plan:
    alive = 0

    def __init__(self):
        Plan.alive += 1

    def __del__(self):
        Plan.alive -= 1


@pytest.fixture
def cache():
    Plan.alive = 0
    return PlanCache()


def test_where_a_library_gives_no_plans_there_are_none():
    ops.fft.fft(np.ones(8))
    assert ops.fft.plan_cache.size == 0
    assert ops.fft.plan_cache.max_size == 4096
    assert ops.fft.plan_cache["cpu"] is ops.fft.plan_cache["cpu:0"]
    ops.fft.plan_cache.clear()


def test_each_device_has_a_cache_of_its_own():
    assert plan_cache["cuda:1"] is plan_cache[1]
    assert plan_cache["cuda"] is plan_cache["cuda:0"] is plan_cache[0]
    assert plan_cache[0] is not plan_cache[1] is not plan_cache["cpu"]


def test_another_device_is_refused():
    with pytest.raises(InvalidArgumentError) as caught:
        plan_cache["xpu:0"]
    assert caught.value.render() == (
        'error[invalid-argument]: plan_cache: `device` must be "cpu" or a CUDA device, '
        "not 'xpu:0'\n"
        "  state: nothing was changed\n"
        '  help: write "cpu", "cuda:0" or 0'
    )


def test_a_plan_is_made_once(cache):
    first = cache.get("a", Plan, 4)
    assert cache.get("a", Plan, 4) is first
    assert (cache.size, Plan.alive) == (1, 1)


def test_the_one_that_was_not_used_for_longest_is_destroyed_first(cache):
    kept = cache.get("a", Plan, 2)
    cache.get("b", Plan, 2)
    assert cache.get("a", Plan, 2) is kept
    cache.get("c", Plan, 2)
    assert (cache.size, Plan.alive) == (2, 2)
    assert cache.get("a", Plan, 2) is kept


def test_0_keeps_none(cache):
    cache.get("a", Plan, 4)
    plan = cache.get("b", Plan, 0)
    assert (cache.size, Plan.alive) == (0, 1)
    del plan
    assert Plan.alive == 0


def test_a_smaller_max_size_holds_at_once(cache):
    for key in "abcd":
        cache.get(key, Plan, 9)
    with keeping(3):
        assert (cache.max_size, cache.size, Plan.alive) == (3, 3, 3)
    with keeping(0):
        assert (cache.size, Plan.alive) == (0, 0)


def test_a_plan_in_use_outlives_its_place(cache):
    plan = cache.get("a", Plan, 1)
    cache.clear()
    assert (cache.size, Plan.alive) == (0, 1)
    del plan
    assert Plan.alive == 0


def test_a_plan_that_cannot_be_made_leaves_nothing(cache):
    def fail():
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        cache.get("a", fail, 4)
    assert cache.size == 0


def test_threads_share_a_cache(cache):
    barrier, seen = threading.Barrier(4), []

    def work():
        barrier.wait()
        seen.extend(cache.get(i % 7, Plan, 3) for i in range(200))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 800
    assert cache.size == 3
    seen.clear()
    assert Plan.alive == 3


BY_MKL = """
import gc, itertools
try:
    import torch  # before MKL: see the hazards of opening it
except ImportError:
    pass
import numpy as np
import backendcfg
from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.ops import serving
from backendcfg.ops.fft import plan_cache
from backendcfg.ops.fft.choice import Plan
from backendcfg.transact.compiled import Compiled

libraries = tuple(library.model_dump() for library in backendcfg.detect().libraries)
def under(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    compiled = Compiled("test", "none", named, order=("mkl", "reference"), libraries=libraries)
    return Scope(Prepared("test", compiled), 0)

random = np.random.default_rng(0)
x = random.standard_normal((3, 4, 5)) + 1j * random.standard_normal((3, 4, 5))
names = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn"]
layouts = [x, x.T, x[:, ::-1, ::2], np.broadcast_to(x[:1], x.shape)]
checked = 0
with under():
    for name, each, norm, single in itertools.product(
        names, layouts, (None, "ortho"), (False, True)
    ):
        given = each.real if name in ("rfft", "rfftn", "ihfft") else each
        if single:
            given = given.astype(np.complex64 if given.dtype.kind == "c" else np.float32)
        kept, few = given.copy(), name.endswith("n")
        options = [{"s": (7, 2), "dim": (2, 0)}, {"s": (3, 4, 6)}] if few else [
            {"dim": axis, "n": n} for axis in (0, 1, 2) for n in (None, 3, 8)
        ]
        for option in options:
            got = getattr(ops.fft, name)(given, norm=norm, **option)
            translated = {{"dim": "axes" if few else "axis"}.get(k, k): v for k, v in option.items()}
            if few:
                translated.setdefault("axes", (0, 1, 2))
            wanted = getattr(np.fft, name)(kept, norm=norm, **translated)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, (name, option)
            limit = (1e-5 if single else 1e-13) * max(1, abs(wanted).max())
            assert abs(got - wanted).max() <= limit, (name, option, norm, each.strides)
            assert np.array_equal(given, kept), name
            checked += 1
    assert {key[1] for key in serving.counted() if key[0].startswith("fft.")} == {"mkl"}

    assert plan_cache.size == Plan.made - Plan.destroyed > 20
    plan_cache.clear()
    assert plan_cache.size == 0 and Plan.made == Plan.destroyed
    before = Plan.made
    for _ in range(3):
        ops.fft.fft(x)
    assert (plan_cache.size, Plan.made) == (1, before + 1)
    many = np.ones((2,) * 9, complex)
    assert np.allclose(ops.fft.fftn(many), np.fft.fftn(many))  # more dimensions than MKL has
with under(cuda__cufft_plan_cache__max_size=0):
    ops.fft.fft(x)
    assert plan_cache.size == 0 and Plan.made == Plan.destroyed
with under(cuda__cufft_plan_cache__max_size=2):
    for n in (3, 4, 5, 6):
        ops.fft.fft(x, n)
    assert (plan_cache.size, Plan.made - Plan.destroyed) == (2, 2)

with under(determinism__tier="thread-invariant"):
    ops.fft.ifft2(x)
with under(determinism__tier="run-to-run"):
    ops.fft.ifft2(x)
    assert ("fft.ifft2", "mkl") not in [key[:2] for key in serving.counted()]
with under(determinism__tier="run-to-run", blas__mkl__cbwr="compatible"):
    ops.fft.ifft2(x)
    assert ("fft.ifft2", "mkl") in [key[:2] for key in serving.counted()]
print(checked)
"""


def has_mkl():
    return any(library.provider == "mkl" for library in backendcfg.detect().libraries)


@pytest.mark.slow
@pytest.mark.mkl
def test_mkl_transforms_by_plans_that_are_kept_and_destroyed():
    if not has_mkl():
        pytest.skip("MKL is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BY_MKL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 992
