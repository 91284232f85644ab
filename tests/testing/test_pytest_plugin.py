"""The pytest plugin, in runs of its own: a profile, a guard, a marker, and nothing unless asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from backendcfg import startup
from backendcfg.probe.limits import read_cores, read_limits


def outcomes(output):
    """`{"passed": 2, "error": 1}` of a run."""
    last = [line for line in output.splitlines() if re.search(r" in [\d.]+s", line)][-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}


def test_a_run_that_asks_for_nothing_does_not_import_backendcfg(run):
    output = run(
        """
        import sys
        def test_it():
            assert "backendcfg" not in sys.modules
            assert "pydantic" not in sys.modules
        """,
        code=0,
        BACKENDCFG_PROFILE="there-is-no-such-profile",
    )
    assert outcomes(output) == {"passed": 1}


LEAKS = """
import os
import pytest

def test_leaves_a_variable():
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1"

def test_finds_it_put_back():
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ

@pytest.fixture
def restored():
    yield
    os.environ.pop("MKL_CBWR", None)

def test_what_its_fixture_puts_back_is_not_left(restored):
    os.environ["MKL_CBWR"] = "AVX2"
"""


def test_the_test_that_leaves_a_switch_changed_fails_and_is_named_with_both_values(run):
    output = run(LEAKS, "--backendcfg-guard", code=1)
    assert outcomes(output) == {"passed": 3, "error": 1}
    assert "ERROR test_it.py::test_leaves_a_variable" in output
    assert "test `test_leaves_a_variable` left `NVIDIA_TF32_OVERRIDE` changed" in output
    assert "`NVIDIA_TF32_OVERRIDE` was unset and is 1" in output
    assert "backendcfg: tests must leave numeric switches as they find them" in output


@pytest.mark.exhaustive
def test_without_the_guard_nothing_is_watched(run):
    module = LEAKS.replace("test_finds_it_put_back", "skipped").replace("def skipped", "def skip")
    assert outcomes(run(module, code=0)) == {"passed": 2}


@pytest.mark.slow
def test_a_setting_of_the_project_stands_for_the_option(run, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nbackendcfg_guard = true\n")
    assert outcomes(run(LEAKS, code=1)) == {"passed": 3, "error": 1}
    assert outcomes(run(LEAKS, "-o", "backendcfg_guard=false", code=1)) == {
        "passed": 2,
        "failed": 1,
    }


WIDE = """
import os
import pytest

@pytest.fixture(scope="module")
def tidy():
    os.environ["MKL_CBWR"] = "AVX2"
    yield
    del os.environ["MKL_CBWR"]

def test_one(tidy):
    assert os.environ["MKL_CBWR"] == "AVX2"

def test_two(tidy):
    assert os.environ["MKL_CBWR"] == "AVX2"
"""


@pytest.mark.exhaustive
def test_a_wide_fixture_that_puts_back_what_it_changed_is_nobodys_fault(run):
    assert outcomes(run(WIDE, "--backendcfg-guard", code=0)) == {"passed": 2}


def test_a_wide_fixture_that_does_not_put_back_is_named_when_it_ends(run):
    module = WIDE.replace('    del os.environ["MKL_CBWR"]\n', "")
    output = run(module, "--backendcfg-guard", code=1)
    assert outcomes(output) == {"passed": 2, "error": 1}
    assert "fixture `tidy` left `MKL_CBWR` changed" in output
    assert "ERROR test_it.py::test_two" in output


def test_a_wide_fixture_that_ends_at_a_third_value_is_named_and_no_test(run):
    module = WIDE.replace(
        '    del os.environ["MKL_CBWR"]\n', '    os.environ["MKL_CBWR"] = "AUTO"\n'
    )
    output = run(module, "--backendcfg-guard", code=1)
    assert outcomes(output) == {"passed": 2, "error": 1}
    assert "fixture `tidy` left `MKL_CBWR` changed" in output
    assert "was unset and is AUTO" in output


@pytest.mark.exhaustive
def test_a_test_that_breaks_what_a_wide_fixture_set_is_named(run):
    module = WIDE + (
        '\ndef test_three(tidy):\n    os.environ["MKL_CBWR"] = "COMPATIBLE"\n'
        '\ndef test_four(tidy):\n    assert os.environ["MKL_CBWR"] == "AVX2"\n'
    )
    output = run(module, "--backendcfg-guard", code=1)
    assert outcomes(output) == {"passed": 4, "error": 1}
    assert "test `test_three` left `MKL_CBWR` changed" in output
    assert "`MKL_CBWR` was AVX2 and is COMPATIBLE" in output


@pytest.mark.exhaustive
def test_an_error_of_the_teardown_goes_first_and_carries_what_was_left(run):
    output = run(
        """
        import os
        import pytest
        @pytest.fixture
        def breaks():
            yield
            raise KeyError("mine")
        def test_it(breaks):
            os.environ["MKL_CBWR"] = "AVX2"
        """,
        "--backendcfg-guard",
        code=1,
    )
    assert outcomes(output) == {"passed": 1, "error": 1}
    assert "KeyError: 'mine'" in output
    assert "test `test_it` left `MKL_CBWR` changed" in output


@pytest.mark.torch
def test_a_library_that_a_test_imports_is_no_leak_and_what_it_sets_is(run):
    output = run(
        """
        def test_imports():
            import torch
        def test_sets():
            import torch
            torch.use_deterministic_algorithms(True)
        def test_is_clean_again():
            import torch
            assert not torch.are_deterministic_algorithms_enabled()
        """,
        "--backendcfg-guard",
        code=1,
    )
    assert outcomes(output) == {"passed": 3, "error": 1}
    assert "`torch.deterministic_algorithms` was any and is deterministic" in output


PROFILED = """
import threadpoolctl, numpy
def threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
"""


@pytest.fixture(name="one")
def _one(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text("schema = 1\n[threads]\ncount = 1\n[python]\nhash_seed = 3\n")
    return "./one.toml"


@pytest.mark.slow
def test_all_tests_run_with_the_profile_of_the_run(run, one):
    output = run(
        PROFILED + "seen = threads()\ndef test_it():\n    assert seen == threads() == [1]\n",
        f"--backendcfg={one}",
        "--backendcfg-guard",
        code=0,
    )
    assert "backendcfg: profile ./one.toml (none, in force)" in output
    assert "backendcfg: pending PYTHONHASHSEED: this interpreter has started" in output
    assert f"holds under `backendcfg run {one} -- pytest ...`" in output


@pytest.mark.exhaustive
def test_a_profile_that_cannot_be_applied_stops_the_run(run):
    output = run("def test_it(): pass\n", "--backendcfg=reproducable", code=4)
    assert "ERROR: error[unknown-profile]: profile `reproducable` does not exist" in output
    assert "did you mean `reproducible`?" in output


def test_a_marked_test_runs_with_its_profile_alone(run, one):
    output = run(
        f"""
        import pytest
        {PROFILED.strip().replace(chr(10), chr(10) + " " * 8)}
        @pytest.mark.backendcfg("{one}")
        def test_one():
            assert threads() == [1]
        def test_two():
            assert threads() != [1]
        @pytest.mark.backendcfg
        def test_three():
            pass
        """,
        "--backendcfg-guard",
        code=1,
    )
    assert outcomes(output) == {"passed": 2, "failed": 1}
    assert 'write the marker as `@pytest.mark.backendcfg("profile")`' in output


def test_a_marker_counts_whoever_gives_it_and_however_it_names_the_profile(run, one, tmp_path):
    (tmp_path / "conftest.py").write_text(
        f"""
import pytest

def pytest_collection_modifyitems(items):
    items[0].add_marker(pytest.mark.backendcfg("{one}"))

@pytest.fixture
def marked(request):
    request.node.add_marker(pytest.mark.backendcfg(profile="{one}"))
"""
    )
    module = f"{PROFILED}def test_one():\n    assert threads() == [1]\n"
    module += "def test_two(marked):\n    assert threads() == [1]\n"
    assert outcomes(run(module, code=0)) == {"passed": 2}
    assert outcomes(run(module, "-k", "two", code=0)) == {"passed": 1, "deselected": 1}


def test_a_marker_that_would_not_reach_a_test_is_refused(run, one):
    output = run(
        f"""
        import unittest, pytest
        class TestIt(unittest.IsolatedAsyncioTestCase):
            @pytest.mark.backendcfg("{one}")
            async def test_it(self):
                pass
        """,
        code=1,
    )
    assert "does not reach a test of `IsolatedAsyncioTestCase`" in output


@pytest.mark.exhaustive
def test_a_package_that_a_start_up_file_imported_before_pytest_gives_no_warning(
    installed, tmp_path
):
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    program = (
        "import sys, backendcfg, pytest\n"
        "ours = 'error:Module already imported.*; backendcfg:pytest.PytestAssertRewriteWarning'\n"
        "sys.exit(pytest.main(['-p', 'no:cacheprovider', '-W', ours]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_can_be_turned_off_like_any_plugin(installed, run):
    output = run("def test_it(): pass\n", "-p", "no:backendcfg", "--backendcfg-guard", code=4)
    assert "unrecognized arguments: --backendcfg-guard" in output


@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_of_xdist_are_guarded_too(run, one):
    output = run(LEAKS, "--backendcfg-guard", f"--backendcfg={one}", "-n", "2", code=1)
    assert outcomes(output) == {"passed": 3, "error": 1}
    assert "`NVIDIA_TF32_OVERRIDE` was unset and is 1" in output


@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")
@pytest.mark.parametrize(
    "options",
    [
        ["--backendcfg=./shared.toml", "-n3"],
        ["-n3"],
        ["--backendcfg=./shared.toml", "--tx=2*popen", "--tx=popen", "--dist=load"],
    ],
    ids=" ".join,
)
def test_workers_of_xdist_share_the_cores_unless_the_profile_gives_a_number(run, tmp_path, options):
    (tmp_path / "shared.toml").write_text('threads.count = "auto"\n')
    (tmp_path / "four.toml").write_text("threads.count = 4\n")
    cores = read_cores(read_limits()).count
    module = """
        import os, pytest, backendcfg
        @pytest.mark.parametrize("number", range(4))
        @pytest.mark.backendcfg("./shared.toml")
        def test_share(number):
            assert os.environ["BACKENDCFG_CORES"] == "{share} each"
            assert backendcfg.flags["threads.count"] == {share}
        @pytest.mark.backendcfg("./four.toml")
        def test_number():
            assert backendcfg.flags["threads.count"] == 4
        """
    share = max(1, cores // 3)
    assert outcomes(run(module.format(share=share), *options, code=0)) == {"passed": 5}


@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_of_xdist_share_the_cores_from_the_start_of_their_python(installed, run, tmp_path):
    os.unlink(startup.off_files()[-1])
    (tmp_path / "backendcfg.toml").write_text("threads.count = 'auto'\n")
    module = """
        import os, backendcfg
        seen = backendcfg.flags["threads.count"], os.environ.get("BACKENDCFG_CORES")
        def test_share():
            assert seen == ({}, {!r})
        """
    cores = read_cores(read_limits()).count
    alone = module.format(cores, None)
    shared = module.format(max(1, cores // 2), f"{max(1, cores // 2)} each")
    for words, text in (["-n0"], alone), (["-n2"], shared), (["--tx=2*popen"], alone):
        run(text, *words, code=0, BACKENDCFG_PROFILE="fast")


def test_what_is_in_force_here_holds_for_the_run_and_is_in_its_header(run, tmp_path):
    os.unlink(startup.off_files()[-1])
    file = tmp_path / "backendcfg.toml"
    file.write_text('profile = "tf32-off"\n')
    output = run(
        """
        import sys
        def test_it():
            assert sys.modules["backendcfg"].active().name == "tf32-off"
        """,
        code=0,
    )
    assert f"backendcfg: profile tf32-off (none, in force), by {file}\n" in output
    file.write_text('profile = "tf32-of"\n')
    output = run("def test_it(): pass", code=4)
    assert "profile `tf32-of`, which does not exist" in output
    assert "did you mean `tf32-off`?" in output
    file.unlink()
    output = run("def test_it(): pass", code=4, BACKENDCFG_THREAD_COUNT="4")
    assert "did you mean BACKENDCFG_THREADS_COUNT?" in output
    for options in ([], ["--backendcfg=fast"], ["--backendcfg-guard"]):
        output = run("def test_it(): pass", *options, code=0, BACKENDCFG_DISABLE="yes")
        assert "backendcfg: turned off by BACKENDCFG_DISABLE\n" in output
        assert "backendcfg: profile" not in output


def test_a_project_in_another_user_s_folder_is_named_in_the_header(installed, run, tmp_path):
    os.unlink(startup.off_files()[-1])
    (tmp_path / "backendcfg.toml").write_text('profile = "tf32-off"\n')
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder to another user")
    os.chown(tmp_path, 4321, -1)
    output = run("def test_it(): pass\n", code=0)
    assert (
        f"'{tmp_path}/backendcfg.toml' does not count: '{tmp_path}' is another user's\n" in output
    )


def test_python_that_a_test_starts_has_what_the_header_says(installed, run, tmp_path):
    os.unlink(startup.off_files()[-1])
    (tmp_path / "backendcfg.toml").write_text('profile = "tf32-off"\n')
    module = """
        import subprocess, sys
        def test_it():
            code = "import sys; print('backendcfg' in sys.modules)"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            assert done.stdout == "{}\\n"
        """
    said = "backendcfg: Python that a test starts has no profile before `backendcfg trust`\n"
    assert said in run(module.format(False), code=0)
    trusted = [sys.executable, "-m", "backendcfg", "trust"]
    subprocess.run(trusted, cwd=tmp_path, check=True, capture_output=True)
    assert said not in run(module.format(True), code=0)
