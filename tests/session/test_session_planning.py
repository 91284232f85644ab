"""From a name to a plan: what is read for it, and how often."""

from __future__ import annotations

import json

OPENED = """
import json, os, sys
from collections import Counter
opened = Counter()
def hear(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".toml") and os.path.exists(arguments[0]):
        opened[os.path.basename(arguments[0])] += 1
sys.addaudithook(hear)
from backendcfg import session
session.activate(sys.argv[1] if len(sys.argv) > 1 else None)
print(json.dumps(opened))
"""


def test_a_profile_is_made_active_and_each_file_read_once(python, tmp_path):
    (tmp_path / "mine.toml").write_text('schema = 1\nextends = ["reproducible"]\n')
    opened = json.loads(python(OPENED, "./mine.toml"))
    assert {"mine.toml", "reproducible.toml"} <= opened.keys()
    assert set(opened.values()) == {1}


def test_a_file_that_is_edited_between_its_reading_and_its_stamp_is_read_again(python, tmp_path):
    (tmp_path / "mine.toml").write_text("schema = 1\nthreads.count = 1\n")
    printed = python(
        """
from backendcfg.probe import stamp
from backendcfg.session import planning
taken, edits = stamp.stamp, [2, 3]
def late(*arguments, **named):
    if edits:
        with open("mine.toml", "w") as file:
            file.write(f"schema = 1\\nthreads.count = {edits.pop(0)}  # edited\\n" + "#" * len(edits))
    return taken(*arguments, **named)
stamp.stamp = late
made = planning.compiled("./mine.toml")
print(made.values["threads.count"], edits)
print(repr(stamp.holds(made.stamp)))
"""
    )
    assert printed == "3 []\n''\n"


def test_the_empty_name_is_refused_also_where_no_name_was_planned_before(python):
    printed = python(
        """
from backendcfg.errors import InvalidValueError
from backendcfg.session import planning
planning.compiled(None)
try:
    planning.compiled("")
except InvalidValueError as error:
    print(error)
"""
    )
    assert printed == '"" is not the name of a profile\n'


def test_a_plan_that_was_made_while_a_library_gave_no_answer_is_not_kept(python, tmp_path):
    printed = python(
        """
import os
os.environ["BACKENDCFG_CACHE_DIR"] = os.path.abspath("cache")
from backendcfg import session
from backendcfg.probe import inspection
from backendcfg.session import choice, planning
asked = inspection.ask
def refuse(groups, **_):
    answer = inspection.Answer(error="no child process could be started", again_after=0.0)
    return {request: answer for group in groups for request in group}
inspection.ask = refuse
active = session.activate("reproducible")
told = [one for one in active.unanswered if "openblas" in one]
print(len(told) > 0, {one.partition(".so ")[2] for one in told})
made = planning.compiled("reproducible")
kept = planning.cache_directory()
print("OPENBLAS_THREAD_TIMEOUT" in active.variables, os.path.exists(kept))
inspection.ask = asked
made = planning.compiled_pick(choice.chosen())
print("blas.openblas.thread_timeout" in made.effective, len(os.listdir(kept)))
"""
    )
    assert printed.splitlines() == [
        "True {'gave no answer: no child process could be started'}",
        "False False",
        "True 1",
    ]
