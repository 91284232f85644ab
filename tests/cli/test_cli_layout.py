"""What is shown fits the terminal from 60 columns up, and nothing of it is lost."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from backendcfg.cli.output import ESCAPE, arranged, fitted, size, wrapped

HOSTS = Path(__file__).parents[1] / "hosts"
H100 = str(HOSTS / "dgx-h100--openblas.json")

COMMANDS = [
    ["list"],
    ["plan", "reproducible", "--host", H100],
    ["plan", "fast", "--host", H100, "-v"],
    ["explain", "cuda.preferred_blas_library", "--profile", "fast", "--host", H100],
    ["plan", "reproducible", "--why-not", "--host", H100],
    ["diff", "fast", "reproducible", "--host", H100],
    ["detect"],
    ["status"],
    ["doctor"],
]


@pytest.fixture(name="terminal")
def _terminal(monkeypatch):
    """Make standard output a terminal of so many columns, or none."""

    def terminal(columns):
        for module in ("output", "main"):
            monkeypatch.setattr(f"backendcfg.cli.{module}.terminal_width", lambda stream: columns)

    return terminal


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("plain", 5),
        ("\u8cc7\u6599", 4),  # two characters of two columns each
        ("e\u0301", 1),  # e and a combining accent
        (f"{ESCAPE}[1mbold{ESCAPE}[0m", 4),
        ("\uff21", 2),  # a fullwidth letter
    ],
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text, columns):
    assert size(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("", 10, [""]),
        ("one two three", 8, ["one two", "three"]),
        ("\u8cc7\u6599 \u8cc7\u6599", 6, ["\u8cc7\u6599", "\u8cc7\u6599"]),
        ("\u8cc7\u6599\u8cc7\u6599\u8cc7", 5, ["\u8cc7\u6599", "\u8cc7\u6599", "\u8cc7"]),
        ("/a/long/path/name", 10, ["/a/long/", "path/name"]),
        ("see /a/long/path", 10, ["see", "/a/long/", "path"]),
        ("unbreakable", 4, ["unbr", "eaka", "ble"]),
    ],
)
def test_lines_break_at_spaces_and_long_words_at_signs(text, columns, lines):
    assert wrapped(text, columns) == lines
    assert max(map(size, lines)) <= columns


def test_a_long_word_stands_out_where_words_are_kept_whole():
    assert wrapped("see /a/long/path", 10, whole_words=True) == ["see", "/a/long/path"]


def test_what_follows_the_first_line_is_indented():
    assert fitted("  note: one two three", 18) == ["  note: one two", "    three"]
    assert fitted("  note: one two three", None) == ["  note: one two three"]


def test_columns_of_wide_characters_are_aligned():
    assert arranged([("\u8cc7\u6599", "a"), ("abc", "b")], None) == [
        ["\u8cc7\u6599  a"],
        ["abc   b"],
    ]


def test_the_last_cell_stands_under_its_row_where_little_room_is_left():
    rows = [("name", "x" * 20, "words " * 10)]
    assert arranged(rows, 44) == [
        ["name  " + "x" * 20, "    " + "words " * 5 + "words", "    words words words words"]
    ]


LIST = {
    60: """\
  profile                from     tier
    description
  debug                  shipped  run-to-run
    Verbose, strict and slow: one thread, deterministic,
    every call of MKL and oneDNN printed
  fast                   shipped  none
    Speed without surprising accuracy: TF32, autotuning, our
    kernels of PyTorch's attention and dropout
""",
    80: """\
  profile                from     tier
    description
  debug                  shipped  run-to-run
    Verbose, strict and slow: one thread, deterministic, every call of MKL and
    oneDNN printed
  fast                   shipped  none
    Speed without surprising accuracy: TF32, autotuning, our kernels of
    PyTorch's attention and dropout
""",
    120: """\
  profile                from     tier           description
  debug                  shipped  run-to-run     Verbose, strict and slow: one thread, deterministic, every call of MKL
                                                 and oneDNN printed
  fast                   shipped  none           Speed without surprising accuracy: TF32, autotuning, our kernels of
                                                 PyTorch's attention and dropout
""",
}


@pytest.mark.parametrize("columns", LIST)
def test_list_on_a_terminal(columns, call, terminal):
    terminal(columns)
    assert call("list").out.startswith(LIST[columns])


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_every_table_and_note_fits_and_says_all(words, call, terminal):
    terminal(None)
    whole = call(*words).out
    for columns in (60, 80, 120):
        terminal(columns)
        shown = call(*words).out
        assert [line for line in shown.splitlines() if size(line) > columns] == []
        assert sorted("".join(shown.split())) == sorted("".join(whole.split()))


def test_a_description_in_wide_characters_fits(call, terminal, project):
    text = "\u8cc7\u6599\u3092" * 40
    (project / "profiles" / "mine.toml").write_text(f'description = "{text}"\n', encoding="utf-8")
    terminal(60)
    shown = call("list").out
    assert max(map(size, shown.splitlines())) <= 60
    assert text in "".join(shown.split())


def test_notes_of_an_error_fit(call, terminal):
    terminal(60)
    assert call("run", "reproducible").err == (
        "error[usage]: `backendcfg run` needs a command\n"
        "  state: nothing was changed\n"
        "  help: write `backendcfg run reproducible -- python\n"
        "    train.py`\n"
        "  help: or `backendcfg run -- python train.py` for the\n"
        "    profile in force here\n"
    )


def test_what_a_machine_reads_is_not_broken(call, terminal):
    terminal(None)
    whole = call("plan", "reproducible", "--toml").out, call("env", "fast").out
    terminal(60)
    assert whole == (call("plan", "reproducible", "--toml").out, call("env", "fast").out)


@pytest.mark.parametrize("columns", [60, 100])
def test_the_width_is_that_of_the_terminal(columns, tmp_path):
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "backendcfg", "list"], stdout=terminal, cwd=tmp_path
    ) as started:
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            shown += part
    os.close(master)
    assert started.returncode == 0
    widest = max(size(line) for line in shown.decode().replace("\r", "").splitlines())
    assert columns - 20 <= widest <= columns
