"""Real processes on real cores: where they run, what they print, how they end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from backendcfg.errors import StateUnwritableError
from backendcfg.launch import bound, instances, launcher
from backendcfg.launch.arrangement import Share

HERE = sorted(os.sched_getaffinity(0))


class Console:
    """A terminal that keeps what is printed."""

    def __init__(self):
        self.buffer = io.BytesIO()

    @property
    def lines(self):
        return sorted(self.buffer.getvalue().decode(errors="replace").splitlines())


@pytest.fixture(name="start")
def _start():
    """`start([words, ...], folder="")`: run the commands, and give the end and what they printed."""

    def start(commands, folder="", share=None):
        out, err = Console(), Console()
        made = []
        for rank, words in enumerate(commands):
            paths = [f"{folder}/{rank}.{kind}" if folder else "" for kind in ("out", "err")]
            streams = (
                instances.Stream(f"i{rank}", out, paths[0]),
                instances.Stream(f"i{rank}", err, paths[1]),
            )
            share = share or Share(rank, tuple(HERE[:1]), (0,))
            whole = launcher.bound_command(words, share, memory=False, supervised=True)
            made.append(instances.Command(rank, whole, dict(os.environ), streams))
        return instances.run(made), out.lines, err.lines

    return start


def python(code):
    return [sys.executable, "-I", "-S", "-c", code]


SHOW = "import os; print(sorted(os.sched_getaffinity(0)))"


def test_a_command_runs_on_its_processors_and_its_parent_stays_where_it_was(start):
    ended, out, err = start([python(SHOW)])
    assert (ended.status, out, err) == (0, [f"[i0]:[{HERE[0]}]"], [])
    assert sorted(os.sched_getaffinity(0)) == HERE


def test_every_line_has_the_name_of_its_instance(start):
    ended, out, err = start(
        [["printf", "one\ntwo"], ["sh", "-c", "echo three; echo four >&2"]], share=None
    )
    assert ended == instances.Ended(0, None, 0, (0, 0))
    assert out == ["[i0]:one", "[i0]:two", "[i1]:three"]
    assert err == ["[i1]:four"]


def test_log_files_have_what_was_printed_to_the_byte(start, tmp_path):
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"
    assert start([python(code)], folder=str(tmp_path))[0].status == 0
    assert (tmp_path / "0.out").read_bytes() == bytes(range(256)) * 1000
    assert (tmp_path / "0.err").read_bytes() == b""


def test_a_line_that_never_ends_is_shown_in_parts():
    console = Console()
    stream = instances.Stream("i", console)
    stream.feed(b"x" * instances.LONGEST)
    assert console.lines == []
    stream.feed(b"y")
    assert console.lines == ["[i]:" + "x" * instances.LONGEST + "y"]


def test_a_terminal_that_goes_away_does_not_end_the_instances(tmp_path):
    class Gone:
        class buffer:  # noqa: N801
            @staticmethod
            def write(data):
                raise BrokenPipeError

    stream = instances.Stream("i", Gone, str(tmp_path / "log"))
    stream.feed(b"one\n")
    stream.feed(b"two\n")
    stream.close()
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_a_full_disk_ends_the_log_file_and_not_the_instances(start, tmp_path, capsys, monkeypatch):
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest: opened("/dev/full" if "0.out" in str(path) else path, *rest)
    )
    ended, out, _ = start([["sh", "-c", "echo one; echo two"]], folder=str(tmp_path))
    assert (ended.status, out) == (0, ["[i0]:one", "[i0]:two"])
    assert capsys.readouterr().err == (
        f"warning: {tmp_path}/0.out ends here: No space left on device; the instances go on, and"
        " what they print is shown on the terminal alone\n"
    )


def test_a_log_file_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnwritableError) as caught:
        instances.streams("run0", str(tmp_path / "file" / "logs"))
    assert caught.value.message == f"cannot write {tmp_path}/file/logs: Not a directory"
    assert caught.value.state == "no instance was started"


def test_a_log_file_is_not_written_through_a_link(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "run0.stdout.log").symlink_to("mine")
    with pytest.raises(StateUnwritableError) as caught:
        instances.streams("run0", str(tmp_path))
    assert caught.value.message == f"cannot write {tmp_path}/run0.stdout.log: it is a link"
    assert (tmp_path / "mine").read_text() == "precious"


def test_the_first_failure_ends_the_others_and_gives_the_status(start, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    endless = python(f"import signal; open({str(fifo)!r}, 'w').write('on'); signal.pause()")
    ended, _, _ = start([endless, ["sh", "-c", f"cat {fifo}; exit 7"]])
    assert ended == instances.Ended(7, 1, 0, (128 + signal.SIGTERM, 7))


def test_an_instance_that_a_signal_ends_has_the_status_of_shells(start):
    ended, _, _ = start([["sh", "-c", "kill -SEGV $$"]])
    assert (ended.status, ended.rank) == (128 + signal.SIGSEGV, 0)


def test_one_that_does_not_end_when_asked_is_killed(start, tmp_path, monkeypatch):
    monkeypatch.setattr(instances, "GRACE_SECONDS", 0.0)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    stubborn = python(
        "import signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(fifo)!r}, 'w').write('ready')\n"
        "while True: signal.pause()"
    )
    ended, _, _ = start([stubborn, ["sh", "-c", f"read line < {fifo}; exit 1"]])
    assert ended.statuses == (128 + signal.SIGKILL, 1)


def test_one_that_never_stops_printing_does_not_hold_up_the_others(start):
    ended, _, _ = start([["yes"], ["sh", "-c", "exit 3"]])
    assert ended == instances.Ended(3, 1, 0, (128 + signal.SIGTERM, 3))


def test_what_a_failed_instance_has_started_ends_with_it(start, tmp_path):
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    holds = f"(exec sleep 600 > {fifo}) & exit 5"
    assert start([["sh", "-c", holds]])[0].status == 5
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_it_works_outside_the_main_thread(start):
    found = []
    thread = threading.Thread(target=lambda: found.append(start([python(SHOW)])))
    thread.start()
    thread.join()
    assert found[0][:2] == (instances.Ended(0, None, 0, (0,)), [f"[i0]:[{HERE[0]}]"])


def test_handlers_of_signals_are_put_back(start):
    before = [signal.getsignal(number) for number in (*instances.PASSED_ON, signal.SIGCHLD)]
    start([["true"]])
    assert before == [signal.getsignal(number) for number in (*instances.PASSED_ON, signal.SIGCHLD)]
    assert signal.set_wakeup_fd(-1) == -1


LAUNCHER = """
import os, sys
from backendcfg.launch import instances, launcher
from backendcfg.launch.arrangement import Share
cores = sorted(os.sched_getaffinity(0))
commands = []
for rank in range(2):
    share = Share(rank, (cores[rank % len(cores)],), (0,))
    words = launcher.bound_command(
        [sys.executable, "-I", "-S", "-c", sys.argv[1], str(rank), *sys.argv[2:]],
        share, memory=False, supervised=True)
    commands.append(instances.Command(rank, words, dict(os.environ),
                    (instances.Stream(f"i{rank}", sys.stdout), instances.Stream(f"i{rank}", sys.stderr))))
sys.exit(instances.run(commands).status)
"""

SAYS_WHICH = r"""
import os, signal, sys
def said(number, frame):
    os.write(1, (signal.Signals(number).name + "\n").encode())
    if number != signal.SIGUSR1: sys.exit(0)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, said)
os.write(1, b"ready\n")
while True: signal.pause()
"""


@pytest.fixture(name="launched")
def _launched():
    """`launched(code)`: a launcher with two instances of this code, both ready."""
    made = []

    def launched(code, *arguments, hangup=signal.SIG_DFL):
        child = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, code, *arguments],
            env={**os.environ, "BACKENDCFG_DISABLE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            # Whoever runs the tests by nohup has the signal ignored, and so would the launcher.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup),
        )
        made.append(child)
        assert sorted(child.stdout.readline() for _ in range(2)) == ["[i0]:ready\n", "[i1]:ready\n"]
        return child

    yield launched
    for child in made:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_every_instance_once_and_gives_the_status(launched, number):
    child = launched(SAYS_WHICH)
    child.send_signal(number)
    out, _ = child.communicate(timeout=60)
    name = signal.Signals(number).name
    assert sorted(out.splitlines()) == [f"[i0]:{name}", f"[i1]:{name}"]
    assert child.returncode == 128 + number


def test_a_signal_of_the_programs_own_ends_nothing(launched):
    child = launched(SAYS_WHICH)
    child.send_signal(signal.SIGUSR1)
    assert sorted(child.stdout.readline() for _ in range(2)) == ["[i0]:SIGUSR1\n", "[i1]:SIGUSR1\n"]
    child.send_signal(signal.SIGTERM)
    assert child.communicate(timeout=60)[0].count("SIGTERM") == 2


def test_an_interrupt_reaches_what_an_instance_has_started(launched):
    """Each instance and its children are one process group."""
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', sys.argv[2], 'grandchild'])\n"
        "try: child.wait()\n"
        "except KeyboardInterrupt: child.wait()\n"
    )
    child = launched(code, SAYS_WHICH)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[i0]:SIGINT", "[i1]:SIGINT"]


def test_the_third_interrupt_no_longer_asks(launched):
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'no\\n'))\n"
        "os.write(1, b'ready\\n')\n"
        "while True: signal.pause()"
    )
    child = launched(code)
    for _ in range(2):
        child.send_signal(signal.SIGINT)
        assert sorted(child.stdout.readline() for _ in range(2)) == ["[i0]:no\n", "[i1]:no\n"]
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGINT


def test_nothing_is_left_when_the_launcher_is_killed(launched, tmp_path):
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    # The instances hold the pipe open for writing; reading ends when the last of them does.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    code = (
        f"import signal; held = open({str(fifo)!r}, 'w'); print('ready', flush=True);signal.pause()"
    )
    child = launched(code)
    os.set_blocking(reader, True)
    child.kill()
    assert os.read(reader, 1) == b""
    os.close(reader)


def state_of(process):
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_stopping_the_launcher_stops_the_instances_until_it_goes_on(launched):
    child = launched(SAYS_WHICH)
    instances_of = f"/proc/{child.pid}/task/{child.pid}/children"
    with open(instances_of, encoding="ascii") as file:
        numbers = file.read().split()
    child.send_signal(signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
    # A signal takes effect when its process next gets a processor.
    deadline = time.monotonic() + 60
    while [state_of(number) for number in numbers] != ["T", "T"]:
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGCONT)
    child.send_signal(signal.SIGTERM)
    assert sorted(child.communicate(timeout=60)[0].splitlines()) == ["[i0]:SIGTERM", "[i1]:SIGTERM"]


def test_what_is_ignored_stays_ignored(launched):
    child = launched(SAYS_WHICH, hangup=signal.SIG_IGN)
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[i0]:SIGTERM", "[i1]:SIGTERM"]


def test_a_process_that_cannot_be_started_leaves_none(tmp_path):
    quiet = (instances.Stream("a", Console()), instances.Stream("a", Console()))
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    holds = ["sh", "-c", f"exec sleep 600 > {fifo}"]
    commands = [
        instances.Command(0, holds, dict(os.environ), quiet),
        instances.Command(1, [str(tmp_path / "nonesuch")], {}, quiet),
    ]
    with pytest.raises(FileNotFoundError):
        instances.run(commands)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_processor_that_is_not_there_is_told(capfd):
    done = subprocess.run(
        [sys.executable, "-I", "-S", bound.__file__, "1023", "", "0", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        bound.NOT_BOUND,
        "backendcfg cannot bind to 1023: Invalid argument\n",
    )


@pytest.mark.parametrize(("mode", "status"), [(None, 127), (0o600, 126)])
def test_a_command_that_cannot_be_started_has_the_status_of_shells(tmp_path, mode, status):
    program = tmp_path / "program"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    done = subprocess.run(
        [sys.executable, "-I", "-S", bound.__file__, "", "", "0", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert str(program) in done.stderr


MEMORY = """
import ctypes, json
mode, mask = ctypes.c_int(-1), (ctypes.c_ulong * 16)()
numbers = {"x86_64": 239, "aarch64": 236}
import os
ctypes.CDLL(None).syscall(ctypes.c_long(numbers[os.uname().machine]), ctypes.byref(mode), mask,
                          ctypes.c_ulong(1024), None, ctypes.c_ulong(0))
print(json.dumps([mode.value, mask[0]]))
"""


def test_memory_is_bound_or_the_reason_is_told():
    """Whatever this kernel answers, both ways of asking must agree."""
    share = Share(0, tuple(HERE[:1]), (0,))
    refusal = launcher.memory_refusal([0])
    done = subprocess.run(
        launcher.bound_command([sys.executable, "-I", "-c", MEMORY], share),
        capture_output=True,
        text=True,
        check=False,
    )
    if refusal:
        assert (done.returncode, refusal in done.stderr) == (bound.NOT_BOUND, True)
    else:
        assert json.loads(done.stdout) == [bound.BIND, 1]


def test_memory_of_a_node_that_is_not_there_is_refused():
    assert launcher.memory_refusal([700]) in {
        "Invalid argument",
        "Operation not permitted",
        "Function not implemented",
    }


def test_a_plan_is_made_for_the_processors_of_the_share():
    share = Share(0, tuple(HERE[-1:]), (0,))
    with launcher.as_if_bound(share):
        assert os.sched_getaffinity(0) == {HERE[-1]}
    assert sorted(os.sched_getaffinity(0)) == HERE
