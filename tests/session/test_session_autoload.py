"""The start-up file that the wheel brings, in real interpreters of environments made for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from exhaustive import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import backendcfg
from backendcfg import environ, startup
from backendcfg.session import autoload
from backendcfg.session.starting import START
from backendcfg.transact import generations, store

PACKAGE = Path(backendcfg.__file__).parent
REAL = [str(PACKAGE.parent), *(entry for entry in sys.path if entry.endswith("-packages"))]


def put_start_file(folder):
    shutil.copy(PACKAGE / "startup.py", folder / f"{autoload.MODULE}.py")
    shutil.copy(PACKAGE / "bridges" / "start" / autoload.NAME, folder)


@pytest.fixture(autouse=True)
def _on():
    """The tests' own directories turn it off."""
    os.unlink(startup.off_files()[-1])


class Environment:
    """A virtual environment with the start-up file.

    Attributes:
        root: a directory for its files.
        site: its site-packages.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        venv.create(root / "env", symlinks=True)
        self.executable = str(root / "env" / "bin" / "python")
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.site = root / "env" / "lib" / version / "site-packages"
        self.stand_in("print('started')")

    def stand_in(self, text: str | None) -> None:
        """What `import backendcfg` runs; None for no such package."""
        (self.root / "packages").mkdir(exist_ok=True)
        self.paths(str(self.root / "packages"))
        (self.root / "packages" / "backendcfg.py").write_text(text or "")
        if text is None:
            (self.root / "packages" / "backendcfg.py").unlink()

    def paths(self, *folders: str, name: str = "aa-paths.pth") -> None:
        """Folders that are added to the path as an editable install adds them."""
        (self.site / name).write_text("".join(f"{folder}\n" for folder in folders))

    def install(self) -> None:
        """What the wheel puts beside the package."""
        put_start_file(self.site)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            name: text for name, text in environ.current().items() if not name.startswith("PYTHON")
        }
        return subprocess.run(
            [self.executable, *words],
            env={**inherited, **variables},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def said(self, *words: str, **variables: str) -> tuple[str, str, int]:
        done = self.run(*words, **variables)
        return done.stdout, done.stderr, done.returncode


@pytest.fixture(name="environment")
def _environment(tmp_path):
    """An environment with the start-up file and a package that stands in for backendcfg."""
    made = Environment(tmp_path)
    made.install()
    return made


PROGRAM = ("-c", "print('program')")
ASKED = {"BACKENDCFG_PROFILE": "fast"}


def test_a_profile_in_the_environment_starts_backendcfg_before_the_first_line(environment):
    assert environment.said(*PROGRAM, **ASKED) == ("started\nprogram\n", "", 0)


def test_a_flag_in_the_environment_does_too(environment):
    assert environment.said(*PROGRAM, BACKENDCFG_THREADS_COUNT="1")[0] == "started\nprogram\n"


def test_where_nothing_is_active_nothing_is_imported(environment):
    code = (
        "import sys; print(sorted(n for n in sys.modules if 'backendcfg' in n), len(sys.meta_path))"
    )
    expected = environment.run("-I", "-c", "import sys; print(len(sys.meta_path))").stdout
    said = environment.said("-c", code, BACKENDCFG_PROFILE="", BACKENDCFG_STARTED_BY="run x")
    assert said == (f"[] {expected}", "", 0)


def test_what_it_needs_is_there_in_every_interpreter_already(environment):
    code = "import sys; print(*sorted(sys.modules))"
    with_it = set(environment.run("-c", code).stdout.split())
    (environment.site / autoload.NAME).unlink()
    assert with_it == set(environment.run("-c", code).stdout.split())


def test_the_finder_that_waits_for_the_path_is_gone_afterwards(environment):
    code = "import sys; print([f for f in sys.meta_path if 'startup' in type(f).__module__])"
    assert environment.said("-c", code, **ASKED)[0] == "started\n[]\n"


def test_it_acts_when_the_folder_with_backendcfg_comes_late_on_the_path(environment):
    environment.paths(name="aa-paths.pth")
    environment.paths(str(environment.root / "packages"), name="zzz-late.pth")
    assert environment.said(*PROGRAM, **ASKED)[0] == "started\nprogram\n"


def test_two_start_up_files_start_it_once(environment):
    environment.stand_in("print('started'); raise RuntimeError('told once')")
    second = environment.root / "second"
    second.mkdir()
    put_start_file(second)
    (environment.site / "bb-second.pth").write_text(
        f"import site; site.addsitedir({str(second)!r})\n"
    )
    done = environment.run(*PROGRAM, BACKENDCFG_THREADS_COUNT="1")
    assert (done.stdout, done.stderr.count("told once")) == ("started\nprogram\n", 1)


def test_a_sitecustomize_of_the_environment_runs_after_it(environment):
    (environment.site / "sitecustomize.py").write_text("print('theirs')")
    assert environment.said(*PROGRAM, **ASKED)[0] == "started\ntheirs\nprogram\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, []),
        ("1 / 0", ["ZeroDivisionError: division by zero"]),
        ("import nowhere", ["ModuleNotFoundError: No module named 'nowhere'"]),
    ],
)
def test_a_sitecustomize_that_is_missing_or_broken_is_told_as_python_does(environment, text, shown):
    if text is not None:
        (environment.site / "sitecustomize.py").write_text(text)
    code = "import sys; print('sitecustomize' in sys.modules)"
    stdout, stderr, status = environment.said("-c", code, **ASKED)
    intro = ["Error in sitecustomize; set PYTHONVERBOSE for traceback:"]
    assert (stdout, status) == ("started\nFalse\n", 0)
    assert stderr.splitlines() == (intro + shown if shown else [])


def test_whoever_only_looks_for_sitecustomize_does_not_take_the_start_away(environment):
    (environment.site / "sitecustomize.py").write_text("print('theirs')")
    look = "import importlib.util; print(importlib.util.find_spec('sitecustomize').name)\n"
    (environment.site / "zz-look.pth").write_text(look)
    # `site` runs the `.pth` files of a virtual environment twice, the second time with it started.
    started = environment.said(*PROGRAM, **ASKED)[0].splitlines()
    assert started == ["sitecustomize", "sitecustomize", "started", "theirs", "program"]


def test_threads_that_a_start_waits_for_can_import(environment):
    """A start that resolves asks the libraries from threads, and waits for them."""
    environment.stand_in(
        """
import threading
def look():
    import colorsys
    print("looked")
thread = threading.Thread(target=look, daemon=True)
thread.start()
thread.join(20)
print("waits" if thread.is_alive() else "ended")
"""
    )
    (environment.site / "sitecustomize.py").write_text("print('theirs')")
    assert environment.said(*PROGRAM, **ASKED)[0] == "looked\nended\ntheirs\nprogram\n"


def test_it_acts_although_another_file_imported_sitecustomize_before(environment):
    (environment.site / "sitecustomize.py").write_text("print('theirs')")
    (environment.site / "aa-early.pth").write_text("import sitecustomize\n")
    assert environment.said(*PROGRAM, **ASKED)[0] == "theirs\nstarted\nprogram\n"


def test_under_run_it_starts_once(environment):
    said = environment.said(*PROGRAM, **ASKED, PYTHONPATH=START)
    assert said == ("started\nprogram\n", "", 0)


def test_interpreters_and_workers_that_the_program_starts_have_it(environment):
    code = "import subprocess as s, sys; print(s.check_output([sys.executable, '-c', 'print(2)']))"
    assert environment.said("-c", code, **ASKED)[0] == "started\nb'started\\n2\\n'\n"
    environment.stand_in("MARK = 40")
    (environment.root / "pool.py").write_text(
        "import multiprocessing as m\n"
        "def work(n):\n    import sys\n    return sys.modules['backendcfg'].MARK + n\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(work, [1, 2]))\n"
    )
    assert environment.said("pool.py", **ASKED) == ("[41, 42]\n", "", 0)


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_interpreter_that_asks_to_be_left_alone_is(environment, option):
    assert environment.said(option, *PROGRAM, **ASKED) == ("program\n", "", 0)


def test_turned_off_by_the_variable_nothing_happens(environment):
    for text in ("1", "true", "yes", "x"):
        assert environment.said(*PROGRAM, **ASKED, BACKENDCFG_DISABLE=text) == ("program\n", "", 0)
    for text in ("0", "false", "No", " off "):
        said = environment.said(*PROGRAM, **ASKED, BACKENDCFG_DISABLE=text)
        assert said == ("started\nprogram\n", "", 0)


def test_what_the_variable_means_is_the_same_once_backendcfg_is_imported(monkeypatch):
    for text, off in ("1", True), ("yes", True), ("", False), ("0", False), ("False", False):
        monkeypatch.setenv("BACKENDCFG_DISABLE", text)
        assert (environ.disabled(), startup.disabled()) == (off, off)


@pytest.mark.parametrize("name", ["PIP_BUILD_TRACKER", "_PYPROJECT_HOOKS_BUILD_BACKEND"])
def test_while_a_package_is_built_nothing_happens(environment, name):
    """CMake, Meson and setup.py run small programs to learn about Python."""
    assert environment.said(*PROGRAM, **ASKED, **{name: "x"}) == ("program\n", "", 0)


def test_after_an_uninstall_it_is_harmless(environment):
    environment.stand_in(None)
    assert environment.said(*PROGRAM, **ASKED) == ("program\n", "", 0)


def test_folders_that_an_uninstall_left_are_harmless(environment):
    environment.stand_in(None)
    (environment.root / "packages" / "backendcfg" / "__pycache__").mkdir(parents=True)
    assert environment.said(*PROGRAM, **ASKED) == ("program\n", "", 0)


OWN_ERROR = """
class Error(Exception):
    exit_code = 3
    def render(self):
        return "error[missing-library]: no MKL here\\n  state: nothing was changed"
print("partial", end="")
raise Error("no MKL here\\nsecond line")
"""


def test_a_failure_ends_the_process_when_a_profile_is_asked_for(environment):
    environment.stand_in(OWN_ERROR)
    message = "error[missing-library]: no MKL here\n  state: nothing was changed\n"
    assert environment.said(*PROGRAM, **ASKED) == ("partial", message, 3)


def test_a_failure_is_one_line_when_none_is_asked_for(environment):
    environment.stand_in(OWN_ERROR)
    said = environment.said(*PROGRAM, BACKENDCFG_THREADS_COUNT="1")
    assert said == (
        "partialprogram\n",
        (
            "warning: what is active was not applied to this process: no MKL here; "
            "`backendcfg status` says more, BACKENDCFG_DISABLE=1 starts without it\n"
        ),
        0,
    )


def test_a_bug_of_ours_ends_the_process_when_a_profile_is_asked_for(environment):
    environment.stand_in("1 / 0")
    done = environment.run(*PROGRAM, **ASKED)
    assert (done.stdout, done.returncode) == ("", 70)
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert done.stderr.endswith("error[internal]: backendcfg failed\n")


def test_a_broken_installation_is_not_taken_for_an_uninstall(environment):
    environment.stand_in("import backendcfg_part_that_is_missing")
    assert environment.run(*PROGRAM, **ASKED).returncode == 70


def test_an_interrupt_while_it_starts_ends_the_program_by_the_signal(environment):
    environment.stand_in("raise KeyboardInterrupt")
    assert environment.said(*PROGRAM, **ASKED) == ("", "", -signal.SIGINT)


@pytest.mark.parametrize(
    "words", [("-m", "pip"), ("-X", "dev", "-m", "venv"), ("-u", "pip3.11"), ("-m", "backendcfg")]
)
def test_installers_and_the_command_line_start_without_it(environment, words):
    environment.stand_in(OWN_ERROR)
    for name in ("pip", "venv"):
        (environment.root / f"{name}.py").write_text("print('installer')")
    (environment.root / "pip3.11").write_text("print('installer')")
    done = environment.run(*words, **ASKED)
    if words[-1] == "backendcfg":
        # The stand-in is then run as the program itself.
        assert (done.stdout, done.returncode) == ("partial", 1)
    else:
        assert (done.stdout, done.stderr, done.returncode) == ("installer\n", "", 0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "-m", "pip", "install", "x"], True),
        (["python", "-mpip"], True),
        (["python", "/env/bin/pip"], True),
        (["python", "/env/bin/pip3.11", "install"], True),
        (["python", "/env/lib/python3.11/site-packages/pip/__pip-runner__.py", "install"], True),
        (["python", "/env/pip/_vendor/pyproject_hooks/_in_process/_in_process.py", "x"], True),
        (["python", "-c", "# This is <pip-setuptools-caller> -- a caller that pip uses"], True),
        (["python", "-um", "ensurepip"], True),
        (["python", "-m", "ensurepip.__main__"], True),
        (["python", "-X", "dev", "-W", "error", "-m", "venv", "d"], True),
        (["python", "/env/bin/virtualenv", "d"], True),
        (["python", "/env/bin/backendcfg", "status"], True),
        (["python", "-m", "backendcfg", "status"], True),
        (["python", "-c", "import pip", "pip"], False),
        (["python", "pipeline.py"], False),
        (["python", "/srv/pip/train.py"], False),
        (["python", "/opt/virtualenv/train.py", "pip"], False),
        (["python", "-m", "pipeline"], False),
        (["python", "-"], False),
        (["python"], False),
    ],
)
def test_installers_are_told_from_programs(words, expected):
    assert startup.is_spared(words) is expected


def test_an_older_python_goes_on_with_one_line(environment):
    module = environment.site / f"{autoload.MODULE}.py"
    module.write_text(module.read_text().replace("OLDEST = (3, 11)", "OLDEST = (99, 0)"))
    said = environment.said(*PROGRAM, **ASKED)
    assert said == (
        "program\n",
        f"warning: backendcfg does not act in {environment.executable}: it needs Python 3.11\n",
        0,
    )


def test_it_is_in_the_grammar_of_older_pythons():
    import ast

    ast.parse((PACKAGE / "startup.py").read_text(), feature_version=(3, 7))


@pytest.fixture(name="real")
def _real(tmp_path):
    """An environment with the start-up file and the real backendcfg."""
    made = Environment(tmp_path)
    made.paths(*REAL)
    made.install()
    return made


SHOW = "import sys; print('backendcfg' in sys.modules); import backendcfg; a = backendcfg.active(); print(a and a.name)"


def test_the_active_profile_governs_until_it_is_off(real):
    assert real.said("-c", SHOW) == ("False\nNone\n", "", 0)
    assert real.run("-m", "backendcfg", "apply", "fast").returncode == 0
    assert real.said("-c", SHOW) == ("True\nfast\n", "", 0)
    assert real.run("-m", "backendcfg", "off").returncode == 0
    assert real.said("-c", SHOW) == ("False\nNone\n", "", 0)


def test_another_project_s_profile_is_nothing_here(real):
    project = real.root / "project"
    project.mkdir()
    (project / "backendcfg.toml").write_text("schema = 1\n")
    into = f"import os; os.chdir({str(project)!r})\n"
    code = (
        into + "import sys; from backendcfg.cli.main import main; sys.exit(main(['apply', 'fast']))"
    )
    assert real.run("-c", code).returncode == 0
    assert real.said("-c", SHOW) == ("False\nNone\n", "", 0)
    start = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    assert real.said("-c", into + start, SHOW) == ("True\nfast\n", "", 0)


def test_an_active_profile_that_cannot_be_applied_is_one_line(real):
    (real.root / "backendcfg.toml").write_text("schema = 1\n")
    (real.root / "profiles").mkdir()
    mine = real.root / "profiles" / "mine.toml"
    mine.write_text("threads.count = 1\n")
    assert real.run("-m", "backendcfg", "apply", "mine").returncode == 0
    mine.write_text("threads.cuont = 1\n")
    done = real.run(*PROGRAM)
    assert (done.stdout, done.returncode) == ("program\n", 0)
    assert done.stderr.startswith(
        "warning: what is active was not applied to this process: "
        "unknown key `cuont` in table `[threads]` (profiles/mine.toml:1:9)"
    )
    assert done.stderr.count("\n") == 1
    assert real.said(*PROGRAM, BACKENDCFG_DISABLE="1") == ("program\n", "", 0)


def test_a_wrong_name_in_the_environment_never_falls_back(real):
    done = real.run(*PROGRAM, BACKENDCFG_PROFILE="reproducable")
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.startswith(
        "error[unknown-profile]: environment variable BACKENDCFG_PROFILE names profile"
    )


def test_numbers_change_in_a_program_that_does_not_know_backendcfg(real):
    code = (
        "import numpy, threadpoolctl as t; print({i['num_threads'] for i in t.threadpool_info()})"
    )
    said = real.said("-c", code, BACKENDCFG_PROFILE="fast", BACKENDCFG_THREADS_COUNT="1")
    assert said == ("{1}\n", "", 0)


PATHS = st.sampled_from(["", "a", "a/b", "a/b/c", "ab", "b\tc", "b\\c"])
ROWS = st.dictionaries(PATHS | st.just(startup.USER), st.integers(0, 2), max_size=4)


@given(rows=ROWS, here=PATHS, damage=st.sampled_from(["", "", "", "header", "row", "end"]))
@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_it_sees_what_is_active_as_the_store_does(tmp_path, monkeypatch, rows, here, damage):
    """Where the index is damaged or odd it may say yes: the store then says what is wrong."""
    monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "work" / here
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    found = {}
    for number, (path, generation) in enumerate(rows.items()):
        name = path if path == startup.USER else startup.escaped(str(tmp_path / "work" / path))
        found[name] = store.Row(generation, f"key{number}", name, generation, 0)
    text = store.index_text(found)
    if damage == "header":
        text = text.replace(b"backendcfg 1", b"backendcfg 9")
    elif damage == "row" and found:
        text = text.replace(b"\t", b" ", 1)
    elif damage == "end":
        text = text[:-1]
    file = Path(generations.directory()) / "active"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text)
    loaded = []
    monkeypatch.setattr(
        generations, "_active", lambda state, scope: loaded.append(scope) or found.get(scope)
    )
    try:
        active = generations.active(str(folder)) or generations.current(None)
        expected = active is not None and active.generation > 0
    except backendcfg.errors.StateUnwritableError:
        expected = True
    assert startup.may_have_profile(committed=True) == (expected, "")


def test_every_variable_of_ours_is_known_to_it_or_makes_something_active():
    names = {variable.name for variable in environ.VARIABLES}
    assert names - set(startup.SILENT) == {
        environ.PROFILE.name,
        environ.INHERIT.name,
        environ.CAPTURE.name,
        # What it asks for needs backendcfg in every process, under a profile or not.
        environ.RANKS.name,
    }
    assert names >= set(startup.SILENT)


PICKS = 'profile = "fast"\n'


def test_a_committed_file_is_obeyed_once_its_checkout_is_trusted(real):
    (real.root / "backendcfg.toml").write_text(PICKS)
    assert real.said("-c", SHOW) == ("False\nfast\n", "", 0)
    assert real.run("-m", "backendcfg", "trust").returncode == 0
    assert real.said("-c", SHOW) == ("True\nfast\n", "", 0)
    assert real.run("-m", "backendcfg", "trust", "--revoke").returncode == 0
    assert real.said("-c", SHOW) == ("False\nfast\n", "", 0)


def test_a_variable_of_a_flag_does_not_make_an_untrusted_file_count(real):
    (real.root / "backendcfg.toml").write_text(PICKS)
    out, err, code = real.said("-c", SHOW, BACKENDCFG_JAX_ENABLE_X64="true")
    assert (out, code) == ("False\nfast\n", 0)
    assert err.startswith("note: this Python starts without a profile, because you do not trust ")
    assert real.said("-c", SHOW, BACKENDCFG_PROFILE="tf32-off") == ("True\ntf32-off\n", "", 0)
    start = "import backendcfg; backendcfg.apply('debug'); import subprocess, sys\n"
    start += "subprocess.run([sys.executable, '-c', sys.argv[1]])"
    assert real.run("-c", start, SHOW).stdout == "True\ndebug\n", "what a parent applied counts"


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", ["off", "undo"])
def test_a_committed_file_is_not_obeyed_any_more_where_nothing_applied_is_active(real, verb):
    (real.root / "backendcfg.toml").write_text(PICKS)
    assert real.run("-m", "backendcfg", "apply", "tf32-off").returncode == 0
    assert real.said("-c", SHOW) == ("True\ntf32-off\n", "", 0)
    assert real.run("-m", "backendcfg", verb).returncode == 0
    assert real.said("-c", SHOW) == ("False\nfast\n", "", 0)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("again", [False, True])
def test_trust_outlasts_what_is_applied_and_turned_off(real, again):
    (real.root / "backendcfg.toml").write_text(PICKS)
    for words in (["trust"], ["apply", "tf32-off"], ["off"], *[["trust", "--revoke"]] * again):
        assert real.run("-m", "backendcfg", *words).returncode == 0
    assert real.said("-c", SHOW) == (f"{not again}\nfast\n", "", 0)


def test_a_variable_that_is_wrong_is_one_line_whoever_finds_it(real):
    assert real.run("-m", "backendcfg", "apply", "fast").returncode == 0
    out, err, code = real.said("-c", SHOW, BACKENDCFG_THREADS_COUNT="x")
    assert (out, code) == ("True\nNone\n", 0)
    assert err.startswith("warning: what is active was not applied to this process: environment")
    assert err.count("\n") == 1


def test_where_a_file_that_nobody_trusted_stands_in_the_way_one_line_says_so(real):
    """A program that imports backendcfg needs no trust, and is told why it has no profile."""
    (real.root / "project").mkdir()
    file = real.root / "project" / "backendcfg.toml"
    file.write_text(PICKS)
    assert real.run("-m", "backendcfg", "apply", "tf32-off", "--user").returncode == 0
    assert real.said("-c", SHOW) == ("True\ntf32-off\n", "", 0)
    start = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], cwd='project')"
    said = real.said("-I", "-c", start, "print('program')")
    note = (
        "note: this Python starts without a profile, because you do not trust "
        f"{file}; see `backendcfg status`\n"
    )
    assert said == ("program\n", note, 0)
    file.write_text('schema = 1\nprofile = "nowhere"\n')
    said = real.said("-I", "-c", start, "import backendcfg; print(backendcfg.active())")
    warning = (
        "warning: what is active was not applied to this process: backendcfg.toml picks profile "
        "`nowhere`, which does not exist (backendcfg.toml:2:11); `backendcfg status` says more, "
        "BACKENDCFG_DISABLE=1 starts without it\n"
    )
    assert said == ("None\n", note + warning, 0)


@pytest.mark.slow
def test_what_is_applied_for_the_environment_governs_every_user_of_it(real, monkeypatch):
    assert real.run("-m", "backendcfg", "apply", "fast", "--environment").returncode == 0
    other = {
        f"BACKENDCFG_{name}_DIR": str(real.root / "other" / name)
        for name in ("STATE", "CONFIG", "CACHE")
    }
    assert real.said("-c", SHOW, **other) == ("True\nfast\n", "", 0)
    (real.root / "other" / "CONFIG").mkdir(parents=True)
    (real.root / "other" / "CONFIG" / "config.toml").write_text('profile = "tf32-off"\n')
    assert real.said("-c", SHOW, **other) == ("True\ntf32-off\n", "", 0)
    assert real.run("-m", "backendcfg", "off", "--environment").returncode == 0
    assert real.said("-c", SHOW) == ("False\nNone\n", "", 0)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("words", [(), ("--user",)])
def test_off_is_kept_until_on(real, words):
    assert real.run("-m", "backendcfg", "autoload", "off", *words).returncode == 0
    assert (
        real.said("-c", "import sys; print('backendcfg' in sys.modules)", **ASKED)[0] == "False\n"
    )
    real.install()  # as an upgrade does
    assert (
        real.said("-c", "import sys; print('backendcfg' in sys.modules)", **ASKED)[0] == "False\n"
    )
    assert real.run("-m", "backendcfg", "autoload", "on").returncode == 0
    assert real.said("-c", "import sys; print('backendcfg' in sys.modules)", **ASKED)[0] == "True\n"


@pytest.mark.parametrize("kind", ["pipe", "directory", "huge", "link", "binary"])
def test_files_that_are_no_files_hold_nobody_up(environment, kind, monkeypatch):
    state = Path(startup.state_directory())
    state.mkdir(parents=True, exist_ok=True)
    for path in (
        state / "active",
        environment.root / "pyproject.toml",
        environment.root / "config.toml",
    ):
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        elif kind == "link":
            path.symlink_to(path)
        else:
            path.write_bytes(b"\xff\xfe\x00backendcfg profile")
    said = environment.said(*PROGRAM, BACKENDCFG_CONFIG_DIR=str(environment.root))
    assert said[0::2] == ("program\n" if kind != "binary" else "started\nprogram\n", 0)


def test_the_search_ends_where_a_folder_belongs_to_somebody_else(tmp_path, monkeypatch):
    (tmp_path / "theirs" / "mine").mkdir(parents=True)
    (tmp_path / "theirs" / "backendcfg.toml").write_text(PICKS)
    inside = str(tmp_path / "theirs" / "mine")
    assert startup.project(inside)[0] == str(tmp_path / "theirs")
    real = os.stat

    def stat(path, **options):
        found = real(path, **options)
        if str(path) != str(tmp_path / "theirs"):
            return found
        return os.stat_result((*found[:4], 54321, *found[5:10]))

    monkeypatch.setattr(os, "stat", stat)
    assert startup.project(inside) == ("", "")


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("[tool.backendcfg]\n", True),
        ('[tool."backendcfg"]\n', True),
        ("[ tool . backendcfg.threads ]\n", True),
        ("[tool]\nbackendcfg.profile = 'x'\n", True),
        ("tool.backendcfg.profile = 'x'\n", True),
        ("tool = {backendcfg = {}}\n", True),
        ('[project]\ndependencies = [\n  "backendcfg>=0.1",\n]\n', False),
        ("[tool.other]\nbackendcfg = true\n", False),
        ("[project]\nname = 'backendcfg'\n", False),
        ("[tool.backendcfg-other]\n", False),
    ],
)
def test_a_pyproject_makes_a_project_where_it_has_our_table(text, is_ours, tmp_path):
    (tmp_path / "pyproject.toml").write_text(text)
    assert bool(startup.marker(str(tmp_path))) is is_ours


@pytest.mark.parametrize(
    ("mode", "folder_of", "user", "is_ours"),
    [
        (0o755, 0, 1000, True),
        (0o775, 1000, 1000, True),  # who lets a group write in a checkout shares it with the group
        (0o2775, 0, 1000, False),
        (0o775, 0, 0, False),
        (0o777, 1000, 1000, False),
        (0o1777, 0, 1000, False),
    ],
)
def test_a_file_of_another_user_makes_no_project_where_others_may_write(
    tmp_path, monkeypatch, mode, folder_of, user, is_ours
):
    file, ask = tmp_path / "backendcfg.toml", os.stat
    file.write_text('profile = "fast"\n')
    tmp_path.chmod(mode)
    owners = {str(tmp_path): folder_of, str(file): user}

    def told(path, **options):
        found = ask(path, **options)
        return os.stat_result((*found[:4], owners.get(path, found[4]), *found[5:10]))

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "stat", told)
    monkeypatch.setattr(os, "lstat", lambda path: told(path, follow_symlinks=False))
    assert startup.marker(str(tmp_path)) == str(file)
    owners[str(file)] = 54321
    assert startup.marker(str(tmp_path)) == (str(file) if is_ours else "")


def test_where_nothing_is_in_force_a_start_reads_no_file_of_a_project(tmp_path, monkeypatch):
    # Whatever is in it, and however long that takes.
    (tmp_path / "pyproject.toml").write_text("backendcfg\n" + "[\n" * 1_000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(startup, "has_table", lambda content: pytest.fail("it was read"))
    assert startup.may_have_profile(committed=False) == (False, "")


def test_what_a_start_says_commands_no_terminal(capsys):
    startup.say("note: \x1b]0;title\x07 \u202e \udcff, and a folder named \u00e9\nnext\n")
    assert capsys.readouterr().err == (
        "note: \\x1b]0;title\\x07 \\u202e \\udcff, and a folder named \u00e9\nnext\n"
    )


ANEW = {"BACKENDCFG_PROFILE": "reproducible", "PYTHONDONTWRITEBYTECODE": "1"}
FOUND = """
import os, sys
print(sys.flags.hash_randomization, os.environ["PYTHONHASHSEED"], sys.argv[1:],
      [n for n in os.environ if n.startswith("BACKENDCFG_STARTED")])
"""


@pytest.mark.sweep(2)
@pytest.mark.parametrize("way", ["-c", "-m", "script", "standard input", "pipe"])
def test_what_must_be_there_before_python_is_had_by_starting_it_anew(real, way):
    (real.root / "found.py").write_text(FOUND)
    shell = {
        "-c": '"$PYTHON" -X utf8 -c "$FOUND" a "b c"',
        "-m": '"$PYTHON" -W error -m found a "b c"',
        "script": '"$PYTHON" found.py a "b c"',
        "standard input": '"$PYTHON" - a "b c" < found.py',
        "pipe": 'cat found.py | "$PYTHON" - a "b c"',
    }[way]
    start = (
        "import os, subprocess, sys; sys.exit(subprocess.run(sys.argv[1], shell=True).returncode)"
    )
    variables = {**ANEW, "PYTHON": real.executable, "FOUND": FOUND}
    said = real.said("-I", "-c", start, shell, **variables)
    assert said == ("0 0 ['a', 'b c'] []\n", "", 0)


@pytest.mark.slow
def test_what_a_program_is_sent_is_there_after_it_was_started_anew(real):
    start = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', sys.argv[1]],"
        " input=b'sent', capture_output=True).stdout)"
    )
    code = "import sys; print(sys.flags.hash_randomization, sys.stdin.read())"
    assert real.said("-I", "-c", start, code, **ANEW)[0] == "b'0 sent\\n'\n"


@pytest.mark.exhaustive
def test_workers_find_what_their_parent_was_started_anew_with(real):
    (real.root / "pool.py").write_text(
        "import multiprocessing as m, sys\n"
        "def work(n):\n    return sys.flags.hash_randomization\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(work, [1]))\n"
    )
    assert real.said("pool.py", **ANEW) == ("[0]\n", "", 0)


def test_what_it_was_started_anew_with_leaves_the_stored_plan_valid(real):
    assert real.run("-m", "backendcfg", "apply", "reproducible").returncode == 0
    code = (
        "import sys; import backendcfg;"
        "print(sys.flags.hash_randomization, backendcfg.active().name,"
        " 'backendcfg.resolve.plan' in sys.modules)"
    )
    nowhere = os.path.join(os.devnull, "cache")  # or a plan that is made anew would be kept
    found = real.said("-c", code, BACKENDCFG_CACHE_DIR=nowhere)
    assert found == ("0 reproducible False\n", "", 0)


def test_without_a_home_directory_no_folder_of_the_program_s_is_the_user_s(real):
    homes = ({"HOME": "home"}, {"XDG_CONFIG_HOME": "home/.config", "HOME": "home"}, {"HOME": ""})
    for variables in homes:
        settings = real.root / "home" / ".config" / "backendcfg"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "config.toml").write_text('profile = "fast"\nenvironment.MINE = "yes"\n')
        unset = dict.fromkeys(("CONFIG", "STATE", "CACHE"), "")
        variables |= {f"BACKENDCFG_{kind}_DIR": text for kind, text in unset.items()}
        code = "import os, sys; print('backendcfg' in sys.modules, os.environ.get('MINE'))"
        assert real.said("-c", code, **variables) == ("False None\n", "", 0)
        assert real.said("-c", code, BACKENDCFG_PROFILE="fast", **variables)[0] == "True None\n"
    assert sorted(path.name for path in (real.root / "home").iterdir()) == [".config"]


def test_an_empty_home_is_none(monkeypatch):
    monkeypatch.setenv("HOME", "")
    for name in ("BACKENDCFG_STATE_DIR", "BACKENDCFG_CONFIG_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert (startup.state_directory(), startup.user_directory()) == ("", startup.NOWHERE)


def test_the_user_s_settings_count_only_where_nobody_else_may_write_them(real, tmp_path):
    settings = Path(os.environ["BACKENDCFG_CONFIG_DIR"], "config.toml")
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('profile = "fast"\nenvironment.MINE = "yes"\n')
    code = "import os; print(os.environ.get('MINE'))"
    assert real.said("-c", code) == ("yes\n", "", 0)
    for path in (settings, settings.parent):
        mode = path.stat().st_mode
        path.chmod(0o777)
        os.utime(settings)  # as somebody's change would
        output, said, status = real.said("-c", code)
        assert (output, status) == ("None\n", 0)
        assert said == (
            f"warning: what is active was not applied to this process: cannot use {settings}:"
            " somebody else may write it; `backendcfg status` says more, BACKENDCFG_DISABLE=1"
            " starts without it\n"
        )
        path.chmod(mode)


def test_a_note_is_one_line_whatever_a_folder_is_called(real):
    assert real.run("-m", "backendcfg", "apply", "tf32-off", "--user").returncode == 0
    real.root /= "two\nlines"
    real.root.mkdir()
    (real.root / "backendcfg.toml").write_text(PICKS)
    out, err, code = real.said("-c", "print('program')")
    assert (out, code) == ("program\n", 0)
    assert err.endswith("two\\nlines/backendcfg.toml; see `backendcfg status`\n")
    assert err.count("\n") == 1


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""What has a Python take names of files for ASCII, and bytes beyond it for surrogates."""


@pytest.mark.slow
def test_a_project_is_the_same_in_every_locale(real):
    real.root /= "Kö"
    real.root.mkdir()
    (real.root / "backendcfg.toml").write_text("schema = 1\n")
    for name, variables in (("tf32-off", {}), ("fast", ASCII)):
        assert real.run("-m", "backendcfg", "apply", name, **variables).returncode == 0
        for locale in ({}, ASCII):
            assert real.said("-c", SHOW, **locale) == (f"True\n{name}\n", "", 0)
            found = real.run("-m", "backendcfg", "status", "--json", **locale).stdout
            assert json.loads(found)["stale"] == ""
    assert len(real.run("-m", "backendcfg", "history").stdout.splitlines()) == 2
    assert real.run("-m", "backendcfg", "undo", **ASCII).returncode == 0
    assert real.said("-c", SHOW) == ("True\ntf32-off\n", "", 0)


@pytest.mark.parametrize("who", [{}, ASCII], ids=["UTF-8", "ASCII"])
def test_what_is_trusted_is_so_in_every_locale(real, who):
    real.root /= "Kö"
    real.root.mkdir()
    (real.root / "backendcfg.toml").write_text('environment.MINE = "yes"\n' + PICKS)
    assert real.run("-m", "backendcfg", "trust", **who).returncode == 0
    code = "import os; print(os.environ.get('MINE'))"
    for locale in ({}, ASCII):
        assert real.said("-c", code, **locale) == ("yes\n", "", 0)


@pytest.mark.slow
def test_what_is_active_where_others_may_write_does_not_act_and_one_line_says_so(real):
    for words in (["apply", "fast", "--user"], ["apply", "fast", "--environment"]):
        assert real.run("-m", "backendcfg", *words).returncode == 0
    kept = [Path(startup.state_directory()), real.root / "env" / "etc" / "backendcfg"]
    notes = []
    for folder in kept:
        folder.chmod(0o777)
        notes.append(
            f"note: {folder}/active does not count: somebody else may write it; see"
            " `backendcfg status`\n"
        )
        others = "True\nfast\n" if len(notes) == 1 else "False\nNone\n"
        assert real.said("-c", SHOW) == (others, "".join(notes), 0)
    assert real.said("-c", SHOW, BACKENDCFG_DISABLE="1") == ("False\nNone\n", "", 0)
    assert real.said("-c", SHOW, BACKENDCFG_PROFILE="tf32-off") == ("True\ntf32-off\n", "", 0)
    (real.root / "backendcfg.toml").write_text(PICKS)
    settings = Path(os.environ["BACKENDCFG_CONFIG_DIR"], "config.toml")
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(PICKS)
    why = f"this Python starts without a profile, because you do not trust {real.root}/backendcfg.toml"
    notes.append(f"note: {why}; see `backendcfg status`\n")
    assert real.said("-c", "print('program')") == ("program\n", "".join(notes), 0)
    settings.unlink()
    (real.root / "backendcfg.toml").unlink()
    for folder in kept:
        folder.chmod(0o700)
    assert real.said("-c", SHOW) == ("True\nfast\n", "", 0)


@pytest.mark.exhaustive
def test_a_preload_does_not_reach_programs_that_the_program_starts(real):
    (real.root / "backendcfg.toml").write_text(
        "[environment]\nLD_PRELOAD = 'libm.so.6'\nMINE = 'yes'\n"
    )
    assert real.run("-m", "backendcfg", "trust").returncode == 0
    assert real.run("-m", "backendcfg", "apply", "fast").returncode == 0
    code = (
        "import os; print(os.environ.get('LD_PRELOAD'), os.environ['MINE'],"
        " b'LD_PRELOAD=libm' in open('/proc/self/environ', 'rb').read())"
    )
    assert real.said("-c", code) == ("None yes True\n", "", 0)


def test_a_worker_whose_seed_of_hashes_is_set_is_told_by_whom(real):
    """Dask gives its workers 6640, also where the program was started by `backendcfg run`."""
    worker = ("-c", "from multiprocessing import queues; print('worker')")
    out, err, code = real.said(*worker, PYTHONHASHSEED="6640", **ANEW)
    assert (out, code) == ("worker\n", 0)
    assert err == (
        "note: PYTHONHASHSEED of profile `reproducible` must be set before Python starts, and"
        " this Python is a worker of another; what started it has set another\n"
    )


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "setup", ["sys.settrace(lambda *_: None)", "_thread.start_new_thread(time.sleep, (60,))"]
)
def test_where_it_is_not_safe_one_line_says_what_is_pending(real, setup):
    (real.site / "aa-early.pth").write_text(f"import sys, time, _thread; {setup}\n")
    done = real.run("-c", "import os; print(os.environ.get('PYTHONHASHSEED'))", **ANEW)
    assert (done.stdout, done.returncode) == ("None\n", 0)
    why = (
        "a debugger or a profiler watches this Python"
        if "trace" in setup
        else ("this Python has started threads")
    )
    assert done.stderr == (
        f"note: PYTHONHASHSEED of profile `reproducible` must be set before Python starts, and {why};"
        " `backendcfg run -- COMMAND` sets it\n"
    )
