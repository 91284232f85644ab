"""The level of our own logger as a knob, in processes where nothing else listens."""

from __future__ import annotations

import pytest

from backendcfg.bridges import log
from backendcfg.transact.protocol import Knob

PRELUDE = """
import json, logging, sys
from backendcfg.bridges import log
logger = logging.getLogger("backendcfg")
def setting(level):
    [found] = log.settings({"log.level": level}, ["log.level"])
    return found
"""


@pytest.mark.parametrize(
    ("level", "number"), [("debug", 10), ("info", 20), ("warning", 30), ("error", 40)]
)
def test_a_level_is_set_read_back_and_put_back(answer, level, number):
    code = f"""{PRELUDE}
found = setting({level!r})
before = found.knob.read()
found.knob.write(found.wanted)
during = [found.knob.read(), logger.level]
found.knob.write(before)
print(json.dumps([before, during, found.knob.read(), logger.handlers]))
"""
    assert answer(code) == [0, [number, number], 0, []]


def test_a_talkative_level_that_nobody_hears_goes_to_standard_error(child):
    code = f"""{PRELUDE}
knob = setting("info").knob
logger.info("before")
knob.write(20)
logger.info("three knobs set")
knob.write(0)
logger.info("after")
"""
    done = child(code)
    assert (done.stdout, done.stderr) == ("", "backendcfg: three knobs set\n")


def test_a_program_that_listens_itself_is_not_spoken_over(child):
    code = f"""{PRELUDE}
logging.basicConfig(format="program: %(message)s")
setting("debug").knob.write(10)
logger.debug("three knobs set")
"""
    done = child(code)
    assert (done.stdout, done.stderr) == ("", "program: three knobs set\n")


def test_a_profile_that_says_nothing_about_it_leaves_it_alone():
    assert log.settings({"log.level": "debug"}, {"threads.count"}) == []


def test_the_logger_is_a_knob():
    [found] = log.settings({"log.level": "debug"}, {"log.level"})
    assert isinstance(found.knob, Knob)
    assert (found.knob.name, found.wanted) == ("logging.backendcfg.level", 10)


def test_reading_does_not_import_logging(answer):
    code = """
import json, sys
from backendcfg.bridges import log
[found] = log.settings({"log.level": "warning"}, ["log.level"])
print(json.dumps([found.knob.read(), "logging" in sys.modules]))
"""
    assert answer(code) == [0, False]
