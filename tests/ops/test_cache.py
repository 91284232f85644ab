"""The bounded caches: what they keep, what they drop, and what a profile changes."""

from __future__ import annotations

import threading

import pytest

import backendcfg
from backendcfg.cache import BoundedCache, ProfileCache


def test_a_full_cache_drops_the_oldest_value():
    cache = BoundedCache[str, int](2)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    assert cache.items() == [("b", 1), ("c", 2)]
    assert cache.get("a") is None


def test_putting_a_value_again_makes_it_the_newest():
    cache = BoundedCache[str, int](2)
    cache.put("a", 0)
    cache.put("b", 1)
    cache.put("a", 0)
    cache.put("c", 2)
    assert [key for key, _ in cache.items()] == ["a", "c"]


def test_a_key_that_is_in_a_full_cache_drops_nothing_else():
    cache = BoundedCache[str, int](2)
    cache.put("a", 0)
    cache.put("b", 1)
    cache.put("b", 2)
    assert cache.items() == [("a", 0), ("b", 2)]


def test_clear_drops_every_value():
    cache = BoundedCache[str, int](2)
    cache.put("a", 0)
    cache.clear()
    assert len(cache) == 0
    assert cache.get("a") is None


def test_threads_that_put_at_once_keep_the_bound():
    cache = BoundedCache[int, int](8)

    def fill(start):
        for number in range(start, start + 3000):
            cache.put(number, number)

    threads = [threading.Thread(target=fill, args=(3000 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) <= 8 + len(threads)
    assert all(cache.get(key) == key == value for key, value in cache.items())


def test_a_value_is_made_once_for_each_profile():
    cache, made = ProfileCache[str, int](8), []

    def find():
        return cache.find("key", lambda: made.append(0) or len(made))

    assert [find(), find()] == [1, 1]
    with backendcfg.profile("reproducible"):
        assert [find(), find()] == [2, 2]
    assert find() == 1


def test_a_value_is_not_kept_where_the_profile_changed_while_it_was_made():
    cache = ProfileCache[str, int](8)
    scope = backendcfg.profile("reproducible")

    def make():
        scope.__enter__()
        return 1

    try:
        assert cache.find("key", make) == 1
        assert len(cache) == 0
    finally:
        scope.__exit__(None, None, None)


def test_a_key_that_cannot_be_hashed_is_the_callers_mistake():
    with pytest.raises(TypeError, match="unhashable"):
        ProfileCache[list[int], int](8).find([1], lambda: 1)
