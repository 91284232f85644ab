"""`backends.cuda.cufft_plan_cache`, without a GPU and with a PyTorch that pretends two."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backendcfg.backends import base, cuda
from backendcfg.errors import InvalidArgumentError, InvalidValueError, UnknownAttributeError
from backendcfg.schema.host import Gpu

cache = cuda.cufft_plan_cache


@pytest.fixture(name="alone", autouse=True)
def _alone(monkeypatch):
    """No GPU and no PyTorch, whatever this machine has."""
    monkeypatch.setattr(base, "ask_torch", lambda question: None)
    monkeypatch.setattr(base, "gpus", lambda *vendors: ())


@pytest.fixture(name="torch")
def _torch(monkeypatch):
    """A PyTorch with two devices, the second being current."""
    sizes, plans = {0: 4096, 1: 10}, {0: 3, 1: 7}
    made = SimpleNamespace(
        _C=SimpleNamespace(_has_cuda=True),
        cuda=SimpleNamespace(
            is_available=lambda: True, device_count=lambda: 2, current_device=lambda: 1
        ),
        _cufft_get_plan_cache_size=plans.get,
        _cufft_get_plan_cache_max_size=sizes.get,
        _cufft_clear_plan_cache=lambda index: plans.update({index: 0}),
        plans=plans,
    )
    monkeypatch.setattr(base, "ask_torch", lambda question: question(made))
    return made


def test_without_a_gpu_the_profile_answers():
    assert (cache.max_size, cache.size) == (4096, 0)
    cache.max_size = 12
    assert cache.max_size == 12
    assert cache.clear() is None


def test_without_pytorchs_caches_the_plans_are_ours():
    from backendcfg.ops.fft import plan_cache

    plan_cache[0].get("key", lambda: ("a plan", 0), 5)
    assert cache.size == 1
    cache.clear()
    assert (cache.size, plan_cache[0].size) == (0, 0)


@pytest.mark.parametrize("wrong", [-1, 1.5, "10", None, True])
def test_a_wrong_capacity_is_refused_and_leaves_the_one_before(wrong):
    cache.max_size = 12
    with pytest.raises(ValueError, match=r"`cuda\.cufft_plan_cache\.max_size` must be an integer"):
        cache.max_size = wrong
    assert cache.max_size == 12


def test_the_number_of_plans_is_read_only():
    with pytest.raises(UnknownAttributeError, match=r"^\.size is a read-only property showing"):
        cache.size = 3


def test_unknown_names_are_refused():
    """PyTorch takes them in silence."""
    with pytest.raises(UnknownAttributeError, match="has no attribute `maxsize`") as caught:
        cache.maxsize = 3
    assert caught.value.helps == ("did you mean `max_size`?",)
    with pytest.raises(UnknownAttributeError, match="has no attribute `plans`"):
        _ = cache.plans


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (
            0,
            "cufft_plan_cache: expected 0 <= device index < 0, but got device with index 0",
        ),
        ("cpu", "Expected a cuda device, but got: cpu"),
        (
            None,
            "Expected a torch.device with a specified index or an integer, but got:None",
        ),
        (
            "cuda",
            "Expected a torch.device with a specified index or an integer, but got:cuda",
        ),
        (
            1.5,
            "Expected a torch.device with a specified index or an integer, but got:1.5",
        ),
        (
            True,
            "Expected a torch.device with a specified index or an integer, but got:True",
        ),
    ],
)
def test_a_device_that_is_not_there_is_refused_in_pytorchs_words(device, message):
    with pytest.raises(InvalidArgumentError) as caught:
        cache[device]
    assert caught.value.message == message


def test_each_device_has_its_own_cache(torch):
    assert [cache[index].size for index in (0, 1)] == [3, 7]
    assert [cache[index].max_size for index in (0, 1)] == [4096, 10]
    cache[0].clear()
    assert torch.plans == {0: 0, 1: 7}


def test_the_manager_is_the_cache_of_the_current_device(torch):
    assert (cache.size, cache.max_size) == (7, 10)
    cache.clear()
    assert torch.plans == {0: 3, 1: 0}


class Place:
    """As `torch.device`."""

    type, index = "cuda", 1

    def __str__(self):
        return "cuda:1"


@pytest.mark.parametrize("device", [1, "cuda:1", Place()])
def test_a_device_is_named_by_number_text_or_object(torch, device):
    assert cache[device].device_index == 1


@pytest.mark.parametrize("index", [2, -1])
def test_an_index_beyond_the_devices_is_refused(torch, index):
    with pytest.raises(InvalidArgumentError, match=r"expected 0 <= device index < 2, but got"):
        cache[index]


def test_detection_counts_the_devices_where_pytorch_does_not(monkeypatch):
    gpu = Gpu(index=0, vendor="nvidia", name="GPU")
    monkeypatch.setattr(base, "gpus", lambda *vendors: (gpu,))
    assert cache[0].max_size == 4096
    with pytest.raises(InvalidArgumentError, match="device index < 1, but"):
        cache[1]


def test_rocm_keeps_1023_plans_at_most(monkeypatch):
    """Read, not run."""
    gpu = Gpu(index=0, vendor="amd", name="GPU")
    monkeypatch.setattr(base, "gpus", lambda *vendors: (gpu,) * ("amd" in vendors))
    cache.max_size = 1023
    with pytest.raises(InvalidValueError, match="can not be larger than 1023, but got 1024"):
        cache.max_size = 1024
    assert cache.max_size == 1023


def test_a_cache_made_by_hand_is_one_too():
    made = cuda.cuFFTPlanCache(3)
    assert (made.device_index, made.max_size, made.size) == (3, 4096, 0)
    prop = cuda.cuFFTPlanCacheAttrContextProp(lambda index: index * 2, "no")
    holder = type("Holder", (), {"device_index": 4, "twice": prop})()
    assert holder.twice == 8
    with pytest.raises(AttributeError, match=r"^no(?m:$)"):
        holder.twice = 1
    assert isinstance(cache, cuda.cuFFTPlanCacheManager)
