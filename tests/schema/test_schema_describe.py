"""Types and values in words."""

import datetime as dt
import math
import re
from typing import Annotated, Literal

import pytest
from pydantic import Field

from backendcfg.schema import describe
from backendcfg.schema.base import Threads, iterate
from backendcfg.schema.describe import Kind
from backendcfg.schema.profile import Condition, Profile, Settings, VersionRange, flags


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (bool, "true or false"),
        (int, "an integer"),
        (Annotated[int, Field(ge=0)], "an integer of at least 0"),
        (Annotated[int, Field(ge=1, le=9)], "an integer from 1 to 9"),
        (Annotated[int, Field(ge=0, le=1)], "0 or 1"),
        (str, "a string"),
        (Threads, 'an integer from 1 to 4096 or "auto"'),
        (Literal["auto"], '"auto"'),
        (Literal["a", "b"], '"a" or "b"'),
        (Literal["a", "b", "c"], 'one of "a", "b", "c"'),
        (
            Literal["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
            'one of "a", "b", "c", "d", "e", "f", "g", "h" and 2 more, see docs/profiles.md',
        ),
        (tuple[str, ...], "an array of strings"),
        (str | tuple[str, ...], "a string or an array of strings"),
        (tuple[Literal["x", "y"], ...], 'an array of "x" and "y"'),
        (dict[str, str], "a table of strings"),
        (dict[str, VersionRange], 'a table of version ranges, such as ">=8.0"'),
        (Condition, "a table"),
        (tuple[Condition, ...], "an array of tables"),
        (Literal["x"] | None, '"x"'),
    ],
)
def test_a_type_is_one_phrase(annotation, words):
    assert describe.words(Kind.of(annotation)) == words


@pytest.mark.parametrize(
    ("value", "shown", "toml"),
    [
        ("8", 'the string "8"', '"8"'),
        ('a"b\n', 'the string "a\\"b\\n"', '"a\\"b\\n"'),
        ("ü", 'the string "ü"', '"ü"'),
        ("x" * 100, f'the string "{"x" * 57}..."', f'"{"x" * 57}..."'),
        (8, "the integer 8", "8"),
        (True, "true", "true"),
        (1.5, "the float 1.5", "1.5"),
        (math.nan, "nan", "nan"),
        (-math.inf, "-inf", "-inf"),
        ([], "an empty array", "[]"),
        (["a", 1], 'the array ["a", 1]', '["a", 1]'),
        (["a" * 59], "an array", f'["{"a" * 59}"]'),
        ({}, "an empty table", "{}"),
        ({"a b": {"c": True}}, "a table", '{ "a b" = { c = true } }'),
        (dt.date(1979, 5, 27), "the date or time 1979-05-27", "1979-05-27"),
        pytest.param(16**6000, "the integer 0x80000000...", "0x80000000...", id="huge"),
        pytest.param(-(16**6000), "the integer -0x80000000...", "-0x80000000...", id="-huge"),
    ],
)
def test_a_value_is_named_as_toml_writes_it(value, shown, toml):
    assert (describe.shown(value), describe.toml(value)) == (shown, toml)


def test_every_key_of_a_profile_has_a_phrase_and_every_pattern_words():
    def walk(kind, path):
        assert describe.words(kind) != "a value", path
        for name, inner in kind.entries().items():
            walk(inner, f"{path}.{name}")

    for model in (Profile, Settings):
        walk(Kind.of(model), model.__name__)


def test_no_phrase_speaks_of_types_of_python():
    for flag in flags().values():
        phrase = describe.words(Kind.field(flag.info))
        assert not re.search(r"\b(str|int|bool|dict|list|tuple|None|Literal)\b", phrase), phrase


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("cudnn", "benchmark"), "true or false"),
        (("when", 0, "gpu", "vendor"), 'one of "nvidia", "amd", "apple", "intel"'),
        (("blas", "library", "require"), describe.one_of(["openblas", "scipy-openblas", "blis"])),
        (("extends", 3), "a string"),
        (("environment", "A"), "a string"),
    ],
)
def test_a_path_leads_to_its_type(path, words):
    assert describe.words(Kind.of(Profile).at(path)).startswith(words)


@pytest.mark.parametrize("path", [("bogus",), ("cudnn", "benchmark", "x"), ("when", "x"), ("a", 1)])
def test_a_path_that_nothing_may_stand_at_leads_nowhere(path):
    assert Kind.of(Profile).at(path) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("a", "b"), "a.b"),
        (("extends", 1), "extends[1]"),
        (("a b", "c"), '"a b".c'),
        (("when", 0, "gpu"), "when[0].gpu"),
    ],
)
def test_a_path_is_written_as_in_toml(path, text):
    assert describe.dotted(path) == text


def test_there_are_flags_to_describe():
    assert len(list(iterate(Profile))) == len(flags()) > 70
