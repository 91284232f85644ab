"""Files of the cache: whole or not at all."""

from __future__ import annotations

import os

import pytest

from backendcfg import environ, startup
from backendcfg.probe import kept


def test_the_newest_entries_are_kept_beside_those_of_other_processes(tmp_path):
    path = str(tmp_path / "folder" / "answers.json")
    assert kept.add(path, {"a": 1, "b": 2}, most=3)
    assert kept.add(path, {"c": 3, "d": [4]}, most=3)
    assert kept.entries(path) == {"b": 2, "c": 3, "d": [4]}
    assert os.listdir(tmp_path / "folder") == ["answers.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_as_good_as_none_and_is_written_over(tmp_path, content):
    path = tmp_path / "answers.json"
    path.write_bytes(content)
    assert kept.entries(str(path)) == {}
    assert kept.add(str(path), {"a": 1}, most=2)
    assert kept.entries(str(path)) == {"a": 1}


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").write_text("")
    assert not kept.replace(str(tmp_path / "file" / "answers.json"), "{}")
    (tmp_path / "answers.json").mkdir()
    assert not kept.replace(str(tmp_path / "answers.json"), "{}")
    assert sorted(os.listdir(tmp_path)) == ["answers.json", "file"]


@pytest.fixture(name="owned")
def _owned(monkeypatch):
    """Make files and links another user's, for a process of the user of a number."""

    def of_another(*paths, user):
        named = set(map(str, paths))

        def telling(ask):
            def told(path, **options):
                found = ask(path, **options)
                of_named = str(path).rstrip("/") in named
                owner = 4321 if of_named else 0 if str(path) == "/" else user
                return os.stat_result((*found[:4], owner, *found[5:10]))

            return told

        monkeypatch.setattr(os, "lstat", telling(os.lstat))
        monkeypatch.setattr(os, "stat", telling(os.stat))
        monkeypatch.setattr(os, "geteuid", lambda: user)

    return of_another


@pytest.mark.parametrize(
    ("user", "variable", "counts"), [(0, False, False), (0, True, True), (1000, False, True)]
)
def test_root_keeps_nothing_in_the_home_of_another_user(
    owned, tmp_path, monkeypatch, user, variable, counts
):
    home = tmp_path / "home"
    ours = home / ".cache" / "backendcfg"
    ours.mkdir(parents=True)
    monkeypatch.delenv("BACKENDCFG_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    if variable:  # which names it on purpose, as a volume of a container
        monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(ours))
    owned(home, ours.parent, ours, user=user)
    assert environ.cache_directory() == (str(ours) if counts else startup.NOWHERE)


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("link", ["cache", "cache/plans"])
def test_nothing_is_kept_or_pruned_through_a_link_of_another_user(
    owned, tmp_path, monkeypatch, user, link
):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious.json").write_text("{}")
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(theirs)
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path / "cache"))
    owned(tmp_path / link, user=user)
    folder = os.path.join(environ.cache_directory(), "plans" if "/" in link else "")
    assert not kept.replace(os.path.join(folder, "a.json"), "{}")
    assert os.listdir(theirs) == ["precious.json"]


def test_a_link_of_the_user_s_own_is_followed(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "cache").symlink_to("large")
    assert kept.replace(str(tmp_path / "cache" / "a.json"), "{}")
    assert os.listdir(tmp_path / "large") == ["a.json"]
