"""The hook that says when a framework has been imported."""

from __future__ import annotations

import copy
import importlib
import importlib.machinery
import importlib.resources
import importlib.util
import inspect
import sys
import threading

import pytest

from backendcfg.bridges import imports


@pytest.fixture(name="package")
def package_fixture(tmp_path, monkeypatch):
    """`package("name", text)` writes a package that can be imported during one test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    made = []

    def package(name: str, text: str = "VALUE = 1\n") -> str:
        directory = tmp_path.joinpath(*name.split("."))
        directory.mkdir(parents=True)
        (directory / "__init__.py").write_text(text)
        importlib.invalidate_caches()
        made.append(name.split(".", maxsplit=1)[0])
        return name

    yield package
    for module in set(sys.modules) - before:
        if module.split(".")[0] in made:
            del sys.modules[module]


@pytest.fixture(name="watch")
def watch_fixture():
    """`watch(callback, names)`, removed afterwards; sys.meta_path must be as it was."""
    before = list(sys.meta_path)
    made = []

    def watch(callback, names):
        made.append(imports.watch(callback, names))
        return made[-1]

    yield watch
    for each in made:
        each.remove()
    assert sys.meta_path == before
    imports._executed.clear()


def test_the_callback_runs_after_the_module_and_before_the_statement_returns(package, watch):
    name = package("fw_plain", "STEPS = ['module']\n")
    seen = []

    def callback(module):
        found = sys.modules[module]
        seen.append((module, found.STEPS.copy(), imports.is_imported(module)))
        found.STEPS.append("callback")

    watch(callback, [name])
    module = importlib.import_module(name)
    assert seen == [("fw_plain", ["module"], True)]
    assert module.STEPS == ["module", "callback"]


def test_every_spelling_of_an_import_is_seen_once(package, watch):
    package("fw_spelled")
    package("fw_spelled.inner", "THING = 3\n")
    seen = []
    watch(seen.append, ["fw_spelled", "fw_spelled.inner"])
    import fw_spelled
    from fw_spelled.inner import THING

    assert (THING, fw_spelled.VALUE) == (3, 1)
    assert seen == ["fw_spelled", "fw_spelled.inner"]


def test_other_modules_are_not_touched(package, watch):
    name = package("fw_other")
    watch(lambda module: pytest.fail("called"), ["fw_watched"])
    module = importlib.import_module(name)
    assert type(module.__loader__).__module__ == "_frozen_importlib_external"


def test_the_module_keeps_its_own_loader(package, watch):
    name = package("fw_loader", "def f():\n    return 1\n")
    watch(lambda module: None, [name])
    module = importlib.import_module(name)
    kind = importlib.machinery.SourceFileLoader
    assert (type(module.__loader__), type(module.__spec__.loader)) == (kind, kind)
    assert inspect.getsource(module.f) == "def f():\n    return 1\n"
    assert importlib.resources.files(name).joinpath("__init__.py").is_file()


def test_looking_for_a_spec_is_not_an_import(package, watch):
    name = package("fw_spec")
    watch(lambda module: pytest.fail("called"), [name])
    spec = importlib.util.find_spec(name)
    assert spec.loader.get_source(name) == "VALUE = 1\n"
    assert name not in sys.modules


def test_a_spec_that_was_found_can_be_copied(package, watch):
    name = package("fw_copied")
    watch(lambda module: None, [name])
    loader = copy.deepcopy(importlib.util.find_spec(name).loader._wrapped)
    assert copy.copy(importlib.util.find_spec(name).loader).name == loader.name == name


def test_reload_calls_again(package, watch):
    name = package("fw_reload")
    seen = []
    watch(seen.append, [name])
    module = importlib.import_module(name)
    importlib.reload(module)
    importlib.reload(module)
    assert seen == [name] * 3
    assert type(module.__spec__.loader) is importlib.machinery.SourceFileLoader


def test_an_import_that_fails_calls_nobody(package, watch):
    name = package("fw_fails", "raise RuntimeError('own trouble')\n")
    watch(lambda module: pytest.fail("called"), [name])
    with pytest.raises(RuntimeError, match="own trouble"):
        importlib.import_module(name)
    assert name not in sys.modules
    assert imports.is_imported(name) is False


def test_a_module_that_is_not_there_is_reported_as_ever(watch):
    watch(lambda module: pytest.fail("called"), ["fw_absent"])
    with pytest.raises(ModuleNotFoundError, match="No module named 'fw_absent'"):
        importlib.import_module("fw_absent")


def test_what_the_callback_raises_comes_out_of_the_import(package, watch):
    name = package("fw_refused")
    calls = []

    def callback(module):
        calls.append(module)
        if len(calls) == 1:
            raise ValueError("not with these switches")

    watch(callback, [name])
    with pytest.raises(ValueError, match="not with these switches"):
        importlib.import_module(name)
    assert (name in sys.modules, imports.is_imported(name)) == (False, False)
    assert importlib.import_module(name).VALUE == 1
    assert calls == [name, name]


def test_a_namespace_package_of_that_name_is_not_the_framework(tmp_path, monkeypatch, watch):
    (tmp_path / "fw_namespace").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    watch(lambda module: pytest.fail("called"), ["fw_namespace"])
    module = importlib.import_module("fw_namespace")
    del sys.modules["fw_namespace"]
    assert module.__file__ is None


def test_a_framework_that_imports_another_is_unfinished_meanwhile(package, watch):
    package("fw_inner")
    package("fw_outer", "import fw_inner\n")
    seen = []

    def callback(module):
        states = [imports.is_imported(name) for name in ("fw_inner", "fw_outer")]
        finishing = [imports.is_finishing(name) for name in ("fw_inner", "fw_outer")]
        seen.append((module, states, finishing))

    watch(callback, ["fw_inner", "fw_outer"])
    import fw_outer

    assert fw_outer.fw_inner.VALUE == 1
    assert seen == [
        ("fw_inner", [True, False], [True, False]),
        ("fw_outer", [True, True], [False, True]),
    ]
    assert imports.is_finishing("fw_outer") is False


def test_threads_that_import_at_once_get_one_callback_and_a_finished_module(package, watch):
    name = package("fw_threads", "READY = False\n")
    calls, states = [], []
    barrier = threading.Barrier(16)

    def callback(module):
        calls.append(module)
        sys.modules[module].READY = True

    def work():
        barrier.wait()
        states.append(importlib.import_module(name).READY)

    watch(callback, [name])
    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, states) == ([name], [True] * 16)


def test_a_removed_watch_is_silent_even_for_an_import_under_way(package):
    name = package("fw_removed", "import fw_removed_hook\nfw_removed_hook.remove()\n")
    holder = type(sys)("fw_removed_hook")
    before = list(sys.meta_path)
    made = imports.watch(lambda module: pytest.fail("called"), [name])
    holder.remove = made.remove
    sys.modules["fw_removed_hook"] = holder
    try:
        importlib.import_module(name)
    finally:
        del sys.modules["fw_removed_hook"]
    made.remove()
    assert sys.meta_path == before


def test_two_watches_are_both_called_the_newer_last(package, watch):
    name = package("fw_twice")
    seen = []
    watch(lambda module: seen.append("older"), [name])
    watch(lambda module: seen.append("newer"), [name])
    module = importlib.import_module(name)
    assert seen == ["older", "newer"]
    assert type(module.__spec__.loader) is importlib.machinery.SourceFileLoader


def test_nothing_is_installed_until_somebody_watches(answer):
    code = """
import json, sys
before = len(sys.meta_path)
import backendcfg.bridges.imports as imports
after = len(sys.meta_path)
print(json.dumps([after - before, [m for m in imports.MODULES if m in sys.modules]]))
"""
    assert answer(code) == [0, []]


def test_scipys_own_openblas_is_there_when_one_of_its_watched_modules_is(answer):
    code = """
import json
from backendcfg.bridges import imports, pools
seen = {}
def callback(name):
    found = pools.settings({"threads.count": 1}, ["threads.count"])
    seen.setdefault(name, [s.knob.name for s in found if s.knob.name.startswith("openblas")])
imports.watch(callback)
import scipy.linalg
print(json.dumps(seen))
"""
    seen = answer(code)
    assert seen["numpy"] == ["openblas[numpy].threads"]
    assert sorted(seen["scipy.linalg"]) == ["openblas[numpy].threads", "openblas[scipy].threads"]
