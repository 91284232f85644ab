"""Imports point one way, and what runs when a process starts imports nothing heavy."""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import backendcfg

PACKAGE = Path(backendcfg.__file__).parent
ORDER = (
    "startup",
    "records",
    "plain",
    "tables",
    "errors",
    "environ",
    "locks",
    "log",
    "progress",
    "defaults",
    "childprocess",
    "catalogue",
    "schema",
    "load",
    "probe",
    "resolve",
    "native",
    "cache",
    "flags",
    "transact",
    "registry",
    "dispatch",
    "ops",
    "gpu",
    "bridges",
    "session",
    "audit",
    "launch",
    "fleet",
    "backends",
    "notebook",
    "testing",
    "cli",
    "__init__",
    "__main__",
)
"""A stage may import what stands to its left."""

SEAMS = {
    # The operations find `gpu` here, when the first array on a device comes.
    ("ops/devices.py", "gpu"),
    # PyTorch or JAX has brought ranks together, which are then asked to agree.
    ("bridges/ranks.py", "fleet"),
}
"""The imports that point the other way, by file and stage, each inside a function."""

LIGHT = (
    "startup",
    "records",
    "plain",
    "errors",
    "environ",
    "locks",
    "log",
    "native",
    "cache",
    "flags",
    "progress",
    "childprocess",
    "catalogue",
    "transact",
    "registry",
    "dispatch",
    "bridges",
)
"""Stages that are imported by every process that starts under a profile or opens a scope."""

LIGHT_FILES = ("probe/stamp.py", "probe/loaded.py", "session/start.py", "session/choice.py")
HEAVY = frozenset(
    {"archspec", "click", "numpy", "packaging", "platformdirs", "pydantic", "tomli_w", "torch"}
)


parsed = functools.cache(ast.parse)  # several tests read every module


def modules():
    """Every module of the package with its path from the package's root."""
    return {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


def stage(name):
    """The stage of a file (`load/stack.py`) or of a dotted module (`load.stack`)."""
    first = name.replace("/", ".").split(".")[0]
    # The compiled object and registry's side files belong to the stage that they are named for.
    return "native" if first == "_native" else first.partition("_")[0] or first


def type_checking_only(tree):
    """Nodes under `if TYPE_CHECKING:`, which no interpreter ever runs."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }


def inside_functions(tree):
    """Nodes inside functions, which run when somebody calls them."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
        if inner is not node
    }


def imported(source, everywhere=True):
    """The modules that a file imports, with line numbers.

    Args:
        source: the file's text.
        everywhere: also inside functions, and by `import_module("literal")`.
    """
    tree = parsed(source)
    skipped = type_checking_only(tree)
    if not everywhere:
        skipped |= inside_functions(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "backendcfg":
                yield from ((f"backendcfg.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno
        elif (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and ast.unparse(node.func).rpartition(".")[2] in {"import_module", "__import__"}
        ):
            yield str(node.args[0].value), node.lineno


def violations(files):
    """Imports that point to the right, in words."""
    for name, source in files.items():
        own = "__init__" if name == "__init__.py" else stage(name.removesuffix(".py"))
        if own not in ORDER:
            yield f"{name}: stage {own!r} is not in the order"
            continue
        for module, line in imported(source):
            package, _, rest = module.partition(".")
            if package != "backendcfg" or not rest or rest in backendcfg.__all__:
                continue
            other = stage(rest)
            if (name, other) in SEAMS:
                continue
            if other not in ORDER or ORDER.index(other) > ORDER.index(own):
                yield f"{name}:{line} imports {module}: {own!r} may not depend on {other!r}"


def relative_imports(files):
    for name, source in files.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{name}:{node.lineno}"


def sources():
    return {name: path.read_text() for name, path in modules().items()}


def test_imports_point_one_way():
    assert len(modules()) > 20
    assert list(violations(sources())) == []


def test_imports_are_absolute_so_that_the_check_sees_them():
    assert list(relative_imports(sources())) == []


def test_the_check_sees_an_import_that_points_the_wrong_way():
    files = {
        "load/a.py": "def f():\n    from backendcfg.resolve.plan import resolve\n",
        "probe/b.py": "if TYPE_CHECKING:\n    from backendcfg.cli import main\n",
        "resolve/c.py": "import_module('backendcfg.session')\n",
        "nowhere/d.py": "",
    }
    assert list(violations(files)) == [
        "load/a.py:2 imports backendcfg.resolve.plan: 'load' may not depend on 'resolve'",
        "resolve/c.py:1 imports backendcfg.session: 'resolve' may not depend on 'session'",
        "nowhere/d.py: stage 'nowhere' is not in the order",
    ]


IN_THREADS = (
    "probe",
    "childprocess",
    "catalogue",
    "schema",
    "environ",
    "progress",
    "log",
    "records",
)
"""Stages that threads of detection run, also while `import backendcfg` waits for them."""

BY_THE_STARTING_THREAD = {"probe/stamp.py"}
"""Files of these stages whose functions only the thread that imports backendcfg calls then."""


def imports_that_wait(files):
    """Files with a function that imports by the name of the package itself.

    `from backendcfg import x` and `import backendcfg.x` wait until the package has been imported;
    `from backendcfg.x import y` does not.
    """
    for name, source in files.items():
        if stage(name.removesuffix(".py")) not in IN_THREADS:
            continue
        tree = parsed(source)
        looked_at = inside_functions(tree) - type_checking_only(tree)
        for node in ast.walk(tree):
            if id(node) not in looked_at:
                continue
            named = isinstance(node, ast.ImportFrom) and node.module == "backendcfg"
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if named or any(each.partition(".")[0] == "backendcfg" for each in names):
                yield name


def test_threads_that_a_start_waits_for_import_nothing_that_waits_for_it():
    assert set(imports_that_wait(sources())) == BY_THE_STARTING_THREAD


def test_the_check_sees_an_import_that_waits():
    files = {
        "probe/a.py": "def f():\n    from backendcfg import environ\n",
        "probe/b.py": "def f():\n    import backendcfg.environ as e\n    import os\n",
        "probe/c.py": "from backendcfg import environ\ndef f():\n    from backendcfg.a import b\n",
        "cli/d.py": "def f():\n    from backendcfg import environ\n",
    }
    assert sorted(imports_that_wait(files)) == ["probe/a.py", "probe/b.py"]


def test_light_modules_import_nothing_heavy_when_they_are_imported():
    light = {
        name: source
        for name, source in sources().items()
        if stage(name.removesuffix(".py")) in LIGHT or name in LIGHT_FILES
    }
    assert len(light) > 10
    found = [
        f"{name}:{line} imports {module}"
        for name, source in light.items()
        for module, line in imported(source, everywhere=False)
        if module.partition(".")[0] in HEAVY or module.startswith("backendcfg.schema")
    ]
    assert found == []


LATE = "note: the tier `run-to-run` of profile `reproducible` is not in force"
"""What a program is told that imports backendcfg under it without its PYTHONHASHSEED."""


def child(code, told="", **variables):
    """Run code in a fresh interpreter; what it prints is JSON, and what it is told begins so."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line[: len(told)] for line in done.stderr.splitlines()] == [told] * bool(told)
    return json.loads(done.stdout)


LOOK = """
import json, os, sys
def look():
    with open("/proc/self/maps") as maps:
        files = {line.split(None, 5)[5].strip() for line in maps if ".so" in line}
    return files, dict(os.environ), set(sys.modules)
files, variables, modules = look()
import backendcfg
after = look()
print(json.dumps({
    "files": sorted(after[0] - files),
    "variables": [name for name in {*variables, *after[1]} if variables.get(name) != after[1].get(name)],
    "modules": sorted(after[2] - modules),
}))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="macos has no /proc")
def test_importing_with_nothing_active_opens_no_library_and_sets_no_variable(tmp_path):
    changed = child(LOOK)
    opened = [path for path in changed["files"] if "/lib-dynload/" not in path]
    assert opened == []
    assert changed["variables"] == []
    assert [name for name in changed["modules"] if name.partition(".")[0] in HEAVY] == []


def test_starting_under_a_profile_imports_nothing_heavy_once_the_plan_is_compiled():
    child(LOOK, LATE, BACKENDCFG_PROFILE="reproducible")
    changed = child(LOOK, LATE, BACKENDCFG_PROFILE="reproducible")
    assert [name for name in changed["modules"] if name.partition(".")[0] in HEAVY] == []
