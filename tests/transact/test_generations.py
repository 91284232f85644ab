"""The store of active profiles: commit, undo, off, history, and what is damaged."""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from generation_fixtures import commit, compiled, named

from backendcfg import startup
from backendcfg.errors import NothingToUndoError, StateUnwritableError
from backendcfg.transact import disk, generations, store


@pytest.fixture(name="state")
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(tmp_path / "state"))
    return Path(generations.directory())


def test_a_commit_is_active_for_its_project_and_below():
    assert commit("/project", "fast", rank="profile-by-argument") == 1
    generation = generations.active("/project/src/deep")
    assert generation == generations.current("/project")
    assert (generation.number, generation.parent, generation.path, generation.name) == (
        1, 0, "/project", "fast",
    )  # fmt: skip
    assert generation.arguments == {"threads.count": "4"}
    assert generation.compiled == compiled("fast")
    assert generation.plan == {"schema": 1, "name": "fast", "entries": []}
    assert generation.active
    assert generations.active("/projects") is None
    assert generations.active("/") is None


def test_the_nearest_project_wins():
    commit(None, "user")
    commit("/a", "outer")
    commit("/a/b", "inner")
    assert generations.active("/") is None
    found = {cwd: generations.active(cwd).name for cwd in ("/a", "/a/x", "/a/b", "/a/b/c")}
    assert found == {
        "/a": "outer",
        "/a/x": "outer",
        "/a/b": "inner",
        "/a/b/c": "inner",
    }


def test_a_project_at_the_root_covers_everything():
    commit("/", "root")
    assert generations.active("/somewhere").name == "root"


def test_undo_returns_to_the_parent_and_then_to_none():
    commit(None, "one")
    commit(None, "two")
    assert named(generations.undo(None)) == (1, "one")
    assert commit(None, "three") == 3
    assert generations.current(None).parent == 1
    assert named(generations.undo(None)) == (1, "one")
    assert generations.undo(None) is None
    assert generations.current(None) is None
    with pytest.raises(NothingToUndoError) as caught:
        generations.undo(None)
    assert caught.value.render() == (
        "error[nothing-to-undo]: there is no earlier generation for the user\n"
        "  state: nothing was changed\n"
        "  help: run `backendcfg history` to see the generations, or `backendcfg apply NAME`"
    )


def test_undo_where_nothing_was_ever_applied_writes_nothing(state):
    with pytest.raises(NothingToUndoError, match=r"for /project(?m:$)"):
        generations.undo("/project")
    assert not state.exists()


def test_off_is_undone_by_undo():
    commit("/p", "one")
    commit("/p", "two")
    assert generations.off("/p") == 2
    assert generations.current("/p") is None
    assert generations.off("/p") == 0
    assert named(generations.undo("/p")) == (2, "two")
    assert named(generations.undo("/p")) == (1, "one")


def test_an_apply_after_off_can_be_undone_to_off():
    commit(None, "one")
    generations.off(None)
    assert commit(None, "two") == 2
    assert generations.undo(None) is None


def test_off_where_nothing_was_ever_applied_writes_nothing(state):
    assert generations.off(None) == 0
    assert not state.exists()


def test_history_lists_the_newest_first_and_marks_the_active_one():
    for name in ("one", "two", "three"):
        commit("/p", name)
    generations.undo("/p")
    assert [(g.number, g.name, g.active) for g in generations.history("/p")] == [
        (3, "three", False),
        (2, "two", True),
        (1, "one", False),
    ]
    assert generations.history("/elsewhere") == ()


def test_old_generations_are_forgotten_and_undo_says_so():
    for number in range(generations.KEPT + 5):
        commit(None, f"p{number}")
    numbers = [generation.number for generation in generations.history(None)]
    assert numbers == list(range(generations.KEPT + 5, 5, -1))
    for _ in range(generations.KEPT - 1):
        generations.undo(None)
    assert generations.current(None).number == 6
    with pytest.raises(NothingToUndoError) as caught:
        generations.undo(None)
    assert caught.value.notes == ("generation 5 is no longer kept; the last 50 are",)
    assert generations.current(None).number == 6


@pytest.mark.parametrize(
    "path",
    ["/tab\there", "/new\nline", "/back\\slash", "/n\udcffot-utf8", "/ä"],
    ids=["tab", "newline", "backslash", "not-utf8", "umlaut"],
)
def test_any_path_can_be_a_project(path, caplog):
    # What pytest captures it may send to another process, and cannot in UTF-8.
    caplog.set_level("CRITICAL", "backendcfg")
    commit(path, "fast")
    commit("/other", "debug")
    assert generations.active(path + "/below").name == "fast"
    assert generations.off(path) == 1
    assert named(generations.current("/other")) == (1, "debug")


def test_a_project_has_a_history_once_it_had_a_profile():
    assert generations.history("/p") == ()
    commit("/p", "fast")
    generations.off("/p")
    assert [each.name for each in generations.history("/p")] == ["fast"]
    assert generations.history(None) == ()


def test_every_host_that_shares_a_home_has_what_is_active(monkeypatch):
    commit(None, "here")
    monkeypatch.setattr(os, "uname", lambda: type("Name", (), {"nodename": "elsewhere"}))
    assert named(generations.current(None)) == (1, "here")


def test_the_state_directory_follows_the_xdg_specification(monkeypatch, tmp_path):
    monkeypatch.delenv("BACKENDCFG_STATE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert generations.directory() == f"{tmp_path}/.local/state/backendcfg/v2"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert generations.directory() == f"{tmp_path}/.local/state/backendcfg/v2"
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert generations.directory() == "/xdg/backendcfg/v2"


def test_what_0_1_kept_for_this_host_is_taken_over_once(state):
    commit("/p", "fast")
    old = state.parent / os.uname().nodename / "v1"
    old.parent.mkdir()
    state.rename(old)
    assert generations.active("/p") is None
    assert generations.take_over_old_state().endswith(str(state))
    assert named(generations.active("/p")) == (1, "fast")
    assert generations.take_over_old_state() == ""


def test_an_index_of_somebody_else_counts_as_none_and_is_not_replaced(state, monkeypatch):
    commit(None, "theirs")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr(startup, "_is_ours", lambda owner: owner == 54321)
    assert generations.current(None) is None
    with pytest.raises(StateUnwritableError, match="somebody else may write its folder"):
        commit(None, "mine")
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("group", "counts"),
    [
        (os.geteuid(), True),  # its number is the user's
        (54321, False),  # the system has no name for it
        ("the user's", True),
        ("staff", False),
    ],
)
def test_an_index_that_a_group_may_write_counts_if_the_group_is_the_user_s_own(
    state, monkeypatch, group, counts
):
    commit(None, "fast")
    (state / "active").chmod(0o660)
    number = 54321 if isinstance(group, str) else group
    found = os.fstat

    def in_group(handle):
        row = found(handle)
        return os.stat_result((*row[:5], number, *row[6:]))

    monkeypatch.setattr(os, "fstat", in_group)
    if isinstance(group, str):
        name = pwd.getpwuid(os.geteuid()).pw_name if group == "the user's" else group
        monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name))
    assert named(generations.current(None)) == ((1, "fast") if counts else None)


def test_a_folder_where_everybody_may_write_holds_no_state_and_says_what_to_do(state):
    state.mkdir(parents=True)
    state.chmod(0o777)
    with pytest.raises(StateUnwritableError) as caught:
        commit(None, "fast")
    assert caught.value.message == (
        f"{state / 'active'} is ignored: somebody else may write its folder"
    )
    assert caught.value.helps == (
        f"if the folder is yours, run `chmod go-w {state}`",
        "or set BACKENDCFG_STATE_DIR to another directory",
    )
    assert os.listdir(state) == []
    assert generations.current(None) is None
    state.chmod(0o1777)  # as /tmp: nobody may remove or rename what is ours
    commit(None, "fast")
    assert named(generations.current(None)) == (1, "fast")
    state.chmod(0o777)
    assert generations.active("/") is None
    with pytest.raises(
        StateUnwritableError, match="is ignored: somebody else may write its folder"
    ):
        generations.off(None)


def test_the_lock_is_not_made_through_a_link(state, tmp_path):
    state.mkdir(parents=True)
    (state / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnwritableError, match=r"^cannot write .*lock: Too many levels of"):
        commit(None, "fast")
    assert not (tmp_path / "elsewhere").exists()


def test_no_state_is_made_where_a_link_of_another_user_leads(state, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    state.parent.symlink_to(tmp_path / "elsewhere")
    lstat = os.lstat

    def of_another(path, **options):
        found = lstat(path, **options)
        theirs = str(path) == str(state.parent)
        return os.stat_result((*found[:4], 4321, *found[5:10])) if theirs else found

    monkeypatch.setattr(os, "lstat", of_another)
    for change in (lambda: commit(None, "fast"), lambda: generations.trust(["/p"])):
        with pytest.raises(StateUnwritableError, match="somebody else may write its folder"):
            change()
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("number", ["\N{SUPERSCRIPT TWO}", "9" * 5_000, "", "-1"])
def test_an_index_whose_numbers_are_none_is_damaged_and_never_raises_at_a_start(state, number):
    commit(None, "fast")
    (state / "active").write_text(f"backendcfg 1 1\n{number}\tuser\t*user*\t1\t0\n")
    assert startup.active_rows(str(state)) is None
    with pytest.raises(StateUnwritableError, match="is damaged: line 2"):
        commit(None, "fast")


def test_what_is_active_for_the_environment_is_kept_below_its_prefix(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    before = os.umask(0o077)
    try:
        commit(generations.ENVIRONMENT, "fast")
    finally:
        os.umask(before)
    place = tmp_path / "env" / "etc" / "backendcfg"
    files = [place / "active", place / "generations" / "environment" / "1.json"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o644, 0o644]
    assert {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_dir()} == {0o755}
    assert named(generations.current(generations.ENVIRONMENT)) == (1, "fast")
    assert generations.current(None) is None
    assert generations.off(generations.ENVIRONMENT) == 1


@pytest.mark.parametrize(
    ("damaged", "helps"),
    [
        (
            "generations/environment/1.json",
            (
                "run `backendcfg apply NAME --environment` to write a new one",
                "run `backendcfg off --environment` to be without a profile",
            ),
        ),
        (
            "active",
            (
                "run `backendcfg off --environment`, which rescues what it can and starts a new one",
                "until then, BACKENDCFG_DISABLE=1 starts programs without a profile",
            ),
        ),
    ],
)
def test_advice_about_the_environment_s_state_is_about_the_environment(
    monkeypatch, tmp_path, damaged, helps
):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    commit(generations.ENVIRONMENT, "fast")
    (tmp_path / "etc" / "backendcfg" / damaged).write_bytes(b"")
    with pytest.raises(StateUnwritableError) as caught:
        generations.current(generations.ENVIRONMENT)
    assert caught.value.helps == helps
    generations.off(generations.ENVIRONMENT)
    assert generations.current(generations.ENVIRONMENT) is None


def test_a_trusted_project_has_a_row_until_it_is_trusted_no_longer(state):
    generations.distrust(["/p"], "/p")
    assert not state.exists()
    for _ in range(2):
        generations.trust(["/p", "/p/q", "/pq"])
        assert startup.TRUSTED + "/p" in startup.active_rows(str(state))
    assert generations.history("/p") == ()
    assert generations.active("/p") is None
    commit("/p", "fast")
    for _ in range(2):
        generations.distrust([], "/p")
        assert startup.active_rows(str(state)) == {startup.TRUSTED + "/pq": 0, "/p": 1}
    generations.distrust(["/pq"], "/elsewhere")
    assert startup.active_rows(str(state)) == {"/p": 1}
    assert named(generations.current("/p")) == (1, "fast")


def test_undo_goes_back_beyond_an_off(state):
    commit("/p", "one")
    assert generations.off("/p") == 1
    commit("/p", "two")
    commit("/p", "three")
    assert named(generations.undo("/p")) == (2, "two")
    assert generations.undo("/p") is None
    assert generations.current("/p") is None
    assert named(generations.undo("/p")) == (1, "one")
    assert generations.undo("/p") is None
    with pytest.raises(NothingToUndoError):
        generations.undo("/p")


def test_what_undo_returns_to_beyond_an_off_is_kept(state):
    commit("/p", "one")
    generations.off("/p")
    for _ in range(store.KEPT + 2):
        commit("/p", "two")
        generations.undo("/p")
        generations.undo("/p")
        generations.off("/p")
    commit("/p", "two")
    assert generations.undo("/p") is None
    assert named(generations.undo("/p")) == (1, "one")


DAMAGE = {
    "empty": (b"", "it is not JSON at line 1, column 1"),
    "truncated": (b'{"format": 1, "generation": 2, "par', "it is not JSON at line 1, column 32"),
    "a list": (b"[]", "it is not a JSON object, so another release"),
    "another format": (
        b'{"format": 9}',
        "it has format 9, so another release of backendcfg wrote it",
    ),
    "no format": (b"{}", "it has no 'format', so another release"),
    "binary": (b"\xff\xfe\x00", "so another release of backendcfg wrote it, or it is damaged"),
    "deep": (b"[" * 100_000, "so another release of backendcfg wrote it, or it is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_generation_is_named_and_can_be_left(damage, state):
    commit("/p", "one")
    commit("/p", "two")
    content, says = DAMAGE[damage]
    (file,) = state.glob("generations/*/2.json")
    file.write_bytes(content)
    with pytest.raises(StateUnwritableError) as caught:
        generations.active("/p")
    assert caught.value.message.startswith(f"cannot read generation 2, {file}: ")
    assert says in caught.value.message
    assert caught.value.helps == (
        "run `backendcfg apply NAME` to write a new one",
        "run `backendcfg off` to be without a profile",
    )
    assert [isinstance(g, StateUnwritableError) for g in generations.history("/p")] == [True, False]
    assert named(generations.undo("/p")) == (1, "one")
    assert commit("/p", "three") == 3
    assert generations.off("/p") == 3


def test_undo_to_a_damaged_generation_keeps_the_active_one(state):
    commit(None, "one")
    commit(None, "two")
    (state / "generations" / "user" / "1.json").write_text("{")
    with pytest.raises(StateUnwritableError, match="cannot read generation 1"):
        generations.undo(None)
    assert named(generations.current(None)) == (2, "two")
    assert generations.off(None) == 2


def test_a_field_of_another_type_is_damage_and_not_a_traceback(state):
    commit(None, "one")
    file = state / "generations" / "user" / "1.json"
    data = json.loads(file.read_text())
    for name in data:
        file.write_text(json.dumps({**data, name: None}))
        with pytest.raises(StateUnwritableError, match="cannot read generation 1"):
            generations.current(None)


def test_a_plan_that_another_release_compiled_is_left_to_be_resolved_again(state):
    commit(None, "one")
    file = state / "generations" / "user" / "1.json"
    data = json.loads(file.read_text())
    for other in ({**data["compiled"], "new_in_2_0": 1}, {"name": "one"}):
        file.write_text(json.dumps({**data, "compiled": other}))
        found = generations.current(None)
        assert (found.name, found.compiled) == ("one", None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "its last line is cut off"),
        (b"backendcfg 1 2\n1\tuser\t*user*\t1\t0\n", "it should have 2 rows and has 1"),
        (b"backendcfg 1 1\n1\tuser\t*user*\t1", "its last line is cut off"),
        (b"backendcfg 1 1\n1\tuser\n", "line 2 is not a row"),
        (b"backendcfg 1 1\n7\tuser\t*user*\t1\t0\n", "line 2 has numbers that cannot be"),
        (b"backendcfg 1 1\n1\t/etc\t/p\t1\t0\n", "line 2 does not name a directory of its own"),
        (b"backendcfg 1 1\n1\t..\t/p\t1\t0\n", "line 2 does not name a directory of its own"),
        (b"\xff\xfe\x00\n", "its first line is not `backendcfg 1` and a number"),
    ],
)
def test_a_damaged_index_is_named_and_off_repairs_it(content, says, state):
    commit(None, "user")
    commit("/p", "one")
    commit("/p", "two")
    file = state / "active"
    file.write_bytes(content)
    for verb in (generations.current, generations.undo, generations.history):
        with pytest.raises(StateUnwritableError) as caught:
            verb("/p")
        assert caught.value.message == f"{file} is damaged: {says}"
    with pytest.raises(StateUnwritableError, match="is damaged"):
        commit("/p", "three")
    generations.off("/p")
    assert generations.current("/p") is None
    assert named(generations.undo("/p")) == (2, "two")
    assert commit("/p", "three") == 3


def test_the_index_of_a_later_release_is_left_alone(state):
    commit("/p", "one")
    file = state / "active"
    file.write_bytes(b"backendcfg 2 something new\n")
    for verb in (generations.current, generations.undo, generations.off):
        with pytest.raises(StateUnwritableError) as caught:
            verb("/p")
        assert caught.value.render() == (
            f"error[state-unwritable]: cannot read {file}: a later release of backendcfg wrote it\n"
            "  note: it says which profile is active for each project\n"
            "  state: nothing was changed\n"
            "  help: use that release\n"
            "  help: or set BACKENDCFG_STATE_DIR to another directory for this one"
        )
    with pytest.raises(StateUnwritableError, match="a later release"):
        commit("/p", "two")
    assert file.read_bytes() == b"backendcfg 2 something new\n"


def test_a_generation_that_is_no_plain_file_is_named_and_not_waited_for(state):
    commit(None, "one")
    file = state / "generations" / "user" / "1.json"
    file.unlink()
    os.mkfifo(file)
    says = f"cannot read generation 1, {file}: it is not a plain file"
    with pytest.raises(StateUnwritableError, match=re.escape(says)):
        generations.current(None)
    assert generations.off(None) == 1


@pytest.mark.parametrize("name", ["created", "generation", "parent"])
def test_a_number_beyond_all_measure_is_damage(name, state):
    commit(None, "one")
    file = state / "generations" / "user" / "1.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, name: 10**400}))
    with pytest.raises(StateUnwritableError, match="cannot read generation 1"):
        generations.current(None)


def test_a_compiled_plan_of_other_types_is_resolved_again(state):
    commit(None, "one")
    file = state / "generations" / "user" / "1.json"
    data = json.loads(file.read_text())
    for name in data["compiled"]:
        file.write_text(json.dumps({**data, "compiled": {**data["compiled"], name: 7}}))
        assert generations.current(None).compiled is None


def test_a_link_that_waits_beside_the_index_is_not_written_through(state, tmp_path, monkeypatch):
    commit(None, "one")
    mine = tmp_path / "mine"
    mine.write_text("precious")
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    planted = state / f"active.{'00' * 8}.new"
    planted.symlink_to(mine)
    swept = []
    monkeypatch.setattr(disk, "sweep", swept.append)
    with pytest.raises(StateUnwritableError, match="cannot write"):
        commit(None, "two")
    assert (mine.read_text(), len(swept)) == ("precious", 2)
    assert named(generations.current(None)) == (1, "one")


def test_what_killed_writers_left_is_swept_and_modes_do_not_depend_on_umask(state):
    commit(None, "one")
    for folder in (state, state / "generations" / "user"):
        (folder / "active.4711.new").write_text("half")
    before = os.umask(0o277)
    try:
        commit(None, "two")
    finally:
        os.umask(before)
    assert list(state.rglob("*.new")) == []
    files = [state / "active", state / "generations" / "user" / "2.json"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]


def failing(name, number, monkeypatch, *, only=lambda path: True):
    """Make `os.<name>` fail with an errno when its argument matches."""
    real = getattr(os, name)

    def fail(argument, *rest, **options):
        if only(argument):
            raise OSError(number, os.strerror(number))
        return real(argument, *rest, **options)

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_system_that_refuses_leaves_the_old_state(call, number, state, monkeypatch):
    commit(None, "old")
    with monkeypatch.context() as patched:
        failing(call, number, patched)
        with pytest.raises(StateUnwritableError) as caught:
            commit("/p", "new")
        assert os.strerror(number) in caught.value.message
        assert caught.value.state == "the active profile is as before the call"
        assert caught.value.helps
    assert named(generations.current(None)) == (1, "old")
    assert generations.current("/p") is None
    assert not list(state.rglob("*.new"))
    assert commit("/p", "new") == 1


def test_a_full_disk_says_what_to_do(state, monkeypatch):
    commit(None, "old")
    failing("write", errno.ENOSPC, monkeypatch)
    with pytest.raises(StateUnwritableError) as caught:
        commit(None, "new")
    assert caught.value.message.endswith("2.json: No space left on device")
    assert caught.value.helps == ("free some space on that file system, then repeat the command",)


def test_off_makes_room_on_a_full_disk(state, monkeypatch):
    for name in ("one", "two", "three"):
        commit(None, name)
    home = state / "generations" / "user"

    def write(handle, data, real=os.write):
        if len(list(home.glob("*.json"))) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data)

    monkeypatch.setattr(os, "write", write)
    assert generations.off(None) == 3
    assert generations.current(None) is None
    assert named(generations.undo(None)) == (3, "three")


def test_an_index_that_cannot_be_read_counts_as_none_and_is_not_replaced(state):
    commit(None, "old")
    (state / "active").unlink()
    (state / "active").mkdir()
    assert generations.active("/") is None
    with pytest.raises(StateUnwritableError) as caught:
        commit(None, "new")
    assert caught.value.message == (
        f"{state / 'active'} is damaged: it is not a plain file that you own and nobody else may write"
    )


def test_a_writer_that_never_ends_is_reported_not_waited_for(state, monkeypatch):
    commit(None, "old")
    monkeypatch.setattr(disk, "WAIT_SECONDS", 0.0)
    with disk.writing(str(state / "lock")), pytest.raises(StateUnwritableError) as caught:
        commit(None, "new")
    assert caught.value.message == (
        f"another process has been writing for 0 seconds and holds {state / 'lock'}"
    )
    assert commit(None, "new") == 2


def test_readers_take_no_lock(state):
    commit(None, "old")
    with disk.writing(str(state / "lock")):
        assert generations.current(None).name == "old"
        assert len(generations.history(None)) == 1


def test_a_reader_that_is_overtaken_by_pruning_reads_again(state, monkeypatch):
    commit(None, "old")
    real, overtaken = store.load, []

    def load(directory, row, number):
        if not overtaken:
            overtaken.append(number)
            commit(None, "new")
            (state / "generations" / "user" / "1.json").unlink()
        return real(directory, row, number)

    monkeypatch.setattr(store, "load", load)
    assert generations.current(None).name == "new"
    assert overtaken == [1]


def test_a_commit_that_may_not_survive_a_power_failure_says_that_it_is_active(state, monkeypatch):
    commit(None, "old")
    flushed = []

    def fsync(handle, real=os.fsync):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            flushed.append(os.readlink(f"/proc/self/fd/{handle}"))
            if flushed[-1] == str(state):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StateUnwritableError) as caught:
        commit(None, "new")
    assert caught.value.message == f"cannot flush {state}: Input/output error"
    assert caught.value.state == "the new profile is active, and may not survive a power failure"
    assert flushed == [str(state / "generations" / "user"), str(state)]
    assert named(generations.current(None)) == (2, "new")


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_path_may_have_characters_that_some_readers_end_a_line_at(character):
    path = f"/project{character}here"
    commit(path, "odd")
    commit("/plain", "fast")
    assert generations.active(path).name == "odd"
    assert generations.active("/plain").name == "fast"


@pytest.mark.parametrize(("before", "mode"), [(None, 0o600), (0o640, 0o640)])
def test_a_file_that_the_user_names_has_the_mode_that_it_has_or_that_umask_says(
    tmp_path, before, mode
):
    file = tmp_path / "report.html"
    if before is not None:
        file.touch()
        file.chmod(before)
    mask = os.umask(0o077)
    try:
        disk.replace_named(str(file), b"secret")
    finally:
        os.umask(mask)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"secret", mode)
