"""validate, trust, detect, schema, doctor, and hosts in files."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backendcfg import startup
from backendcfg.cli.sources import read_host, write_host
from backendcfg.cli.verbs.doctor import QUESTIONS, examine, thread_pools
from backendcfg.errors import InvalidHostError, UnreadableFileError
from backendcfg.load.document import A_NAME
from backendcfg.transact import disk

WRONG = """\
schema = 1
[threads]
count = "8"
dynamik = true
"""


def test_validate_says_which_files_are_valid(call, project):
    result = call("validate", "profiles/mine.toml", "backendcfg.toml")
    assert (result.code, result.err) == (0, "")
    assert result.out == "profiles/mine.toml is valid\nbackendcfg.toml is valid\n"


def test_validate_reports_every_fault_of_every_file(call, project):
    (project / "a.toml").write_text(WRONG)
    (project / "b.toml").write_text("nonsense = 1\n")
    result = call("validate", "a.toml", "profiles/mine.toml", "b.toml")
    assert (result.code, result.out) == (1, "profiles/mine.toml is valid\n")
    heads = [line for line in result.err.splitlines() if line.startswith("error")]
    assert [head.partition(":")[0] for head in heads] == [
        "error[wrong-type]",
        "error[unknown-key]",
        "error[unknown-key]",
    ]
    assert result.err.splitlines()[-1] == "3 errors in 2 files"
    answer = json.loads(call("validate", "a.toml", "b.toml", "--json").out)
    assert answer["valid"] is False
    places = [one["places"][0]["path"] for one in answer["faults"]]
    assert places == [str(project / name) for name in ("a.toml", "a.toml", "b.toml")]


def test_validate_tells_a_fault_once_where_others_pick_or_extend_its_file(call, project):
    (project / "backendcfg.toml").write_text('profile = "team"\n')
    (project / "profiles" / "child.toml").write_text('schema = 1\nextends = "team"\n')
    (project / "profiles" / "team.toml").write_text("schema = 1\ntreads.count = 4\n")
    result = call("validate")
    assert result.code == 1
    heads = [line for line in result.err.splitlines() if line.startswith("error")]
    assert heads == ["error[unknown-key]: unknown key `treads` at the top level"]
    assert result.err.splitlines()[-1] == "1 error in profiles/team.toml"
    assert len(json.loads(call("validate", "--json").out)["faults"]) == 1
    alone = call("validate", "backendcfg.toml")
    assert alone.err.splitlines()[-1] == "1 error in backendcfg.toml"


def test_validate_of_a_file_that_is_not_there(call, project):
    result = call("validate", "nowhere.toml")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[unreadable-file]: cannot read nowhere.toml: ")


@pytest.mark.parametrize("name", ["my profile", "a+b", "nothing"])
def test_a_profile_that_cannot_be_named_is_refused_and_listed_as_unusable(name, call, project):
    (project / "profiles" / f"{name}.toml").write_text("threads.count = 1\n")
    result = call("validate", f"profiles/{name}.toml")
    assert (result.code, result.err.splitlines()[:-2]) == (
        1,
        [
            f'error[invalid-value]: "{name}" is not the name of a profile',
            "  state: nothing was changed",
            "  help: rename the file",
            f"  help: {A_NAME}",
        ],
    )
    listed = json.loads(call("list", "--json").out)
    problem = "its file name is not a name that can be given"
    assert [one["problem"] for one in listed if one["name"] == name] == [problem]
    assert call("run", name, "--", "true").code == 2


def test_status_says_who_made_a_profile_active_that_is_gone(call, project):
    call("apply", "base")
    (project / "profiles" / "base.toml").unlink()
    (project / "profiles" / "mine.toml").unlink()
    result = call("status")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error[unknown-profile]: profile `base` does not exist",
    )
    whose = f"generation 1 of {project} picks it, which `backendcfg apply` made active"
    assert f"  note: {whose}\n" in result.err
    assert "  help: run `backendcfg off`, or apply another profile\n" in result.err
    assert (call("off").code, call("status").code) == (0, 0)


def test_validate_without_files_checks_the_project(call, project):
    (project / "profiles" / "base.toml").write_text('extends = "mine"\n')
    result = call("validate")
    assert (result.code, result.out) == (1, "backendcfg.toml is valid\n")
    assert (
        result.err
        == (
            "error[inheritance-cycle]: profile `base` extends itself: base -> mine -> base\n"
            " --> profiles/base.toml:1:11\n"
            "  |\n"
            ' 1 | extends = "mine"\n'
            "  |           ^^^^^^ base extends mine\n"
        )
        or "inheritance-cycle" in result.err
    )


EXTENDED = {
    "what names no profile": (
        'extends = "nobody"\n',
        "error[unknown-profile]: profile `x` extends `nobody`, which does not exist",
    ),
    "itself": ('extends = "x"\n', "error[inheritance-cycle]: profile `x` extends itself: x -> x"),
    "what it contradicts": (
        'determinism.tier = "run-to-run"\ncudnn.benchmark = true\n',
        "error[conflicting-flags]: `cudnn.benchmark = true` and `determinism.tier = ",
    ),
}


@pytest.mark.parametrize("case", EXTENDED)
def test_validate_refuses_a_profile_that_extends(case, call, project):
    text, head = EXTENDED[case]
    (project / "profiles" / "x.toml").write_text(text)
    hosts = Path(__file__).parents[1] / "hosts"
    result = call("validate", "profiles/x.toml", "--host", str(hosts / "dgx-h100--openblas.json"))
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(head)
    count = "2 errors" if case == "what it contradicts" else "1 error"
    assert result.err.endswith(f"\n{count} in profiles/x.toml\n")


def test_a_fault_of_the_profile_that_is_picked_is_said_once(call, project):
    (project / "backendcfg.toml").write_text('profile = "x"\n')
    (project / "profiles" / "x.toml").write_text('extends = "nobody"\n')
    result = call("validate", "backendcfg.toml", "profiles/x.toml")
    assert result.err.count("error[unknown-profile]") == 1
    assert result.err.endswith("\n1 error in profiles/x.toml\n")


def test_validate_refuses_settings_that_pick_nothing(call, project):
    (project / "backendcfg.toml").write_text('profile = "nobody"\n')
    result = call("validate", "backendcfg.toml")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(
        "error[unknown-profile]: backendcfg.toml picks profile `nobody`, which does not exist\n"
    )


def test_a_profile_for_another_machine_is_valid(call, project, host):
    (project / "profiles" / "x.toml").write_text('[requires]\ngpu.vendor = "nvidia"\n')
    result = call("validate", "profiles/x.toml", "--host", host)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "profiles/x.toml is valid\n"
        "  but cannot be used here: profile `x` needs an NVIDIA GPU; no GPU is here\n"
    )


def test_validate_in_no_project_needs_a_file(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("validate").err == (
        "error[usage]: no file is named, and this folder is in no project\n"
        "  state: nothing was changed\n"
        "  help: name files: `backendcfg validate mine.toml`\n"
        "  help: or run `backendcfg init`\n"
    )


EXAMPLE = re.compile(r"^# (?=\[|[a-z0-9_.]+ += )", re.MULTILINE)
"""What stands before a line that is TOML when it is removed."""

BEGUN = """\
wrote profiles/team.toml
wrote .backendcfg/profile.json
wrote .backendcfg/settings.json
wrote backendcfg.toml
in CI     backendcfg validate && backendcfg run -- pytest
next      backendcfg plan
          backendcfg run -- python train.py
"""


@pytest.fixture(name="empty")
def _empty(tmp_path, monkeypatch):
    folder = tmp_path / "new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_init_writes_a_project_that_is_valid_and_whose_examples_are(call, empty):
    result = call("init")
    assert (result.code, result.err, result.out) == (0, "", BEGUN)
    assert call("validate").out == "backendcfg.toml is valid\nprofiles/team.toml is valid\n"
    for name in ("backendcfg.toml", "profiles/team.toml"):
        path = empty / name
        examples = EXAMPLE.sub("", path.read_text())
        assert examples.count("\n#") < path.read_text().count("\n#")
        path.write_text(examples)
    assert call("validate").code == 0
    assert "threads.count" in call("plan", "team").out


def test_init_writes_over_nothing(call, empty):
    call("init")
    before = {path: path.read_text() for path in empty.rglob("*.toml")}
    result = call("init", "other")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"error[usage]: {empty}/backendcfg.toml makes this folder a project already\n"
        "  state: nothing was changed\n"
        "  help: edit it; `backendcfg list` shows the profiles that it can name\n"
    )
    assert before == {path: path.read_text() for path in empty.rglob("*.toml")}


@pytest.mark.parametrize("folder", ["profiles", ".backendcfg"])
def test_init_does_not_write_through_a_linked_folder(call, empty, folder):
    elsewhere = empty.parent / "elsewhere"
    elsewhere.mkdir()
    (empty / folder).symlink_to(elsewhere)
    result = call("init")
    assert result.code == 3
    assert f"/{folder} is a link to another folder, which `init` does not follow\n" in result.err
    assert os.listdir(elsewhere) == []


def test_a_profile_without_a_project_is_named_and_taken_by_init(call, empty):
    (empty / "profiles").mkdir()
    (empty / "profiles" / "mine.toml").write_text("threads.count = 1\n")
    result = call("plan", "mine")
    assert result.code == 2
    lines = result.err.splitlines()
    assert lines[0] == "error[unknown-profile]: profile `mine` does not exist"
    assert lines[1] == (
        "  note: profiles/mine.toml is there, and is not searched: backendcfg.toml is missing"
    )
    assert lines[2].startswith("  note: searched, in order: ")
    assert lines[2].endswith(", and the profiles installed with backendcfg")
    assert lines[-2:] == [
        "  help: run `backendcfg init mine`, which writes it",
        "  help: run `backendcfg list` to see them all",
    ]
    assert call("init", "mine").out.startswith("wrote .backendcfg/profile.json\n")
    assert (empty / "profiles" / "mine.toml").read_text() == "threads.count = 1\n"
    assert call("plan", "mine").code == 0


def test_a_new_profile_with_the_name_of_another_extends_that_one(call, empty):
    assert call("init", "fast").code == 0
    assert '\nextends = "fast"\n' in (empty / "profiles" / "fast.toml").read_text()
    flags = json.loads(call("plan", "fast", "--json").out)["entries"]
    assert {one["flag"]: one["value"] for one in flags}["route.numpy.elementwise"] == "threads"


def test_init_leaves_no_part_of_a_file_where_the_disk_is_full(call, empty, monkeypatch):
    def full(handle, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "write", full)
        result = call("init", "mine")
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        "error[state-unwritable]: cannot write ./profiles/mine.toml: No space left on device\n"
        "  state: files that `backendcfg init` wrote before are there\n"
        "  help: run it in a folder that you may write\n"
    )
    assert [path for path in empty.rglob("*") if path.is_file()] == []
    assert call("init", "mine").code == 0
    assert '\nextends = "reproducible"\n' in (empty / "profiles" / "mine.toml").read_text()


def test_init_extends_several_profiles(call, empty):
    assert call("init", "--extends", "fast+tf32-off").code == 0
    assert 'extends = ["fast", "tf32-off"]\n' in Path("profiles/team.toml").read_text()
    assert call("validate").code == 0


def test_what_validate_says_of_a_file_elsewhere_can_be_repeated(call, empty):
    folder = Path("elsewhere")
    folder.mkdir()
    (folder / "new.toml").write_text('requires.libraries.numpy = ">99"\n')
    said = json.loads(call("validate", "elsewhere/new.toml", "--json").out)
    words = re.search("run `backendcfg (plan [^`]*)`", json.dumps(said))[1].split()
    assert "needs numpy newer than 99" in call(*words).out


def test_init_refuses_what_no_profile_can_be_called_or_extend(call, empty):
    assert call("init", "a b").err.startswith("error[usage]: `a b` is not the name of a profile\n")
    assert call("init", "mine", "--extends", "nobody").err.startswith("error[unknown-profile]: ")
    assert list(empty.iterdir()) == []


def test_trust_lists_and_revokes(call, project):
    files = [str(project / name) for name in ("backendcfg.toml", "profiles/base.toml")]
    (project / "profiles" / "mine.toml").unlink()
    assert call("trust", "--list").out == "no file is trusted\n"
    assert call("trust").out == "".join(f"{file} is trusted as it is now\n" for file in files)
    (project / "backendcfg.toml").write_text("# changed\n")
    assert call("trust", "--list").out == (
        f"{files[0]} (changed since, so it is not trusted)\n{files[1]}\n"
    )
    revoked = call("trust", "--revoke")
    assert revoked.out == "".join(f"{file} is no longer trusted\n" for file in files)
    assert call("trust", "--list").out == "no file is trusted\n"
    assert call("trust", "--revoke").out == "no file of it was trusted\n"


def test_a_profile_of_a_project_sets_variables_only_after_trust(call, project):
    (project / "profiles" / "base.toml").write_text('schema = 1\nenvironment = { A = "1" }\n')
    refused = call("plan", "base")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(
        "error[untrusted-project]: profiles/base.toml sets `environment`, which only a trusted "
        "project may\n"
    )
    call("trust")
    assert call("plan", "base").code == 0


def test_trust_is_of_a_project_by_whatever_path_and_only_with_its_settings_file(call, project):
    link, file = project.parent / "link", project / "backendcfg.toml"
    link.symlink_to(project)
    file.write_text('profile = "base"\n')
    for given in (link, file):
        assert startup.may_have_profile(committed=False) == (False, "")
        assert call("trust", str(given)).code == 0
        assert startup.may_have_profile(committed=False) == (True, "")
        kept = file.rename(project / "kept")  # as in another branch
        assert call("trust", "--revoke", str(project.parent)).code == 0
        kept.rename(file)
    call("trust", "profiles/base.toml")
    assert startup.may_have_profile(committed=False) == (False, "")


def test_trust_list_takes_nothing_else(call, project):
    result = call("trust", "--list", "--revoke")
    assert (result.code, result.out) == (2, "")


def test_a_host_is_captured_over_no_other_file(call, project):
    script = project / "train.py"
    script.write_text("print('mine')\n")
    refused = call("detect", "--capture", "train.py")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error[usage]: train.py is there already, and is no host\n"
        "  state: nothing was changed\n"
        "  help: give another file with `--capture`\n"
    )
    assert script.read_text() == "print('mine')\n"
    host = project / "host.json"
    for _ in range(2):
        assert call("detect", "--capture", "host.json").code == 0
        host.write_text(json.dumps(json.loads(host.read_text()), separators=(",", ":")))


def test_a_table_beside_a_settings_file_is_checked_and_said_not_to_be_read(call, project):
    table = project / "pyproject.toml"
    table.write_text("[tool.backendcfg]\nthreads.count = 1\n")
    found = call("validate")
    assert found.code == 0
    assert (
        "pyproject.toml is valid\n"
        "  but cannot be used here: backendcfg.toml beside it is this project's settings file, and"
        " this one is not read\n"
    ) in found.out
    assert f"the table in {table} is not read, as there is a backendcfg.toml beside it" in " ".join(
        call("doctor").out.split()
    )
    table.write_text('[tool.backendcfg]\nprofle = "fast"\n')
    found = call("validate")
    assert found.code == 1
    assert "error[unknown-key]: unknown key `profle`" in found.err


def test_profiles_are_checked_though_the_settings_are_wrong(call, project):
    (project / "backendcfg.toml").write_text("cuont = 1\n")
    (project / "profiles" / "mine.toml").write_text("threads.cuont = 1\n")
    found = call("validate")
    assert found.code == 1
    assert [line for line in found.err.splitlines() if line.startswith(("error", "2 "))] == [
        "error[unknown-key]: unknown key `cuont` at the top level",
        "error[unknown-key]: unknown key `cuont` in table `[threads]`",
        "2 errors in 2 files",
    ]


def test_a_captured_host_is_what_plan_accepts(call, project):
    captured = call("detect", "--capture", "host.json")
    assert (captured.code, captured.err) == (0, "wrote host.json\n")
    assert captured.out.startswith("system    ")
    here = json.loads(call("plan", "mine", "--json").out)
    there = json.loads(call("plan", "mine", "--host", "host.json", "--json").out)
    assert here == there
    assert sorted(path.name for path in project.iterdir()) == [
        "backendcfg.toml",
        "host.json",
        "profiles",
    ]


def test_a_host_survives_the_file(host, tmp_path):
    written = tmp_path / "again.json"
    write_host(read_host(host), str(written))
    assert read_host(str(written)) == read_host(host)


@pytest.mark.parametrize(
    ("change", "message", "notes"),
    [
        (
            {"cpu": {"vendor": "amd"}},
            "`cpu.name` is missing",
            [
                "`cpu.architecture` is missing",
                "`cpu.microarchitecture` is missing",
                "`cpu.logical` is missing",
                "`cpu.physical` is missing",
                "`cpu.usable` is missing",
            ],
        ),
        ({"memory": {"total": "8"}}, '`memory.total` must be an integer, not "8"', []),
        ({"colour": 1}, "`colour` is not a key of a host", []),
        (
            {"system": {"os": "beos"}},
            '`system.os` must be "linux", "macos", "windows" or "other", not "beos"',
            [],
        ),
        ({"schema": 2}, "`schema` must be 1, not 2", []),
        ({"libraries": 3}, "`libraries` must be an array, not 3", []),
    ],
)
def test_what_is_wrong_with_a_host_is_named(change, message, notes, host):
    with open(host) as file:
        document = json.load(file) | change
    with open(host, "w") as file:
        json.dump(document, file)
    with pytest.raises(InvalidHostError) as caught:
        read_host(host)
    assert caught.value.message == f"{host} is not a host: {message}"
    assert list(caught.value.notes) == notes


def test_a_host_that_is_not_json_names_the_place(tmp_path):
    path = tmp_path / "host.json"
    path.write_text('{\n  "schema": 1,,\n}\n')
    with pytest.raises(InvalidHostError) as caught:
        read_host(str(path))
    assert caught.value.render() == (
        f"error[invalid-host]: {path} is not JSON\n"
        f"  --> {path}:2:15\n"
        "   |\n"
        ' 2 |   "schema": 1,,\n'
        "   |               ^ expecting property name enclosed in double quotes\n"
        "  state: nothing was changed\n"
        "  help: write one with `backendcfg detect --capture FILE`"
    )


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"[" * 100_000, b"null", b"[]"])
def test_no_content_of_a_host_file_is_a_bug(content, call, project):
    (project / "host.json").write_bytes(content)
    result = call("plan", "mine", "--host", "host.json")
    assert (result.code, result.out) == (2, "")


@pytest.mark.parametrize("path", ["nowhere.json", ".", "nowhere/host.json"])
def test_a_host_file_that_cannot_be_read_or_written(path, call, project):
    assert call("plan", "mine", "--host", path).err.startswith(
        f"error[unreadable-file]: cannot read {path}: "
    )
    if path != "nowhere.json":
        with pytest.raises(UnreadableFileError, match=f"^cannot write {path}: "):
            write_host(read_host_of_this_machine(), path)


def read_host_of_this_machine():
    from backendcfg import session

    return session.detect()


@pytest.mark.parametrize("which", ["profile", "settings", "host", "plan"])
def test_schema_prints_a_json_schema(which, call):
    text = call("validate", "--schema", which).out
    assert json.loads(text)["$schema"].startswith("https://json-schema.org/")
    assert json.loads(call("validate", "--schema", which, "--json").out) == json.loads(text)


def test_doctor_lists_every_variable_and_exits_with_0_when_nothing_is_wrong(call, project):
    from backendcfg import environ

    result = call("doctor")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("\nnothing is wrong\n")
    for variable in environ.VARIABLES:
        assert f"  {variable.name}  " in result.out


def test_doctor_names_an_unknown_variable_and_exits_with_1(call, project, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_PROFIL", "fast")
    result = call("doctor", "--json")
    assert (result.code, result.err) == (1, "")
    wrong = [one for one in json.loads(result.out)["findings"] if one["state"] == "wrong"]
    assert wrong == [
        {
            "topic": "variables",
            "state": "wrong",
            "detail": "environment variable BACKENDCFG_PROFIL is not one that backendcfg reads",
            "help": "did you mean BACKENDCFG_PROFILE?",
        }
    ]


def test_doctor_names_a_profile_that_is_wrong(call, project):
    (project / "profiles" / "bad.toml").write_text("nonsense = 1\n")
    result = call("doctor")
    assert result.code == 1
    assert "run `backendcfg validate" in result.out
    assert result.out.endswith("\n1 thing wrong\n")


def test_doctor_names_what_contradicts_the_profile(call, project, monkeypatch):
    call("apply", "base")
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    result = call("doctor")
    assert result.code == 1
    assert "OMP_NUM_THREADS=77" in result.out


def test_doctor_names_the_pools_that_cannot_be_set_or_not_as_far_as_asked(host, monkeypatch):
    asked = []

    def capped(count):
        asked.append(count)
        return {"openblas[numpy].threads": 2}

    missing = {"mkl[mkl].threads": "it has no MKL_Set_Num_Threads"}
    monkeypatch.setattr("backendcfg.bridges.pools.missing", lambda: missing)
    monkeypatch.setattr("backendcfg.bridges.pools.capped", capped)
    here = read_host(host)
    usable = here.cpu.usable
    findings = list(thread_pools(here))
    assert {(one.topic, one.state) for one in findings} == {("thread pools", "note")}
    most = "openblas[numpy].threads can be 2 at most, as its library was built"
    assert [one.detail for one in findings] == [
        "mkl[mkl].threads cannot be set: it has no MKL_Set_Num_Threads",
        f"{most}, and this process may use {usable} processors",
    ]
    assert asked == [usable]


def test_doctor_says_that_numpys_own_pool_can_be_set(host):
    # As it is here: the real NumPy, in a process where no other test has loaded anything.
    program = (
        "import sys\n"
        "from backendcfg.cli.verbs.doctor import thread_pools\n"
        "from backendcfg.cli.sources import read_host\n"
        "for one in thread_pools(read_host(sys.argv[1])):\n"
        "    print(one.state, one.detail)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, host], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "fine every one that comes with NumPy can be set\n"


def test_a_question_that_fails_hides_no_other(host, monkeypatch, project):
    def rude(_host):
        raise ZeroDivisionError("division by zero")
        yield

    monkeypatch.setattr("backendcfg.cli.verbs.doctor.QUESTIONS", (rude, QUESTIONS[0]))
    findings = examine(read_host(host))
    assert [(one.topic, one.state, one.detail) for one in findings] == [
        ("rude", "wrong", "ZeroDivisionError: division by zero"),
        ("versions", "fine", findings[1].detail),
        ("packages", "fine", "numpy 2.4.6"),
    ]


def test_purge_shows_what_is_kept_and_removes_it_when_told(call, project, monkeypatch, tmp_path):
    for name in ("STATE_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"BACKENDCFG_{name}", str(tmp_path / name))
    monkeypatch.setattr("backendcfg.bridges.torch.compiled._default", lambda: f"{tmp_path}/code")
    assert call("purge").out == "nothing is kept\n"
    call("apply", "mine")
    call("trust")
    code = tmp_path / "code" / "backendcfg-0123456789ab"
    code.mkdir(parents=True)
    (code / "code.so").write_text("")
    result = call("purge")
    assert (result.code, result.err) == (0, "")
    kept = json.loads(call("purge", "--json").out)["kept"]
    assert [(one["kind"], one["path"], one["files"]) for one in kept] == [
        ("state", f"{tmp_path}/STATE_DIR/v2", 3),
        ("cache", f"{tmp_path}/CACHE_DIR/libraries.json", 1),
        ("code", str(code), 1),
        ("trust", f"{tmp_path}/CONFIG_DIR/trusted.json", 1),
        ("trust", f"{tmp_path}/CONFIG_DIR/trusted.lock", 1),
    ]
    words = result.out.split()
    assert [one["path"] for one in kept if one["path"] not in words] == []
    assert result.out.splitlines()[-1] == "next      backendcfg purge --yes"
    assert call("status").out.startswith("profile   mine\n")
    removed = call("purge", "--yes").out
    assert removed == "".join(f"removed {one['path']}\n" for one in kept) + (
        "next      pip uninstall backendcfg\n"
    )
    assert call("purge").out == "nothing is kept\n"
    assert (project / "profiles" / "mine.toml").exists()
