"""A project may not name a library or a variable before its user trusts it, as it is."""

import json
import os
import stat
from pathlib import Path

import pytest

from backendcfg.environ import OWN_IT
from backendcfg.errors import StateUnwritableError, UnreadableFileError, UntrustedProjectError
from backendcfg.load.stack import Request, load
from backendcfg.load.trust import is_trusted, store, trust

HOSTILE = 'blas.path = "/tmp/evil.so"\n[environment]\nLD_PRELOAD = "/tmp/evil.so"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    (root / "profiles").mkdir(parents=True)
    (root / "backendcfg.toml").write_text("")
    monkeypatch.chdir(root)
    return root


def test_a_settings_file_with_a_library_path_is_refused(project):
    (project / "backendcfg.toml").write_text(HOSTILE)
    with pytest.raises(UntrustedProjectError) as raised:
        load(Request("fast"))
    assert raised.value.render() == (
        "error[untrusted-project]: backendcfg.toml sets `blas.path` and `environment`, "
        "which only a trusted project may\n"
        "  --> backendcfg.toml:1:6\n"
        "   |\n"
        ' 1 | blas.path = "/tmp/evil.so"\n'
        "   |      ^^^^ needs trust\n"
        "  --> backendcfg.toml:2:2\n"
        "   |\n"
        " 2 | [environment]\n"
        "   |  ^^^^^^^^^^^ needs trust\n"
        "  note: a library path and environment variables can run any code; "
        "nothing of it was used\n"
        "  state: nothing was changed\n"
        f"  help: read the file; if you trust it, run `backendcfg trust {project}`"
    )


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "[[when]]\nflags.environment.LD_PRELOAD = '/tmp/evil.so'\n",
        "[[when]]\nos = 'windows'\nflags.blas.path = '/tmp/evil.so'\n",
    ],
)
def test_a_project_profile_is_refused_also_inside_a_condition(project, text):
    (project / "profiles" / "mine.toml").write_text(text)
    with pytest.raises(UntrustedProjectError):
        load(Request("mine"))


def test_a_parent_from_the_project_is_refused(project):
    (project / "profiles" / "mine.toml").write_text("extends = 'base'")
    (project / "profiles" / "base.toml").write_text(HOSTILE)
    with pytest.raises(UntrustedProjectError, match=r"profiles/base\.toml"):
        load(Request("mine"))


def test_a_file_by_its_path_is_refused_and_may_be_trusted_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(HOSTILE)
    with pytest.raises(UntrustedProjectError) as raised:
        load(Request("./x.toml"))
    assert raised.value.helps[0].endswith("`backendcfg trust x.toml`")
    trust("x.toml")
    assert load(Request("./x.toml")).layers[0].assignments


def test_a_trusted_project_may(project):
    (project / "backendcfg.toml").write_text(HOSTILE)
    (project / "profiles" / "mine.toml").write_text(HOSTILE)
    assert [path.name for path in trust(project)] == ["backendcfg.toml", "mine.toml"]
    flags = [a.flag for layer in load(Request("mine")).layers for a in layer.assignments]
    assert sorted(flags) == ["blas.path", "blas.path", "environment", "environment"]


def test_a_changed_file_is_untrusted_again(project):
    path = project / "backendcfg.toml"
    path.write_text(HOSTILE)
    trust(project)
    assert is_trusted(path)
    path.write_text(HOSTILE.replace("evil", "vile"))
    assert not is_trusted(path)
    with pytest.raises(UntrustedProjectError):
        load(Request())


def test_trust_is_by_resolved_path(project, tmp_path):
    (project / "backendcfg.toml").write_text(HOSTILE)
    trust(project)
    (tmp_path / "link").symlink_to(project)
    assert is_trusted(tmp_path / "link" / "backendcfg.toml")
    other = tmp_path / "other"
    other.mkdir()
    (other / "backendcfg.toml").write_text(HOSTILE)
    assert not is_trusted(other / "backendcfg.toml")


def test_the_user_the_system_and_variables_need_no_trust(project, monkeypatch):
    for variable in ("CONFIG", "SYSTEM"):
        directory = os.environ[f"BACKENDCFG_{variable}_DIR"]
        os.makedirs(f"{directory}/profiles")
        with open(f"{directory}/config.toml", "w") as handle:
            handle.write(HOSTILE)
        with open(f"{directory}/profiles/{variable.lower()}.toml", "w") as handle:
            handle.write(HOSTILE)
    monkeypatch.setenv("BACKENDCFG_BLAS_PATH", "'/lib/mine.so'")
    assert len(load(Request("config+system", arguments={"blas.path": "'/x'"})).layers) == 6


def test_a_project_without_such_flags_needs_no_trust(project):
    (project / "backendcfg.toml").write_text("threads.count = 1\ndeterminism.tier = 'none'")
    assert load(Request("tf32-off")).layers
    assert not store().exists()


def test_the_record_is_for_its_owner_alone_and_adds_up(project, tmp_path):
    trust(project)
    other = tmp_path / "other.toml"
    other.write_text("")
    trust(other)
    assert stat.S_IMODE(store().stat().st_mode) == 0o600
    assert set(json.loads(store().read_text())["files"]) == {
        str(project / "backendcfg.toml"),
        str(other),
    }
    assert sorted(os.listdir(store().parent)) == ["trusted.json", "trusted.lock"]


@pytest.mark.parametrize("step", ["replace", "fsync", "write"])
def test_a_failure_while_recording_leaves_the_old_record(project, monkeypatch, step):
    trust(project)
    record = store()
    before = record.read_text()
    (project / "backendcfg.toml").write_text("# changed")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    if step == "write":
        monkeypatch.setattr(json, "dump", fail)
    else:
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(StateUnwritableError, match="no space left on device"):
        trust(project)
    assert record.read_text() == before
    assert sorted(os.listdir(record.parent)) == ["trusted.json", "trusted.lock"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"files": []}', '{"files": {"a": 1}}', "null"])
def test_a_damaged_record_is_an_error_and_not_trust(project, text):
    store().parent.mkdir(parents=True, exist_ok=True)
    store().write_text(text)
    (project / "backendcfg.toml").write_text(HOSTILE)
    with pytest.raises(UnreadableFileError, match="is not what backendcfg wrote"):
        load(Request())


def test_there_must_be_something_to_trust(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableFileError, match="to trust"):
        trust(tmp_path / "empty")


def test_a_project_of_another_user_s_is_not_said_to_be_missing(tmp_path, give_away):
    (tmp_path / "backendcfg.toml").touch()
    give_away(tmp_path)
    with pytest.raises(UnreadableFileError) as raised:
        trust(tmp_path)
    file = f"{tmp_path}/backendcfg.toml"
    assert raised.value.message == f"{file} does not count: {tmp_path} is another user's"
    assert raised.value.helps == (OWN_IT,)


def test_the_record_of_trust_makes_a_plan_stale(project):
    (project / "backendcfg.toml").write_text(HOSTILE)
    trust(project)
    assert str(store()) in load(Request()).files


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (os.mkfifo, "it is not a plain file"),
        (os.mkdir, "it is a directory"),
        (
            lambda path: path.write_bytes(b" " * 2**21),
            "it has 2,097,152 bytes, and may have 1,048,576",
        ),
        (lambda path: path.touch() or path.chmod(0o666), "somebody else may write it"),
    ],
)
def test_a_record_that_may_not_be_the_user_s_is_refused_at_once(project, damage, reason):
    store().parent.mkdir(parents=True, exist_ok=True)
    damage(store())
    with pytest.raises(UnreadableFileError) as raised:
        is_trusted(project / "backendcfg.toml", "0")
    assert raised.value.message == f"cannot read {store()}: {reason}"
    assert raised.value.helps == (
        f"if it is not yours, delete it: `rm {store()}`",
        f"if it and its folder are yours, run `chmod go-w {store()} {store().parent}`",
    )


def test_a_record_in_a_folder_that_others_may_write_trusts_nothing(project):
    (project / "backendcfg.toml").write_text(HOSTILE)
    trust(project)
    store().parent.chmod(0o777)
    with pytest.raises(UnreadableFileError) as raised:
        load(Request())
    assert raised.value.message == f"cannot read {store()}: somebody else may write its folder"


def test_trust_is_recorded_neither_in_a_folder_that_others_may_write_nor_through_a_link(
    project, tmp_path
):
    folder = store().parent
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(StateUnwritableError, match="somebody else may write its folder"):
        trust(project)
    folder.chmod(0o755)
    (folder / "trusted.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnwritableError, match="too many levels of symbolic links"):
        trust(project)
    assert os.listdir(folder) == ["trusted.lock"]
    assert not (tmp_path / "elsewhere").exists()


def test_nobody_else_can_hold_the_lock_of_the_record(project):
    store().parent.mkdir(parents=True)
    lock = store().with_suffix(".lock")
    lock.touch(0o644)
    trust(project)
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["settings", "profile"])
def test_settings_and_profiles_that_somebody_else_may_write_are_refused(project, kind):
    folder = Path(os.environ["BACKENDCFG_CONFIG_DIR"])
    path = folder / ("config.toml" if kind == "settings" else "profiles/own.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("threads.count = 1\n")
    request = Request() if kind == "settings" else Request(name="own")
    load(request)
    path.chmod(0o666)
    with pytest.raises(UnreadableFileError) as raised:
        load(request)
    assert raised.value.message == f"cannot use {path}: somebody else may write it"
    assert raised.value.helps == (
        f"if it is not yours, delete it: `rm {path}`",
        f"if it and its folder are yours, run `chmod go-w {path} {path.parent}`",
    )


def test_a_record_nested_too_deeply_is_not_what_backendcfg_wrote():
    store().parent.mkdir(parents=True, exist_ok=True)
    store().write_text("[" * 100_000)
    with pytest.raises(UnreadableFileError) as raised:
        is_trusted("/", "0")
    assert raised.value.message == f"{store()} is not what backendcfg wrote"
