"""What takes long is shown in one line on a terminal, and nothing of it is left."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import pytest
from once import once

from backendcfg import progress
from backendcfg.cli.group import ERASE, shown, text
from backendcfg.cli.output import size
from backendcfg.progress import Step

GATED = """
import os, sys
if "-c" in sys.orig_argv and "GATE" in os.environ:
    with open(os.environ.pop("GATE")) as gate:
        exec(gate.read())
"""
WAITS = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void wait_for_the_test(void) {
    char byte;
    int gate = open(getenv("GATE"), O_RDONLY);
    while (read(gate, &byte, 1) > 0) {
    }
    close(gate);
}
"""


class Terminal:
    """A command whose output and errors are a terminal, and whose child waits at a gate."""

    def __init__(self, words, folder, columns, variables):
        self.gate = folder / "gate"
        os.mkfifo(self.gate)
        self.master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.started = subprocess.Popen(
            [sys.executable, "-m", "backendcfg", *words],
            cwd=folder,
            env={**os.environ, "TERM": "xterm", "GATE": str(self.gate), **variables},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        self.seen = ""

    def until(self, words):
        """Read until these words have been seen."""
        while words not in self.seen:
            assert self._more(), self.seen

    def open_gate(self, program=""):
        """Let the child go on, after it ran a program if it is a Python."""
        self.gate.write_text(program)

    def rest(self):
        """Everything that was printed, and the exit code."""
        while self._more():
            pass
        os.close(self.master)
        return self.seen.replace("\r\n", "\n"), self.started.wait()

    def _more(self):
        try:
            part = os.read(self.master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.seen += part.decode()
        return bool(part)


@pytest.fixture(name="on_terminal")
def _on_terminal(tmp_path, project):
    (tmp_path / "sitecustomize.py").write_text(GATED)

    def start(*words, columns=80, **variables):
        path = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        return Terminal(words, project, columns, path | variables)

    return start


def drawn(seen):
    """The lines that were drawn, and what was printed after the last was erased."""
    before, *lines, after = seen.split(ERASE)
    assert before == ""
    return lines, after


@pytest.mark.slow
def test_verify_shows_what_it_waits_for_and_leaves_nothing_of_it(on_terminal):
    command = on_terminal("verify", "tf32-off")
    command.until("waiting for")
    command.open_gate()
    seen, code = command.rest()
    lines, after = drawn(seen)
    whole = r"[|/\\-] waiting for the process that verifies, \d+ s"
    assert all(re.fullmatch(whole, line) for line in lines)
    assert code == 0
    assert after.startswith("state")
    assert "\x1b" not in "".join([*lines, after])


def test_a_rehearsal_shows_it_and_an_error_erases_it(on_terminal):
    command = on_terminal("apply", "tf32-off", "--check", "--user", columns=30)
    command.until("waiting for the rehearsal")
    command.open_gate("os._exit(3)")
    seen, code = command.rest()
    lines, after = drawn(seen)
    assert code == 70
    assert {line[1:] for line in lines if "rehearsal" in line} == {" waiting for the rehearsal"}
    assert max(map(size, lines)) < 30
    assert " ".join(after.split()).startswith(
        "error[internal]: the rehearsal of profile `tf32-off` ended with status 3 note: "
    )


def test_an_interrupt_erases_it(on_terminal):
    command = on_terminal("verify", "tf32-off")
    command.until("waiting for")
    command.started.send_signal(signal.SIGINT)
    seen, code = command.rest()
    assert code == 130
    assert drawn(seen)[1] == "interrupted\n  state: nothing was changed\n"


def test_the_first_detection_shows_it(on_terminal, tmp_path):
    def make(folder):
        (folder / "waits.c").write_text(WAITS)
        library = folder / "libopenblas.so.0"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "waits.c"], check=True)

    command = on_terminal("detect", LD_LIBRARY_PATH=str(once(WAITS, make)))
    command.until("libraries in child processes, ")
    command.open_gate()
    seen, code = command.rest()
    lines, after = drawn(seen)
    whole = r". opening \d+ libraries in child processes, \d s"
    assert any(re.fullmatch(whole, line) for line in lines)
    assert code == 0
    assert after.startswith("system    ")


@pytest.mark.exhaustive
def test_tune_shows_how_far_it_is(on_terminal):
    command = on_terminal("tune", "--seconds", "1", columns=60)
    seen, _ = command.rest()
    lines, after = drawn(seen)
    parts = [found[1] for line in lines if (found := re.fullmatch(r"\[#*\.*\] +(\d+)% .*", line))]
    assert parts
    assert parts == sorted(parts, key=int)
    assert max(map(size, lines)) < 60
    assert "measured  " in after


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"BACKENDCFG_LOG_LEVEL": "info"}])
def test_a_terminal_that_cannot_erase_or_that_shows_the_log_shows_none(
    variables, monkeypatch, call
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    seen = []
    monkeypatch.setattr("backendcfg.session.detect", lambda: seen.append(progress.show) or 1 / 0)
    call("detect")
    assert seen == [None]


def test_what_is_no_terminal_shows_none(monkeypatch, call):
    seen = []
    monkeypatch.setattr("backendcfg.session.detect", lambda: seen.append(progress.show) or 1 / 0)
    call("detect")
    assert seen == [None]


def test_a_line_is_cut_to_the_terminal_in_wide_characters_too():
    assert text(Step("\u8cc7\u6599 one"), 0.0, 8) == "| \u8cc7\u6599"
    assert text(Step("dgemm", 0.5), 9.0, 80) == f"[{'#' * 15}{'.' * 15}]  50% dgemm"
    assert text(Step("dgemm", 2.0), 9.0, 20) == "[##########] 100%"


def test_the_innermost_work_is_shown_until_the_outermost_ends(monkeypatch):
    told = []
    monkeypatch.setattr(
        progress, "show", lambda: told.append("begin") or (lambda: told.append("end"))
    )
    with Step("outer"):
        with Step("inner") as inner:
            assert progress.current() is inner
        assert progress.current().what == "outer"
        assert told == ["begin"]
    assert progress.current() is None
    assert told == ["begin", "end"]


def test_it_ends_with_the_verb():
    with shown(io.StringIO()):
        assert progress.show is not None
    assert progress.show is None
