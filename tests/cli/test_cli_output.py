"""Colour, encodings and shapes of what is printed."""

import io

import click
import pytest

from backendcfg.cli.output import Output, limited, listing, write
from backendcfg.cli.verbs.env import dotenv, shell
from backendcfg.cli.wording import grouped_reasons
from backendcfg.resolve.words import literal


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("variables", "no_color", "stream", "coloured"),
    [
        ({}, False, Terminal(), True),
        ({}, False, io.StringIO(), False),
        ({}, True, Terminal(), False),
        ({"NO_COLOR": "1"}, False, Terminal(), False),
        ({"NO_COLOR": ""}, False, Terminal(), True),
        ({"FORCE_COLOR": "1"}, False, io.StringIO(), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, Terminal(), False),
        ({"TERM": "dumb"}, False, Terminal(), False),
    ],
)
def test_colour_is_only_on_terminals_and_not_under_no_color(
    variables, no_color, stream, coloured, monkeypatch
):
    stream.truncate(stream.seek(0))
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    output = Output(no_color=no_color)
    assert coloured == output.colours(stream)
    write(output.paint("no", "bold", "red", stream=stream), stream)
    assert stream.getvalue() == ("\x1b[1;31mno\x1b[0m\n" if coloured else "no\n")


def test_a_coloured_error_is_the_same_text_without_its_colours(call, monkeypatch):
    import re

    plain = call("stats").err
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = call("stats").err
    assert plain != coloured
    assert plain == re.sub(r"\x1b\[[0-9;]*m", "", coloured)


def test_what_the_encoding_lacks_is_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write("caf\xe9 \u2192", stream)
    stream.flush()
    assert stream.buffer.getvalue() == b"caf\\xe9 \\u2192\n"


@pytest.mark.parametrize(
    "value", ["plain", "two words", "quote ' \" `x` $HOME \\", "line\nbreak", "", "-x", "a=b;c"]
)
def test_shell_lines_give_any_value_back(value):
    import subprocess

    script = "\n".join(shell({"A_VARIABLE": value, "GONE": None}))
    script += '\nprintf %s "$A_VARIABLE"; printf %s "${GONE-unset}"'
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, env={"GONE": "there"}
    )
    assert f"{value}unset" == done.stdout


def test_dotenv_lines_quote_what_needs_it():
    variables = {"B": 'say "$x" \\', "A": "/a/b:c", "GONE": None, "L": "1\n2"}
    assert list(dotenv(variables)) == [
        "A=/a/b:c",
        'B="say \\"\\$x\\" \\\\"',
        "# GONE must not be set",
        'L="1\\n2"',
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        ("auto", '"auto"'),
        (4, "4"),
        ([1, "a"], '[1, "a"]'),
        ({}, "{}"),
        ({"prefer": ["mkl"], "a b": 1}, '{ prefer = ["mkl"], "a b" = 1 }'),
    ],
)
def test_values_read_as_toml(value, text):
    import tomllib

    assert text == literal(value)
    assert {"v": value} == tomllib.loads(f"v = {text}")


def test_dormant_flags_are_grouped_by_reason_the_commonest_first():
    reasons = {"a": "no GPU here", "b": "MKL is not here", "c": "no GPU here"}
    assert grouped_reasons(reasons) == ["2 flags: no GPU here", "b: MKL is not here"]


SEE = "backendcfg plan"
LONG = "one paragraph that is so long that it needs more than a single line of a screen, really"


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        ([], []),
        (["a", "b"], ["set       a, b"]),
        (
            ["word" * 5] * 9,
            [
                f"set       {', '.join(['word' * 5] * 3)},",
                f"          {'word' * 5}, and 5 more, see `backendcfg plan`",
            ],
        ),
        (
            ["a" * 62, "flag = value", "b"],
            [f"set       {'a' * 62},", "          flag = value, b"],
        ),
        (["x" * 200] * 2, ["set       2, see `backendcfg plan`"]),
    ],
)
def test_a_listing_keeps_to_its_lines(items, lines, verb_context):
    most = 1 if "x" * 200 in items else 2
    assert listing("set", items, most=most, see=SEE) == lines


@pytest.mark.parametrize(
    ("paragraphs", "lines"),
    [
        ([], []),
        (["a", "b"], ["why       a", "          b"]),
        (["a", "b", "c"], ["why       a", "          2 more, see `backendcfg plan`"]),
        ([LONG, "b"], ["why       2 more, see `backendcfg plan`"]),
    ],
)
def test_limited_paragraphs_keep_to_their_lines(paragraphs, lines, verb_context):
    assert limited("why", paragraphs, most=2, see=SEE) == lines


@pytest.fixture(name="verb_context")
def _verb_context(monkeypatch):
    """A command that runs, on a screen of 80 columns without colour."""
    monkeypatch.setattr("backendcfg.cli.output.terminal_width", lambda stream: 80)
    with click.Context(click.Command("act"), obj=Output()):
        yield
