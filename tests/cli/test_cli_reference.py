"""docs/commands.md is what the commands say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from backendcfg.cli import reference
from backendcfg.cli.group import verb_names

PAGE = Path(__file__).parents[2] / reference.PAGE


@pytest.mark.skipif(not PAGE.parent.exists(), reason="needs the source tree")
def test_the_page_of_commands_is_up_to_date():
    assert PAGE.read_text() == reference.page()


def test_every_command_has_a_section():
    headings = [line for line in reference.page().splitlines() if line.startswith("### ")]
    assert sorted(headings) == [f"### backendcfg {name}" for name in verb_names()]


def test_check_says_whether_the_page_is_up_to_date(tmp_path, capsys):
    path = tmp_path / "commands.md"
    assert reference.main([str(path)]) == 0
    assert reference.main(["--check", str(path)]) == 0
    path.write_text(path.read_text() + "more\n")
    assert reference.main(["--check", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"{path} is out of date; run `python -m backendcfg.cli.reference`\n"
    )
