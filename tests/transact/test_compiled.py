"""What a compiled plan says of itself."""

from __future__ import annotations

import shlex

import pytest

from backendcfg.transact.compiled import Asked, Compiled


@pytest.mark.parametrize(
    ("name", "rank", "words"),
    [
        ("fast", "profile-by-argument", ["backendcfg", "run", "fast"]),
        ("fast", "user-file", ["backendcfg", "run"]),
        (None, "profile-by-argument", ["backendcfg", "run"]),
    ],
)
@pytest.mark.parametrize(
    "text", ["8", '"it\'s $HOME"', '{ A = "x y" }', '"\u00e4"', "\"a''b\"", "", "a;b", "x'"]
)
def test_its_remedy_is_a_command_that_a_shell_reads_as_it_was_asked(name, rank, words, text):
    asked = Asked(name, rank, {"threads.count": text})
    remedy = Compiled(name or "default", "none", {}, request=asked).remedy
    assert shlex.split(remedy) == [*words, "--set", f"threads.count={text}", "--", "python", "..."]
    assert f"--set {shlex.quote(f'threads.count={text}')} -- " in remedy
