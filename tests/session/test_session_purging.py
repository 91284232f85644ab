"""What we keep is shown and removed, all of it and nothing else."""

import os
import re
from pathlib import Path

import pytest

import backendcfg
from backendcfg import environ, session, startup
from backendcfg.bridges.torch import compiled
from backendcfg.errors import StateUnwritableError
from backendcfg.load.trust import trust
from backendcfg.session import shell

PACKAGE = Path(backendcfg.__file__).parent


def test_everything_that_somebody_caches_is_known():
    written = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        written |= set(re.findall(r'environ\.cache_directory\(\), "([\w.]+)"', text))
    assert written == set(shell.CACHED)


@pytest.fixture(name="used")
def _used(tmp_path, monkeypatch):
    """Somebody who has used most of it, with files of their own beside ours."""
    for name in ("STATE_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"BACKENDCFG_{name}", str(tmp_path / name))
    monkeypatch.setattr(startup, "environment_directory", lambda: str(tmp_path / "environment"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "backendcfg.toml").write_text("")
    monkeypatch.chdir(project)
    session.activate("tf32-off")
    trust(project)
    own = tmp_path / "CONFIG_DIR" / "config.toml"
    own.write_text("threads.count = 1\n")
    other = tmp_path / "CACHE_DIR" / "of-somebody-else"
    other.write_text("")
    compiled_without_us = tmp_path / "torchinductor_me" / "backendcfg-notes"
    ours = tmp_path / "torchinductor_me" / "backendcfg-0123456789ab"
    ours.mkdir(parents=True)
    (ours / "code.so").write_text("")
    compiled_without_us.write_text("")
    monkeypatch.setattr(compiled, "_default", lambda: str(ours.parent))
    return own, other, compiled_without_us


def test_what_is_kept_is_shown_with_its_size(used):
    found = shell.kept()
    assert {one.kind for one in found} == {"state", "cache", "code", "trust"}
    assert all(one.files for one in found)
    assert sum(one.bytes for one in found) > 1000
    assert session.current() is not None


def test_it_is_removed_and_what_others_wrote_stays(used, tmp_path):
    shell.remove(shell.kept())
    assert shell.kept() == ()
    assert session.current() is None
    left = [Path(where, name) for where, _, names in os.walk(tmp_path) for name in names]
    assert sorted(left) == sorted([*used, tmp_path / "project" / "backendcfg.toml"])
    assert not (tmp_path / "STATE_DIR").exists()


def test_what_is_active_for_the_environment_is_removed_and_what_0_1_0_kept_by_host(used, tmp_path):
    for name in ("environment/active", "STATE_DIR/a-host/v1/active"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    found = {one.path for one in shell.kept() if one.kind == "state"}
    assert found == {
        str(tmp_path / name)
        for name in ("environment/active", "STATE_DIR/a-host/v1", "STATE_DIR/v2")
    }
    shell.remove(shell.kept())
    assert not (tmp_path / "environment").exists()
    assert not (tmp_path / "STATE_DIR").exists()


def test_code_in_a_folder_that_somebody_else_made_is_not_ours(used, tmp_path, monkeypatch):
    made_by_others = tmp_path / "link"
    made_by_others.symlink_to(tmp_path / "torchinductor_me")
    monkeypatch.setattr(compiled, "_default", lambda: str(made_by_others))
    assert [one for one in shell.kept() if one.kind == "code"] == []
    monkeypatch.setattr(compiled, "_default", lambda: str(tmp_path / "torchinductor_me"))
    assert [Path(one.path).name for one in shell.kept() if one.kind == "code"] == [
        "backendcfg-0123456789ab"
    ]
    monkeypatch.setattr(compiled.os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert [one for one in shell.kept() if one.kind == "code"] == []


@pytest.fixture(name="at_work")
def _at_work(tmp_path, monkeypatch):
    """A compiler that takes its temporary file away whenever somebody looks at it or removes it."""
    passing = tmp_path / "torchinductor_me" / "backendcfg-0123456789ab" / "passing"
    passing.write_text("")
    unlink = os.unlink

    def gone(real):
        def called(path, *rest, **options):
            if os.path.basename(path) == passing.name and os.path.exists(passing):
                unlink(passing)
            return real(path, *rest, **options)

        return called

    for name in ("lstat", "unlink"):
        monkeypatch.setattr(os, name, gone(getattr(os, name)))
    return passing


def test_a_file_that_is_gone_while_it_is_counted_does_not_count(used, at_work):
    assert [one.files for one in shell.kept() if one.kind == "code"] == [1]


def test_a_file_that_is_gone_while_its_folder_is_removed_keeps_nothing_else(used, at_work):
    found = [one for one in shell.kept() if one.kind == "code"]
    at_work.write_text("")
    shell.remove(found)
    assert [one for one in shell.kept() if one.kind == "code"] == []
    assert not at_work.parent.exists()


def test_a_link_is_removed_and_not_what_it_points_to(used, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("")
    Path(environ.cache_directory(), "kernels").symlink_to(elsewhere)
    shell.remove(shell.kept())
    assert (elsewhere / "precious").exists()


def test_what_cannot_be_removed_says_what_was(used, monkeypatch):
    found = shell.kept()

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as refusing:
        refusing.setattr(shell.os, "unlink", refuse)
        with pytest.raises(StateUnwritableError) as raised:
            shell.remove([one for one in found if one.kind == "trust"])
    assert raised.value.state == "removed: nothing"
    assert "Permission denied" in raised.value.message


def test_the_state_of_another_program_beside_ours_stays(used, tmp_path):
    theirs = tmp_path / "STATE_DIR" / "theirs" / "v1"
    theirs.mkdir(parents=True)
    (theirs / "precious").write_text("")
    shell.remove(shell.kept())
    assert (theirs / "precious").exists()
