"""The level of our own logger as a switch, in processes where nothing else listens."""

from __future__ import annotations

import pytest

from backendcfg.bridges import log
from backendcfg.transact.protocol import Switch

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
before = found.switch.read()
found.switch.write(found.wanted)
during = [found.switch.read(), logger.level]
found.switch.write(before)
print(json.dumps([before, during, found.switch.read(), logger.handlers]))
"""
    assert answer(code) == [0, [number, number], 0, []]


def test_a_talkative_level_that_nobody_hears_goes_to_standard_error(child):
    code = f"""{PRELUDE}
switch = setting("info").switch
logger.info("before")
switch.write(20)
logger.info("three switches set")
switch.write(0)
logger.info("after")
"""
    done = child(code)
    assert (done.stdout, done.stderr) == ("", "backendcfg: three switches set\n")


def test_a_program_that_listens_itself_is_not_spoken_over(child):
    code = f"""{PRELUDE}
logging.basicConfig(format="program: %(message)s")
setting("debug").switch.write(10)
logger.debug("three switches set")
"""
    done = child(code)
    assert (done.stdout, done.stderr) == ("", "program: three switches set\n")


def test_a_profile_that_says_nothing_about_it_leaves_it_alone():
    assert log.settings({"log.level": "debug"}, {"threads.count"}) == []


def test_the_logger_is_a_switch():
    [found] = log.settings({"log.level": "debug"}, {"log.level"})
    assert isinstance(found.switch, Switch)
    assert (found.switch.name, found.wanted) == ("logging.backendcfg.level", 10)


def test_reading_does_not_import_logging(answer):
    code = """
import json, sys
from backendcfg.bridges import log
[found] = log.settings({"log.level": "warning"}, ["log.level"])
print(json.dumps([found.switch.read(), "logging" in sys.modules]))
"""
    assert answer(code) == [0, False]
