"""The hook that says when a framework has been imported."""

from __future__ import annotations

import copy
import importlib
import importlib.machinery
import importlib.resources
import importlib.util
import inspect
import pkgutil
import sys
import threading
import zipfile

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


def test_meanwhile_the_module_is_unfinished_for_every_other_thread(package, watch):
    """Using it there would wait for this thread, which may be waiting for that one."""
    name = package("fw_meanwhile")
    here, there = [], []

    def callback(module):
        here.append(imports.is_imported(module))
        other = threading.Thread(target=lambda: there.append(imports.is_imported(module)))
        other.start()
        other.join()

    watch(callback, [name])
    importlib.import_module(name)
    assert (here, there, imports.is_imported(name)) == ([True], [False], True)


@pytest.fixture(name="held")
def held_fixture(package):
    """`held("name", end="")`: an import in another thread that stands still in the module's code.

    Returns the thread and the event that lets it go on; what it raises is in `thread.raised`.
    """
    begun, go_on = threading.Event(), threading.Event()
    gate = type(sys)("fw_gate")
    gate.begun, gate.go_on = begun, go_on
    sys.modules["fw_gate"] = gate

    def held(name: str, end: str = "VALUE = 1\n"):
        package(name, f"import fw_gate\nfw_gate.begun.set()\nassert fw_gate.go_on.wait(60)\n{end}")

        def work():
            try:
                importlib.import_module(name)
            except BaseException as error:
                thread.raised = error

        thread = threading.Thread(target=work)
        thread.raised = None
        thread.start()
        assert begun.wait(60)
        return thread, go_on

    yield held
    go_on.set()
    del sys.modules["fw_gate"]


def test_an_import_that_was_under_way_when_the_watch_began_is_seen(held, watch):
    thread, go_on = held("fw_underway")
    seen = []
    kind = type(sys.modules["fw_underway"].__spec__)

    def callback(module):
        seen.append((module, sys.modules[module].VALUE, threading.current_thread() is thread))

    watch(callback, ["fw_underway"])
    assert (seen, imports.is_imported("fw_underway")) == ([], False)
    go_on.set()
    thread.join()
    assert (seen, thread.raised) == ([("fw_underway", 1, True)], None)
    assert imports.is_imported("fw_underway")
    spec = sys.modules["fw_underway"].__spec__
    assert (type(spec), spec._initializing) == (importlib.machinery.ModuleSpec, False)
    assert kind is importlib.machinery.ModuleSpec


def test_an_import_that_was_under_way_and_fails_calls_nobody(held, watch):
    thread, go_on = held("fw_underway_fails", "raise RuntimeError('own trouble')\n")
    watch(lambda module: pytest.fail("called"), ["fw_underway_fails"])
    go_on.set()
    thread.join()
    assert repr(thread.raised) == "RuntimeError('own trouble')"
    assert "fw_underway_fails" not in sys.modules


def test_what_the_callback_raises_comes_out_of_an_import_that_was_under_way(held, watch):
    thread, go_on = held("fw_underway_refused")
    calls = []

    def callback(module):
        calls.append(module)
        if len(calls) == 1:
            raise ValueError("not with these switches")

    watch(callback, ["fw_underway_refused"])
    go_on.set()
    thread.join()
    assert repr(thread.raised) == "ValueError('not with these switches')"
    assert "fw_underway_refused" not in sys.modules
    assert importlib.import_module("fw_underway_refused").VALUE == 1
    assert calls == ["fw_underway_refused"] * 2


def test_a_watch_that_ends_before_an_import_under_way_is_silent(held, watch):
    thread, go_on = held("fw_underway_removed")
    watch(lambda module: pytest.fail("called"), ["fw_underway_removed"]).remove()
    go_on.set()
    thread.join()
    assert (thread.raised, imports.is_imported("fw_underway_removed")) == (None, True)


def test_a_module_says_that_its_code_ran_before(package, watch):
    name = package("fw_again")
    importlib.import_module(package("fw_before"))
    seen = []
    watch(lambda module: seen.append((module, imports.runs_again(module))), [name, "fw_before"])
    module = importlib.import_module(name)
    importlib.reload(module)
    importlib.reload(sys.modules["fw_before"])
    del sys.modules[name]
    importlib.import_module(name)
    assert seen == [
        ("fw_again", False),
        ("fw_again", True),
        ("fw_before", True),
        ("fw_again", True),
    ]
    assert imports.runs_again(name) is False


def test_a_reload_that_fails_calls_nobody_and_leaves_the_module_usable(package, watch, tmp_path):
    name = package("fw_reload_fails")
    seen = []
    watch(seen.append, [name])
    module = importlib.import_module(name)
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('half saved')\n")
    importlib.invalidate_caches()
    with pytest.raises(RuntimeError, match="half saved"):
        importlib.reload(module)
    assert (seen, imports.is_imported(name)) == ([name], True)


def lazily(name):
    """The recipe of the documentation of importlib."""
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_lazy_module_is_not_loaded_by_us_and_calls_when_its_code_has_run(package, watch):
    name = package("fw_lazy", "STEPS = ['module']\n")
    seen = []

    def callback(module):
        found = sys.modules[module]
        seen.append((module, found.STEPS.copy(), imports.is_imported(module)))

    watch(callback, [name])
    module = lazily(name)
    assert imports.is_imported(name) is False
    assert (seen, type(module)) == ([], importlib.util._LazyModule)
    assert module.STEPS == ["module"]
    assert seen == [("fw_lazy", ["module"], True)]
    assert type(module.__spec__.loader) is importlib.machinery.SourceFileLoader
    assert type(module.__loader__) is importlib.machinery.SourceFileLoader


class LazyFinder:
    """What makes every import of a package lazy, as some command lines do."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if not fullname.startswith("fw_lazily"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def test_a_loader_that_is_lazy_behind_the_watch_stays_lazy(package, watch, monkeypatch):
    name = package("fw_lazily")
    monkeypatch.setattr(sys, "meta_path", [LazyFinder, *sys.meta_path])
    seen = []
    made = watch(seen.append, [name])
    module = importlib.import_module(name)
    assert (seen, type(module)) == ([], importlib.util._LazyModule)
    assert imports.is_imported(name) is False
    assert (module.VALUE, seen, imports.is_imported(name)) == (1, [name], True)
    assert type(module.__spec__.loader) is importlib.machinery.SourceFileLoader
    made.remove()
    monkeypatch.undo()


def test_a_watch_that_begins_over_a_lazy_module_does_not_load_it(package, watch):
    name = package("fw_lazy_before")
    module = lazily(name)
    watch(lambda module: pytest.fail("called"), [name])
    assert type(module) is importlib.util._LazyModule


def test_a_module_from_a_zip_file_is_seen(tmp_path, monkeypatch, watch):
    archive = tmp_path / "fw.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("fw_zipped/__init__.py", "VALUE = 5\n")
        file.writestr("fw_zipped/data.txt", "text")
    monkeypatch.syspath_prepend(str(archive))
    seen = []
    watch(seen.append, ["fw_zipped"])
    try:
        module = importlib.import_module("fw_zipped")
        assert (module.VALUE, seen) == (5, ["fw_zipped"])
        assert type(module.__loader__).__name__ == "zipimporter"
        assert pkgutil.get_data("fw_zipped", "data.txt") == b"text"
        assert importlib.reload(module) is module
        assert seen == ["fw_zipped"] * 2
    finally:
        sys.modules.pop("fw_zipped", None)


def test_pkgutil_reads_beside_a_module_that_is_not_imported(package, watch, tmp_path):
    name = package("fw_pkgutil")
    (tmp_path / name / "data.txt").write_text("text")
    seen = []
    watch(seen.append, [name])
    assert [found.name for found in pkgutil.iter_modules([str(tmp_path)])] == [name]
    assert pkgutil.resolve_name(name).VALUE == 1
    assert (pkgutil.get_data(name, "data.txt"), seen) == (b"text", [name])


def test_a_module_of_a_namespace_package_is_seen(tmp_path, monkeypatch, watch):
    (tmp_path / "fw_space").mkdir()
    (tmp_path / "fw_space" / "inner.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    watch(seen.append, ["fw_space.inner"])
    assert importlib.import_module("fw_space.inner").VALUE == 1
    del sys.modules["fw_space.inner"], sys.modules["fw_space"]
    assert seen == ["fw_space.inner"]


def test_a_module_whose_parent_fails_afterwards_was_seen_and_is_seen_again(package, watch):
    package("fw_parent", "import fw_parent.inner\nimport fw_switch\nfw_switch.check()\n")
    package("fw_parent.inner")
    switch = sys.modules["fw_switch"] = type(sys)("fw_switch")

    def check():
        if len(seen) == 1:
            raise RuntimeError("no driver")

    switch.check = check
    seen = []
    watch(seen.append, ["fw_parent", "fw_parent.inner"])
    try:
        with pytest.raises(RuntimeError, match="no driver"):
            importlib.import_module("fw_parent")
        states = [imports.is_imported(name) for name in ("fw_parent", "fw_parent.inner")]
        assert (seen, states) == (["fw_parent.inner"], [False, True])
        del sys.modules["fw_parent.inner"]
        importlib.import_module("fw_parent")
    finally:
        del sys.modules["fw_switch"]
    assert seen == ["fw_parent.inner", "fw_parent.inner", "fw_parent"]


class AskingFinder:
    """A hook like ours behind ours: it asks every finder again, and itself nothing meanwhile."""

    def __init__(self):
        self.asking = False

    def find_spec(self, fullname, path=None, target=None):
        if self.asking or not fullname.startswith("fw_asked"):
            return None
        self.asking = True
        try:
            return importlib.util.find_spec(fullname)
        finally:
            self.asking = False


def test_a_hook_behind_that_asks_all_finders_again_does_not_make_two_calls(
    package, watch, monkeypatch
):
    name = package("fw_asked")
    monkeypatch.setattr(sys, "meta_path", [AskingFinder(), *sys.meta_path])
    seen = []
    made = watch(seen.append, [name])
    importlib.import_module(name)
    made.remove()
    monkeypatch.undo()
    assert seen == [name]


def test_a_module_that_puts_something_else_in_its_place_is_imported(package, watch):
    name = package(
        "fw_replaced", "import sys\nclass Other:\n    VALUE = 7\nsys.modules[__name__] = Other()\n"
    )
    seen = []
    watch(
        lambda module: seen.append((sys.modules[module].VALUE, imports.is_imported(module))), [name]
    )
    assert importlib.import_module(name).VALUE == 7
    assert seen == [(7, True)]


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
    seen.setdefault(name, [s.switch.name for s in found if s.switch.name.startswith("openblas")])
imports.watch(callback)
import scipy.linalg
print(json.dumps(seen))
"""
    seen = answer(code)
    assert seen["numpy"] == ["openblas[numpy].threads"]
    assert sorted(seen["scipy.linalg"]) == ["openblas[numpy].threads", "openblas[scipy].threads"]


def test_a_watch_that_ends_during_an_import_of_another_thread_hides_no_finder_from_it(answer):
    code = """
import json, sys
from backendcfg.bridges import imports
watch = imports.watch(lambda name: None)
class Ending:
    # Asked just before the last finder, which has the module.
    def find_spec(self, name, path=None, target=None):
        if name == "this":
            watch.remove()
ending = Ending()
sys.meta_path.insert(len(sys.meta_path) - 1, ending)
sys.stdout = None
import this
sys.stdout = sys.__stdout__
print(json.dumps([type(finder).__name__ == "Watch" for finder in sys.meta_path].count(True)))
"""
    assert answer(code) == 0


def test_libraries_that_threads_import_while_profiles_change_have_the_last_one(answer):
    """No import is missed, none gets the profile before, and nobody waits for ever."""
    code = """
import faulthandler, json, sys, threading
# NumPy uses it by its full name, which another thread that imports it first makes wrong for a
# moment: Python puts a submodule into `sys.modules` before it puts it into its package.
import importlib.metadata
faulthandler.dump_traceback_later(120, exit=True)
import backendcfg
sys.setswitchinterval(1e-5)
failures = []
def work(name):
    try:
        __import__(name)
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=work, args=[n]) for n in ("numpy", "scipy.linalg", "numpy")]
[thread.start() for thread in threads]
rounds = 0
while True:
    backendcfg.apply("tf32-off", settings={"threads.count": 2})
    backendcfg.undo()
    backendcfg.apply("tf32-off", settings={"threads.count": 1})
    rounds += 1
    if rounds >= 20 and not any(thread.is_alive() for thread in threads):
        break
    backendcfg.undo()
[thread.join() for thread in threads]
wrong = [(r.switch, r.found, r.state) for r in backendcfg.verify().readings
         if r.flag == "threads.count" and r.state not in ("ok", "pending")]
pools = [r.switch for r in backendcfg.verify().readings if r.switch.startswith("openblas[")]
print(json.dumps([failures, wrong, sorted(pools)]))
"""
    assert answer(code, BACKENDCFG_DISABLE="") == [
        [],
        [],
        ["openblas[numpy].threads", "openblas[scipy].threads"],
    ]


def test_an_import_under_way_when_a_profile_is_applied_gets_its_values(answer):
    code = """
import json, sys, threading
begun, go_on = threading.Event(), threading.Event()
def stand_still(event, arguments):
    # In the middle of NumPy's own code, in the thread that imports it.
    if event == "import" and arguments[0] == "numpy.matrixlib":
        begun.set()
        assert go_on.wait(60)
sys.addaudithook(stand_still)
importing = threading.Thread(target=lambda: __import__("numpy"))
importing.start()
assert begun.wait(60)
import backendcfg
backendcfg.apply("tf32-off", settings={"threads.count": 1})
go_on.set()
importing.join()
from backendcfg.bridges import pools
settings = pools.settings({"threads.count": 1}, ["threads.count"])
print(json.dumps([s.switch.read() for s in settings if s.switch.name == "openblas[numpy].threads"]))
"""
    assert answer(code, BACKENDCFG_DISABLE="") == [1]


def test_a_module_that_is_reloaded_has_its_values_again(answer, tmp_path):
    (tmp_path / "sklearn.py").write_text("SWITCH = 0\n")
    code = f"""
import importlib, json, sys
sys.path.insert(0, {str(tmp_path)!r})
import backendcfg
from backendcfg.bridges import imports
from backendcfg.session import wiring
from backendcfg.transact.switch import Setting
class Switch:
    name, reach, latch, reversible = "sklearn.switch", "process", "anytime", True
    def read(self): return sys.modules["sklearn"].SWITCH
    def write(self, value): sys.modules["sklearn"].SWITCH = value
    def too_late(self): return ""
def merged(*arguments):
    there = [Setting(Switch(), 1, "log.level")] if imports.is_imported("sklearn") else []
    return [*collected(*arguments), *there]
collected, wiring.merged = wiring.merged, merged
backendcfg.apply("tf32-off")
import sklearn
seen = [sklearn.SWITCH]
sklearn.SWITCH = 7  # the program's own wish, which another import must leave
import random
importlib.import_module("numpy")
seen.append(sklearn.SWITCH)
seen.append(importlib.reload(sklearn).SWITCH)
del sys.modules["sklearn"]
seen.append(importlib.import_module("sklearn").SWITCH)
backendcfg.undo()
seen.append(sys.modules["sklearn"].SWITCH)
print(json.dumps(seen))
"""
    assert answer(code, BACKENDCFG_DISABLE="") == [1, 7, 1, 1, 0]
