"""A profile in a process: applied, followed, verified, taken back."""

from __future__ import annotations

import json
import pathlib

import pytest

import backendcfg
from backendcfg.errors import InvalidArgumentError

READ_POOLS = """
import threadpoolctl, numpy
def pools():
    return [(p["prefix"], p["num_threads"]) for p in threadpoolctl.threadpool_info()]
"""


def test_apply_sets_every_pool_and_undo_puts_every_one_back(python):
    printed = python(
        READ_POOLS
        + """
import backendcfg, numpy.linalg, scipy.linalg, os
environment, before = dict(os.environ), pools()
backendcfg.apply(settings={"threads.count": 1})
assert [1] * len(before) == [n for _, n in pools()], pools()
assert "1" == os.environ["OPENBLAS_NUM_THREADS"]
backendcfg.undo()
assert before == pools(), (before, pools())
assert environment == dict(os.environ)
print(len(before), backendcfg.active())
"""
    )
    assert "2 None\n" == printed


def test_what_is_imported_after_apply_has_its_values_at_once(python):
    printed = python(
        """
import backendcfg
report = backendcfg.apply(settings={"threads.count": 1})
assert not [o.switch for o in report.outcomes if o.switch.startswith("openblas")], report
import numpy, scipy.linalg
for reading in backendcfg.verify().readings:
    if reading.switch.startswith("openblas"):
        print(reading.switch, reading.found, reading.state)
"""
    )
    assert ["openblas[numpy].threads 1 ok", "openblas[scipy].threads 1 ok"] == sorted(
        printed.splitlines()
    )


@pytest.mark.torch
def test_pytorch_obeys_and_is_put_back(python):
    printed = python(
        """
import backendcfg, torch
before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
backendcfg.apply("reproducible", settings={"threads.count": 1})
print(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
with backendcfg.profile("fast"):
    assert torch.are_deterministic_algorithms_enabled()  # `fast` does not speak of it
backendcfg.undo()
assert before == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
"""
    )
    assert "1 True\n" == printed


def test_a_second_apply_returns_what_only_the_first_had_set(python):
    python(
        READ_POOLS
        + """
import backendcfg, logging
from backendcfg import log
heard = []
logger = logging.getLogger("backendcfg")
logger.addFilter(lambda record: heard.append(record.getMessage()))
before = pools()
backendcfg.apply(settings={"threads.count": 1})
backendcfg.apply(settings={"log.level": "info"})
assert before == pools()
log.info("under the second")
assert "under the second" in heard
backendcfg.undo()
assert 1 == pools()[0][1]
log.info("under the first")
assert "under the first" not in heard
backendcfg.undo()
assert before == pools()
try:
    backendcfg.undo()
except backendcfg.errors.NothingToUndoError as error:
    assert "no profile was applied to this process" == error.message
else:
    raise AssertionError("nothing was left to undo")
"""
    )


@pytest.mark.slow
def test_a_program_that_applies_the_same_for_each_request_keeps_little_of_each(python):
    printed = python(
        """
import gc
import backendcfg, numpy
def made():
    before = len(gc.get_objects())
    for _ in range(100):
        backendcfg.apply("fast")
    return len(gc.get_objects()) - before
made()
print(made() < 500)
for _ in range(200):
    assert backendcfg.active().name == "fast"
    backendcfg.undo()
print(backendcfg.active())
"""
    )
    assert printed == "True\nNone\n"


def test_strict_refuses_what_is_too_late_and_changes_nothing(python):
    printed = python(
        READ_POOLS
        + """
import backendcfg
before = pools()
try:
    backendcfg.apply(settings={"threads.count": 1, "python.hash_seed": 3}, strict=True)
except backendcfg.errors.TooLateError as error:
    print(error.exit_code, error.state)
assert before == pools() and backendcfg.active() is None
"""
    )
    assert "3 nothing was changed\n" == printed


def test_a_tier_that_rests_on_something_pending_is_not_in_force(python):
    program = """
import backendcfg, json
report = backendcfg.apply("reproducible")
pending = [o.switch for o in report.outcomes if o.state == "pending"]
print(json.dumps([report.in_force, backendcfg.verify().in_force, pending]))
"""
    assert [False, False, ["PYTHONHASHSEED"]] == json.loads(python(program))
    assert [True, True, []] == json.loads(python(program, PYTHONHASHSEED="0"))


@pytest.mark.slow
def test_apply_warns_once_for_each_reason_of_what_its_tier_rests_on_and_is_too_late(python):
    program = """
import backendcfg, json, warnings
from backendcfg.errors import PendingWarning
def told(deed):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        deed()
    return [[str(one.message), one.category is PendingWarning, one.filename] for one in seen]
def scope():
    with backendcfg.profile("reproducible"): pass
calm = told(lambda: backendcfg.apply("fast"))
deeds = [lambda: backendcfg.apply("reproducible"), scope]
print(json.dumps([calm, *[told(deed) for deed in ORDER]]))
"""
    told = (
        "the tier `run-to-run` of profile `reproducible` is not in force in this process:"
        " `PYTHONHASHSEED` can no longer be set, this interpreter has started;"
        " start it with `backendcfg run reproducible -- python ...`"
    )
    for order in ("deeds", "deeds[::-1]"):
        printed = json.loads(python(program.replace("ORDER", order)))
        assert printed == [[], [[told, True, "<string>"]], []]
        printed = json.loads(python(program.replace("ORDER", order), PYTHONHASHSEED="0"))
        assert printed == [[], [], []]


def test_verify_names_what_somebody_else_wrote(python):
    printed = python(
        """
import numpy, threadpoolctl
import backendcfg
backendcfg.apply(settings={"threads.count": 1})
threadpoolctl.threadpool_limits(2)
found = backendcfg.verify()
print(found.ok, [(r.switch, r.wanted, r.found, r.because) for r in found.readings if r.state == "differs"])
"""
    )
    assert (
        "False [('openblas[numpy].threads', 1, 2, 'something other than backendcfg wrote it')]\n"
        == printed
    )


def test_a_rollback_leaves_the_process_as_it_was(python):
    printed = python(
        READ_POOLS
        + """
import backendcfg
from backendcfg.bridges import pools as bridge
before = pools()
write = bridge.Threads.write
bridge.Threads.write = lambda self, value: (write(self, value), 1 / 0)
import os
environment = dict(os.environ)
try:
    backendcfg.apply(settings={"threads.count": 1})
except backendcfg.errors.RolledBackError as error:
    print(error.exit_code, error.state.partition(";")[0])
bridge.Threads.write = write
assert before == pools() and environment == dict(os.environ) and backendcfg.active() is None
"""
    )
    assert "4 as before the call\n" == printed


def test_a_disabled_backendcfg_changes_nothing(python):
    python(
        READ_POOLS
        + """
import backendcfg
before = pools()
assert backendcfg.apply("no such profile").outcomes == ()
with backendcfg.profile("no such profile"):
    assert before == pools()
assert backendcfg.active() is None
""",
        BACKENDCFG_DISABLE="1",
        BACKENDCFG_PROFILE="no such profile",
    )


@pytest.mark.exhaustive
def test_it_works_where_an_event_loop_already_runs_as_in_a_notebook(python):
    printed = python(
        """
import asyncio, numpy, backendcfg
async def cell():
    with backendcfg.profile("tf32-off"):
        async with backendcfg.profile("debug"):
            name = backendcfg.active().name
            one = backendcfg.ops.matmul(numpy.eye(2), numpy.eye(2))
        return name, backendcfg.active().name, float(one.sum())
print(asyncio.run(cell()), backendcfg.active())
"""
    )
    assert "('debug', 'tf32-off', 2.0) None\n" == printed


@pytest.mark.exhaustive
def test_what_the_library_does_can_be_read_in_its_log(python):
    printed = python(
        """
import io, logging, numpy
heard = io.StringIO()
logging.getLogger("backendcfg").addHandler(logging.StreamHandler(heard))
logging.getLogger("backendcfg").setLevel("INFO")
import backendcfg
backendcfg.apply(settings={"threads.count": 1})
print("applied" in heard.getvalue())
"""
    )
    assert "True\n" == printed


def test_it_is_quiet_by_default(python):
    assert "" == python("import backendcfg, numpy; backendcfg.apply('reproducible')")


@pytest.mark.exhaustive
def test_what_apply_sets_in_the_environment_is_told_from_what_a_user_presets(python):
    show = """
        import os
        import backendcfg
        if os.environ["STEP"] == "first":
            backendcfg.apply("fast", settings={"threads.count": 3})
        with backendcfg.profile("reproducible"):
            told = backendcfg.active().compiled.overrides
        print(any(text.startswith("OPENBLAS_NUM_THREADS=3 ") for text in told))
        """
    assert "False\n" == python(show, STEP="first")
    assert "True\n" == python(
        show,
        STEP="second",
        OPENBLAS_NUM_THREADS="3",
        OMP_NUM_THREADS="3",
        MKL_NUM_THREADS="3",
        BLIS_NUM_THREADS="3",
    )


@pytest.mark.exhaustive
def test_a_tier_of_a_scope_that_rests_on_something_pending_is_not_in_force(python):
    program = """
        import backendcfg
        with backendcfg.profile("reproducible"):
            told = backendcfg.verify()
        print(told.in_force, [one.switch for one in told.readings if one.state == "pending"])
        """
    assert "False ['PYTHONHASHSEED']\n" == python(program)
    assert "True []\n" == python(program, PYTHONHASHSEED="0")


NAMING = 'write for example "fast", or "fast+mine" for several'
SETTING = 'write for example `settings={"threads.count": 4}`'


@pytest.mark.parametrize(
    ("call", "message", "remedy"),
    [
        (
            "apply(3)",
            "`name` must be the name of a profile as text, not 3",
            NAMING,
        ),
        (
            "apply(pathlib.Path('mine.toml'))",
            "`name` must be the name of a profile as text, not PosixPath('mine.toml')",
            "give the path as text: 'mine.toml'",
        ),
        (
            "plan(3)",
            "`name` must be the name of a profile as text, not 3",
            NAMING,
        ),
        (
            "profile(3)",
            "`name` must be the name of a profile as text, not 3",
            NAMING,
        ),
        (
            "profile(['fast'])",
            "`name` must be the name of a profile as text, not ['fast']",
            NAMING,
        ),
        (
            "profile('fast', busy=[])",
            '`busy` must be "raise", "wait" or "skip", not []',
            'leave it out to get "raise"',
        ),
        (
            "apply('fast', settings=[1])",
            "`settings` must map names of flags to values, not be [1]",
            SETTING,
        ),
        (
            "apply('fast', settings={3: 1})",
            "`settings` must have names of flags as keys, not 3",
            SETTING,
        ),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused_in_words(call, message, remedy):
    with pytest.raises(InvalidArgumentError) as refused:
        eval(f"backendcfg.{call}", {"backendcfg": backendcfg, "pathlib": pathlib})
    assert (refused.value.message, list(refused.value.helps)) == (message, [remedy])
    assert backendcfg.active() is None
