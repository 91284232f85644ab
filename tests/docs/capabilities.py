"""Runs every example on docs/capabilities.md, and compares what it prints with the page.

    python tests/docs/capabilities.py              # compare, and say what differs
    python tests/docs/capabilities.py --write      # put what is printed now on the page
    python tests/docs/capabilities.py --write run  # only the entries whose title contains "run"

An entry is a `###` heading and what follows it. Its blocks, in order:

- `console`: each line after `$ ` is run by bash. What it prints follows, standard error included,
  and `[exit code N]` unless that is 0.
- `pycon`: an interactive Python session, run by one interpreter.
- `toml`, `python`: a file, named in a comment in its first line, that is written before the
  next block runs.

Each entry starts in an empty directory, as a user without settings, without the variables that
numeric libraries read, and with the hosts of tests/hosts beside it. `...` in expected output
stands for any text within a line, and alone on a line for any number of lines. Writing keeps each
`...` whose surroundings are still printed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "capabilities.md"
HOSTS = TREE / "tests" / "hosts"

ANY = "..."
HOME = "/home/johanna"
"""How the page writes the user's directory. It is as long as what `mkdtemp` makes in /tmp, so that
tables and wrapped lines look as they do on the page."""

LIMIT = 120
"""Seconds after which a command or session is ended."""

KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Variables of the caller that an example sees; no library reads them for its arithmetic."""

SESSION = """
import contextlib, io, json, sys, traceback
space, printed = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            exec(compile(source, "<page>", "single"), space)
        except BaseException as error:
            out.write("Traceback (most recent call last):\\n")
            out.write("".join(traceback.format_exception_only(error)))
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""

BLOCK = re.compile(r"^```(console|pycon|toml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+)\n")


@dataclass(frozen=True)
class Example:
    """What is typed, as it stands on the page, and the lines that are expected to follow."""

    typed: str
    expected: list[str]

    @property
    def source(self) -> str:
        """What is typed, without its prompts."""
        if self.typed.startswith("$ "):
            return self.typed[2:]
        return "".join(f"{line[4:]}\n" for line in self.typed.splitlines())


@dataclass(frozen=True)
class Block:
    """One fenced block of an entry, and where its inside is on the page."""

    kind: str
    text: str
    start: int
    end: int

    def examples(self) -> list[Example]:
        """The commands or statements of the block, each with what it prints."""
        parts = re.split(r"^(?=\$ |>>> )", self.text, flags=re.MULTILINE)
        return [_example(part) for part in parts if part]


@dataclass(frozen=True)
class Entry:
    """One feature of the page."""

    group: str
    title: str
    text: str
    blocks: list[Block]

    @property
    def needs(self) -> list[str]:
        """The packages without which the entry cannot run: those after "Needs" in italics."""
        found = re.search(r"^\*Needs (.*)\.\*$", self.text, re.MULTILINE)
        names = {"PyTorch": "torch", "JAX": "jax"}
        return [names[word] for word in re.split(r",? and |, ", found[1])] if found else []


def _example(part: str) -> Example:
    """What stands after one prompt: the lines that are typed, then those that are expected."""
    lines = part.splitlines()
    count = 1
    while count < len(lines) and (
        lines[count - 1].endswith("\\")
        if part.startswith("$ ")
        else lines[count].startswith("... ")
    ):
        count += 1
    return Example("\n".join(lines[:count]) + "\n", lines[count:])


def entries(page: str) -> Iterator[Entry]:
    """Every entry of the page, in order."""
    group = ""
    for found in re.finditer(
        r"^(##|###) ([^\n]*)\n(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL
    ):
        if found[1] == "##":
            group = found[2]
            continue
        blocks = [
            Block(block[1], block[2], block.start(2), block.end(2))
            for block in BLOCK.finditer(page, found.start(3), found.end(3))
        ]
        yield Entry(group, found[2], found[3], blocks)


def matches(expected: str, printed: str) -> bool:
    """Whether a line is as expected: `...` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in expected.split(ANY))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def same(expected: list[str], printed: list[str]) -> bool:
    """Whether lines are as expected: a line `...` stands for any number of lines."""
    parts = [
        r"(?:[^\n]*\n)*" if line == ANY else r"[^\n]*".join(map(re.escape, line.split(ANY))) + r"\n"
        for line in expected
    ]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in printed)) is not None


def merged(
    expected: list[str],
    printed: list[str],
    alike: Callable[[str, str], bool],
    changed: Callable[[str, str], str],
) -> list[str]:
    """What is printed, with every `...` of what was expected that still has its place.

    The cheapest way to turn one into the other, item by item. An item that is not as expected is
    a changed one if the two are `alike`, and then becomes what `changed` makes of them; else one
    went and the other came.
    """
    best: dict[tuple[int, int], tuple[int, list[str]]] = {(0, 0): (0, [])}
    for i in range(len(expected) + 1):
        for j in range(len(printed) + 1):
            ways = []
            if i and j:
                old, new = expected[i - 1], printed[j - 1]
                cost, out = best[i - 1, j - 1]
                if old != ANY and matches(old, new):
                    ways.append((cost, [*out, old]))
                elif old != ANY and alike(old, new):
                    ways.append((cost + 1, [*out, changed(old, new)]))
            if i:
                cost, out = best[i - 1, j]
                ways.append((cost, [*out, ANY]) if expected[i - 1] == ANY else (cost + 2, out))
            if j:
                cost, out = best[i, j - 1]
                covered = i and expected[i - 1] == ANY
                ways.append((cost, out) if covered else (cost + 2, [*out, printed[j - 1]]))
            if ways:
                best[i, j] = min(ways, key=lambda way: way[0])
    return best[len(expected), len(printed)][1]


def _alike(expected: str, printed: str) -> bool:
    return difflib.SequenceMatcher(None, expected.replace(ANY, ""), printed).ratio() > 0.4


def _both_words(expected: str, printed: str) -> bool:
    """Not blanks, whose number beside a `...` differs between machines."""
    return not expected.isspace() and not printed.isspace()


def _changed_line(expected: str, printed: str) -> str:
    """A line that differs: its words, with the `...` among the expected ones where they fit."""
    if ANY not in expected:
        return printed
    words = [re.findall(r"\s+|\.\.\.|\w+|[^\w\s]", line) for line in (expected, printed)]
    line = "".join(merged(*words, alike=_both_words, changed=lambda _, word: word))
    return line if matches(line, printed) else printed


def rewritten(expected: list[str], printed: list[str]) -> list[str]:
    """The lines to expect from now on."""
    if same(expected, printed):
        return expected
    lines = merged(expected, printed, _alike, _changed_line)
    return lines if same(lines, printed) else printed


@contextmanager
def user() -> Iterator[Callable[[Block], list[list[str]]]]:
    """A user without settings, in an empty project; gives what runs a block there."""
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    project, names = home / "project", home / "bin"
    project.mkdir()
    names.mkdir()
    for host in HOSTS.glob("*.json"):
        (project / host.name.replace(f"--{host.stem.split('--')[1]}", "")).symlink_to(host)
    # `capture` names the interpreter as it was started: python, also where pytest runs by python3.
    beside = os.path.join(os.path.dirname(sys.executable), "python")
    python = beside if os.path.exists(beside) else sys.executable
    for name, arguments in (("python", ""), ("backendcfg", "-m backendcfg")):
        shim = names / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} {arguments} "$@"\n')
        shim.chmod(0o755)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": f"{names}{os.pathsep}{os.environ['PATH']}",
        "PYTHONSAFEPATH": "1",
        "BACKENDCFG_CONFIG_DIR": str(home / ".config" / "backendcfg"),
        "BACKENDCFG_SYSTEM_DIR": str(home / "etc" / "backendcfg"),
        "BACKENDCFG_STATE_DIR": str(home / ".local" / "state" / "backendcfg"),
        "BACKENDCFG_CACHE_DIR": str(home / ".cache" / "backendcfg"),
    }

    def start(arguments: list[str], typed: str = "") -> tuple[str, int]:
        """What a command prints, and its exit code."""
        done = subprocess.run(
            ["timeout", str(LIMIT), *arguments],
            cwd=project,
            env=environment,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout, done.returncode

    def run(block: Block) -> list[list[str]]:
        """What each example of a block prints."""
        if block.kind in ("toml", "python"):
            path = project / FILE.match(block.text)[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return []
        sources = [example.source for example in block.examples()]
        if block.kind == "console":
            printed = []
            for source in sources:
                text, code = start(["bash", "-c", source])
                printed.append(text + (f"[exit code {code}]\n" if code else ""))
        else:
            text, code = start([sys.executable, "-c", SESSION], json.dumps(sources))
            try:
                printed = json.loads(text)
            except ValueError:
                printed = [f"{text}\n[the interpreter ended with {code}]\n"] * len(sources)
        lines = [text.replace(str(home), HOME).splitlines() for text in printed]
        return [[line.rstrip() for line in text] for text in lines]

    try:
        yield run
    finally:
        shutil.rmtree(home, ignore_errors=True)


def run(entry: Entry) -> list[tuple[Block, list[tuple[Example, list[str]]]]]:
    """Each block of an entry that prints, with its examples and what they print now."""
    with user() as run_block:
        done = [(block, run_block(block)) for block in entry.blocks]
    return [
        (block, list(zip(block.examples(), printed, strict=True)))
        for block, printed in done
        if block.kind in ("console", "pycon")
    ]


def differences(entry: Entry) -> str:
    """What an entry prints that is not on the page, as a diff; empty where all is as expected."""
    lines = []
    for _, examples in run(entry):
        for example, printed in examples:
            if not same(example.expected, printed):
                now = rewritten(example.expected, printed)
                lines += [example.typed.rstrip()]
                lines += difflib.unified_diff(example.expected, now, "page", "now", lineterm="")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` update the page; words choose entries by their titles."""
    write = "--write" in arguments
    chosen = [word for word in arguments if word != "--write"]
    page = PAGE.read_text()
    found = []
    for entry in entries(page):
        if chosen and not any(word in entry.title for word in chosen):
            continue
        if lacking := [name for name in entry.needs if find_spec(name) is None]:
            print(f"skipped  {entry.title}: needs {', '.join(lacking)}")
            continue
        found.append(entry)
    with ThreadPoolExecutor(2) as pool:
        if not write:
            texts = list(pool.map(differences, found))
            print("\n".join(f"{e.title}:\n{t}" for e, t in zip(found, texts, strict=True) if t))
            return int(any(texts))
        blocks = [pair for done in pool.map(run, found) for pair in done]
    for block, examples in reversed(blocks):
        text = "".join(
            example.typed + "".join(f"{line}\n" for line in rewritten(example.expected, printed))
            for example, printed in examples
        )
        page = page[: block.start] + text + page[block.end :]
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
