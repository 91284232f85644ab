"""Whatever a file or a variable holds, only errors of ours come out, and they can be printed."""

from pathlib import Path

import pytest
import tomli_w
from exhaustive import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backendcfg.errors import BackendCfgError
from backendcfg.load.assignments import from_arguments
from backendcfg.load.document import read_profile, read_settings
from backendcfg.load.locations import profile_files, shipped_dir
from backendcfg.schema.profile import Profile, flags

SHIPPED = [path.read_text(encoding="utf-8") for path in profile_files(shipped_dir())]
FUZZ = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PIECES = (
    *('"', "'", '"""', "'''", "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "#", "\n", "\r", "\0"),
    *("true", "nan", "inf", "1979-05-27", "07:32:00", "1e999", "-1", "9" * 25, "\\", "\\u0000"),
    *("schema", "extends", "drop", "when", "requires", "environment", "flags", "\ufeff", "é", " "),
    *("schema_version = 1\n", '"\\u001b" = 1\n', "a.b.c.d.e = 1\n", "[when]\n", "[[when.flags]]\n"),
)


def check(path, read=read_profile):
    """Reading ends in a result, or in an error of ours that prints and serialises."""
    error = outcome(lambda: read(path))
    if error is None:
        return
    assert error.exit_code == 2
    text = error.render()
    assert "Traceback" not in text
    assert "pydantic" not in text.lower()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert str(error)
    assert error.to_dict()["message"]


def outcome(call):
    """The error of ours that a call raises, or None; any other error passes through."""
    try:
        call()
    except BackendCfgError as error:
        return error
    return None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.toml"


def test_there_are_profiles_to_start_from():
    assert len(SHIPPED) >= 6


@FUZZ
@given(content=st.binary(max_size=200))
def test_random_bytes(path, content):
    path.write_bytes(content)
    check(path)


@FUZZ
@given(content=st.text(max_size=200))
def test_random_text(path, content):
    path.write_text(content, encoding="utf-8", newline="", errors="surrogatepass")
    check(path)


@FUZZ
@given(
    text=st.sampled_from(SHIPPED),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(PIECES)),
        min_size=1,
        max_size=6,
    ),
)
def test_a_shipped_profile_with_pieces_put_in_and_cut_out(path, text, edits):
    for where, cut, piece in edits:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + cut :]
    path.write_text(text, encoding="utf-8", newline="")
    check(path)


@FUZZ
@given(text=st.sampled_from(SHIPPED), order=st.randoms(use_true_random=False))
def test_a_shipped_profile_with_its_lines_shuffled(path, text, order):
    lines = text.split("\n")
    order.shuffle(lines)
    path.write_text("\n".join(lines), encoding="utf-8")
    check(path)


names = st.sampled_from(
    sorted(
        {part for flag in flags() for part in flag.split(".")}
        | set(Profile.model_fields)
        | {"schema", "flags", "gpu", "cpu", "vendor", "features", "libraries", "prefer", "os"}
    )
) | st.text(max_size=5)
scalars = (
    st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["auto", "8", "on", "tf32", "ieee", "mkl", "", "a+b", ">=8.0", "zen4"])
    | st.text(max_size=8)
    | st.dates()
    | st.times()
    | st.datetimes()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@FUZZ
@given(data=st.dictionaries(names, values, max_size=6))
def test_random_toml_with_our_keys(path, data):
    path.write_text(tomli_w.dumps(data), encoding="utf-8", newline="")
    check(path)


@FUZZ
@given(flag=st.sampled_from(sorted(flags())), value=values)
def test_any_value_for_any_flag(path, flag, value):
    *tables, key = flag.split(".")
    data = {key: value}
    for table in reversed(tables):
        data = {table: data}
    path.write_text(tomli_w.dumps(data), encoding="utf-8", newline="")
    check(path)


@FUZZ
@given(data=values)
def test_any_value_for_our_table_in_pyproject(tmp_path, data):
    path = tmp_path / "pyproject.toml"
    path.write_text(tomli_w.dumps({"tool": {"backendcfg": data}}), encoding="utf-8", newline="")
    check(path, read_settings)


@FUZZ
@given(
    flag=st.sampled_from(sorted(flags())),
    text=st.text(max_size=30) | st.sampled_from(PIECES) | st.just("\udcff") | st.just("[" * 3000),
)
def test_any_text_for_an_argument(flag, text):
    error = outcome(lambda: from_arguments({flag: text}))
    assert error is None or (error.exit_code == 2 and error.render())


def test_the_fuzzers_start_from_what_is_valid(path):
    for text in SHIPPED:
        Path(path).write_text(text, encoding="utf-8")
        assert read_profile(path).description
