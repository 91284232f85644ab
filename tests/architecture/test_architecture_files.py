"""Every file keeps the house rules: size, names, a docstring, its test and its page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from test_architecture_imports import parsed

import backendcfg
from backendcfg import errors

PACKAGE = Path(backendcfg.__file__).parent
TREE = Path(__file__).parents[2]
CEILING = 600
NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}

in_the_tree = pytest.mark.skipif(
    not (TREE / "native" / "CMakeLists.txt").exists(), reason="needs the source tree"
)


@pytest.fixture(name="trees", scope="module")
def _trees():
    """What every module parses to, by its path in the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): parsed(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_no_module_is_longer_than_the_ceiling():
    paths = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".cu", ".h"}]
    lengths = {path: len(path.read_text().splitlines()) for path in paths}
    assert {".py", ".cu", ".h"} == {path.suffix for path in lengths}
    assert {str(path): lines for path, lines in lengths.items() if lines > CEILING} == {}


def test_every_module_has_a_docstring_unless_it_is_empty(trees):
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_names_say_what_things_are(trees):
    assert [name for name in trees if Path(name).stem in NAMES] == []
    assert [
        f"{name}: {node.name}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and re.search(r"(Manager|Helper|Utils?)$", node.name)
    ] == []


OTHER_READERS = {
    "audit/evidence/files.py": "what a program wrote, of any size",
    "audit/evidence/formats.py": "what a program wrote, of any size",
    "audit/evidence/runs.py": "a folder that this process made",
    "audit/left.py": "what a program left in a folder that this process made, of any size",
    "audit/recording.py": "a folder that this process made",
    "audit/trace/numpy_replay.py": "arguments, which a run left in a folder that this process made",
    "audit/trace/streams.py": "a folder that this process made",
    "audit/token.py": "parts of a library of gigabytes",
    "bridges/environment.py": "/proc",
    "cli/output.py": "/dev/null, in the place of a closed stream",
    "cli/reference.py": "the page that it writes",
    "cli/verbs/capture.py": "a folder that this process made",
    "gpu/kernels/sources.py": "the package's own files and headers of CUDA",
    "probe/__init__.py": "/proc and /sys",
    "probe/limits.py": "/proc",
    "probe/cpu.py": "/proc and /sys",
    "probe/gpus.py": "/sys",
    "probe/installed.py": "/etc/ld.so.cache",
    "schema/export.py": "the file that it writes",
    "testing/one_run.py": "a folder that the outer pytest made",
    "startup.py": "`take` itself, and /proc",
}
"""Modules that open a file to read it other than by `startup.take`, and what they read."""


def _reads(node):
    """Whether a call opens a file to read it."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    if name.rpartition(".")[2] in ("read_text", "read_bytes") and not node.args:
        return True
    if name == "os.open":
        return "O_RDONLY" in ast.unparse(node) and "O_DIRECTORY" not in ast.unparse(node)
    if name not in ("open", "io.open"):
        return False
    modes = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
    words = [each.value for mode in modes for each in ast.walk(mode) if hasattr(each, "value")]
    return not words or any("r" in word for word in words)


def test_files_are_read_by_one_reader(trees):
    """It never waits for a pipe, and takes no file that fills the memory."""
    readers = {name for name, tree in trees.items() if any(_reads(node) for node in ast.walk(tree))}
    assert readers == set(OTHER_READERS)


def whole_environments(tree):
    """The lines where `environ.current()` is more than one variable, written or looked up."""
    one_variable = {
        id(node.value.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        or (isinstance(node, ast.Attribute) and node.attr in {"get", "pop", "setdefault"})
        if isinstance(node.value, ast.Call)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "environ.current"
        if id(node) not in one_variable
    ]


def test_who_reads_the_environment_whole_reads_a_copy(trees):
    # Another thread may take a variable away meanwhile.
    assert {
        name: found for name, tree in trees.items() if (found := whole_environments(tree))
    } == {}


def test_the_check_sees_an_environment_that_is_read_whole():
    source = (
        "environ.current().get(name)\n"
        "environ.current()[name] = text\n"
        "dict(environ.current())\n"
        "environ.current().items()\n"
        "source = environ.current() if given is None else given\n"
        "{**environ.current()}\n"
        "field(default_factory=environ.current)\n"
    )
    assert sorted(whole_environments(parsed(source))) == [3, 4, 5, 6, 7]


def test_nothing_is_left_to_do():
    marker = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert [str(path) for path in PACKAGE.rglob("*.py") if marker.search(path.read_text())] == []


def is_program(tree):
    """Whether a module is also run by itself, as a child whose standard output is its answer."""
    return any(
        isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree.body
    )


def test_only_the_command_line_magics_and_child_programs_print(trees):
    assert [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        if not name.startswith("cli/") and name != "notebook.py" and not is_program(tree)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ] == []


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


@in_the_tree
def test_native_code_has_manners():
    """A library neither prints, nor ends the process, nor reads the environment."""
    rude = re.compile(
        r"\b(printf|fprintf|puts|perror|abort|exit|_exit|getenv|secure_getenv|setenv)\s*\("
    )
    files = [p for p in (TREE / "native" / "src").rglob("*") if p.suffix in {".c", ".cpp", ".h"}]
    assert files
    assert [
        f"{path.name}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if rude.search(re.sub(r"//.*|/\*.*?\*/|\"[^\"]*\"", "", line))
        and not line.lstrip().startswith("*")
    ] == []


def bridges(trees):
    """Bridges are the modules and packages under bridges/ that name their framework."""
    for name, tree in trees.items():
        if name.startswith("bridges/") and any(
            ast.unparse(node).partition("=")[0].partition(":")[0].strip() == "FRAMEWORK"
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
        ):
            path = Path(name)
            yield path.parent.name if path.stem == "__init__" else path.stem


@in_the_tree
def test_every_bridge_has_a_test_and_a_page(trees):
    found = list(bridges(trees))
    assert "torch" in found
    assert [n for n in found if not list((TREE / "tests/bridges").glob(f"test_*{n}*.py"))] == []
    assert [n for n in found if not (TREE / f"docs/bridges/{n}.md").exists()] == []


def error_classes(base=errors.BackendCfgError):
    for cls in base.__subclasses__():
        if "code" in vars(cls) and cls.__module__ == "backendcfg.errors":
            yield cls
        yield from error_classes(cls)


def test_error_codes_are_unique_and_every_class_says_what_it_is():
    found = list(error_classes())
    assert len(found) > 20
    assert len({cls.code for cls in found}) == len(found)
    assert [cls for cls in found if not re.fullmatch(r"[a-z]+(-[a-z]+)*", cls.code)] == []
    assert [cls for cls in found if not cls.__doc__] == []


@in_the_tree
def test_every_error_has_a_section_in_the_documentation():
    page = (TREE / "docs/errors.md").read_text()
    assert [
        cls.code
        for cls in error_classes()
        if not re.search(rf"^#+ .*\b{cls.code}\b", page, re.MULTILINE)
    ] == []
