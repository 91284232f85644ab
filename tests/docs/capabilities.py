"""Runs every example on a page of the documentation, and compares what it prints with the page.

    python tests/docs/capabilities.py              # compare docs/capabilities.md, and say what differs
    python tests/docs/capabilities.py --write      # put what is printed now on the page
    python tests/docs/capabilities.py --write run  # only the entries whose title contains "run"
    python tests/docs/capabilities.py --write README.md docs/verify.md  # other pages

An entry is a `###` heading of docs/capabilities.md, or a `##` heading of another page, and what follows
it. Its blocks, in order:

- `console`: each line after `$ ` is run by bash. What it prints follows, standard error included,
  and `[exit code N]` unless that is 0.
- `pycon`: an interactive Python session, run by one interpreter.
- `sh`: each line is run by bash, and exits with 0. What it prints is not compared.
- `toml`, `python`: a file, if a comment in its first line names one, that is written before the
  next block runs. Else a `python` block is run, all of an entry by one interpreter: it raises nothing
  and writes nothing to standard error. Another `toml` block is an extract, and not looked at.

A block in an HTML comment counts like any other. It is for what the reader is not to see: a script,
or the names that a block uses. Two comments are for this program:

- `<!-- not run: REASON -->` before a block.
- `<!-- needs: torch, 2 processors, exhaustive -->` before the blocks, up to the next heading, that
  need a package or so much; they are an entry of their own.

Each entry starts in an empty directory, as a user without settings, without the variables that
numeric libraries read, and with the hosts of tests/hosts beside it. `...` in expected output
stands for any text within a line, and alone on a line for any number of lines. Writing keeps each
`...` whose surroundings are still printed. On other pages than docs/capabilities.md, what depends on
the machine (`MACHINE`) may differ.
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
from itertools import pairwise
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

PACKAGES = ("torch", "jax")
WORDS = {"PyTorch": "torch", "JAX": "jax"}

KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Variables of the caller that an example sees; no library reads them for its arithmetic."""

SESSION = """
import contextlib, io, json, sys, traceback
mode, space, printed = sys.argv[1], {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    out = io.StringIO()
    shown = out if mode == "single" else io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(out):
        try:
            exec(compile(source, "<page>", mode), space)
        except BaseException as error:
            out.write("Traceback (most recent call last):\\n")
            out.write("".join(traceback.format_exception_only(error)))
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""

PART = re.compile(
    r"^<!-- (?P<mark>not run|needs): (?P<said>[^\n]*) -->$"
    r"|^```(?P<kind>console|pycon|sh|toml|python)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")

MACHINE = (
    (r"^(host|at start)  .*(\n .*)*", r"\1"),
    (r"\b\d+ more\b", "N more"),
    (r"\b(\d+) of \1 cores", "N of N cores"),
    (r'"auto", got \d+', '"auto", got N'),
    (r"\b([A-Z]+(?:_NUM_THREADS|_NUM)|NPROC)=\d+", r"\1=N"),
    (r"^(\w+_NUM_THREADS|.*\.threads) +\"?\d+\"?", r"\1 N"),
    (r"\b(seconds|accuracy|loss) +\d+\.\d+", r"\1 N"),
    (r"\b\d+(\.\d+)? (ns|us|ms|s)\b", "N s"),
    (r"\b(\w+) [1-9]\d*\.\d+[\d.]*(\+cpu)?(?=[, :)]|$)", r"\1 VERSION"),
    (r" +", " "),
)
"""What differs between machines, in lines of console blocks: an expression and what stands for it."""

DIGEST = re.compile(r"\b[0-9a-f]{16}\b")
"""A digest of what a program computed. Which of them are equal is compared, not what they are."""


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
        if not self.typed.startswith(">>> "):
            return self.typed
        return "".join(f"{line[4:]}\n" for line in self.typed.splitlines())


@dataclass(frozen=True)
class Block:
    """One fenced block of an entry, and where its inside is on the page."""

    kind: str
    text: str
    start: int
    end: int
    not_run: str = ""
    """Why it is not run."""

    @property
    def file(self) -> str:
        """The file that it is, or ""."""
        named = self.kind in ("toml", "python") and FILE.match(self.text)
        return named[1] if named else ""

    def examples(self) -> list[Example]:
        """The commands or statements of the block, each with what it prints."""
        if self.kind == "sh":
            lines = self.text.replace("\\\n", " ").splitlines()
            return [Example(f"$ {line}", []) for line in lines if line]
        if self.kind == "python":
            return [Example(self.text, [])]
        parts = re.split(r"^(?=\$ |>>> )", self.text, flags=re.MULTILINE)
        return [_example(part) for part in parts if part]


@dataclass(frozen=True)
class Entry:
    """One feature of docs/capabilities.md, or what one heading of another page has with the same needs."""

    page: Path
    title: str
    text: str
    blocks: list[Block]
    needs: list[str]
    """The packages without which the entry cannot run, "2 processors", and "exhaustive"."""

    @property
    def lacking(self) -> list[str]:
        """The packages that are not here."""
        return [name for name in self.needs if name in PACKAGES and find_spec(name) is None]


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


def entries(page: Path) -> Iterator[Entry]:
    """Every entry of a page, in order."""
    text = page.read_text()
    start, title = (r"^###? |\Z", "###") if page == PAGE else (r"^## |\Z", "")
    edges = [0, *(found.start() for found in re.finditer(start, text, re.MULTILINE))]
    for begin, end in pairwise(edges):
        heading = text[begin:end].partition("\n")[0]
        if not heading.startswith(title):
            continue
        inside = text[begin + len(heading) : end]
        found = re.search(r"^\*Needs (.*)\.\*$", inside, re.MULTILINE)
        needs = [WORDS[word] for word in re.split(r",? and |, ", found[1])] if found else []
        not_run = ""
        alike: list[Block] = []
        for part in PART.finditer(text, begin, end):
            if part["mark"] == "not run":
                not_run = part["said"]
            elif part["mark"]:
                if alike:
                    yield Entry(page, heading.lstrip("# "), inside, alike, needs)
                needs, alike = part["said"].split(", "), []
            else:
                place = part.start("text"), part.end("text")
                alike.append(Block(part["kind"], part["text"], *place, not_run))
                not_run = ""
        if alike or page == PAGE:
            yield Entry(page, heading.lstrip("# "), inside, alike, needs)


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


def normal(entry: Entry, texts: list[list[str]]) -> list[list[str]]:
    """Lines of an entry's examples with what may differ between machines replaced."""
    if entry.page == PAGE:
        return texts
    numbers: dict[str, str] = {}

    def replaced(text: str) -> str:
        text = DIGEST.sub(lambda found: numbers.setdefault(found[0], f"<{len(numbers)}>"), text)
        for expression, stands in MACHINE:
            text = re.sub(expression, stands, text, flags=re.MULTILINE)
        return text

    return [replaced("\n".join(lines)).splitlines() for lines in texts]


def rewritten(expected: list[str], printed: list[str]) -> list[str]:
    """The lines to expect from now on."""
    if same(expected, printed):
        return expected
    lines = merged(expected, printed, _alike, _changed_line)
    return lines if same(lines, printed) else printed


@contextmanager
def user() -> Iterator[Callable[[Block, list[str]], list[list[str]]]]:
    """A user without settings, in an empty project; gives what runs a block's sources there."""
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    project, names = home / "project", home / "bin"
    project.mkdir()
    names.mkdir()
    (home / "tmp").mkdir()
    for host in HOSTS.glob("*.json"):
        (project / host.name.replace(f"--{host.stem.split('--')[1]}", "")).symlink_to(host)
    shutil.copytree(TREE / "docs" / "tutorial", project / "docs" / "tutorial")
    # `capture` names the interpreter as it was started: python, also where pytest runs by python3.
    beside = os.path.join(os.path.dirname(sys.executable), "python")
    python = beside if os.path.exists(beside) else sys.executable
    for name, arguments in (("python", ""), ("backendcfg", "-m backendcfg")):
        shim = names / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} {arguments} "$@"\n')
        shim.chmod(0o755)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": os.pathsep.join([str(names), os.path.dirname(python), os.environ["PATH"]]),
        "PYTHONSAFEPATH": "1",
        # CPython's own race: the thread that feeds a queue of spawned processes unlinks a semaphore
        # and is stopped before it tells the tracker, where a program ends just then.
        "PYTHONWARNINGS": "ignore:resource_tracker::multiprocessing.resource_tracker",
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

    def run(block: Block, sources: list[str]) -> list[list[str]]:
        """What each source of a block prints."""
        if block.file:
            path = project / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return []
        if block.kind in ("console", "sh"):
            printed = []
            for source in sources:
                text, code = start(["bash", "-c", source])
                if block.kind == "sh" and not code:
                    text = ""
                printed.append(text + (f"[exit code {code}]\n" if code else ""))
        else:
            mode = "single" if block.kind == "pycon" else "exec"
            text, code = start([sys.executable, "-c", SESSION, mode], json.dumps(sources))
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
    blocks = [block for block in entry.blocks if not block.not_run]
    program = [block for block in blocks if block.kind == "python" and not block.file]
    done = []
    with user() as run_block:
        for block in blocks:
            if block in program[1:] or (block.kind == "toml" and not block.file):
                continue
            together = program if block in program else [block]
            examples = [example for part in together for example in part.examples()]
            printed = run_block(block, [example.source for example in examples])
            if not block.file:
                done.append((block, list(zip(examples, printed, strict=True))))
    return done


def differences(entry: Entry) -> str:
    """What an entry prints that is not on the page, as a diff; empty where all is as expected."""
    examples = [pair for _, examples in run(entry) for pair in examples]
    pages = normal(entry, [example.expected for example, _ in examples])
    nows = normal(entry, [printed for _, printed in examples])
    lines = []
    for (example, _), page, now in zip(examples, pages, nows, strict=True):
        if not same(page, now):
            lines += [example.typed.rstrip()]
            lines += difflib.unified_diff(page, rewritten(page, now), "page", "now", lineterm="")
    return "\n".join(lines)


def written(entry: Entry) -> list[tuple[Block, str]]:
    """The blocks of an entry whose output is on the page, and what they are to be from now on."""
    done = [
        (block, examples) for block, examples in run(entry) if block.kind in ("console", "pycon")
    ]
    examples = [pair for _, pairs in done for pair in pairs]
    pages = normal(entry, [example.expected for example, _ in examples])
    nows = normal(entry, [printed for _, printed in examples])
    kept = {
        id(example)
        for (example, _), page, now in zip(examples, pages, nows, strict=True)
        if same(page, now)
    }
    return [
        (
            block,
            "".join(
                f"{line}\n"
                for example, printed in pairs
                for line in (
                    example.typed.rstrip("\n"),
                    *(
                        example.expected
                        if id(example) in kept
                        else rewritten(example.expected, printed)
                    ),
                )
            ),
        )
        for block, pairs in done
    ]


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` update pages; words choose entries by their titles."""
    write = "--write" in arguments
    pages = [TREE / word for word in arguments if word.endswith(".md")] or [PAGE]
    chosen = [word for word in arguments if word != "--write" and not word.endswith(".md")]
    found = []
    for entry in [entry for page in pages for entry in entries(page)]:
        if chosen and not any(word in entry.title for word in chosen):
            continue
        if entry.lacking:
            print(f"skipped  {entry.title}: needs {', '.join(entry.lacking)}")
            continue
        found.append(entry)
    with ThreadPoolExecutor(2) as pool:
        if not write:
            texts = list(pool.map(differences, found))
            print("\n".join(f"{e.title}:\n{t}" for e, t in zip(found, texts, strict=True) if t))
            return int(any(texts))
        done = list(pool.map(written, found))
    for page in pages:
        text = page.read_text()
        blocks = [
            pair for e, pairs in zip(found, done, strict=True) if e.page == page for pair in pairs
        ]
        for block, new in reversed(blocks):
            text = text[: block.start] + new + text[block.end :]
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
