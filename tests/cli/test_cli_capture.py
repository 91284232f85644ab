"""`backendcfg capture -- CMD`: the command runs as ever, and what it set becomes a profile."""

from __future__ import annotations

import json
import sys
import tomllib

import pytest

SCRIPT = """\
import os, sys
os.environ["OPENBLAS_CORETYPE"] = "Sandybridge"
import numpy, threadpoolctl
limits = threadpoolctl.threadpool_limits(1)
print("out", sys.argv[1:], os.environ.get("BACKENDCFG_CAPTURE"))
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture(name="script")
def _script(project):
    path = project / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.slow
def test_what_the_script_set_becomes_a_profile_and_its_status_is_passed_on(
    process, project, script
):
    result = process("capture", "--", sys.executable, script, "7", "--json")
    assert (result.code, result.out) == (7, "out ['7', '--json'] None\n")
    assert result.err.splitlines()[0] == "2 flags written to captured.toml"
    document = tomllib.loads((project / "captured.toml").read_text())
    assert document["threads"] == {"count": 1}
    assert document["blas"] == {"openblas": {"core_type": "Sandybridge"}}
    assert process("validate", "captured.toml").code == 0
    again = process(
        "run",
        "./captured.toml",
        "--",
        sys.executable,
        "-c",
        "import numpy, threadpoolctl\n"
        "(pool,) = threadpoolctl.threadpool_info()\n"
        "print(pool['num_threads'], pool['architecture'])",
    )
    assert again.out == "1 Sandybridge\n"


@pytest.mark.exhaustive
def test_the_profile_goes_to_standard_output_after_what_the_command_prints(process, script):
    result = process("capture", "-o", "-", "--", sys.executable, script)
    first, rest = result.out.split("\n", 1)
    assert (result.code, first) == (0, "out [] None")
    assert tomllib.loads(rest)["threads"] == {"count": 1}


@pytest.mark.slow
def test_under_json_standard_output_has_one_document(process, script):
    result = process("capture", "--json", "-o", "mine.toml", "--", sys.executable, script)
    found = json.loads(result.out)
    assert (result.code, found["path"]) == (0, "mine.toml")
    assert found["flags"]["threads.count"] == 1
    assert result.err.startswith("out [] None\n")


@pytest.mark.exhaustive
def test_a_file_that_is_there_is_refused_before_the_command_runs(process, project, script):
    (project / "captured.toml").write_text("precious")
    result = process("capture", "--", sys.executable, script)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[usage]: captured.toml is there already\n")
    assert (project / "captured.toml").read_text() == "precious"
    assert process("capture", "--force", "--", sys.executable, script).code == 0
    assert "count = 1" in (project / "captured.toml").read_text()


def test_a_file_that_cannot_be_written_is_refused_before_the_command_runs(process, project):
    words = ("--", "touch", "started")
    result = process("capture", "-o", "nowhere/mine.toml", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"error[usage]: nowhere/mine.toml cannot be written: there is no folder {project}/nowhere\n"
        "  state: the command was not started\n"
        "  help: give another file with `--output`, or `--output -` for standard output\n"
    )
    (project / "folder").mkdir()
    result = process("capture", "--force", "-o", "folder", *words)
    assert result.code == 2
    assert "folder" in result.err.splitlines()[0]
    assert not (project / "started").exists()


@pytest.mark.exhaustive
def test_a_profile_whose_file_cannot_be_written_any_more_is_printed(process, project, script):
    (project / "there").mkdir()
    vanishes = f"{sys.executable} {script}; rmdir there"
    result = process("capture", "-o", "there/mine.toml", "--", "sh", "-c", vanishes)
    first, rest = result.out.split("\n", 1)
    assert (result.code, first) == (3, "out [] None")
    assert tomllib.loads(rest)["threads"] == {"count": 1}
    assert result.err.startswith(
        "there/mine.toml cannot be written: No such file or directory;"
        " the profile goes to standard output instead\n"
        "2 flags written to standard output\n"
    )


@pytest.mark.exhaustive
def test_a_file_that_the_command_itself_made_is_not_written_over(process, project, script):
    makes = f"{sys.executable} {script}; echo precious > captured.toml"
    result = process("capture", "--", "sh", "-c", makes)
    assert tomllib.loads(result.out.split("\n", 1)[1])["threads"] == {"count": 1}
    assert result.err.startswith(
        "captured.toml cannot be written: captured.toml is there already; the profile goes to"
    )
    assert (project / "captured.toml").read_text() == "precious\n"


@pytest.mark.exhaustive
def test_no_profile_is_in_force_for_the_command(process, project):
    process("apply", "base")
    result = process(
        "capture",
        "-o",
        "-",
        "--",
        sys.executable,
        "-c",
        "import backendcfg as b; print(b.active())",
    )
    assert result.code == 0
    assert result.out.startswith("None\n")
    assert "threads" not in tomllib.loads(result.out.split("\n", 1)[1])


@pytest.mark.exhaustive
def test_the_last_of_several_pythons_is_the_one_that_is_captured(process, script):
    both = f"{sys.executable} -c 'pass'; {sys.executable} {script}"
    result = process("capture", "-o", "-", "--", "sh", "-c", both)
    assert result.err.startswith("2 Python processes ran; this is the last to end: ")
    assert "count = 1" in result.out


def test_a_child_of_the_script_is_not_captured(process):
    program = "import subprocess, sys, os; subprocess.run([sys.executable, '-c', '1']); os.fork()"
    result = process("capture", "-o", "-", "--", sys.executable, "-W", "ignore", "-c", program)
    assert result.code == 0
    assert "Python processes ran" not in result.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "error[usage]: `backendcfg capture` needs a command"),
        (("--", "true"), 2, "error[usage]: the command ran no Python that could be looked at"),
        (("--", "there-is-none"), 127, "error[command-not-found]: command `there-is-none` was not"),
        (("--", "."), 126, "error[command-not-executable]: command `.` cannot be executed"),
    ],
)
def test_what_cannot_be_captured_is_said(process, project, words, code, message):
    result = process("capture", *words)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(message)
    assert not (project / "captured.toml").exists()


def test_a_command_that_a_signal_ends_gives_what_a_shell_gives(process):
    result = process("capture", "--", "sh", "-c", "kill -TERM $$")
    assert result.code == 2
    assert "state: the command ended with status 143; nothing was written" in result.err
