"""The locator knows the place of everything that tomllib yields."""

import tomllib

import pytest
import tomli_w
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg.load.parsed import Mark, locate

EXAMPLE = '''\
schema = 1
"quoted key" = 'x'   # comment with = and "quotes"
a.b."c.d" = [1, [2,
  3], { e = "f", g.h = true }]
text = """
a = 1 # not a key
"""
when_ = 1979-05-27 07:32:00Z

[ table . sub ]   # spaces
key="value"
[[when]]
gpu.vendor = "nvidia"
[[when.inner]]
x = 1
[[when]]
[when.flags.cudnn]
benchmark = false
'''


def paths(value, path=()):
    """Every path that a TOML value has."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*path, index))


def piece(text, mark):
    return text.split("\n")[mark.line - 1][mark.column - 1 :][: mark.length]


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("schema",), "schema", "1"),
        (("quoted key",), '"quoted key"', "'x'"),
        (("a",), "a", "a"),
        (("a", "b", "c.d"), '"c.d"', "[1, [2,"),
        (("a", "b", "c.d", 1, 1), "3", "3"),
        (("a", "b", "c.d", 2, "g", "h"), "h", "true"),
        (("text",), "text", '"""'),
        (("when_",), "when_", "1979-05-27 07:32:00Z"),
        (("table",), "table", "[ table . sub ]"),
        (("table", "sub"), "sub", "[ table . sub ]"),
        (("table", "sub", "key"), "key", '"value"'),
        (("when",), "when", "[[when]]"),
        (("when", 0, "gpu", "vendor"), "vendor", '"nvidia"'),
        (("when", 0, "inner", 0, "x"), "x", "1"),
        (("when", 1, "flags", "cudnn", "benchmark"), "benchmark", "false"),
    ],
)
def test_a_path_has_the_place_of_its_key_and_of_its_value(path, key, value):
    entry = locate(EXAMPLE).entries[path]
    assert (piece(EXAMPLE, entry.key), piece(EXAMPLE, entry.value)) == (key, value)


def test_elements_of_an_array_of_tables_stand_at_their_own_headers():
    entries = locate(EXAMPLE).entries
    assert [entries["when", index].key.line for index in (0, 1)] == [12, 16]


def test_every_path_of_the_example_has_a_place():
    assert set(paths(tomllib.loads(EXAMPLE))) == set(locate(EXAMPLE).entries)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("a = 1\na = 2\n", Mark(1, 1, 1), Mark(2, 1, 1)),
        ("[t]\nx = 1\n[u]\n[t]\n", Mark(1, 2, 1), Mark(4, 2, 1)),
        ("a.b = 1\na.b.c = 2\n", Mark(1, 3, 1), Mark(2, 3, 1)),
        ("t = { x = 1, x = 2 }\n", Mark(1, 7, 1), Mark(1, 14, 1)),
        ("[t]\nx = 1\n[t.x]\n", Mark(2, 1, 1), Mark(3, 4, 1)),
    ],
)
def test_a_duplicate_has_both_places(text, first, second):
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    assert locate(text).duplicate[1:] == (first, second)


@pytest.mark.parametrize("text", ["a = ", "[", '"', "a = [1, ", "= 1", "a = {b", "[[a]", "\x00"])
def test_text_that_is_not_toml_ends_the_search_and_nothing_more(text):
    assert set(locate(text).entries) <= {("a",), ("a", 0), ("a", 1), ("a", "b")}


keys = st.text(max_size=6) | st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.times()
    | st.datetimes()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
documents = st.dictionaries(keys, values, max_size=6)


@settings(max_examples=examples(300), deadline=None)
@given(documents, st.booleans())
def test_everything_that_tomllib_yields_has_a_place_whose_text_is_its_key(data, multiline):
    text = tomli_w.dumps(data, multiline_strings=multiline)
    check(text)


def check(text):
    text = text.replace("\r\n", "\n")
    data = tomllib.loads(text)
    found = locate(text)
    assert found.duplicate is None
    assert set(found.entries) == set(paths(data))
    for path, entry in found.entries.items():
        if isinstance(path[-1], str):
            key = piece(text, entry.key)
            assert list(tomllib.loads(f"{key} = 1")) == [path[-1]]
    return found


bare = st.from_regex(r"[a-c]{1,2}", fullmatch=True)
quoted = bare.map(lambda name: f'"{name}"') | bare.map(lambda name: f"'{name}'")
space = st.sampled_from(["", " ", "  ", "\t"])
dotted = st.lists(st.tuples(space, bare | quoted, space).map("".join), min_size=1, max_size=3).map(
    ".".join
)
literals = st.sampled_from(
    [
        *("1", "+1_0", "0x1f", "-1.5e3", "inf", "nan", "true", "1979-05-27", "07:32:00.5"),
        *("1979-05-27 07:32:00", '"# no = comment"', "'[x]'", '"""a\n"b = 1"""""', "'''x'''''"),
        *('"\\"\\\\"', '"""\\\n  x"""', "''", '""', "'''\n[[a]]\n'''"),
    ]
)
gaps = st.sampled_from(["", " ", "\n", " # ] } = \n", "\n\t"])
hand_made = st.recursive(
    literals,
    lambda inner: (
        st.lists(st.tuples(gaps, inner, gaps).map("".join), max_size=3).map(
            lambda items: f"[{','.join(items)}]"
        )
        | st.lists(st.tuples(dotted, inner), max_size=3).map(
            lambda items: "{" + ", ".join(f"{key}={value}" for key, value in items) + "}"
        )
    ),
    max_leaves=8,
)
statements = (
    st.tuples(dotted, space, hand_made, st.sampled_from(["", " # x = 1"])).map(
        lambda parts: f"{parts[0]}={parts[1]}{parts[2]}{parts[3]}"
    )
    | dotted.map(lambda key: f"[{key}]")
    | dotted.map(lambda key: f"[[{key}]]")
    | st.sampled_from(["", "# comment", "  "])
)


@pytest.mark.slow
@settings(max_examples=examples(800), deadline=None)
@given(st.lists(statements, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_hand_written_toml_is_located_too(lines, newline):
    text = newline.join(lines)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = locate(text.replace("\r\n", "\n"))
        if "overwrite" in str(error) or "twice" in str(error):
            assert found.duplicate is not None
    else:
        check(text)
