"""Files of the cache: whole or not at all."""

from __future__ import annotations

import os

import pytest

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
