"""The bridges together: their order, their pages, and one that breaks."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import backendcfg
from backendcfg.bridges import all as bridges
from backendcfg.bridges import seeds
from backendcfg.errors import InternalError, MissingLibraryError
from backendcfg.schema.profile import defaults
from backendcfg.transact.protocol import Switch

ROOT = Path(__file__).parents[2]
FOLDER = Path(backendcfg.__file__).parent / "bridges"


def bridge_files():
    """Every module and package of the folder that offers settings."""
    names = []
    for path in [*FOLDER.glob("*.py"), *FOLDER.glob("*/__init__.py")]:
        tree = ast.parse(path.read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "settings" in defined and path.stem != "all":
            names.append(path.parent.name if path.stem == "__init__" else path.stem)
    return sorted(names)


def test_every_bridge_is_asked():
    assert sorted(bridges.BRIDGES) == bridge_files()


@pytest.mark.parametrize("name", bridges.BRIDGES)
def test_every_bridge_has_its_test_and_its_page(name):
    page = ROOT / "docs" / "bridges" / f"{name}.md"
    assert (ROOT / "tests" / "bridges" / f"test_{name}_bridge.py").is_file()
    assert page.read_text().startswith(f"# The `{name}` bridge\n")


def test_what_a_start_leaves_unloaded_has_nothing_to_set_then():
    for name, flags in bridges._FLAGS.items():
        scoped = importlib.import_module(f"backendcfg.bridges.{name}").SCOPED_FLAGS
        assert scoped in (flags, frozenset())
    assert {switch.module for switch in seeds._SWITCHES} == set(bridges.GENERATORS)


@pytest.mark.parametrize("name", bridges.BRIDGES)
def test_every_bridge_says_its_framework_and_never_imports_it(name):
    module = importlib.import_module(f"backendcfg.bridges.{name}")
    assert module.FRAMEWORK == bridges.FRAMEWORKS.get(name)
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert module.FRAMEWORK not in imported


def test_every_switch_of_the_real_process_keeps_the_protocol_and_has_one_name(answer):
    values = {
        "threads.count": 1,
        "threads.dynamic": False,
        "blas.openblas.core_type": "Haswell",
        "blas.mkl.cbwr": "compatible",
        "python.hash_seed": 0,
    }
    code = f"""
import json, numpy, scipy.linalg
from backendcfg.bridges import all as bridges
from backendcfg.bridges import seeds
from backendcfg.transact.protocol import Switch
found = bridges.settings({values!r}, {sorted(values)!r})
names = [each.switch.name for each in found]
print(json.dumps([names, all(isinstance(each.switch, Switch) for each in found)]))
"""
    names, kept = answer(code)
    assert kept is True
    assert len(names) == len(set(names))
    order = [names.index(name) for name in ("MKL_CBWR", "openblas[numpy].threads")]
    assert order == sorted(order)


def test_a_broken_bridge_names_itself(monkeypatch):
    broken = ModuleType("broken")

    def settings(values, asked, remedy):
        raise ValueError("no such switch")

    broken.settings = settings
    monkeypatch.setitem(sys.modules, "backendcfg.bridges.broken", broken)
    with pytest.raises(InternalError) as caught:
        bridges.settings({}, (), bridges=["broken"])
    assert caught.value.message == "bridge `broken` failed: ValueError: no such switch"
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_ours_passes_through(monkeypatch):
    refusing = ModuleType("refusing")

    def settings(values, asked, remedy):
        raise MissingLibraryError("not here")

    refusing.settings = settings
    monkeypatch.setitem(sys.modules, "backendcfg.bridges.refusing", refusing)
    with pytest.raises(MissingLibraryError, match="not here"):
        bridges.settings({}, (), bridges=["refusing"])


def test_the_light_path_stays_light(answer):
    """Frameworks are not imported, nor anything that a starting process cannot afford."""
    code = """
import json, sys
from backendcfg.bridges import all as bridges, blis_architectures, imports
bridges.settings({"threads.count": 1}, ["threads.count"])
heavy = {"pydantic", "numpy", "click", "packaging", "archspec", "platformdirs", "subprocess",
         "pathlib", "torch", "scipy"}
print(json.dumps(sorted(heavy & set(sys.modules))))
"""
    assert answer(code) == []


def test_where_no_framework_is_imported_none_is_asked_nor_imported(answer):
    code = """
import json, sys
from backendcfg.bridges import all as bridges
from backendcfg.bridges import seeds
from backendcfg.schema.profile import defaults
found = bridges.settings(defaults(), list(defaults()), bridges=list(bridges.FRAMEWORKS))
print(json.dumps([found, sorted(bridges.FRAMEWORKS.keys() & sys.modules.keys())]))
"""
    assert answer(code) == [[], []]


@pytest.mark.parametrize("framework", bridges.FRAMEWORKS)
def test_a_framework_that_is_still_being_imported_is_left_alone(monkeypatch, framework):
    half = SimpleNamespace(__spec__=SimpleNamespace(_initializing=True))
    monkeypatch.setitem(sys.modules, framework, half)
    assert bridges.settings(defaults(), list(defaults()), bridges=[framework]) == []


def test_nothing_asked_means_nothing_wanted():
    assert bridges.settings({"threads.count": 1}, ()) == []
    assert isinstance(
        bridges.settings({"python.hash_seed": 1}, ["python.hash_seed"])[0].switch, Switch
    )
