"""Hostile trees, states and environments, each made from a number and the same in every run.

A world is what a user has: a home with settings, state, cache and a record of trust, and a project with
a settings file and profiles. One thing in it, or two, is then damaged as an unlucky machine or a
hostile repository may do it; `World.damaged` names the files.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = 'schema = 1\nprofile = "mine"\n'
MINE = 'schema = 1\nextends = "fast"\n\n[threads]\ncount = 1\n'

TARGETS = {
    "project/backendcfg.toml": "toml",
    "project/pyproject.toml": "toml",
    "project/profiles/mine.toml": "toml",
    "project/profiles/other.toml": "toml",
    "home/config/config.toml": "toml",
    "home/config/profiles/mine.toml": "toml",
    "home/config/trusted.json": "json",
    "home/state/v2/active": "text",
    "home/state/v2/lock": "text",
    "home/state/v2/generations/user/1.json": "json",
    "home/cache/plans/*.json": "json",
    "home/cache/libraries.json": "json",
    "home/cache/calibration/*.json": "json",
}
"""What is damaged, below the world's folder, and what is in it."""

ENVIRONMENTS = (
    {},
    {},
    {},
    {"HOME": ""},
    {"HOME": "x"},
    {"HOME": "/nonexistent"},
    {"BACKENDCFG_STATE_DIR": "/dev/null"},
    {"BACKENDCFG_CACHE_DIR": "/proc/1/cache"},
    {"BACKENDCFG_CONFIG_DIR": "/dev/full"},
    {"TMPDIR": "/nonexistent"},
    {"LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    {"COLUMNS": "-1", "TERM": "\x1b[31m"},
)


@dataclass
class World:
    """One world.

    Attributes:
        folder: holds all of it.
        damaged: the files that were damaged, with what was done to them.
        environment: variables beside the usual ones.
        descriptors: how many files a process may open there; 0 for as many as usual.
    """

    folder: Path
    damaged: dict[Path, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    descriptors: int = 0

    def variables(self) -> dict[str, str]:
        """The environment of a process in this world."""
        home = self.folder / "home"
        kept = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
        }
        return {
            **kept,
            "HOME": str(home),
            "BACKENDCFG_CONFIG_DIR": str(home / "config"),
            "BACKENDCFG_STATE_DIR": str(home / "state"),
            "BACKENDCFG_CACHE_DIR": str(home / "cache"),
            "BACKENDCFG_SYSTEM_DIR": str(self.folder / "system"),
            **self.environment,
        }

    def precious(self) -> dict[str, object]:
        """What no command may change: the project, the user's settings, and a file beside them."""
        found: dict[str, object] = {}
        for top in ("project", "home/config", "elsewhere"):
            for path in sorted((self.folder / top).rglob("*")):
                status = path.lstat()
                known = path.is_symlink() or not path.is_file()
                held = os.readlink(path) if path.is_symlink() else status.st_mode
                found[str(path)] = held if known else (path.read_bytes(), status.st_mode)
        return found


def make(number: int, template: Path, folder: Path) -> World:
    """The world with a number.

    Args:
        number: which.
        template: a whole world, of which this is a copy.
        folder: where it is made.
    """
    choose = random.Random(number)
    shutil.copytree(template, folder, symlinks=True)
    world = World(folder)
    for target in choose.sample(sorted(TARGETS), choose.choice((1, 1, 2))):
        path = folder / target
        if "*" in target:
            path = next(iter(sorted(path.parent.glob(path.name))), path.with_name("none.json"))
        path.parent.mkdir(parents=True, exist_ok=True)
        name = choose.choice([*BLOWS, *(KINDS[TARGETS[target]])])
        blow = BLOWS.get(name) or KINDS[TARGETS[target]][name]
        blow(path, choose, folder)
        world.damaged[path] = name
    world.environment = dict(choose.choice(ENVIRONMENTS))
    world.descriptors = choose.choice((0, 0, 0, 0, 24))
    return world


def _put(path, content):
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _content(path):
    return path.read_bytes() if path.is_file() else b""


def _pipe(path, _choose, _folder):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _link(to):
    def blow(path, _choose, folder):
        path.unlink(missing_ok=True)
        path.symlink_to(to.format(folder=folder, path=path))

    return blow


def _folder(path, _choose, _world):
    path.unlink(missing_ok=True)
    path.mkdir()


def _foreign(path, _choose, _world):
    if not path.exists():
        path.write_text("")
    if os.geteuid() == 0:
        os.chown(path, 54321, 54321)


def _flipped(path, choose, _world):
    content = bytearray(_content(path) or b"schema = 1\n")
    for _ in range(choose.randint(1, 8)):
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    _put(path, bytes(content))


def _cut(path, choose, _world):
    content = _content(path)
    _put(path, content[: choose.randrange(len(content) + 1)])


def _later(path, _choose, _world):
    if not path.exists():
        path.write_text("")
    os.utime(path, (4e9, 4e9))


BLOWS = {
    "is gone": lambda path, *_: path.unlink(missing_ok=True),
    "is empty": lambda path, *_: _put(path, b""),
    "is cut": _cut,
    "has flipped bits": _flipped,
    "is binary": lambda path, choose, _: _put(path, choose.randbytes(4096)),
    "has zero bytes": lambda path, *_: _put(path, b"\0" * 70_000),
    "is larger than any": lambda path, *_: _put(path, b"#" * (3 << 20)),
    "is a pipe": _pipe,
    "is a folder": _folder,
    "leads to /dev/zero": _link("/dev/zero"),
    "leads to itself": _link("{path}"),
    "leads to a file of the user's": _link("{folder}/elsewhere/precious"),
    "is somebody else's": _foreign,
    "may be written by all": lambda path, *_: path.exists() and path.chmod(0o666),
    "was changed in 2096": _later,
}
"""What may happen to any file."""


def _changed(path, choose, _world):
    """Another value of another type somewhere in a JSON document."""
    try:
        data = json.loads(_content(path))
    except ValueError:
        data = {}
    at = data
    while isinstance(at, dict) and at:
        key = choose.choice(sorted(at))
        if not isinstance(at[key], dict) or not at[key] or choose.random() < 0.4:
            at[key] = choose.choice(ODD)
            break
        at = at[key]
    with contextlib.suppress(ValueError):
        _put(path, json.dumps(data))


ODD = [
    None,
    True,
    -1,
    10**400,
    1e308,
    "",
    "\x1b[31m\u202e",
    [],
    [[]],
    {},
    {"a": None},
    "/etc/passwd",
    "../x",
]


def _text(*choices):
    return lambda path, choose, _: _put(path, choose.choice(choices))


KINDS = {
    "toml": {
        "has an endless key": _text(".".join(["a"] * 50_000) + " = 1\n"),
        "has an endless header": _text("[" + ".".join(["a"] * 50_000) + "]\n"),
        "is nested deeply": _text("x = " + "[" * 50_000, "x = " + "{a=" * 20_000),
        "has many keys": lambda path, *_: _put(path, "".join(f"k{i} = 1\n" for i in range(60_000))),
        "extends itself": _text('schema = 1\nextends = "mine"\n', 'extends = ["other", "mine"]\n'),
        "extends many": lambda path, *_: _put(
            path, f"schema = 1\nextends = {json.dumps(['fast', 'tf32-off'] * 4000)}\n"
        ),
        "is of a later schema": _text("schema = 99\n"),
        "writes to the terminal": _text(
            'description = "\x1b]0;owned\x07"\n', 'schema = "\\u001b[2J"\n'
        ),
        "asks for what needs trust": _text(
            'blas.path = "/tmp/evil.so"\n', '[environment]\nLD_PRELOAD = "/tmp/evil.so"\n'
        ),
        "has numbers beyond measure": _text(
            f"threads.count = {'9' * 5000}\n", "threads.count = 1e400\n", "threads.count = 4097\n"
        ),
        "is not UTF-8": _text(b"\xff\xfe\x00", "schema = 1\n".encode("utf-16"), b"# \xe9\n"),
        "has a wrong type": _text(
            "profile = 1\n", "profile = []\n", "tool = 1\n", "tool.backendcfg = 1\n"
        ),
        "names a path": _text('profile = "../../etc/passwd"\n', 'profile = "/dev/zero"\n'),
    },
    "json": {
        "has another value": _changed,
        "is nested deeply": _text("[" * 200_000, '{"a":' * 100_000),
        "is of another shape": _text(
            "[]", "1", "null", '"x"', "{}", '{"schema": 99}', '{"files": 7}'
        ),
        "has many keys": lambda path, *_: _put(
            path, json.dumps({str(i): i for i in range(60_000)})
        ),
    },
    "text": {
        "is of a later release": _text("backendcfg 2 1\nx\n", "backendcfg 10 0\n"),
        "has odd rows": _text(
            "backendcfg 1 1\n1\t/etc\t*user*\t1\t0\n",
            "backendcfg 1 1\n1\t..\t*user*\t1\t0\n",
            f"backendcfg 1 1\n{10**30}\tuser\t*user*\t{10**30}\t0\n",
            "backendcfg 1 1\n-1\tuser\t*user*\t1\t0\n",
            "backendcfg 1 1\n7\tuser\t*user*\t7\t0\n",
            "backendcfg 1 2\n1\tuser\t*user*\t1\t0\n",
            "backendcfg 1 1\n1\tuser\t\x1b[31m\t1\t0\n",
        ),
    },
}
"""What may happen to a file by what it should hold."""
