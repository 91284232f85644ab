"""What is not TOML, or more than TOML allows, is an error with its place."""

import pytest

from backendcfg.errors import BackendCfgError, SeveralErrors
from backendcfg.load import assignments, stack
from backendcfg.load.document import read_profile
from backendcfg.load.stack import Request, load
from backendcfg.load.text import has_long_key


@pytest.fixture
def render(tmp_path, monkeypatch):
    """The message for a profile's text."""
    monkeypatch.chdir(tmp_path)

    def of(text):
        (tmp_path / "x.toml").write_text(text, encoding="utf-8")
        with pytest.raises(BackendCfgError) as raised:
            read_profile("x.toml")
        return raised.value.render()

    return of


def test_more_keys_than_anybody_writes_are_refused_before_they_are_read(render):
    assert render("".join(f"k{n} = 1\n" for n in range(10_001))) == (
        "error[toml-syntax]: x.toml has more than 10,000 keys and values\n"
        "  --> x.toml:1:1\n"
        "   |\n"
        " 1 | k0 = 1\n"
        "   | ^ the first line\n"
        "  state: nothing was changed"
    )


@pytest.mark.parametrize(
    "text",
    ["[[when]]\n" * 5_001, f"drop = [{'1,' * 10_001}]", f"extends = [{'[],' * 5_001}]"],
    ids=["tables", "values", "arrays"],
)
def test_values_and_tables_count_as_keys_do(render, text):
    said = render(text).splitlines()[0]
    assert said == "error[toml-syntax]: x.toml has more than 10,000 keys and values"


@pytest.mark.parametrize(
    ("key", "kind"), [("drop", "`drop` names"), ("extends", "profile `x` extends")]
)
def test_thousands_of_wrong_names_are_not_all_looked_up(tmp_path, monkeypatch, key, kind):
    # Each takes milliseconds to find what is nearest to it.
    looked = []
    monkeypatch.setattr(stack, "nearest", lambda name, _: looked.append(name))
    monkeypatch.setattr(assignments, "nearest", lambda name, _: looked.append(name))
    names = ", ".join(f'"a{number}"' for number in range(9_000))
    (tmp_path / "x.toml").write_text(f"{key} = [{names}]")
    with pytest.raises(SeveralErrors, match=r"^more than 20 errors in .*x.toml") as raised:
        load(Request(str(tmp_path / "x.toml")))
    assert all(one.message.startswith(kind) for one in raised.value.errors)
    assert len(looked) == 21


def test_a_duplicate_key_shows_both_places(render):
    assert render('[blas]\nlibrary = "mkl"\n\nlibrary = "blis"\n') == (
        "error[toml-syntax]: `blas.library` is defined twice\n"
        "  --> x.toml:2:1\n"
        "   |\n"
        ' 2 | library = "mkl"\n'
        "   | ^^^^^^^ first here\n"
        "  --> x.toml:4:1\n"
        "   |\n"
        ' 4 | library = "blis"\n'
        "   | ^^^^^^^ and again here\n"
        "  state: nothing was changed\n"
        "  help: remove one of the two"
    )


def test_a_duplicate_table_shows_both_places(render):
    text = render("[cudnn]\n[cuda]\n[cudnn]\nbenchmark = true\n")
    assert "`cudnn` is defined twice" in text
    assert "x.toml:1:2" in text
    assert "x.toml:3:2" in text


@pytest.mark.parametrize(
    ("line", "message", "cure"),
    [
        ("benchmark = True", "invalid value", "write `benchmark = true`"),
        ("benchmark = on", "invalid value", "write `benchmark = true`"),
        ("level = debug", "invalid value", 'write `level = "debug"`'),
        (
            "level = None",
            "invalid value",
            "delete the line: TOML has no null, and a key that is not set keeps its default",
        ),
        ("level: debug", "expected '=' after a key in a key/value pair", 'write `level = "debug"`'),
    ],
)
def test_a_value_that_is_not_toml_says_what_to_write(render, line, message, cure):
    text = render(f"schema = 1\n{line}\n")
    assert text.startswith(f"error[toml-syntax]: x.toml is not TOML: {message}\n  --> x.toml:2:")
    assert text.endswith(f"help: {cure}")


def test_an_unterminated_string_has_its_place(render):
    assert render('schema = 1\na = "x\n') == (
        "error[toml-syntax]: x.toml is not TOML: illegal character '\\n'\n"
        "  --> x.toml:2:7\n"
        "   |\n"
        ' 2 | a = "x\n'
        "   |       ^ not TOML from here\n"
        "  state: nothing was changed"
    )


def test_the_end_of_a_file_has_its_place(render):
    assert "--> x.toml:1:8" in render("a = [1,")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000 + "]" * 5000,
        "x = " + "[" * 5000,
        "x = " + "{a=" * 5000,
        "x = " + "[" * 40 + "]" * 40,
        ".".join("abcdefghij" * 4) + " = 1",
        "[" + ".".join(["a"] * 5000) + "]",
        # tomllib would take 20 seconds and ten gigabytes.
        ".".join(["a"] * 50_000) + " = 1",
        "x = {" + ".".join(["a"] * 50_000) + " = 1}",
        "a = [" + "\n[" * 5000,
    ],
)
def test_deep_nesting_is_refused_with_a_place(render, text):
    message = render(text)
    assert message.startswith(
        "error[toml-syntax]: x.toml nests more than 32 tables or arrays in each other\n"
    )
    assert "--> x.toml:" in message
    assert "^ this deep" in message


def test_the_place_of_deep_nesting_is_where_it_goes_too_deep(render):
    assert "--> x.toml:2:37" in render("schema = 1\ny = " + "[" * 300 + "]" * 300)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1979-05-27", "the date or time 1979-05-27"),
        ("07:32:00", "the date or time 07:32:00"),
        ("1979-05-27T07:32:00Z", "the date or time 1979-05-27 07:32:00+00:00"),
        ("nan", "nan"),
        ("-inf", "-inf"),
        ("1e999", "inf"),
        ("1.5", "the float 1.5"),
        ("[]", "an empty array"),
        ("{}", "an empty table"),
        ("{ a = 1 }", "a table"),
    ],
)
def test_what_no_flag_takes_is_named_with_its_place(render, value, shown):
    assert render(f"threads.count = {value}\n").startswith(
        "error[wrong-type]: `threads.count` must be an integer from 1 to 4096 or "
        f'"auto", not {shown}\n  --> x.toml:1:17\n'
    )


@pytest.mark.parametrize("table", ["requires.gpu", "requires", "environment", "blas", "when"])
@pytest.mark.parametrize("value", ["1979-05-27", "nan", "1e999", "3"])
def test_no_table_takes_a_date_or_nan_for_nothing(render, table, value):
    assert f"x.toml:1:{len(table) + 4}" in render(f"{table} = {value}\n")


@pytest.mark.parametrize("key", ["requires.gpu.vendor", "requires.os", "requires.cpu.vendor"])
def test_an_optional_value_does_not_take_a_date_for_none(render, key):
    assert "not the date or time 1979-05-27" in render(f"{key} = 1979-05-27\n")


def test_an_integer_of_more_than_64_bits_is_refused(render):
    assert render("cuda.cufft_plan_cache.max_size = 9223372036854775808\n").splitlines()[:4] == [
        (
            "error[invalid-value]: `cuda.cufft_plan_cache.max_size` must be an integer of at least 0, "
            "not the integer 9223372036854775808"
        ),
        "  --> x.toml:1:34",
        "   |",
        " 1 | cuda.cufft_plan_cache.max_size = 9223372036854775808",
    ]


@pytest.mark.parametrize("digits", [4000, 5000, 100_000])
def test_an_integer_of_thousands_of_digits_is_refused_with_its_place(render, digits):
    text = render(f"schema = 1\nthreads.count = {'9' * digits}\n")
    assert "--> x.toml:2:17" in text


def test_a_huge_hexadecimal_integer_is_refused_though_python_reads_it(render):
    assert "0xffffffff..." in render(f"threads.count = 0x{'f' * 50_000}\n")


def test_control_characters_of_a_file_do_not_reach_the_terminal(render):
    text = render('"a\\u001b[31m\\nb" = 1\n')
    assert "\x1b" not in text
    assert 'unknown key `"a\\u001b[31m\\nb"`' in text


@pytest.mark.parametrize(
    ("line", "long"),
    [
        (".".join(["a"] * 200) + " = 1", True),
        ("[" + " . ".join(["'a'"] * 200) + "]", True),
        ("x = [" + ", ".join(['"1.2.3"'] * 200) + "]", False),
        ("# " + "a.b " * 200, False),
        ("." * 500, False),
        ('x = "\\"' + ".a" * 500 + '"', False),
    ],
)
def test_dots_count_in_keys_alone(line, long):
    assert has_long_key(line) is long
