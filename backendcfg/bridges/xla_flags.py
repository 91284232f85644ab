"""XLA_FLAGS as a switch: put together from flags and what is there, and tried out in a child.

XLA ends the process that starts it when it does not know a word of XLA_FLAGS, and a file that is
not there does the same. So a text is given to the installed jaxlib in a child process before
it is given to anybody else. What the child found is kept, by jaxlib and by text, so that a process
that starts under a profile finds the answer and starts no child.
"""

from __future__ import annotations

import os
import sys

from backendcfg import environ, startup
from backendcfg.catalogue import xla_text
from backendcfg.catalogue.frameworks import JAXLIB
from backendcfg.catalogue.xla_text import VARIABLE
from backendcfg.errors import InvalidValueError
from backendcfg.records import record
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.catalogue.xla_text import Word

LIMIT_SECONDS = 60
KEPT = 32
"""Answers that are kept; the oldest go."""

# Whatever goes wrong before XLA looks at its flags is no answer about them.
_CHILD = """
import jaxlib.xla_client as xla
make = xla.make_cpu_client
print("asked", flush=True)
make()
print("taken", flush=True)
"""
_answers: dict[str, str] = {}


def text_for(values: Mapping[str, Any], asked: Collection[str]) -> str | None:
    """What a process needs in XLA_FLAGS, with what the user has there already; None for no wish.

    Only what the user has where jaxlib does not take the two together.
    """
    wants = xla_text.wanted(values, asked)
    if not wants:
        return None
    present = _of_the_user()
    text = xla_text.merged(present, wants)
    return present if refusal(text) else text


def setting(values: Mapping[str, Any], asked: Collection[str], remedy: str) -> list[Setting]:
    """The variable as a switch of this process, if a plan wants anything in it."""
    wants = xla_text.wanted(values, asked)
    if not wants:
        return []
    text = xla_text.merged(_of_the_user(), wants)
    flag = next(iter(wants.values())).flag
    return [Setting(XlaFlags(text, tuple(wants.items())), text, flag, remedy)]


def check(values: Mapping[str, Any], asked: Collection[str]) -> None:
    """Refuse a plan whose own words the installed jaxlib does not take.

    Raises:
        InvalidValueError: with what XLA says.
    """
    wants = xla_text.wanted(values, asked)
    # Asks with the user's own words, so that processes that start under the plan find the answer.
    text_for(values, asked)
    if wants and (because := refusal(xla_text.merged("", wants))):
        wishes = ", ".join(word.wish for word in wants.values())
        raise InvalidValueError(
            f"the installed jaxlib does not take what the plan puts into {VARIABLE}",
            notes=[f"XLA says: {because}", f"the plan wants {wishes}"],
            state="nothing was changed; with it JAX would have ended the process",
            helps=["correct the word, or remove it from the profile"],
        )


def refusal(text: str) -> str:
    """Why the installed jaxlib does not take a text, in its own words; "" when it does.

    Also "" where there is no jaxlib, or none that can be asked.
    """
    library = _jaxlib()
    if not library or not text:
        return ""
    key = f"{library} {text}"
    if key not in _answers:
        from backendcfg.probe import kept

        stored = kept.entries(_file()).items()
        _answers.update((asked, said) for asked, said in stored if isinstance(said, str))
        if key not in _answers:
            answer = _ask(text)
            _answers[key] = answer or ""
            if answer is not None:
                kept.add(_file(), {key: answer}, most=KEPT)
    return _answers[key]


@record(frozen=True)
class XlaFlags(AnytimeSwitch):
    """XLA_FLAGS of this process; a text that says all that is wanted reads as the wanted one."""

    wanted: str
    wants: tuple[tuple[str, Word], ...]
    name: str = VARIABLE
    latch = "before-first-use"

    def read(self) -> str | None:
        found = environ.current().get(VARIABLE) or None
        if found is None or not xla_text.holds(_expanded(found), dict(self.wants)):
            return found
        return self.wanted

    def write(self, value: str | None) -> None:
        environ.put(VARIABLE, value)

    def too_late(self) -> str:
        return started()

    def lasting(self) -> str:
        """Why JAX keeps what it took from the text when that is given back, or ""."""
        because = started()
        return f"{because} with it" if because else ""

    def unsupported(self) -> str:
        """What XLA says against the text, which may be about the user's own words."""
        because = refusal(self.wanted)
        return f"jaxlib does not take it: {because}" if because else ""


def started() -> str:
    """Why XLA has read its variables in this process, or ""."""
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    begun = getattr(bridge, "backends_are_initialized", None)
    return "JAX has started its backends" if begun is not None and begun() else ""


def _of_the_user() -> str:
    """What XLA_FLAGS holds here without what an earlier apply put there."""
    now = environ.foreign([VARIABLE]).get(VARIABLE, "")
    base = sys.modules.get("backendcfg.registry.base")  # not there: nothing was applied
    mine = base.applied().get(VARIABLE) if base is not None else None
    if mine is not None and now == mine.setting.wanted:
        now = mine.original or ""
    return _expanded(now)


def _expanded(text: str) -> str:
    """The words of the file that a text names, or the text itself."""
    if not xla_text.is_file(text):
        return text
    content = startup.read(text.strip())
    return text if content is None else content.decode(errors="replace")


def _jaxlib() -> str:
    """The installed jaxlib: where it is, and since when; "" for none. Nothing is imported."""
    from importlib.machinery import PathFinder

    specification = PathFinder.find_spec(JAXLIB.name, sys.path)
    origin = specification.origin if specification is not None else None
    if not origin:
        return ""
    try:
        status = os.stat(os.path.join(os.path.dirname(origin), "version.py"))
    except OSError:
        return ""
    return f"{os.path.dirname(origin)} {status.st_mtime_ns} {status.st_size}"


def _ask(text: str) -> str | None:
    """What a child says whose XLA is started with a text; None when it does not get that far."""
    environment = {**environ.copy(), VARIABLE: text, environ.DISABLE.name: "1"}
    environment["JAX_PLATFORMS"] = "cpu"
    from backendcfg import childprocess
    from backendcfg.progress import Step

    with Step("waiting for XLA to read XLA_FLAGS"):
        done = childprocess.run(["-c", _CHILD], environment, seconds=LIMIT_SECONDS)
    if "taken" in done.text:
        return ""
    return _said(done.complaints) if "asked" in done.text else None


def _said(errors: str) -> str:
    """The first thing that XLA complains of, without the time and the place in its sources."""
    import re

    # "F1120 14:00:02.450925 7247 flags.cc:234] ...", and "2026-11-20 14:37:45: F flags.cc:233] ..."
    # before jaxlib 0.6.
    found = re.search(r"^(?:\S+ \S+: )?[EF][^\]\n]*\] (.+)$", errors, re.MULTILINE)
    return found[1].strip() if found else "it ended the process that started with it"


def _file() -> str:
    return os.path.join(environ.cache_directory(), "xla_flags.json")
