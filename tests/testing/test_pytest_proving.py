"""`--backendcfg-prove`: marked tests in several processes, and what is told of runs that differ."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from backendcfg.probe.limits import read_limits

TWICE = "--backendcfg-prove=2"
VARIED = (
    "addresses, the time of day, the length of the environment,"
    f" load on {read_limits().usable} processors"
)
SEED = """
import os
import backendcfg
import pytest
seed = int(os.environ.get("PYTHONHASHSEED", -1))  # 0 in the first run, and 1 in the second
pytestmark = pytest.mark.backendcfg("tf32-off")
"""


def words(output):
    """What became of each test: `{"test_one": "PASSED"}`."""
    return {
        name: word
        for word, name in re.findall(
            r"^([A-Z]+) (?:\[1\] )?test_it\.py::(.+?)(?: - .*)?$", output, re.MULTILINE
        )
    }


def message(output, test):
    """The whole of what is told of a test that failed, or that passed and printed something."""
    found = re.search(
        rf"^_+ {re.escape(test)} _+\n(.*?)(?=^_{{3,}} |^={{3,}} )", output, re.MULTILINE | re.DOTALL
    )
    return found.group(1) if found else output


def test_a_test_that_records_random_numbers_fails(run):
    output = run(
        """
        import random
        import backendcfg
        import pytest
        @pytest.mark.backendcfg("tf32-off")
        def test_draws():
            backendcfg.record("drawn", random.random())
        """,
        TWICE,
        code=1,
    )
    assert "backendcfg: each marked test is proven by 2 runs\n" in output
    assert re.sub(r"0\.\d+|\d\.\de-\d+", "N", message(output, "test_draws")) == (
        "1 of 2 runs under tf32-off differ from the first\n"
        "  run 2 (with load): record `drawn` has N, not N, apart by N at most\n"
        f"  varied: {VARIED}, the seed of hashes\n"
        "  help: where PyTorch computes it, `backendcfg prove tf32-off --why -- python -m pytest -s"
        " test_it.py::test_draws` names the operation\n"
    )


@pytest.mark.slow
def test_what_differs_is_told_of_three_runs_and_the_others_are_counted(run):
    output = run(
        SEED
        + """
def test_prints():
    print("a\\nseed", seed)
    if seed == 3:
        print("more")
""",
        "--backendcfg-prove=5",
        code=1,
    )
    assert message(output, "test_prints") == (
        "4 of 5 runs under tf32-off differ from the first\n"
        "  run 2 (with load): line 2 has 1, not 0\n"
        "  run 2 (with load): 1 of 1 numbers differ, apart by 1.0e+00 at most\n"
        "  run 3: line 2 has 2, not 0\n"
        "  run 3: 1 of 1 numbers differ, apart by 1.0e+00 at most\n"
        '  run 4 (with load): another text from line 3 on: "more", not nothing\n'
        "  and 1 more run\n"
        f"  varied: {VARIED}, the seed of hashes\n"
        "  help: where PyTorch computes it, `backendcfg prove tf32-off --why -- python -m pytest -s"
        " test_it.py::test_prints` names the operation\n"
        f"{' Captured stdout call ':-^80}\n"
        "a\nseed 0\n"
    )


ALIKE = """
import os
import backendcfg
import pytest

def note(what):
    with open("noted", "a") as file:
        file.write(f"{os.getpid()} {what}\\n")

@pytest.fixture(scope="session")
def wide():
    note("fixture")
    print("set up")
    return 1.5

class TestIt:
    @pytest.mark.backendcfg("tf32-off")
    @pytest.mark.parametrize("text", ["x y", "é[1]", "a::b]", "$(id)", "", "\\x00"])
    def test_method(self, wide, text, tmp_path):
        note("test")
        print(text.encode(), tmp_path.name)
        backendcfg.record("wide", [wide, 2.0])
        assert backendcfg.active().name == "tf32-off"
        assert os.environ["BACKENDCFG_PROFILE"] == "tf32-off"

def test_unmarked():
    note("unmarked")
    assert backendcfg.active() is None
"""


@pytest.mark.slow
def test_tests_whose_runs_are_alike_pass_and_run_in_processes_of_their_own(run, tmp_path):
    output = run(ALIKE, TWICE, code=0)
    ids = ["x y", r"\xe9[1]", "a::b]", "$(id)", "", r"\x00"]
    tests = {f"TestIt::test_method[{one}]": "PASSED" for one in ids} | {"test_unmarked": "PASSED"}
    assert words(output) == tests
    noted = [line.split() for line in (tmp_path / "noted").read_text().splitlines()]
    assert [what for _, what in noted] == ["fixture", "test"] * 12 + ["unmarked"]
    assert len({process for process, _ in noted}) == 13
    assert message(output, "TestIt.test_method[x y]") == (
        f"{' Captured stdout setup ':-^80}\n"
        "set up\n"
        f"{' Captured stdout call ':-^80}\n"
        "b'x y' test_method_x_y_0\n"
        f"{' backendcfg ':-^80}\n"
        "2 runs under tf32-off printed the same text and 0 numbers, and recorded the same 1 value\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_of_xdist_prove_too(run, tmp_path):
    output = run(ALIKE, TWICE, "-n", "2", "-k", r"x00 or unmarked", code=0)
    assert set(words(output).values()) == {"PASSED"}
    assert len(words(output)) == 2
    noted = (tmp_path / "noted").read_text().split()
    assert sorted(noted[1::2]) == ["fixture"] * 2 + ["test"] * 2 + ["unmarked"]


@pytest.mark.slow
def test_a_run_in_which_the_test_fails_shows_its_own_failure(run):
    output = run(
        SEED
        + """
def test_second():
    print("before")
    assert seed == 0
""",
        TWICE,
        code=1,
    )
    assert message(output, "test_second") == (
        "\n"
        "    def test_second():\n"
        '        print("before")\n'
        ">       assert seed == 0\n"
        "E       assert 1 == 0\n"
        "\n"
        "test_it.py:10: AssertionError\n"
        f"{' Captured stdout call ':-^80}\n"
        "before\n"
        f"{' backendcfg ':-^80}\n"
        "it was run 2 of 2 under tf32-off (with load)\n"
    )
    assert "FAILED test_it.py::test_second - assert 1 == 0\n" in output


@pytest.mark.slow
def test_what_fails_around_a_test_is_shown_too(run):
    output = run(
        """
        import pytest
        pytestmark = pytest.mark.backendcfg("tf32-off")
        @pytest.fixture
        def breaks():
            yield
            raise KeyError("after")
        def test_it(breaks):
            raise ValueError("in it")
        """,
        TWICE,
        code=1,
    )
    found = message(output, "test_it")
    assert "E       ValueError: in it\n" in found
    assert f"{' backendcfg ':-^80}\nits teardown failed, too\n" in found
    assert "E       KeyError: 'after'\n" in found
    assert found.endswith(f"{' backendcfg ':-^80}\nit was run 1 of 2 under tf32-off\n")


@pytest.mark.slow
def test_skipped_tests_stay_skipped_and_are_run_once(run, tmp_path):
    output = run(
        SEED
        + """
def test_skips():
    open("noted", "a").write("x")
    pytest.skip("not here")

@pytest.mark.skipif(True, reason="by mark")
def test_by_mark():
    pass

def test_skips_later():
    if seed:
        pytest.skip("later")
""",
        TWICE,
        code=1,
    )
    assert "SKIPPED [1] test_it.py:10: not here\n" in output
    assert "SKIPPED [1] test_it.py:12: by mark\n" in output
    assert (tmp_path / "noted").read_text() == "x"
    assert message(output, "test_skips_later") == (
        "the test passed in the first run, and not in run 2 of 2 under tf32-off (with load)\n"
        "  note: Skipped: later\n"
    )


@pytest.mark.slow
def test_an_expected_failure_may_be_of_the_test_or_of_its_proof(run):
    output = run(
        SEED
        + """
@pytest.mark.xfail(strict=True)
def test_fails():
    assert 0

@pytest.mark.xfail(strict=True)
def test_differs():
    backendcfg.record("seed", seed)

@pytest.mark.xfail(strict=True)
def test_neither():
    pass

@pytest.mark.xfail(raises=ValueError)
def test_fails_otherwise():
    raise KeyError
""",
        TWICE,
        code=1,
    )
    assert words(output) == {
        "test_fails": "XFAIL",
        "test_differs": "XFAIL",
        "test_neither": "FAILED",
        "test_fails_otherwise": "FAILED",
    }
    assert "[XPASS(strict)]" in message(output, "test_neither")


@pytest.mark.slow
def test_a_run_that_ends_without_a_word_and_one_that_finds_no_test_are_told(run):
    output = run(
        SEED
        + """
def test_ends():
    os._exit(3 * seed) if seed else print("first")

def test_ends_well():
    os._exit(0)

@pytest.mark.parametrize("one", [seed])
def test_named(one):
    pass
""",
        TWICE,
        code=1,
    )
    failed = (
        "error[command-failed]: the command exited with {} under tf32-off\n"
        "{}"
        "  state: there is no result, and nothing was stored\n"
        "  help: run it alone until it exits with 0; it reads nothing from standard input here\n"
        f"{' Captured stdout call ':-^80}\nfirst\n"
        f"{' backendcfg ':-^80}\n"
        "it was run {} of 2 under tf32-off{}\n"
    )
    assert message(output, "test_ends") == failed.format(3, "", 2, " (with load)")
    note = (
        "  note: ERROR: this run finds no test `test_named[-1]`: its name differs from run to run, or"
        " an option of another plugin makes it\n"
    )
    assert message(output, "test_named[-1]") == failed.replace(
        f"{' Captured stdout call ':-^80}\nfirst\n", ""
    ).format(4, note, 1, "")
    assert message(output, "test_ends_well") == (
        "a run under tf32-off exited with 0 before the test ended, as by `os._exit(0)`\n"
    )


@pytest.mark.sweep(2)
@pytest.mark.parametrize("runs", ["1", "0", "-3", "ten", "2.0"])
def test_fewer_than_two_runs_are_refused(run, runs):
    error = (
        f"ERROR: error[usage]: `--backendcfg-prove` needs a number of runs, 2 or more, not `{runs}`\n"
        "  state: no test was run\n"
        "  help: write `--backendcfg-prove=10`, or `backendcfg_prove = 10` as a setting\n\n"
    )
    assert run("", f"--backendcfg-prove={runs}", code=4) == error
    assert run("", "-o", f"backendcfg_prove={runs}", code=4) == error


def test_an_empty_option_turns_the_setting_off(run):
    output = run("def test_it(): pass", "-o", "backendcfg_prove=2", "--backendcfg-prove=", code=0)
    assert "proven" not in output


def test_nothing_is_proven_where_backendcfg_is_turned_off(run):
    assert run("", TWICE, code=4, BACKENDCFG_DISABLE="1") == (
        "ERROR: error[usage]: backendcfg is turned off by BACKENDCFG_DISABLE, so no profile would act\n"
        "  state: nothing was changed\n"
        "  help: run `unset BACKENDCFG_DISABLE`\n\n"
    )


def test_markers_that_name_no_profile_are_told(run):
    output = run(
        """
        import pytest
        @pytest.mark.backendcfg
        def test_bare(): pass
        @pytest.mark.backendcfg("nobody")
        def test_unknown(): pass
        """,
        TWICE,
        code=1,
    )
    assert message(output, "test_bare") == (
        'write the marker as `@pytest.mark.backendcfg("profile")`\n'
    )
    assert message(output, "test_unknown").startswith(
        "error[unknown-profile]: profile `nobody` does not exist\n"
    )


@pytest.mark.slow
def test_runs_have_the_options_that_say_how_tests_run_and_no_others(run, tmp_path):
    """The setting proves, the runs do not, and what reports or selects is for the outer pytest."""
    (tmp_path / "ini").mkdir()
    settings = "addopts = --junitxml=out.xml -x --color=yes --device=tpu\nbackendcfg_prove = 3\n"
    (tmp_path / "ini" / "mine.ini").write_text(f"[pytest]\n{settings}mine = 7\n")
    (tmp_path / "extra.py").write_text("def pytest_addoption(parser): parser.addini('mine', '')\n")
    (tmp_path / "conftest.py").write_text(
        "import pathlib\n"
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--device', type=pathlib.Path)\n"
        "def pytest_configure(config):\n"
        "    config.seen = config.option.device\n"
    )
    output = run(
        """
        import pathlib, warnings
        import pytest
        @pytest.mark.backendcfg("tf32-off")
        def test_it(pytestconfig):
            open("noted", "a").write("x")
            assert pytestconfig.seen == pathlib.Path("tpu")
            assert pytestconfig.getini("mine") == "8"
            assert pytestconfig.inipath.name == "mine.ini"
            assert pytestconfig.rootpath == pathlib.Path().absolute()
            assert pytestconfig.option.importmode == "importlib"
            assert pytestconfig.option.verbose == 1
            assert pytestconfig.option.xmlpath is None
            assert not pytestconfig.pluginmanager.has_plugin("backendcfg-prover")
            with pytest.raises(FutureWarning):
                warnings.warn("an error here", FutureWarning)
        """,
        *(
            "-c",
            "ini/mine.ini",
            "--rootdir=.",
            "--confcutdir=.",
            "--import-mode=importlib",
            "-p",
            "extra",
            "-v",
        ),
        *("-o", "mine=8", "-W", "error::FutureWarning"),
        code=0,
        PYTEST_ADDOPTS="--maxfail=3",
        PYTHONPATH=str(tmp_path),
    )
    assert "backendcfg: each marked test is proven by 3 runs\n" in output
    assert (tmp_path / "noted").read_text() == "xxx"
    assert 'tests="1"' in (tmp_path / "out.xml").read_text()


@pytest.mark.slow
def test_an_option_that_no_other_process_can_have_is_told(run, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--device')\n"
        "def pytest_configure(config):\n    config.option.device = lambda: None\n"
    )
    output = run(SEED + "def test_it(): pass\n", TWICE, code=1)
    found = message(output, "test_it").splitlines()
    start = "error[invalid-argument]: an option that a conftest.py declares has a value for this process only: "
    assert found[0].startswith(start)
    assert found[1:] == [
        "  state: the test was not run",
        "  help: have the option's `type` give text, numbers, or what `pickle` takes",
    ]


@pytest.mark.slow
def test_folders_with_brackets_and_tests_of_unittest_are_proven(run, tmp_path):
    folder = tmp_path / "a[b]"
    folder.mkdir()
    (folder / "test_other.py").write_text(
        "import unittest\nimport pytest\n"
        "class TestIt(unittest.TestCase):\n"
        "    @pytest.mark.backendcfg('tf32-off')\n"
        "    def test_method(self):\n"
        "        with open('noted', 'a') as file: file.write('x')\n"
    )
    output = run("def test_it(): pass\n", TWICE, code=0)
    assert "PASSED a[b]/test_other.py::TestIt::test_method\n" in output
    assert (tmp_path / "noted").read_text() == "xx"


@pytest.mark.slow
def test_the_profile_of_a_test_is_alone_in_its_runs_and_the_guard_is_there_too(run, tmp_path):
    (tmp_path / "one.toml").write_text("schema = 1\n[threads]\ncount = 1\n")
    output = run(
        """
        import os
        import backendcfg
        import pytest
        @pytest.mark.backendcfg("tf32-off")
        def test_alone():
            assert backendcfg.active().name == "tf32-off"
            assert "OMP_NUM_THREADS" not in os.environ
        def test_unmarked():
            assert os.environ["OMP_NUM_THREADS"] == "1"
        @pytest.mark.backendcfg("tf32-off")
        def test_leaves():
            os.environ["MKL_CBWR"] = "AVX2"
        """,
        *("--backendcfg=./one.toml", "--backendcfg-guard", TWICE),
        code=1,
    )
    tests = {"test_alone": "PASSED", "test_unmarked": "PASSED", "test_leaves": "FAILED"}
    assert words(output) == tests
    assert message(output, "test_leaves") == (
        "error[switch-left-changed]: test `test_leaves` left `MKL_CBWR` changed\n"
        "  note: `MKL_CBWR` was unset and is AVX2\n"
        "  state: all were put back\n"
        "  help: set it for a block only, `with backendcfg.profile(...)`, or put it back after use\n"
        f"{' backendcfg ':-^80}\n"
        "it was run 1 of 2 under tf32-off\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs pidfd_open")
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with-its-group"])
def test_an_interrupted_proof_leaves_no_files_and_no_process(tmp_path, alone):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "test_it.py").write_text(
        "import os, signal\n"
        "import pytest\n"
        "@pytest.mark.backendcfg('tf32-off')\n"
        "def test_it():\n"
        "    with open('pipe', 'w') as pipe: pipe.write(str(os.getpid()))\n"
        "    signal.pause()\n"
    )
    words = [*shlex.split("-m pytest -p no:cacheprovider -W ignore::pytest.PytestWarning"), TWICE]
    started = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = os.pidfd_open(int(pipe.read_text()))
    (os.kill if alone else os.killpg)(started.pid, signal.SIGINT)
    output, _ = started.communicate(timeout=60)
    assert "KeyboardInterrupt" in output
    assert started.returncode == 2
    assert select.select([child], [], [], 60)[0] == [child]
    os.close(child)
    assert [path for path in temporary.iterdir() if path.name.startswith("backendcfg")] == []


@pytest.mark.slow
def test_a_test_that_a_fixture_marks_is_not_passed_unproven(run):
    module = """
import pytest

@pytest.fixture
def marked(request):
    request.node.add_marker(pytest.mark.backendcfg("tf32-off"))

def test_it(marked):
    pass
"""
    output = run(module, "--backendcfg-prove=2", code=1)
    assert "a fixture marked this test, which is too late to prove it" in output
