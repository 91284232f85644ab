"""What backendcfg says of itself, under profiles that ask for a level, in processes of their own."""

from __future__ import annotations

import pytest

PRELUDE = """
import sys
import backendcfg
from backendcfg import log
sys.stderr = sys.stdout
def say():
    log.debug("a %s", "step")
    log.info("a change")
    log.warning("a surprise")
    log.error("a defect")
"""
TEXTS = {"debug": "a step", "info": "a change", "warning": "a surprise", "error": "a defect"}
LISTENER = 'import logging; logging.basicConfig(format="program: %(message)s")\n'


@pytest.fixture
def said(python):
    """What a program writes, as lines."""
    return lambda code: python(PRELUDE + code).splitlines()


def under(level):
    """`say()` in a scope that asks for a level."""
    return f"""
from backendcfg.session import adjust
with adjust.overlay({{"log.level": {level!r}}}):
    say()
"""


@pytest.mark.parametrize("level", TEXTS)
@pytest.mark.parametrize("listener", ["", LISTENER])
def test_a_scope_says_what_is_at_its_level_and_no_more(said, level, listener):
    heard = list(TEXTS.values())[list(TEXTS).index(level) :]
    # A program that listens hears it as it likes; a warning is printed by `logging` itself.
    who = "program: " if listener else "backendcfg: " if level in ("debug", "info") else ""
    assert said(listener + under(level)) == [f"{who}{text}" for text in heard]


@pytest.mark.parametrize(
    ("listener", "who"), [("", ""), (LISTENER, "program: "), ("import logging", "")]
)
def test_without_a_level_that_was_asked_the_logger_decides(said, listener, who):
    assert said(f"{listener}\nsay()") == [f"{who}a surprise", f"{who}a defect"]


def test_after_a_scope_the_logger_decides_again(said):
    assert said(f"{under('error')}\nsay()") == ["a defect", "a surprise", "a defect"]


def test_scopes_of_other_threads_change_nothing(said):
    assert said(
        """
import threading
from backendcfg.session import adjust
with adjust.overlay({"log.level": "debug"}):
    thread = threading.Thread(target=say)
    thread.start()
    thread.join()
"""
    ) == ["a surprise", "a defect"]


def test_a_scope_that_asks_for_no_level_leaves_the_one_around_it(said):
    lines = said(
        """
from backendcfg.session import adjust
backendcfg.apply(settings={"log.level": "info"})
talkative = adjust.overlay({"log.level": "debug"})
with backendcfg.profile("fast"):
    log.info("in a scope")
    with talkative, backendcfg.profile("fast"):
        log.debug("in scopes")
    log.debug("nobody hears this")
"""
    )
    assert lines[-2:] == ["backendcfg: in a scope", "backendcfg: in scopes"]


def test_an_undo_tells_its_steps_where_the_profile_that_it_takes_back_asks_for_them(said):
    lines = said(
        """
import numpy
from backendcfg.bridges.pools import inventory
[pool] = inventory().pools
backendcfg.apply(settings={"threads.count": 1})
backendcfg.apply(settings={"threads.count": 2, "log.level": "debug"})
print("undo")
backendcfg.undo()
log.debug("nobody hears this")
"""
    )
    written, applied = lines[-2:]
    assert written == "backendcfg: openblas[numpy].threads: 2 -> 1"
    assert applied.startswith("backendcfg: applied default: ")


def test_the_level_of_a_profile_that_is_being_applied_is_that_of_its_thread(said):
    assert said(
        """
import threading
from backendcfg.session import installed
backendcfg.apply(settings={"log.level": "debug"})
plans = installed.in_force().plans
backendcfg.undo()
print("begin")
def apply():
    log.begin_applying(plans)
    log.debug("in the thread that applies")
    told.set()
    end.wait()
told, end = threading.Event(), threading.Event()
thread = threading.Thread(target=apply)
thread.start()
told.wait()
log.debug("nobody hears this")
end.set()
thread.join()
"""
    )[-2:] == ["begin", "backendcfg: in the thread that applies"]


def test_a_profile_that_is_applied_tells_its_steps_and_those_of_its_undo(said):
    before, *lines = said(
        """
import numpy
from backendcfg.bridges.pools import inventory
[pool] = inventory().pools
print(pool.get())
backendcfg.apply(settings={"log.level": "debug", "threads.count": pool.get() + 1})
log.debug("between")
backendcfg.undo()
log.debug("after")
"""
    )
    after = int(before) + 1
    # The count is in variables, too, which have lines of their own.
    others = [line for line in lines if "NUM_THREADS" not in line and "NPROC" not in line]
    written = len(lines) - len(others)
    assert others == [
        f"backendcfg: openblas[numpy].threads: {before} -> {after}",
        f"backendcfg: applied default: {written // 2 + 1} of {written // 2 + 1} written",
        "backendcfg: between",
        f"backendcfg: openblas[numpy].threads: {after} -> {before}",
        f"backendcfg: applied settings: {written // 2 + 1} of {written // 2 + 1} written",
    ]


@pytest.mark.parametrize("level", ["debug", "error"])
def test_a_level_that_the_program_gives_the_logger_itself_decides(said, level):
    own = 'import logging\nlogging.getLogger("backendcfg").setLevel("WARNING")\n'
    assert [line.rpartition(": ")[2] for line in said(own + under(level))] == [
        "a surprise",
        "a defect",
    ]


@pytest.mark.parametrize(
    "silence",
    [
        "logging.disable(logging.CRITICAL)",
        'logging.getLogger("backendcfg").disabled = True',
        'logging.getLogger("backendcfg").addFilter(lambda record: False)',
    ],
)
@pytest.mark.parametrize("listener", ["import logging", LISTENER])
@pytest.mark.parametrize("asked", [under("debug"), "say()"])
def test_what_silences_a_logger_silences_ours(said, silence, listener, asked):
    assert said(f"{listener}\n{silence}\n{asked}") == []


@pytest.mark.parametrize("kind", TEXTS)
def test_a_record_names_the_line_that_says_something(said, kind):
    [record] = said(f"""
import logging
from backendcfg.session import adjust
class Listener(logging.Handler):
    def emit(self, record):
        print(record.name, record.filename, record.funcName, record.levelname, sep=", ")
logging.getLogger().addHandler(Listener())
def speaker():
    log.{kind}("this")
with adjust.overlay({{"log.level": "debug"}}):
    speaker()
""")
    assert record == f"backendcfg, <string>, speaker, {kind.upper()}"


def test_nothing_imports_logging_before_there_is_something_to_say(said):
    [loaded] = said("""
from backendcfg.session import adjust
loaded = []
log.debug("nobody hears this")
loaded.append("logging" in sys.modules)
with adjust.overlay({"log.level": "error"}):
    log.debug("nor this")
    log.info("nor this")
    loaded.append("logging" in sys.modules)
print(loaded)
""")
    assert loaded == "[False, False]"


def test_a_worker_has_the_level_of_the_profile_around_the_scope_that_starts_it(lines):
    assert lines(
        """
        import json, logging, multiprocessing
        import backendcfg
        from backendcfg import log

        class Listener(logging.Handler):
            def emit(self, record):
                if "worker" in record.getMessage():
                    print(json.dumps(record.getMessage()), flush=True)

        def work():
            logging.getLogger().addHandler(Listener())
            log.debug("in a worker")

        if __name__ == "__main__":
            backendcfg.apply(settings={"log.level": "debug"})
            with backendcfg.profile("fast"):
                worker = multiprocessing.get_context("spawn").Process(target=work)
                worker.start()
                worker.join()
        """
    ) == ["in a worker"]
