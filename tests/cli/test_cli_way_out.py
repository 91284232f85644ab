"""There is one way out of the command line, and every failure takes it."""

import inspect
import json
import re
import signal
import subprocess
import sys

import click
import pytest

from backendcfg import errors
from backendcfg.cli import group as groups
from backendcfg.cli.group import Verb
from backendcfg.cli.output import current, says_no

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.BackendCfgError)
]


@pytest.fixture(name="verb")
def _verb(monkeypatch):
    """A verb that does what the test says."""

    def install(action, **settings):
        made = Verb("act", callback=action, section="Manage", **settings)
        monkeypatch.setattr(groups, "verb_names", lambda: ["act"])
        monkeypatch.setattr(groups.VerbGroup, "get_command", lambda *_: made)

    return install


def raising(error):
    def action():
        raise error

    return action


def test_there_are_error_classes():
    assert len(CLASSES) > 25


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_is_printed_as_a_message_and_exits_with_its_code(cls, verb, call):
    error = cls("it is wrong", notes=["a fact"], helps=["do this"])
    verb(raising(error))
    result = call("act")
    assert (cls.exit_code, "", f"{error.render()}\n") == (result.code, result.out, result.err)
    assert "Traceback" not in result.err


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_under_json_every_error_is_one_document_on_standard_output(cls, verb, call):
    error = cls("it is wrong", spans=[errors.Span("a.toml", 1, 1, 1, "x = 1", "here")])
    verb(raising(error))
    result = call("--json", "act")
    assert (cls.exit_code, "") == (result.code, result.err)
    assert {"error": error.to_dict()} == json.loads(result.out)


def test_a_check_that_says_no_exits_with_1(verb, call):
    verb(says_no)
    assert tuple(call("act").__dict__.values()) == (1, "", "")


def test_a_bug_says_where_it_is_and_shows_no_traceback(verb, call):
    verb(raising(ZeroDivisionError("division by zero")))
    result = call("act")
    assert (result.code, result.out) == (70, "")
    assert "Traceback" not in result.err
    assert re.sub(r"/.*/|:\d+", "", result.err) == (
        "error[internal]: ZeroDivisionError: division by zero\n"
        "  note: at group.py in invoke\n"
        "  state: nothing was changed\n"
        "  help: run it again with `--traceback` to see where it happened\n"
        "  help: please report this with the output of `backendcfg doctor --json`\n"
    )


def test_a_bug_shows_its_traceback_when_asked(verb, call):
    verb(raising(ZeroDivisionError("division by zero")))
    result = call("--traceback", "act")
    assert result.code == 70
    assert result.err.startswith("Traceback (most recent call last):")


def test_a_bug_shows_its_traceback_at_the_debug_level(verb, call, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_LOG_LEVEL", '"debug"')
    verb(raising(ZeroDivisionError("division by zero")))
    assert call("act").err.startswith("Traceback (most recent call last):")


def test_an_interrupt_exits_with_130_and_names_the_state(verb, call):
    verb(raising(KeyboardInterrupt()), interrupted="the old profile is active, or the new one")
    assert tuple(call("act").__dict__.values()) == (
        130,
        "",
        "interrupted\n  state: the old profile is active, or the new one\n",
    )


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_ends_programs_interrupts_too(name, code, verb, call):
    number, left = signal.Signals[name], []

    def action():
        try:
            signal.raise_signal(number)
        finally:
            left.append("what was started")

    verb(action, interrupted="nothing was stored")
    before = signal.signal(number, signal.SIG_DFL)  # under `nohup` these tests ignore SIGHUP
    try:
        expected = (code, "", f"ended by {name}\n  state: nothing was stored\n")
        assert tuple(call("act").__dict__.values()) == expected
        assert left == ["what was started"]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_signal_that_somebody_ignores_or_handles_stays_with_them(verb, call):
    taken = []
    for handler, expected in ((signal.SIG_IGN, []), (lambda *_: taken.append(1), [1])):
        before = signal.signal(signal.SIGHUP, handler)
        try:
            verb(lambda: signal.raise_signal(signal.SIGHUP))
            assert tuple(call("act").__dict__.values()) == (0, "", "")
            assert (signal.getsignal(signal.SIGHUP), taken) == (handler, expected)
        finally:
            signal.signal(signal.SIGHUP, before)


def test_what_was_printed_before_a_failure_stands(verb, call):
    def action():
        current().answer({}, ["first line"])
        raise errors.InvalidValueError("too bad")

    verb(action)
    result = call("act")
    assert result.out == "first line\n"
    assert result.err.startswith("error[invalid-value]: too bad\n")


def test_mistakes_that_click_finds_are_usage_errors(verb, call):
    verb(raising(click.UsageError("Got unexpected extra argument (x).")))
    result = call("act")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[usage]: `backendcfg act`: got unexpected extra argument (x)\n"
        "  state: nothing was changed\n"
        "  help: run `backendcfg act --help` for what it accepts\n"
    )


def test_an_interrupt_while_the_command_line_is_imported_shows_no_traceback():
    program = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from backendcfg.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n  state: nothing was changed\n")
