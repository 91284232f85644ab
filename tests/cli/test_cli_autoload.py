"""`backendcfg autoload`: what is written where, what is said, and that nothing is left."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import backendcfg
from backendcfg.session import autoload

REAL = (str(Path(backendcfg.__file__).parents[1]), sysconfig.get_path("purelib"))


@pytest.fixture(name="folder")
def _folder(tmp_path):
    """The site-packages of a virtual environment where backendcfg is as an editable install is."""
    venv.create(tmp_path / "env", symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    folder = tmp_path / "env" / "lib" / version / "site-packages"
    (folder / "aa-paths.pth").write_text("".join(f"{path}\n" for path in REAL))
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


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_off_leaves_the_environment_as_it_was(there, folder):
    before = files(folder)
    assert there("autoload", "on").splitlines()[0] == f"autoload is on: {folder / autoload.NAME}"
    added = set(files(folder)) - set(before)
    cached = f"__pycache__/{autoload.MODULE}.{sys.implementation.cache_tag}.pyc"
    assert added == {autoload.NAME, f"{autoload.MODULE}.py", cached}
    assert there("autoload", "off").splitlines() == [
        f"autoload is off: removed {folder / name}"
        for name in (autoload.NAME, f"{autoload.MODULE}.py", cached)
    ]
    assert files(folder) == before
    assert there("autoload", "off") == "autoload was off\n"


def test_on_twice_is_once_and_repairs_what_another_release_wrote(there, folder):
    there("autoload", "on")
    assert json.loads(there("--json", "autoload", "on"))["changed"] is False
    module = folder / f"{autoload.MODULE}.py"
    wanted = module.read_text()
    module.write_text("# older\n")
    status = json.loads(there("--json", "autoload", "status"))
    assert status["files"] == [{"path": str(folder / autoload.NAME), "current": False}]
    assert "written by another release; `backendcfg autoload on` writes it anew" in there(
        "autoload", "status"
    )
    assert json.loads(there("--json", "autoload", "on"))["changed"] is True
    assert module.read_text() == wanted


def test_a_program_of_that_environment_starts_under_the_active_profile(there, tmp_path):
    there("autoload", "on")
    there("apply", "fast")
    code = "import sys; print(sys.modules['backendcfg'].active().name)"
    child = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", code],
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.stdout, child.stderr) == ("fast\n", "")


def test_status_says_what_is_so_and_what_would_be_applied(there, tmp_path, folder):
    python = str(tmp_path / "env" / "bin" / "python")
    assert there("autoload", "status").splitlines() == [
        "autoload  off",
        f"python    {python}",
        "here      no profile is in force",
        "next      backendcfg autoload on",
    ]
    there("autoload", "on")
    assert json.loads(there("--json", "autoload", "status", BACKENDCFG_PROFILE="fast")) == {
        "on": True,
        "files": [{"path": str(folder / autoload.NAME), "current": True}],
        "interpreter": python,
        "disabled": False,
        "profile": "fast",
        "source": "BACKENDCFG_PROFILE",
        "problem": "",
    }
    lines = there("autoload", "status", BACKENDCFG_DISABLE="1").splitlines()
    assert lines[-1] == "here      nothing: BACKENDCFG_DISABLE turns backendcfg off"


def test_status_works_when_what_is_active_cannot_be_read(there, tmp_path, monkeypatch):
    there("apply", "fast")
    index = next((Path(os.environ["BACKENDCFG_STATE_DIR"])).rglob("active"))
    index.write_text("rubbish\n")
    problem = json.loads(there("--json", "autoload", "status"))["problem"]
    assert problem.startswith(f"{index} is damaged")


def test_a_virtual_environment_has_no_place_of_the_user(there):
    said = there("autoload", "on", "--user", code=2)
    assert said.splitlines()[0].endswith("does not look at the site-packages of the user")
    assert "backendcfg autoload off` takes no `--user`" in there(
        "autoload", "off", "--user", code=2
    )


def test_where_backendcfg_is_only_on_pythonpath_it_is_refused(there, folder, tmp_path):
    others, code = tmp_path / "others", tmp_path / "code"
    others.mkdir(), code.mkdir()
    for entry in Path(REAL[1]).iterdir():
        if "backendcfg" not in entry.name:
            (others / entry.name).symlink_to(entry)
    (code / "backendcfg").symlink_to(Path(REAL[0]) / "backendcfg")
    (folder / "aa-paths.pth").write_text(f"{others}\n")
    before = files(folder)
    said = there("autoload", "on", code=3, PYTHONPATH=str(code))
    assert said.startswith("error[missing-library]: backendcfg is not installed for ")
    assert "  note: it was found through PYTHONPATH or the working directory only\n" in said
    assert files(folder) == before


@pytest.fixture(name="blocked")
def _blocked(tmp_path, monkeypatch):
    """A place for packages that nobody can write, not even root: a file is in its way."""
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "site-packages")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: folder)
    monkeypatch.setattr(site, "getsitepackages", lambda: [folder])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    monkeypatch.setattr(autoload, "_refuse_unless_found", lambda: None)
    return folder


def test_a_place_that_cannot_be_written_is_an_error_of_its_own(call, blocked):
    result = call("autoload", "on")
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        f"error[state-unwritable]: cannot write {blocked}: Not a directory\n"
        f"  note: it belongs to the Python environment at {sys.prefix}\n"
        "  state: nothing was changed\n"
        "  help: run it as the owner of that environment, or in a virtual environment of your own\n"
        "  help: or write `backendcfg autoload on --user`, where Python looks at the user's packages\n"
    )


def test_what_cannot_be_removed_is_said_with_what_was(call, blocked, tmp_path, monkeypatch):
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(folder)])
    (folder / autoload.NAME).write_text("")
    (folder / f"{autoload.MODULE}.py").mkdir()
    result = call("autoload", "off")
    assert result.code == 3
    assert result.err.splitlines()[0] == (
        f"error[state-unwritable]: cannot remove {folder / autoload.MODULE}.py: Is a directory"
    )
    assert f"  state: removed: {folder / autoload.NAME}" in result.err.splitlines()


def test_the_user_s_place_is_used_where_python_looks_at_it(call, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path / "env")])
    monkeypatch.setattr(autoload, "_refuse_unless_found", lambda: None)
    assert call("autoload", "on", "--user").code == 0
    assert (tmp_path / "user" / autoload.NAME).read_text() == autoload.TEXT
    assert call("autoload", "off").code == 0
    assert not (tmp_path / "user" / autoload.NAME).exists()
