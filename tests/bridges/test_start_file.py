"""The start-up file of `backendcfg run`, in real interpreters with a package that stands in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import backendcfg
from backendcfg import environ

START = Path(backendcfg.__file__).parent / "bridges" / "start"


@pytest.fixture(name="python")
def python_fixture(tmp_path):
    """`python(*arguments, package=text, shadowed=text)` runs an interpreter under the file.

    `package` is what `import backendcfg` runs; None means that there is no such package.
    """

    def python(
        *arguments, package="print('started')", shadowed=None, executable=sys.executable, first=()
    ):
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        if package is not None:
            (site / "backendcfg.py").write_text(package)
        if shadowed is not None:
            (site / "sitecustomize.py").write_text(shadowed)
        environment = {
            name: text
            for name, text in environ.current().items()
            if not name.startswith(("BACKENDCFG_", "PYTHON"))
        }
        path = [*first, str(START), str(site)]
        return subprocess.run(
            [executable, *arguments],
            env={**environment, "PYTHONPATH": os.pathsep.join(path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return python


def test_backendcfg_is_imported_before_the_first_line(python):
    done = python("-c", "print('program')")
    assert (done.stdout, done.stderr, done.returncode) == ("started\nprogram\n", "", 0)


def test_scripts_and_modules_start_the_same_way(python, tmp_path):
    (tmp_path / "script.py").write_text("print('script', __name__)")
    assert python("script.py").stdout == "started\nscript __main__\n"
    assert python("-m", "script").stdout == "started\nscript __main__\n"


def test_the_program_does_not_see_the_files_directory(python):
    code = f"import sys; print([p for p in sys.path if p == {str(START)!r}])"
    assert python("-c", code).stdout == "started\n[]\n"


def test_interpreters_that_the_program_starts_run_it_too(python):
    code = "import subprocess as s, sys; print(s.check_output([sys.executable, '-c', 'print(2)']))"
    assert python("-c", code).stdout == "started\nb'started\\n2\\n'\n"


def test_a_spawned_worker_runs_it_too(python, tmp_path):
    (tmp_path / "pool.py").write_text(
        "import multiprocessing as m\n"
        "def work(n):\n    import backendcfg\n    return backendcfg.MARK + n\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(work, [1, 2]))\n"
    )
    assert python("pool.py", package="MARK = 40").stdout == "[41, 42]\n"


def test_the_shadowed_sitecustomize_runs_after_it_and_takes_its_name(python):
    code = (
        "import sitecustomize, sys; print(sitecustomize.__file__.endswith('site/sitecustomize.py'))"
    )
    done = python("-c", code, shadowed="print('theirs')")
    assert (done.stdout, done.stderr) == ("started\ntheirs\nTrue\n", "")


def test_a_broken_shadowed_sitecustomize_is_reported_as_python_does(python):
    done = python("-c", "print('program')", shadowed="raise ValueError('theirs')")
    assert (done.stdout, done.returncode) == ("started\nprogram\n", 0)
    assert done.stderr == (
        "Error in sitecustomize; set PYTHONVERBOSE for traceback:\nValueError: theirs\n"
    )


def test_the_file_does_not_chain_to_itself_through_another_name(python, tmp_path):
    link = tmp_path / "linked"
    link.symlink_to(START)
    done = python("-c", "print('program')", first=[str(link)])
    assert (done.stdout, done.stderr) == ("started\nprogram\n", "")


def test_an_interpreter_without_backendcfg_goes_on_with_one_line(python, tmp_path):
    venv.create(tmp_path / "bare", symlinks=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    done = python("-c", "print('program')", package=None, executable=bare)
    assert (done.stdout, done.returncode) == ("program\n", 0)
    assert done.stderr == (
        f"warning: backendcfg does not act in {bare}: No module named 'backendcfg'\n"
    )


OWN_ERROR = """
class Error(Exception):
    exit_code = 3
    def render(self):
        return "error[missing-library]: no MKL here\\n  state: nothing was changed"
print("partial", end="")
raise Error
"""


def test_an_error_of_ours_ends_the_process_with_its_code(python):
    done = python("-c", "print('program')", package=OWN_ERROR)
    assert (done.stdout, done.returncode) == ("partial", 3)
    assert done.stderr == "error[missing-library]: no MKL here\n  state: nothing was changed\n"


@pytest.mark.parametrize("words", [("-m", "pip"), ("-X", "dev", "-m", "venv"), ("-u", "pip3.11")])
def test_installers_are_told_and_not_stopped(python, tmp_path, words):
    for name in ("pip", "venv"):
        (tmp_path / f"{name}.py").write_text("print('installer')")
    (tmp_path / "pip3.11").write_text("print('installer')")
    done = python(*words, package=OWN_ERROR)
    assert (done.stdout, done.returncode) == ("partialinstaller\n", 0)
    assert done.stderr == "error[missing-library]: no MKL here\n  state: nothing was changed\n"


@pytest.mark.parametrize("name", ["train.py", "pipeline.py"])
def test_a_program_that_only_mentions_pip_is_stopped(python, tmp_path, name):
    (tmp_path / name).write_text("print('program')")
    assert python(name, "pip", package=OWN_ERROR).returncode == 3


@pytest.mark.parametrize("name", ["__pip-runner__.py", "_in_process.py"])
def test_what_pip_starts_by_its_path_is_not_stopped(python, tmp_path, name):
    (tmp_path / name).write_text("print('installer')")
    assert python(name, package=OWN_ERROR).stdout == "partialinstaller\n"


def test_a_bug_of_ours_ends_the_process_with_a_traceback(python):
    done = python("-c", "print('program')", package="1 / 0")
    assert (done.stdout, done.returncode) == ("", 70)
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert done.stderr.endswith("error[internal]: backendcfg failed\n")


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_interpreter_that_asks_to_be_left_alone_is(python, option):
    done = python(option, "-c", "print('program')")
    assert (done.stdout, done.stderr) == ("program\n", "")


def test_an_interpreter_in_another_environment_runs_it(python, tmp_path):
    venv.create(tmp_path / "other", symlinks=True)
    executable = str(tmp_path / "other" / "bin" / "python")
    code = "import sys; print(sys.prefix != sys.base_prefix)"
    assert python("-c", code, executable=executable).stdout == "started\nTrue\n"


def test_an_interpreter_that_is_too_old_goes_on_with_one_line(tmp_path):
    """Played by a constant, because no older interpreter need be here."""
    folder = tmp_path / "bridges" / "start"
    shutil.copytree(START, folder)
    text = (START.parents[1] / "startup.py").read_text()
    (tmp_path / "startup.py").write_text(text.replace("OLDEST = (3, 11)", "OLDEST = (99, 0)"))
    done = subprocess.run(
        [sys.executable, "-c", "print('program')"],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "program\n"
    assert done.stderr == (
        f"warning: backendcfg does not act in {sys.executable}: it needs Python 3.11\n"
    )


def test_the_real_package_starts_from_it(child):
    """With nothing in force: the package is imported, and nothing else happens."""
    root = str(Path(backendcfg.__file__).parents[1])
    code = "import sys; print('backendcfg' in sys.modules, 'numpy' in sys.modules)"
    done = child(code, PYTHONPATH=os.pathsep.join([str(START), root]))
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_an_interrupt_while_it_starts_ends_the_program_by_the_signal(python):
    done = python("-c", "print('program')", package="raise KeyboardInterrupt")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
