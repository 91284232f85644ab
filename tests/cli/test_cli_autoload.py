"""`backendcfg autoload`: what turns the start-up file off and on, and what is said."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import backendcfg
from backendcfg import startup
from backendcfg.session import autoload

PACKAGE = Path(backendcfg.__file__).parent
REAL = (str(PACKAGE.parent), *(entry for entry in sys.path if entry.endswith("-packages")))


@pytest.fixture(name="folder")
def _folder(tmp_path):
    """The site-packages of a virtual environment where backendcfg is as an editable install is."""
    venv.create(tmp_path / "env", symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder = tmp_path / "env" / "lib" / version / "site-packages"
    (folder / "aa-paths.pth").write_text("".join(f"{path}\n" for path in REAL))
    shutil.copy(PACKAGE / "startup.py", folder / f"{autoload.MODULE}.py")
    shutil.copy(PACKAGE / "bridges" / "start" / autoload.NAME, folder)
    os.unlink(startup.off_files()[-1])
    return folder


@pytest.fixture(name="there")
def _there(folder, tmp_path):
    """Run the command of that environment: `there("autoload", "on")`."""

    def there(*words, code=0, **variables):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [tmp_path / "env" / "bin" / "python", "-m", "backendcfg", *words],
            env={**inherited, **variables},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return there


def test_off_says_where_it_is_kept_and_on_takes_it_back(there, tmp_path):
    off = tmp_path / "env" / "etc" / "backendcfg" / "autoload-off"
    assert there("autoload", "off") == f"autoload is off: {off} says so\n"
    assert off.stat().st_mode & 0o777 == 0o644
    assert there("autoload", "off", "--user").endswith("state/autoload-off says so\n")
    lines = there("autoload", "on").splitlines()
    assert lines[:2] == ["autoload is on", f"removed {off}"]
    assert len(lines) == 3
    assert there("autoload", "on") == "autoload is on\n"


def test_what_0_1_wrote_is_told_and_removed(there, folder):
    for name in autoload.OLD_FILES:
        (folder / name).write_text("")
    cached = folder / "__pycache__" / "_backendcfg_autoload.cpython-311.pyc"
    cached.parent.mkdir(exist_ok=True)
    cached.write_text("")
    old = [str(folder / name) for name in autoload.OLD_FILES] + [str(cached)]
    assert json.loads(there("--json", "autoload", "status"))["old"] == old
    assert "was written by 0.1.0; `backendcfg autoload on`" in there("autoload", "status")
    assert json.loads(there("--json", "autoload", "on"))["removed"] == old
    assert json.loads(there("--json", "autoload", "status"))["old"] == []


def test_status_says_what_is_so_and_what_would_be_applied(there, tmp_path, folder):
    python = str(tmp_path / "env" / "bin" / "python")
    assert there("autoload", "status").splitlines() == [
        "autoload  on",
        f"file      {folder / autoload.NAME}",
        f"python    {python}",
        "here      no profile is in force",
    ]
    assert json.loads(there("--json", "autoload", "status", BACKENDCFG_PROFILE="fast")) == {
        "on": True,
        "file": str(folder / autoload.NAME),
        "off": [],
        "old": [],
        "interpreter": python,
        "disabled": False,
        "profile": "fast",
        "source": "BACKENDCFG_PROFILE",
        "python": "",
        "problem": "",
    }
    problem = "environment variable BACKENDCFG_PROFILE names profile `fats`, which does not exist"
    wrong = json.loads(there("--json", "autoload", "status", BACKENDCFG_PROFILE="fats"))
    assert (wrong["profile"], wrong["problem"]) == (None, problem)
    lines = there("autoload", "status", BACKENDCFG_DISABLE="1").splitlines()
    assert lines[-1] == "here      nothing: BACKENDCFG_DISABLE turns backendcfg off"
    there("autoload", "off")
    lines = there("autoload", "status").splitlines()
    assert (lines[0], lines[-1]) == ("autoload  off", "next      backendcfg autoload on")


def test_status_says_that_a_project_s_file_waits_for_trust(there, tmp_path):
    file = tmp_path / "backendcfg.toml"
    file.write_text('profile = "fast"\n')
    why = "not before you run `backendcfg trust` or `backendcfg apply` here"
    said = " ".join(there("autoload", "status").split())
    assert said.endswith(f" here fast ({file}), {why}")
    assert json.loads(there("--json", "autoload", "status"))["python"] == why
    there("trust", ".")
    assert json.loads(there("--json", "autoload", "status"))["python"] == ""


def test_status_works_when_what_is_active_cannot_be_read(there):
    there("apply", "fast")
    index = next((Path(os.environ["BACKENDCFG_STATE_DIR"])).rglob("active"))
    index.write_text("rubbish\n")
    problem = json.loads(there("--json", "autoload", "status"))["problem"]
    assert problem.startswith(f"{index} is damaged")


def test_apply_and_status_say_what_is_governed(there, tmp_path):
    said = " ".join(there("apply", "fast", "--environment").split())
    what = "every `python` that starts where nothing else is picked, in this environment"
    assert f"governs {what} " in said
    assert json.loads(there("--json", "status"))["python"] == ""
    there("autoload", "off")
    status = json.loads(there("--json", "status"))
    assert status["source"] == f"generation 1 of the environment {tmp_path / 'env'}"
    assert status["python"] == "not before you run `backendcfg autoload on`"


def test_only_off_takes_user(there):
    said = there("autoload", "on", "--user", code=2)
    assert "`backendcfg autoload on` takes no `--user`" in said


def test_an_environment_that_cannot_be_written_is_an_error_of_its_own(call, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    result = call("autoload", "off")
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        f"error[state-unwritable]: cannot make {tmp_path}/file/etc/backendcfg: {tmp_path}/file is a"
        " file, not a directory\n"
        "  state: nothing was changed\n"
        "  help: run it as the owner of that environment, or in a virtual environment of your own\n"
        "  help: or write `backendcfg autoload off --user`, for every environment that you use\n"
    )
    result = call("apply", "fast", "--environment")
    assert result.code == 3
    assert result.err.endswith(
        "  help: run it as the owner of that environment, or in a virtual environment of your own\n"
    )


def test_a_home_that_cannot_be_written_is_not_told_to_use_the_home(call, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(tmp_path / "file" / "state"))
    result = call("autoload", "off", "--user")
    assert result.code == 3
    assert result.err.endswith(
        "  help: set BACKENDCFG_STATE_DIR to a directory, or to a place for one\n"
    )


def test_what_cannot_be_removed_is_said_with_what_was(call, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    first, second = (tmp_path / name for name in autoload.OLD_FILES)
    first.write_text("")
    second.mkdir()
    result = call("autoload", "on")
    assert result.code == 3
    assert result.err.splitlines()[0] == (
        f"error[state-unwritable]: cannot remove {second}: Is a directory"
    )
    assert f", {first}" in result.err
