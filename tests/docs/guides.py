"""Follows the guides in docs/adding-*.md: does in a copy of the source tree what a guide says.

An example in a guide begins with a line "Files: ..." that names every file that it touches. Its
blocks say in their first line which file they are for:

- `# FILE, a new file`: the block is the file.
- `# FILE, at the end of class NAME`: the block goes into the class, after what it has.
- `# FILE` in a `diff` block: lines with a space or a minus stand there, once; those with a minus
  go, those with a plus come. A line `...` stands between two places.

What a `sh` block holds is run. All other blocks are for reading.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from backendcfg import _native

TREE = Path(__file__).parents[2]
COPIED = ("backendcfg", "profiles", "schemas", "docs", "native")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
HEAD = re.compile(r"(?:#|<!--) (\S+/\S+?)(?:, (a new file|at the end of class (\w+)))?(?: -->)?$")
HOST = TREE / "tests" / "hosts" / "dgx-h100--openblas.json"


@dataclass(frozen=True)
class Block:
    """A block of a guide: its language, and its lines without the indentation."""

    language: str
    lines: list[str]


@dataclass(frozen=True)
class Example:
    """What a guide says to do: the files that it names, and its blocks."""

    files: set[str]
    blocks: list[Block]


def examples(guide):
    """The examples of a guide, in order."""
    _, *parts = re.split(r"^Files: ", (TREE / "docs" / guide).read_text(), flags=re.MULTILINE)
    for part in parts:
        named = re.findall(r"`([^`\s]+/[^`\s]+)`", part.partition("\n\n")[0])
        yield Example(set(named), list(blocks(part)))


def blocks(text):
    for indent, language, body in BLOCK.findall(text):
        yield Block(language, [line.removeprefix(indent) for line in body.splitlines()])


class Copy:
    """A copy of the source tree, with the compiled part in its package."""

    def __init__(self, root):
        self.root = root
        for name in COPIED:
            skipped = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(TREE / name, root / name, ignore=skipped)
        # Pages link to the files of the whole tree.
        shutil.copy(TREE / "pyproject.toml", root)
        compiled = Path(_native.__file__)
        os.symlink(compiled, root / "backendcfg" / compiled.name)
        self.before = self.contents()

    def contents(self):
        """Every file by its path, with its text."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    def touched(self):
        """The files that are not as they were."""
        now = self.contents()
        names = {*now, *self.before}
        return {name for name in names if now.get(name) != self.before.get(name)}

    def follow(self, example):
        """Do what an example says."""
        for block in example.blocks:
            if block.language == "sh":
                for line in block.lines:
                    assert line.startswith("python -m "), line
                    self.python(*line.split()[1:])
            elif head := HEAD.match(block.lines[0]):
                self.edit(self.root / head[1], head[2], head[3], block)

    def edit(self, path, place, name, block):
        """Put a block where it says."""
        lines = block.lines[1:]
        if place == "a new file":
            assert not path.exists(), f"{path} is there already"
            path.parent.mkdir(exist_ok=True)
            text = "\n".join(lines).lstrip("\n") + "\n"
        elif block.language == "diff":
            text = patched(path.read_text(), lines)
        else:
            assert name, f"{path}: the block does not say where it goes"
            text = extended(path.read_text(), name, lines)
        path.write_text(text)

    def python(self, *words, fails=0):
        """Run Python on the copy, and give what it printed."""
        # -S: the file of an editable install would find the package that it was made for.
        paths = [str(self.root), *(path for path in sys.path if path and path != str(TREE))]
        child = subprocess.run(
            [sys.executable, "-S", *words],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert child.returncode == fails, child.stdout + child.stderr
        return child.stdout

    def backendcfg(self, *words, fails=0):
        """Run the command on the copy, and give what it printed."""
        return self.python("-m", "backendcfg", *words, fails=fails)

    def read(self, name):
        """The text of a file of the copy."""
        return (self.root / name).read_text()


def patched(text, lines):
    """A text with the places of a `diff` block changed."""
    for hunk in "\n".join(lines).split("\n...\n"):
        old = "".join(f"{line[1:]}\n" for line in hunk.split("\n") if line[:1] != "+")
        new = "".join(f"{line[1:]}\n" for line in hunk.split("\n") if line[:1] != "-")
        assert f"\n{text}".count(f"\n{old}") == 1, f"not there once:\n{old}"
        text = f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]
    return text


def extended(text, name, lines):
    """A module with lines at the end of a class."""
    (found,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    before = text.splitlines()
    more = [f"    {line}" if line else "" for line in lines]
    after = before[found.end_lineno :]
    return "\n".join([*before[: found.end_lineno], *more, *after]) + "\n"
