"""`with profile(...)` over real libraries."""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest

import backendcfg
from backendcfg import errors, ops, session
from backendcfg.bridges import all as bridges
from backendcfg.schema.profile import defaults
from backendcfg.session import wiring


def test_the_flags_that_scopes_may_set_are_those_with_a_switch_for_it():
    """The bridges of frameworks are tested so where their framework is."""
    plain = [
        name
        for name in wiring.SCOPED
        if importlib.import_module(f"backendcfg.bridges.{name}").FRAMEWORK is None
    ]
    assert {"pools", "verbose"} <= set(plain) < set(wiring.SCOPED)
    values = {**defaults(), "threads.count": 1, "threads.interop": 1}
    settings = bridges.settings(values, values, "all", bridges=plain)
    found = {
        setting.flag
        for setting in settings
        if setting.switch.latch in ("anytime", "each-thread")
        and setting.switch.reversible
        and getattr(setting.switch, "only", "") != "base"
    }
    # Neither an OpenMP runtime nor MKL nor oneDNN is in this process.
    elsewhere = {"threads.dynamic", "mkl.verbose", "mkldnn.verbose"}
    assert found | elsewhere == bridges.scoped_flags(plain)


def test_a_profile_without_a_switch_enters_without_any_python_code(python, tmp_path):
    profiles = tmp_path / "user" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "checked.toml").write_text("ops.check_finite = true\n")
    printed = python(
        """
import backendcfg
from backendcfg.session import scopes
assert scopes._prepared == {}
with backendcfg.profile("checked"):
    print(backendcfg.active().scoped, scopes._prepared["checked"].switches)
""",
        BACKENDCFG_CONFIG_DIR=str(tmp_path / "user"),
    )
    assert "True None\n" == printed


def test_scopes_set_and_restore_the_pools_and_nest(python):
    python(
        """
import threadpoolctl, numpy, backendcfg, os
def threads():
    return threadpoolctl.threadpool_info()[0]["num_threads"]
environment = dict(os.environ)
assert 2 <= threads()
at_first = threads()
with backendcfg.profile("debug") as outer:
    assert 1 == threads()
    with outer, backendcfg.profile("fast"):
        assert at_first == threads()
        assert "fast" == backendcfg.active().name
    assert 1 == threads() and "debug" == backendcfg.active().name
assert at_first == threads() and environment == dict(os.environ)
"""
    )


def test_a_library_that_is_loaded_inside_a_scope_obeys_it_until_it_ends(python):
    printed = python(
        """
import backendcfg
with backendcfg.profile("debug"):
    import numpy, threadpoolctl
    print(threadpoolctl.threadpool_info()[0]["num_threads"])
print(threadpoolctl.threadpool_info()[0]["num_threads"])
"""
    )
    assert ["1", "2"] == printed.split()


def test_apply_inside_a_scope_changes_the_base_and_not_the_scope(python):
    printed = python(
        """
import threadpoolctl, numpy, backendcfg
def threads():
    return threadpoolctl.threadpool_info()[0]["num_threads"]
with backendcfg.profile("debug"):
    backendcfg.apply(settings={"threads.count": 2})
    print(threads())
print(threads())
backendcfg.apply(settings={"threads.count": 1})
print(threads())
"""
    )
    assert ["1", "2", "1"] == printed.split()


def test_our_own_product_takes_the_provider_of_its_scope(python):
    printed = python(
        """
import numpy, backendcfg
from backendcfg import ops
backendcfg.apply(settings={"blas.library": {"require": "reference"}})
ops.reset_stats()
assert (ops.matmul(numpy.ones((3, 4)), numpy.ones((4, 2))) == 4).all()
with backendcfg.profile("tf32-off"):
    ops.matmul(numpy.ones((3, 4)), numpy.ones((4, 2)))
print(sorted((s.provider, sum(s.calls.values())) for s in ops.stats() if sum(s.calls.values())))
"""
    )
    assert "[('openblas', 1), ('reference', 1)]\n" == printed


def test_an_unknown_profile_and_an_unknown_way_to_wait_are_errors():
    with pytest.raises(errors.UnknownProfileError, match=r"profile `fsat` does not exist"):
        session.profile("fsat")
    for name in (None, 3, ["fast"]):
        with pytest.raises(errors.InvalidArgumentError, match=r"^`name` must be the name of a"):
            session.profile(name)
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r'^`busy` must be "raise", "wait" or "skip", not \'later\'(?m:$)',
    ):
        session.profile("fast", busy="later")


def test_flags_answer_by_name_by_attribute_and_in_legacy_spelling():
    flags = session.flags
    assert flags["cudnn.benchmark"] is flags.cudnn.benchmark is False
    with session.profile("fast"):
        assert flags.cuda.matmul.allow_tf32 is True
        assert "tf32" == flags.cuda.matmul.fp32_precision
    assert flags.cuda.matmul.allow_tf32 is False
    assert set(defaults()) == set(flags)
    assert "fp32_precision" in dir(flags.cuda.matmul)


def test_flags_cannot_be_set_and_say_what_to_do_instead():
    with pytest.raises(TypeError, match=r"flags are read-only: put `threads.count` in a profile"):
        backendcfg.flags["threads.count"] = 1
    assert copy.deepcopy(backendcfg.flags.cudnn) == backendcfg.flags.cudnn
    with pytest.raises(AttributeError, match=r"flags are read-only: put `cudnn.benchmark` in a"):
        session.flags.cudnn.benchmark = True


def test_an_unknown_flag_has_a_suggestion():
    with pytest.raises(
        errors.UnknownFlagError, match=r"^there is no flag `cudnn\.benchmrk`(?m:$)"
    ) as one:
        session.flags["cudnn.benchmrk"]
    assert ("did you mean `cudnn.benchmark`?",) == one.value.helps
    with pytest.raises(AttributeError, match=r"there is no flag `cudnn.benchmrk`"):
        _ = session.flags.cudnn.benchmrk


def test_explain_names_the_profile_in_force():
    with session.profile("tf32-off"):
        text = str(ops.explain("matmul", shapes=((2, 2), (2, 2)), dtype="float32"))
    assert "under profile `tf32-off`" in text.splitlines()[0]


def test_overlapping_scopes_of_threads_and_tasks_leave_the_real_pool_as_it_was(python, tmp_path):
    profiles = tmp_path / "user" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "one.toml").write_text("threads.count = 1\n")
    (profiles / "two.toml").write_text("threads.count = 2\n")
    printed = python(
        """
import asyncio, threading
import numpy, threadpoolctl
import backendcfg
[pool] = [p for p in threadpoolctl.ThreadpoolController().lib_controllers
          if "numpy" in p.filepath]
base, wrong = pool.num_threads, []
def look(name):
    with backendcfg.profile(name, busy="wait"):
        if pool.num_threads != {"one": 1, "two": 2}[name]:
            wrong.append(name)
def work(name):
    for _ in range(250):
        look(name)
async def task(name):
    for _ in range(50):
        async with backendcfg.profile(name, busy="wait"):
            await asyncio.sleep(0)
            if pool.num_threads != {"one": 1, "two": 2}[name]:
                wrong.append(name)
async def tasks():
    await asyncio.gather(*(task(("one", "two")[i % 2]) for i in range(8)))
threads = [threading.Thread(target=work, args=(("one", "two")[i % 2],)) for i in range(8)]
threads.append(threading.Thread(target=lambda: asyncio.run(tasks())))
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong, pool.num_threads == base)
""",
        BACKENDCFG_CONFIG_DIR=str(tmp_path / "user"),
    )
    assert "[] True\n" == printed


COUNTED = """
import importlib, sys, types, warnings
import numpy, backendcfg
from backendcfg.session import wiring
warnings.simplefilter("ignore", backendcfg.errors.PendingWarning)  # printing one loads modules
collected, times = wiring.settings, []
def settings(*arguments, **named):
    times.append(1)
    return collected(*arguments, **named)
wiring.settings = settings
def entered():
    times.clear()
    for _ in range(2):
        with backendcfg.profile("debug"):
            pass
    return len(times)
sys.modules["passing"] = types.ModuleType("passing")
assert entered() > 0  # twice where telling what is pending loads a library
assert entered() == 0
"""


@pytest.mark.exhaustive
def test_a_framework_that_comes_while_another_module_goes_is_noticed(python, tmp_path):
    (tmp_path / "sklearn.py").write_text("")
    python(
        COUNTED
        + f"""
sys.path.insert(0, {str(tmp_path)!r})
before = len(sys.modules)
import sklearn
del sys.modules["passing"]
assert len(sys.modules) == before
assert entered() == 1
del sys.modules["sklearn"]
importlib.import_module("sklearn")
assert len(sys.modules) == before
assert entered() == 1
assert entered() == 0
"""
    )


def test_a_library_that_comes_while_a_module_goes_is_noticed(python):
    extension = importlib.import_module("_lsprof")
    if not hasattr(extension, "__file__"):
        pytest.skip("this interpreter has its extension modules built in")
    python(
        COUNTED
        + """
assert "_lsprof" not in sys.modules
before = len(sys.modules)
import _lsprof
del sys.modules["passing"]
assert len(sys.modules) == before
assert entered() == 1
assert entered() == 0
"""
    )


@pytest.mark.exhaustive
def test_a_module_without_a_library_does_not_make_scopes_look_again(python, tmp_path):
    (tmp_path / "plain.py").write_text("")
    python(
        COUNTED + f"sys.path.insert(0, {str(tmp_path)!r})\nimport plain\nassert entered() == 0\n"
    )


def test_a_scope_is_pickled_and_copied_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("threads.dynamic = false\n")
    for name in ("tf32-off", "./mine.toml"):
        scope = backendcfg.profile(name, busy="skip")
        for again in (pickle.loads(pickle.dumps(scope)), copy.deepcopy(scope)):
            assert again.prepared.payload.values == scope.prepared.payload.values
            assert (again.prepared is scope.prepared) == (name == "tf32-off")
            assert again.busy == scope.busy
            assert not again.is_open
    elsewhere = pickle.dumps(backendcfg.profile("./mine.toml"))
    monkeypatch.chdir("/")
    assert pickle.loads(elsewhere).prepared.payload.values["threads.dynamic"] is False
    flags = backendcfg.backends.cudnn.flags(benchmark=True)
    with flags:
        pass
    with pickle.loads(pickle.dumps(flags)):
        assert backendcfg.flags["cudnn.benchmark"] is True


def test_a_class_cannot_be_decorated():
    """It would become a function, which pytest would not collect."""
    with pytest.raises(errors.InvalidArgumentError) as refused:

        @backendcfg.profile("tf32-off")
        class Tests:
            pass

    assert "a scope cannot decorate the class `" in refused.value.message
    assert refused.value.helps == ("decorate its methods",)


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_what_makes_a_method_is_to_be_above_the_scope(kind):
    with pytest.raises(errors.InvalidArgumentError) as refused:
        backendcfg.profile("tf32-off")(kind(print))
    named = kind.__name__
    assert refused.value.message == f"a scope cannot decorate a {named}, which is no function yet"
    assert refused.value.helps == (f"put the decorator below `@{named}`",)


def test_a_decorated_function_of_a_script_goes_to_a_worker_of_joblib(lines):
    pytest.importorskip("joblib")
    code = """
    import json, warnings
    warnings.simplefilter("ignore")
    import backendcfg, joblib

    @backendcfg.profile("tf32-off")
    def named(_):
        return backendcfg.active().name

    if __name__ == "__main__":
        print(json.dumps(joblib.Parallel(2)(joblib.delayed(named)(i) for i in range(2))))
    """
    assert lines(code) == [["tf32-off", "tf32-off"]]
