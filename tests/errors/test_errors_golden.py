"""Every error class is provoked, and its whole message compared with a file written by hand."""

from __future__ import annotations

import io
import json
import pickle
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from error_causes import CAUSES, Project

from backendcfg import errors
from backendcfg.cli.main import main
from backendcfg.errors import BackendCfgError, Span

GOLDEN = Path(__file__).parent / "golden"


def classes(base=BackendCfgError):
    """Every class of ours below the base that says its own code."""
    for cls in base.__subclasses__():
        if "code" in vars(cls) and cls.__module__ == errors.__name__:
            yield cls
        yield from classes(cls)


@pytest.fixture(name="project")
def _project(tmp_path, capsys, monkeypatch):
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    for name in ("CONFIG", "SYSTEM", "STATE", "CACHE"):
        monkeypatch.setenv(f"BACKENDCFG_{name}_DIR", str(tmp_path / name.lower()))
    return Project(root, capsys, monkeypatch)


def test_every_class_has_a_cause_and_a_golden_message():
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)
    assert sorted(CAUSES) == sorted(codes)
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(codes)


@pytest.mark.parametrize("code", CAUSES)
def test_the_message_is_the_golden_one(project, code):
    assert CAUSES[code](project) == (GOLDEN / f"{code}.txt").read_text()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_golden_messages_keep_the_form(path):
    """The code first, state once and before help, no final period, plain ASCII."""
    *messages, end = path.read_text().split("\n\n")
    if path.stem == "several-errors":
        assert end == f"{len(messages)} errors in profiles/mine.toml\n"
    else:
        assert messages == []
        assert end.startswith(f"error[{path.stem}]: ")
        messages = [end]
    for message in messages:
        kinds = [line.split(":")[0] for line in message.splitlines() if line.startswith("  ")]
        order = [kind.strip() for kind in kinds if kind.strip() in {"note", "state", "help"}]
        assert order == sorted(order, key=["note", "state", "help"].index)
        assert order.count("state") == 1
        assert not [line for line in message.splitlines() if line.endswith(".")]
        assert message.isascii()


@pytest.mark.parametrize("cls", list(classes()), ids=lambda cls: cls.code)
def test_the_record_survives_json_and_pickle(cls):
    span = Span("a.toml", 3, 1, 2, "ab = 1", "here")
    error = cls("it is wrong", spans=[span], notes=["a fact"], state="as it was", helps=["do"])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "it is wrong (a.toml:3:1)"
    assert again.render() == error.render()
    assert json.loads(json.dumps(error.to_dict())) == again.to_dict()
    assert error.to_dict()["exit_code"] in {1, 2, 3, 4, 5, 70, 126, 127}


@pytest.mark.parametrize("cls", list(classes()), ids=lambda cls: cls.code)
def test_notes_that_were_pickled_can_be_set_again(cls):
    error = cls("it is wrong", notes=["a fact"])
    error.add_note("seen in worker 3")
    again = cls("it is wrong", notes=["a fact"])
    again.__notes__ = error.__notes__  # as tblib does
    assert again.__notes__ == error.__notes__
    assert again.__notes__[-1] == "seen in worker 3"
    assert again.render() == error.render()


def test_json_is_the_same_record_on_standard_output():
    out = io.StringIO()
    with redirect_stdout(out):
        code = main(["--json", "explain", "cudnn.benchmrak"])
    record = json.loads(out.getvalue())["error"]
    assert code == record["exit_code"] == 2
    assert record["code"] == "unknown-flag"
    assert (
        record["message"]
        == "no flag has `cudnn.benchmrak` in its name, in PyTorch's name for it or in what it does"
    )
    assert record["helps"][0] == "did you mean `cudnn.benchmark`?"


def test_a_place_keeps_its_column_under_tabs_and_unprintable_characters():
    error = errors.WrongTypeError(
        "x", spans=[Span("a.toml", 100, 3, 3, "\ta\x00b=1\x1b[31m", "here"), Span("b.toml", 7, 1)]
    )
    assert error.render() == (
        "error[wrong-type]: x\n"
        "    --> a.toml:100:3\n"
        "     |\n"
        " 100 |  a?b=1?[31m\n"
        "     |   ^^^ here\n"
        "    --> b.toml:7:1\n"
        "  state: nothing was changed"
    )


def test_a_traceback_shows_the_whole_record_and_the_notes_that_were_added():
    import traceback

    from backendcfg.errors import InvalidValueError, SeveralErrors

    error = InvalidValueError("wrong", notes=["a fact"], helps=["do this"])
    error.add_note("from outside")
    assert traceback.format_exception_only(error) == [
        "backendcfg.errors.InvalidValueError: wrong\n",
        "  note: a fact\n",
        "  state: nothing was changed\n",
        "  help: do this\n",
        "from outside\n",
    ]
    several = SeveralErrors("2 errors", errors=[error, InvalidValueError("also wrong")])
    assert traceback.format_exception_only(several)[1:] == [
        "error[invalid-value]: wrong\n",
        "  note: a fact\n",
        "  state: nothing was changed\n",
        "  help: do this\n",
        "\n",
        "error[invalid-value]: also wrong\n",
        "  state: nothing was changed\n",
    ]


def test_a_path_is_shown_relative_below_the_working_directory_and_whole_in_the_root(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert errors.shown_path(f"{tmp_path}/a.toml") == "a.toml"
    assert errors.shown_path("/etc/a.toml") == "/etc/a.toml"
    monkeypatch.chdir("/")
    assert errors.shown_path("/etc/a.toml") == "/etc/a.toml"
