"""Child interpreters: started, asked, and every way in which one can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from backendcfg import childprocess
from backendcfg.errors import InternalError, UsageError


def ask(program, **named):
    return childprocess.ask(
        ["-c", program], os.environ, task="the test", remedy="try again", **named
    )


def test_a_child_gets_its_input_and_its_environment_and_says_how_it_ended():
    done = childprocess.run(
        ["-c", "import os, sys; print(sys.stdin.read() + os.environ['OURS']); sys.exit(3)"],
        {**os.environ, "OURS": "there"},
        given="here and ",
    )
    assert (done.status, done.text, done.how) == (3, "here and there\n", "ended with status 3")
    assert done.obstacle == ""


def test_an_isolated_child_sees_no_site_packages_and_none_the_working_directory(
    tmp_path, monkeypatch
):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    flags = "import json, sys; print(sys.flags.isolated, sys.flags.no_site)"
    assert childprocess.run(["-c", flags]).text == "0 0\n"
    assert childprocess.run(["-c", flags], isolated=True).text == "1 1\n"


def test_a_child_that_hangs_is_killed():
    done = childprocess.run(["-c", "import time; time.sleep(60)"], seconds=0.2)
    assert (done.status, done.how) == (None, "did not end within 0.2 s")


class Stubborn:
    """A child that ends when it is told to kill, and not before."""

    def __init__(self, interrupts):
        self.interrupts = interrupts
        self.heard = []

    def send_signal(self, number):
        self.heard.append(number)

    def wait(self, seconds):
        if signal.SIGUSR1 in self.heard:
            return
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        raise subprocess.TimeoutExpired("child", seconds)


@pytest.mark.parametrize(
    ("asked", "interrupts", "heard"),
    [
        (False, 0, [signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1]),
        (True, 0, [signal.SIGTERM, signal.SIGUSR1]),
        (False, 1, [signal.SIGTERM, signal.SIGUSR1]),
        (True, 1, [signal.SIGUSR1]),
    ],
)
def test_a_child_that_passes_signals_on_is_asked_before_it_kills(asked, interrupts, heard):
    child = Stubborn(interrupts)
    childprocess._end(child, asked=asked)
    assert child.heard == heard


PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, file=open(sys.argv[1], "w"), flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="macos has no /proc")
def test_what_a_child_in_a_session_of_its_own_started_is_killed_with_it(tmp_path):
    file = tmp_path / "pid"
    done = childprocess.run(["-c", PARENT, str(file)], seconds=2, alone=True)
    assert (done.status, done.how) == (None, "did not end within 2 s")
    stat = f"/proc/{int(file.read_text())}/stat"
    deadline = time.monotonic() + 30
    while os.path.exists(stat) and _state(stat) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _state(stat):
    try:
        with open(stat) as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_an_interpreter_that_is_not_there_is_said(monkeypatch):
    done = childprocess.run(["-c", ""], python="/nowhere/python")
    assert done.status is None
    assert done.how.startswith("could not be started: ")
    monkeypatch.setattr(sys, "executable", "")
    assert "does not know its own path" in childprocess.run(["-c", ""]).obstacle


def test_the_answer_is_the_last_line_whatever_was_printed_before():
    assert ask("print('noise'); print('{\"count\": 4}')") == {"count": 4}


def test_an_error_of_the_child_is_raised_as_its_own_class():
    record = UsageError("no such profile", helps=["name another"]).to_dict()
    with pytest.raises(UsageError) as caught:
        ask(f"import json; print(json.dumps({{'error': {record!r}}}))")
    assert (caught.value.message, caught.value.helps) == ("no such profile", ("name another",))


WITNESS = """
from backendcfg.errors import UsageError
def testify(*, name):
    print("a library talks", end="")
    if name == "nobody":
        raise UsageError("no such witness", helps=["name another"])
    return {"name": name}
"""


def test_a_function_testifies_in_a_child_or_its_error_is_raised_here(tmp_path):
    (tmp_path / "witness.py").write_text(WITNESS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def testimony(name):
        how = {"task": "the test", "remedy": "try again"}
        return childprocess.testimony("witness", environment, **how, name=name)

    assert testimony("it's {}") == {"name": "it's {}"}
    with pytest.raises(UsageError) as caught:
        testimony("nobody")
    assert (caught.value.message, caught.value.helps) == ("no such witness", ("name another",))


@pytest.mark.parametrize(
    ("program", "message", "note"),
    [
        ("import sys; sys.exit('out of order')", "ended with status 1", "out of order"),
        ("pass", "ended with status 0", "it said nothing"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", "status -9", "nothing"),
    ],
)
def test_a_child_that_does_not_answer_is_an_internal_error(program, message, note):
    with pytest.raises(InternalError) as caught:
        ask(program)
    assert caught.value.message.startswith("the test ")
    assert message in caught.value.message
    assert note in caught.value.notes[0]
    assert caught.value.helps == ("try again",)


def test_a_child_that_is_asked_and_hangs_is_an_internal_error(monkeypatch):
    monkeypatch.setattr(childprocess, "LIMIT_SECONDS", 0.2)
    with pytest.raises(InternalError, match=r"the test did not end within 0\.2 s"):
        ask("import time; time.sleep(60)")


ECHO = """
import os, sys
from backendcfg.childprocess import begin_answers
answers = begin_answers()
print("a library talks", flush=True)
for line in sys.stdin:
    os.write(answers, b"no JSON\\n[1]\\n" + line.encode())
"""


def test_a_dialogue_hears_the_answers_of_a_child_and_nothing_that_libraries_print():
    child = childprocess.Dialogue(["-c", ECHO], os.environ)
    child.tell({"number": 1}, {"number": 2})
    assert [child.hear(60), child.hear(60)] == [{"number": 1}, {"number": 2}]
    with pytest.raises(TimeoutError):
        child.hear(0)
    child.tell(last=True)
    with pytest.raises(EOFError):
        child.hear(60)
    assert child.status() == 0
    child.close()
    with pytest.raises(EOFError):
        child.hear(60)


def test_a_dialogue_that_is_closed_ends_its_child():
    child = childprocess.Dialogue(["-c", ECHO], os.environ)
    child.close()
    assert child.status() == -signal.SIGKILL
    child.tell({"number": 1})
    with pytest.raises(EOFError):
        child.hear(60)
