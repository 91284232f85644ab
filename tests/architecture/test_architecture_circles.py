"""Modules do not import each other in circles, and no room is too full to find one's way in."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from test_architecture_imports import PACKAGE, modules, parsed, type_checking_only

MOST_MODULES = 25
"""Of one room: a directory, without the rooms inside it."""

LISTS = {"cli/verbs": "one file for each verb, found by the verb's name"}
"""Rooms that may have more modules, each with its reason."""

NOT_MODULES = {"backendcfg._native", "backendcfg.__version__"}
"""What is compiled, and what stands in `__init__.py` before it imports anything."""

EXCEPTIONS = {
    (
        "backendcfg.ops.devices",
        "backendcfg.gpu.families",
    ): "the seam: the operations find `gpu` when the first array on a device comes",
}
"""Imports that may close a circle, each with its reason: they run long after both are loaded."""


def dotted(name):
    return ".".join(["backendcfg", *Path(name).with_suffix("").parts]).removesuffix(".__init__")


def imported(source, known):
    """The modules of ours that a file imports, also inside functions.

    `from backendcfg.load import stack` imports `load/stack.py`; `from backendcfg.load import f`, where
    there is no such module, imports the package itself.
    """
    tree = parsed(source)
    skipped = type_checking_only(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names} - NOT_MODULES
            yield from names & known
            if names - known and node.module in known:
                yield node.module


def imports(files):
    """Who imports whom: `{module: {modules}}`."""
    known = {dotted(name) for name in files}
    return {
        own: {other for other in imported(source, known) if other != own}
        for own, source in ((dotted(name), source) for name, source in files.items())
    }


def without(graph, exceptions):
    """The same without these imports."""
    return {
        own: {other for other in others if (own, other) not in exceptions}
        for own, others in graph.items()
    }


def circles(graph):
    """The sets of modules of which each leads back to itself (Tarjan's algorithm)."""
    numbers, lowest, path, on_path, found = {}, {}, [], set(), []

    def visit(module):
        numbers[module] = lowest[module] = len(numbers)
        path.append(module)
        on_path.add(module)
        for other in graph.get(module, ()):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in on_path:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            circle = set()
            while module not in circle:
                circle.add(path.pop())
            on_path.difference_update(circle)
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in graph:
        if module not in numbers:
            visit(module)
    return found


@pytest.fixture(name="every", scope="module")
def _every():
    """Who imports whom in the package."""
    return imports({name: path.read_text() for name, path in modules().items()})


def test_no_modules_import_each_other_in_a_circle(every):
    assert circles(without(every, EXCEPTIONS)) == []


def test_every_exception_is_an_import_that_is_there_and_would_close_a_circle(every):
    graph = without(every, EXCEPTIONS)
    for (own, other), reason in EXCEPTIONS.items():
        assert other in every[own], f"{own} does not import {other} any more"
        assert circles({**graph, own: graph[own] | {other}}) != [], f"{own} may import {other}"
        assert reason


def test_the_check_sees_a_circle_that_a_function_closes():
    files = {
        "load/a.py": "from backendcfg.load import b\n",
        "load/b.py": "def f():\n    from backendcfg.load.c import g\n",
        "load/c.py": "import backendcfg.load.a\n",
        "load/d.py": "import backendcfg.load.a\n",
    }
    assert circles(imports(files)) == [
        ["backendcfg.load.a", "backendcfg.load.b", "backendcfg.load.c"]
    ]


def test_no_room_is_too_full():
    rooms = Counter(path.parent for path in modules().values())
    full = {
        room.relative_to(PACKAGE).as_posix(): count
        for room, count in rooms.items()
        if count > MOST_MODULES
    }
    assert {room: count for room, count in full.items() if room not in LISTS} == {}
