"""Other releases and builds of PyTorch than the installed one, by stand-ins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backendcfg.bridges import torch as bridge
from backendcfg.bridges.torch import libraries
from backendcfg.bridges.torch.switches import Pair, Reduction
from backendcfg.schema.profile import defaults, flags

pytestmark = pytest.mark.torch

OLD = "2.5.0"


def old_torch(**functions):
    """A PyTorch with few functions, for what the installed one cannot show."""
    return SimpleNamespace(
        __version__=OLD,
        __spec__=None,
        _C=SimpleNamespace(_has_cuda=False, **functions),
        version=SimpleNamespace(hip=None),
        backends=SimpleNamespace(),
    )


def test_a_release_without_a_switch_is_told_apart_from_a_build_without_cuda():
    switch = Pair(old_torch(), "torch.backends.miopen.immediate", "_get_miopen", "_set_miopen")
    assert switch.unsupported() == "PyTorch 2.5.0 has no such switch"
    with pytest.raises(NotImplementedError, match=r"PyTorch 2\.5\.0 has no such switch"):
        switch.read()
    limit = Pair(old_torch(), "limit", "_cuda_get_cudnn_benchmark_limit", "_cuda_set_x")
    assert limit.unsupported() == "PyTorch 2.5.0 is built without CUDA and ROCm"


def test_no_flag_at_all_breaks_on_a_release_that_has_none_of_the_switches(monkeypatch):
    nothing = old_torch(
        _supported_qengines=lambda: [0],
        _get_cublas_allow_tf32=lambda: False,
        _get_cudnn_allow_tf32=lambda: True,
        _set_cublas_allow_tf32=lambda value: None,
        _set_cudnn_allow_tf32=lambda value: None,
    )
    monkeypatch.setitem(bridge.sys.modules, "torch", nothing)
    # Another test may have imported a real one here.
    for name in ("python_native", "opt_einsum"):
        monkeypatch.delitem(bridge.sys.modules, f"torch.backends.{name}", raising=False)
    values = {
        **defaults(),
        "threads.count": 1,
        "cuda.preferred_blas_library": "cublas",
        "cuda.preferred_linalg_library": "default",
        "cuda.preferred_rocm_fa_library": "default",
        "cuda.cublas_workspace_size": 1,
        "cuda.cublaslt_workspace_size": 1,
        "quantized.engine": "x86",
        "cuda.sdp_priority": ["math"],
    }
    asked = bridge.SCOPED_FLAGS - {
        "threads.count",
        "determinism.algorithms",
        "determinism.fill_uninitialized_memory",
    }
    found = bridge.settings(values, asked)
    supported = {one.switch.name for one in found if not one.switch.unsupported()}
    # The older switches for TF32 were always there, and these two leaves want what they can say.
    assert supported == {
        "torch.backends.cudnn.conv.fp32_precision",
        "torch.backends.cudnn.rnn.fp32_precision",
    }
    assert len(found) > 30


def test_a_release_with_the_older_switches_alone_is_governed_by_them(monkeypatch):
    state = {"cublas": True, "cudnn": True}
    old = old_torch(
        _get_cublas_allow_tf32=lambda: state["cublas"],
        _set_cublas_allow_tf32=lambda value: state.update(cublas=value),
        _get_cudnn_allow_tf32=lambda: state["cudnn"],
        _set_cudnn_allow_tf32=lambda value: state.update(cudnn=value),
    )
    monkeypatch.setitem(bridge.sys.modules, "torch", old)
    asked = [
        flag for flag in flags() if flag.endswith(("matmul.fp32_precision", "n.fp32_precision"))
    ]
    asked += ["cudnn.conv.fp32_precision"]
    found = bridge.settings({**defaults(), **dict.fromkeys(asked, "ieee")}, asked)
    can = [one for one in found if not one.switch.unsupported()]
    assert [one.switch.name for one in can] == [
        "torch.backends.cuda.matmul.fp32_precision",
        "torch.backends.cudnn.conv.fp32_precision",
        "torch.backends.cudnn.rnn.fp32_precision",
    ]
    before = [one.switch.read() for one in can]
    for one in can:
        one.switch.write(one.wanted)
    assert state == {"cublas": False, "cudnn": False}
    for one, value in zip(reversed(can), reversed(before), strict=True):
        one.switch.write(value)
    assert state == {"cublas": True, "cudnn": True}


def test_a_release_that_splits_k_always_takes_the_one_word_that_it_knows():
    state = [True]
    old = old_torch(
        _get_cublas_allow_fp16_reduced_precision_reduction=lambda: state[0],
        _set_cublas_allow_fp16_reduced_precision_reduction=lambda value: state.__setitem__(
            0, value
        ),
    )
    switch = Reduction(old, "fp16", (False, True))
    assert (switch.unsupported(), switch.read()) == ("", (True, True))
    switch.write((False, True))
    assert (state, switch.read()) == ([False], (False, True))
    assert Reduction(old, "fp16", (False, False)).unsupported() == (
        "PyTorch 2.5.0 cannot be told not to split K"
    )


def test_the_plan_cache_waits_until_the_program_starts_cuda_and_then_has_one_switch_per_device():
    sizes = {0: 4096, 1: 4096}
    gpu = old_torch()
    gpu._C._has_cuda = True
    gpu._cufft_get_plan_cache_max_size = sizes.__getitem__
    gpu._cufft_set_plan_cache_max_size = sizes.__setitem__
    gpu.cuda = SimpleNamespace(is_initialized=lambda: False, device_count=lambda: 2)
    values = {"cuda.cufft_plan_cache.max_size": 0}
    [late] = libraries.collect(gpu, values, values)
    assert late.switch.unsupported() == (
        "the program has not started CUDA yet, and asking would start it"
    )
    gpu.cuda.is_initialized = lambda: True
    found = libraries.collect(gpu, values, values)
    assert [one.switch.name for one in found] == [
        f"torch.backends.cuda.cufft_plan_cache[{index}].max_size" for index in (0, 1)
    ]
    for one in found:
        assert one.switch.read() == 4096
        one.switch.write(one.wanted)
    assert sizes == {0: 0, 1: 0}


def test_a_workspace_is_written_unread_before_cuda_starts_and_is_then_never_put_back(monkeypatch):
    monkeypatch.setattr(libraries, "_unread", set())
    state, started = [None], [False]

    def size():
        if state[0] is None and not started[0]:
            pytest.fail("asked the device")
        return 8519680 if state[0] is None else state[0]

    gpu = old_torch(
        _cuda_getCublasWorkspaceSize=size,
        _cuda_setCublasWorkspaceSize=lambda value: state.__setitem__(0, value),
    )
    gpu._C._has_cuda = True
    gpu.cuda = SimpleNamespace(is_initialized=lambda: started[0])
    values = {"cuda.cublas_workspace_size": 1 << 20}
    [early] = libraries.collect(gpu, values, values)
    assert (early.switch.reversible, early.switch.unsupported()) == (False, "")
    with pytest.raises(RuntimeError, match="has not started CUDA yet, and asking would start it"):
        early.switch.read()
    early.switch.write(early.wanted)
    assert early.switch.read() == 1 << 20
    started[0] = True
    [later] = libraries.collect(gpu, values, values)
    assert not later.switch.reversible  # nobody knows what it was


def test_a_workspace_can_be_put_back_where_cuda_was_started_before(monkeypatch):
    monkeypatch.setattr(libraries, "_unread", set())
    state = [8519680]
    gpu = old_torch(
        _cuda_getCublasLtWorkspaceSize=lambda: state[0],
        _cuda_setCublasLtWorkspaceSize=lambda value: state.__setitem__(0, value),
    )
    gpu._C._has_cuda = True
    gpu.cuda = SimpleNamespace(is_initialized=lambda: True)
    values = {"cuda.cublaslt_workspace_size": 4096}
    [one] = libraries.collect(gpu, values, values)
    before = one.switch.read()
    one.switch.write(one.wanted)
    assert (one.switch.reversible, before, one.switch.read()) == (True, 8519680, 4096)
