"""Writes docs/errors.md from the error classes and their golden messages.

    python docs/generate.py           # write
    python docs/generate.py --check   # exit with 1 if the page is out of date

The pages of profiles and commands are written by the packages that know them:
`backendcfg.schema.export` and `backendcfg.cli.reference`. docs/capabilities.md is written by hand,
but for what its examples print: `python tests/docs/capabilities.py --write`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from backendcfg import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = Path(__file__).parents[1]
PAGE = TREE / "docs" / "errors.md"
GOLDEN = TREE / "tests" / "errors" / "golden"

HEAD = """\
# Errors and exit codes

<!-- Written by `python docs/generate.py` from backendcfg/errors.py and tests/errors/golden. -->

Every error has a stable code in brackets. It says what is wrong, where, the facts, what state it
left behind, and what to do. In Python it is an exception of `backendcfg.errors` with the same
parts as attributes; with `--json` it is one JSON object.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a check says no: `verify` found a difference, `plan --why-not` a reason, `doctor` a fault |
| 2 | the request is wrong: the same request fails again anywhere |
| 3 | the request is right and this machine cannot serve it |
| 4 | it was tried, failed, and everything was undone |
| 5 | it was tried, failed, and something could not be undone; `state:` names it |
| 70 | a bug in backendcfg |
| 126, 127 | `run`: the command cannot be executed, or does not exist, as in a shell |
"""

TITLES = {
    1: "A check says no",
    2: "The request is wrong",
    3: "This machine cannot",
    4: "Tried and rolled back",
    5: "Rollback incomplete",
    70: "A bug",
    126: "A command that cannot be executed",
    127: "A command that does not exist",
}


def classes(
    base: type[errors.BackendCfgError] = errors.BackendCfgError,
) -> Iterator[type[errors.BackendCfgError]]:
    """Every error class that has a code of its own, in the order of definition."""
    for cls in base.__subclasses__():
        if "code" in vars(cls):
            yield cls
        yield from classes(cls)


def section(cls: type[errors.BackendCfgError]) -> str:
    """One error: its code, what it is, what to catch, and how it looks."""
    built_in = [b.__name__ for b in cls.__mro__ if b.__module__ == "builtins"]
    also = [name for name in built_in if name not in {"Exception", "BaseException", "object"}]
    catch = f"`backendcfg.errors.{cls.__name__}`" + (f", also a `{also[0]}`" if also else "")
    example = (GOLDEN / f"{cls.code}.txt").read_text()
    return f"### {cls.code}\n\n{cls.__doc__}\n\n{catch}.\n\n```text\n{example}```\n"


def page() -> str:
    """The whole text of docs/errors.md."""
    parts = [HEAD]
    found = list(classes())
    for code in sorted({cls.exit_code for cls in found}):
        parts.append(f"## {TITLES[code]} (exit code {code})\n")
        parts += [section(cls) for cls in found if cls.exit_code == code]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is current."""
    text = page()
    if arguments == ["--check"]:
        current = PAGE.exists() and PAGE.read_text() == text
        print("docs/errors.md is current" if current else "docs/errors.md is out of date")
        return 0 if current else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
