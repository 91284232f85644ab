"""XLA_FLAGS: one text in which XLA finds many switches, and the ones that a plan wants in it.

XLA splits the text at blanks, takes `--name` for `--name=true`, and of two words for one switch
the later (measured with jaxlib 0.10.2). A text that does not begin with a dash is the name of a
file that holds the words. Standard library only; no file is opened here.
"""

from __future__ import annotations

from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

VARIABLE = "XLA_FLAGS"
SWITCHES = {
    "jax.deterministic_ops": "--xla_gpu_deterministic_ops",
    "jax.autotune_level": "--xla_gpu_autotune_level",
}
"""The flags that are a switch of XLA. What they do on a GPU was read, not run; that jaxlib takes
them was measured."""

_WORD = r"""[^\s=]+(?:=(?:"[^"]*"|'[^']*'|\S*))?"""
_TRUTH = {"true": "1", "false": "0", "": "1"}


@record(frozen=True)
class Word:
    """One switch as a plan wants it: who wants it, in words, and the word for XLA."""

    flag: str
    wish: str
    text: str


def words(text: str) -> dict[str, str]:
    """The words of a text by the name of their switch, each in its last form."""
    found: dict[str, str] = {}
    for word in _split(text):
        name = word.partition("=")[0]
        found.pop(name, None)
        found[name] = word
    return found


def _split(text: str) -> list[str]:
    """The words of a text, quoted blanks left in them."""
    if '"' not in text and "'" not in text:
        return text.split()
    import re

    return re.findall(_WORD, text)


def is_file(text: str) -> bool:
    """Whether XLA would take a text for the name of a file."""
    return bool(text.strip()) and not text.lstrip().startswith("-")


def wanted(values: Mapping[str, Any], asked: Collection[str]) -> dict[str, Word]:
    """The words that a plan wants, by switch; those of its `[environment]` table win."""
    found: dict[str, Word] = {}
    for flag, name in SWITCHES.items():
        if flag in asked and flag in values:
            value = str(values[flag]).lower()
            found[name] = Word(flag, f"`{flag} = {value}`", f"{name}={value}")
    own = (values.get("environment") or {}).get(VARIABLE) if "environment" in asked else None
    for name, word in words(own or "").items():
        found[name] = Word("environment", f"`{word}` in `environment.{VARIABLE}`", word)
    return found


def merged(present: str, wants: Mapping[str, Word]) -> str:
    """A text with the words that are there already and those wanted, which win."""
    rest = [word for name, word in words(present).items() if name not in wants]
    return " ".join([*rest, *(word.text for word in wants.values())])


def holds(present: str, wants: Mapping[str, Word]) -> bool:
    """Whether XLA would find everything that is wanted in a text."""
    there = words(present)
    return all(name in there and _same(there[name], word.text) for name, word in wants.items())


def contradictions(
    values: Mapping[str, Any], asked: Collection[str], environment: Mapping[str, str]
) -> list[str]:
    """The words of an environment's XLA_FLAGS that say otherwise than the plan, in words."""
    text = environment.get(VARIABLE, "")
    if is_file(text):
        return []
    there = words(text)
    return [
        f"{there[name]} in {VARIABLE} contradicts {word.wish}"
        for name, word in wanted(values, asked).items()
        if name in there and not _same(there[name], word.text)
    ]


def _same(one: str, other: str) -> bool:
    """Whether two words for one switch give it the same value."""
    left, right = (word.partition("=")[2].strip("\"'").lower() for word in (one, other))
    return _TRUTH.get(left, left) == _TRUTH.get(right, right)
