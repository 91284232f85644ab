"""Every error of a file at once, in its order, with place, caret and nearest match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backendcfg.errors import (
    BackendCfgError,
    ConflictingFlagsError,
    InvalidValueError,
    SeveralErrors,
    UnsupportedSchemaError,
    WrongTypeError,
)
from backendcfg.load.assignments import from_arguments
from backendcfg.load.complaints import Refused
from backendcfg.load.document import SETTINGS_FILES, read_profile, read_settings
from backendcfg.schema.profile import LIBRARIES


@pytest.fixture
def render(tmp_path, monkeypatch):
    """The message for a profile's text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()

    def of(text, name="profiles/fast.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(BackendCfgError) as raised:
            (read_settings if name in SETTINGS_FILES else read_profile)(name)
        return raised.value.render()

    return of


def test_an_unknown_key_names_the_nearest_and_all_that_the_table_takes(render):
    assert render('schema = 1\n\n\n\n\n[blas]\nlibary = "openblas"\n') == (
        "error[unknown-key]: unknown key `libary` in table `[blas]`\n"
        "  --> profiles/fast.toml:7:1\n"
        "   |\n"
        ' 7 | libary = "openblas"\n'
        "   | ^^^^^^ did you mean `library`?\n"
        "  note: `[blas]` accepts: `blis`, `library`, `mkl`, `openblas`, `path`\n"
        "  state: nothing was changed\n"
        "  help: rename it to `library`, or delete the line"
    )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("seed = 1", "write one of its keys: `seed.value = 1`"),
        ("threads = 8", "write one of its keys: `threads.count = 8`"),
        ('blas = "mkl"', 'write one of its keys: `blas.library = "mkl"`'),
        (
            "[torch.backends.cudnn]\nbenchmark = true",
            "write what is below it at the top level, as `[cudnn]`",
        ),
    ],
)
def test_who_writes_a_table_as_a_value_or_a_name_of_pytorch_s_learns_the_flag(render, text, advice):
    assert render(f"{text}\n").endswith(f"\n  help: {advice}")


def test_a_wrong_type_says_what_the_key_takes_and_what_to_write(render):
    assert render('schema = 1\n\n\n\n\n\n\n[threads]\ncount   = "8"\n') == (
        "error[wrong-type]: `threads.count` must be an integer from 1 to 4096 or "
        '"auto", not the string "8"\n'
        "  --> profiles/fast.toml:9:11\n"
        "   |\n"
        ' 9 | count   = "8"\n'
        "   |           ^^^ quoted, so TOML reads a string\n"
        "  state: nothing was changed\n"
        "  help: write `count = 8`"
    )


def test_an_unknown_key_far_from_every_other_lists_eight_and_says_where_the_rest_is(render):
    assert render("[cudnn]\nxyzzy = 1\n") == (
        "error[unknown-key]: unknown key `xyzzy` in table `[cudnn]`\n"
        "  --> profiles/fast.toml:2:1\n"
        "   |\n"
        " 2 | xyzzy = 1\n"
        "   | ^^^^^ no such key\n"
        "  note: `[cudnn]` accepts: `allow_tf32`, `benchmark`, `benchmark_limit`, `conv`, "
        "`depthwise_kernel`, `deterministic`, `enabled`, `fp32_precision` and 1 more, "
        "see docs/profiles.md\n"
        "  state: nothing was changed\n"
        "  help: delete the line"
    )


def test_a_flag_in_the_wrong_table_is_recognised(render):
    assert render("allow_fp16_accumulation = true\n").endswith(
        "help: did you mean `cuda.matmul.allow_fp16_accumulation`?"
    )


def test_a_flag_directly_under_when_is_recognised(render):
    assert render("[[when]]\n[when.cudnn]\nbenchmark = false\n").endswith(
        "help: did you mean `flags.cudnn`?"
    )


EVERYTHING = """\
schema = 1
drop = ["cudnn.benchmrk"]

[cudnn]
benchmark = 1
deterministic = "off"
allow_tf32 = true
conv.fp32_precision = "tf32"
benchmark_limit = -1

[mkl]
verbose = true

[[when]]
gpu.vendor = "nvdia"
cpu.microarchitecture = "zen44"
libraries.numpy = ">=3.x"
"""


def test_all_errors_of_a_file_come_at_once_in_its_order(render):
    text = render(EVERYTHING)
    assert [line for line in text.split("\n") if line.startswith(("error", "  -->", "   -->"))] == [
        'error[unknown-flag]: `drop` names "cudnn.benchmrk", which is neither a flag nor a table',
        "  --> profiles/fast.toml:2:9",
        "error[wrong-type]: `cudnn.benchmark` must be true or false, not the integer 1",
        "  --> profiles/fast.toml:5:13",
        'error[wrong-type]: `cudnn.deterministic` must be true or false, not the string "off"',
        "  --> profiles/fast.toml:6:17",
        (
            "error[conflicting-flags]: `cudnn.allow_tf32 = true` and "
            '`cudnn.conv.fp32_precision = "tf32"` are two spellings of one flag'
        ),
        "  --> profiles/fast.toml:7:1",
        "  --> profiles/fast.toml:8:6",
        "error[invalid-value]: `cudnn.benchmark_limit` must be an integer of at least 0, not -1",
        "  --> profiles/fast.toml:9:19",
        "error[wrong-type]: `mkl.verbose` must be 0 or 1, not true",
        "   --> profiles/fast.toml:12:11",
        (
            "error[invalid-value]: `when[0].gpu.vendor` must be one of "
            '"nvidia", "amd", "apple", "intel", not "nvdia"'
        ),
        "   --> profiles/fast.toml:15:14",
        'error[invalid-value]: no CPU microarchitecture is called "zen44"',
        "   --> profiles/fast.toml:16:25",
        'error[invalid-value]: ">=3.x" is not a version range',
        "   --> profiles/fast.toml:17:19",
    ]
    assert text.endswith("\n\n9 errors in profiles/fast.toml")


def test_several_errors_are_one_error_with_each_of_them(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("a = 1\nb = 2\n")
    with pytest.raises(SeveralErrors) as raised:
        read_profile(path)
    assert [error.code for error in raised.value.errors] == ["unknown-key", "unknown-key"]
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("before", "shown", "caret"),
    [
        (0, 'kez = "' + "x" * 193 + "...", 1),
        (500, "..." + " " * 100 + 'kez = "' + "x" * 93 + "...", 104),
        (100_000, "..." + " " * 100 + 'kez = "' + "x" * 93 + "...", 104),
    ],
)
def test_of_a_long_line_the_part_around_the_error_is_shown(render, before, shown, caret):
    lines = render(" " * before + 'kez = "' + "x" * 100_000 + '"\n').splitlines()
    assert lines[1] == f"  --> profiles/fast.toml:1:{before + 1}"
    assert lines[3:5] == [f" 1 | {shown}", f"   | {' ' * (caret - 1)}^^^ no such key"]


def test_thousands_of_errors_are_counted_and_twenty_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text("".join(f"key{n} = 1\n" for n in range(5000)))
    with pytest.raises(SeveralErrors) as raised:
        read_profile("x.toml")
    assert len(raised.value.errors) == 20
    assert raised.value.message == "more than 20 errors in x.toml"


PATHS = st.lists(st.sampled_from(["a", "b", 0]), max_size=4).map(tuple)


@given(st.lists(PATHS, max_size=4), PATHS)
def test_a_value_is_touched_by_what_was_refused_in_it_or_around_it(refused, path):
    around = any(path[: len(other)] == other[: len(path)] for other in refused)
    assert Refused(refused).touch(path) is around


@pytest.mark.parametrize(
    ("text", "message", "label", "cure"),
    [
        (
            'cudnn.benchmark = "on"',
            '`cudnn.benchmark` must be true or false, not the string "on"',
            "quoted, so TOML reads a string",
            "write `cudnn.benchmark = true`",
        ),
        (
            "threads.count = 5000",
            '`threads.count` must be an integer from 1 to 4096 or "auto", not 5000',
            "not in that range",
            None,
        ),
        (
            "threads.count = 8.0",
            '`threads.count` must be an integer from 1 to 4096 or "auto", not the float 8.0',
            "a float",
            "write `threads.count = 8`",
        ),
        (
            "threads.count = true",
            '`threads.count` must be an integer from 1 to 4096 or "auto", not true',
            "a boolean",
            None,
        ),
        (
            'threads.count = "Auto"',
            '`threads.count` must be an integer from 1 to 4096 or "auto", not "Auto"',
            'did you mean "auto"?',
            'write `threads.count = "auto"`',
        ),
        (
            'fp32_precision = "TF32"',
            '`fp32_precision` must be one of "none", "ieee", "tf32", "bf16", not "TF32"',
            'did you mean "tf32"?',
            'write `fp32_precision = "tf32"`',
        ),
        (
            "fp32_precision = true",
            '`fp32_precision` must be one of "none", "ieee", "tf32", "bf16", not true',
            "a boolean",
            None,
        ),
        (
            "mkl.verbose = 1.0",
            "`mkl.verbose` must be 0 or 1, not the float 1.0",
            "a float",
            "write `mkl.verbose = 1`",
        ),
        ("blas = 3", "`blas` must be a table, not the integer 3", "an integer", None),
        (
            'blas.library = { prefer = ["mkk"] }',
            (
                '`blas.library.prefer[0]` must be one of "openblas", "scipy-openblas", "blis", "mkl", '
                '"native", "reference", not "mkk"'
            ),
            'did you mean "mkl"?',
            'write `"mkl"`',
        ),
        (
            'cuda.sdp_priority = "flash"',
            (
                '`cuda.sdp_priority` must be an array of "flash", "efficient", "math", "cudnn" and '
                '"overrideable", not the string "flash"'
            ),
            "a string",
            'write `cuda.sdp_priority = ["flash"]`',
        ),
        (
            'environment."A-B" = "1"',
            "`A-B` in `environment` must be a variable name: letters, digits and underscores",
            "not such a name",
            None,
        ),
        (
            "environment.A = 1",
            "`environment.A` must be a string without NUL, not the integer 1",
            "an integer",
            None,
        ),
        (
            'extends = ["a", 3]',
            "`extends[1]` must be a string, not the integer 3",
            "an integer",
            None,
        ),
        (
            'requires.libraries.numpy = "2.0"',
            '`requires.libraries.numpy` must be a version range, such as ">=8.0", not "2.0"',
            "not allowed here",
            None,
        ),
        (
            "description = 3",
            "`description` must be a string, not the integer 3",
            "an integer",
            None,
        ),
        ("when = {}", "`when` must be an array of tables, not an empty table", "a table", None),
    ],
)
def test_a_refused_value_says_why_and_what_to_write(render, text, message, label, cure):
    lines = render(text + "\n").split("\n")
    assert lines[0].split(": ", 1)[1] == message
    assert lines[4].lstrip(" |^") == label
    assert lines[6:] == ([f"  help: {cure}"] if cure else [])


def test_flags_in_a_table_as_in_when_are_told_where_to_go(render):
    assert render("[flags]\nthreads.count = 1\n").splitlines()[-1] == (
        "  help: write the flags at the top level, without `flags`"
    )


@pytest.mark.parametrize(
    ("name", "label", "cure"),
    [
        ("nmupy", "did you mean `numpy`?", "rename it to `numpy`, or delete the line"),
        ("transformers", "not listed", "delete the line"),
    ],
)
def test_a_condition_on_a_library_that_no_host_lists_is_refused(render, name, label, cure):
    assert render(f'[requires]\nlibraries.{name} = ">=2"\n').splitlines() == [
        f"error[unknown-key]: hosts list no version of `{name}`, so the condition would never hold",
        "  --> profiles/fast.toml:2:11",
        "   |",
        f' 2 | libraries.{name} = ">=2"',
        f"   |           {'^' * len(name)} {label}",
        f"  note: they list `{'`, `'.join(LIBRARIES[:8])}` and 12 more, see docs/profiles.md",
        "  state: nothing was changed",
        f"  help: {cure}",
    ]


@pytest.mark.parametrize("name", ["a+b", "../x", "", "a b", "./x", "x" * 200, "ä"])
def test_extends_takes_names_only(render, name):
    text = render(f'extends = ["{name}"]\n')
    assert text.startswith(f'error[invalid-value]: "{name[:57]}')
    # One complaint: nobody looks for a profile of such a name.
    assert (text.count("is not the name of a profile"), text.count("error[")) == (1, 1)


def test_a_composition_in_extends_says_how_to_write_it(render):
    assert render('extends = "fast+tf32-off"\n').endswith(
        'help: write `extends = ["fast", "tf32-off"]`'
    )


def test_a_newer_schema_is_refused_before_anything_else_is_judged(render):
    assert render("schema = 2\nbogus = 1\n") == (
        "error[unsupported-schema]: profiles/fast.toml is written for schema 2; "
        "this backendcfg reads schema 1\n"
        "  --> profiles/fast.toml:1:10\n"
        "   |\n"
        " 1 | schema = 2\n"
        "   |          ^ newer than this release\n"
        "  state: nothing was changed\n"
        "  help: upgrade backendcfg: `pip install --upgrade backendcfg`"
    )


@pytest.mark.parametrize("value", ["true", "1.0", '"1"', "1979-05-27"])
def test_a_schema_that_is_not_an_integer_is_a_wrong_type(tmp_path, value):
    (tmp_path / "x.toml").write_text(f"schema = {value}\n")
    with pytest.raises(WrongTypeError, match="`schema` must be 1, not"):
        read_profile(tmp_path / "x.toml")


def test_schema_zero_is_refused_too(tmp_path):
    (tmp_path / "x.toml").write_text("schema = 0\n")
    with pytest.raises(UnsupportedSchemaError):
        read_profile(tmp_path / "x.toml")


def test_the_name_of_the_field_in_python_is_not_a_key(render):
    assert "unknown key `schema_version` at the top level" in render("schema_version = 1\n")


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("precision", ["tf32", "ieee", "none"])
def test_a_flag_and_its_legacy_spelling_conflict_even_where_they_agree(tmp_path, value, precision):
    (tmp_path / "x.toml").write_text(
        f'[cuda.matmul]\nfp32_precision = "{precision}"\nallow_tf32 = {value}\n'
    )
    with pytest.raises(ConflictingFlagsError) as raised:
        read_profile(tmp_path / "x.toml")
    assert [(span.line, span.label) for span in raised.value.spans] == [
        (2, "the flag itself"),
        (3, "the legacy spelling of `cuda.matmul.fp32_precision`"),
    ]


def test_the_two_spellings_conflict_inside_one_when_table(tmp_path):
    (tmp_path / "x.toml").write_text(
        "[[when]]\nflags.cudnn.allow_tf32 = true\nflags.cudnn.rnn.fp32_precision = 'tf32'\n"
    )
    with pytest.raises(ConflictingFlagsError):
        read_profile(tmp_path / "x.toml")


def test_the_two_spellings_do_not_conflict_across_when_tables(tmp_path):
    (tmp_path / "x.toml").write_text(
        "cudnn.allow_tf32 = true\n[[when]]\nflags.cudnn.rnn.fp32_precision = 'ieee'\n"
    )
    assert len(read_profile(tmp_path / "x.toml").whens) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda.matmul.allow_tf32 = true", {"cuda.matmul.fp32_precision": "tf32"}),
        (
            "cudnn.allow_tf32 = false",
            {"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"},
        ),
    ],
)
def test_a_legacy_spelling_writes_the_flags_that_it_stands_for(tmp_path, text, expected):
    (tmp_path / "x.toml").write_text(text)
    found = read_profile(tmp_path / "x.toml").assignments
    assert {a.flag: a.value for a in found} == expected
    assert {a.written_as for a in found} == {text.split(" ")[0]}


@pytest.mark.parametrize("text", ['blas.library = "mkl"', 'blas.library = { prefer = ["mkl"] }'])
def test_a_bare_library_is_a_preference(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    (assignment,) = read_profile(tmp_path / "x.toml").assignments
    assert assignment.value == {"prefer": ["mkl"]}


def test_drop_takes_flags_tables_variables_and_legacy_spellings(tmp_path):
    (tmp_path / "x.toml").write_text(
        'drop = ["cudnn.benchmark", "jax", "environment.A", "cudnn.allow_tf32"]'
    )
    assert [dropped.flag for dropped in read_profile(tmp_path / "x.toml").dropped] == [
        "cudnn.benchmark",
        "jax",
        "environment.A",
        "cudnn.conv.fp32_precision",
        "cudnn.rnn.fp32_precision",
    ]


def test_requirements_are_cut_into_what_can_be_met_alone_each_with_its_place(tmp_path):
    (tmp_path / "x.toml").write_text(
        "[requires]\n"
        'os = "linux"\n'
        'cpu.features = ["avx2", "fma"]\n'
        'gpu.vendor = "nvidia"\n'
        'gpu.compute_capability = ">=8.0"\n'
        'libraries.numpy = ">=2.0,<3"\n'
    )
    found = read_profile(tmp_path / "x.toml").requires
    assert [
        (one.condition.model_dump(exclude_defaults=True), one.place.line, one.place.column)
        for one in found
    ] == [
        ({"gpu": {"vendor": "nvidia", "compute_capability": ">=8.0"}}, 5, 26),
        ({"cpu": {"features": ("avx2",)}}, 3, 17),
        ({"cpu": {"features": ("fma",)}}, 3, 25),
        ({"os": "linux"}, 2, 6),
        ({"libraries": {"numpy": ">=2.0,<3"}}, 6, 19),
    ]


def test_a_when_table_has_its_condition_its_flags_and_its_place(tmp_path):
    (tmp_path / "x.toml").write_text(
        '\n[[when]]\ngpu.vendor = "amd"\n[when.flags.torch]\ntunable_op = false\n'
    )
    (when,) = read_profile(tmp_path / "x.toml").whens
    assert when.condition.model_dump(exclude_defaults=True) == {"gpu": {"vendor": "amd"}}
    assert [(a.flag, a.value, a.place.line) for a in when.assignments] == [
        ("torch.tunable_op", False, 5)
    ]
    assert (when.place.line, when.place.source) == (2, "[[when]]")


def test_pyproject_is_judged_below_our_table_only(render):
    text = render(
        "[project]\nreleased = 1979-05-27\n[tool.backendcfg.cudnn]\nbenchmrk = true\n",
        name="pyproject.toml",
    )
    assert text.startswith(
        "error[unknown-key]: unknown key `benchmrk` in table `[tool.backendcfg.cudnn]`\n"
        "  --> pyproject.toml:4:1\n"
    )


def test_our_table_in_pyproject_must_be_a_table(render):
    assert render("tool.backendcfg = 3\n", name="pyproject.toml").startswith(
        "error[wrong-type]: `tool.backendcfg` must be a table, not the integer 3\n"
    )


def test_settings_may_not_extend(render):
    assert "unknown key `extends` at the top level" in render(
        'extends = "fast"\n', name="backendcfg.toml"
    )


@pytest.mark.parametrize("name", ["./x.toml", "a b", "a++b", "+a"])
def test_settings_pick_a_profile_by_name(tmp_path, name):
    (tmp_path / "backendcfg.toml").write_text(f'profile = "{name}"')
    with pytest.raises(InvalidValueError):
        read_settings(tmp_path / "backendcfg.toml")


def test_settings_may_compose(tmp_path):
    (tmp_path / "backendcfg.toml").write_text('profile = "a+b"')
    assert read_settings(tmp_path / "backendcfg.toml").profile == "a+b"


def test_variables_of_our_own_and_texts_with_nul_are_refused_in_environment(render):
    told = render('[environment]\nMINE = "1"\nBACKENDCFG_DISABLE = "1"\n')
    assert told == (
        "error[invalid-value]: `environment` sets BACKENDCFG_DISABLE, a variable by which backendcfg"
        " itself is told what to do\n"
        "  --> profiles/fast.toml:3:1\n"
        "   |\n"
        ' 3 | BACKENDCFG_DISABLE = "1"\n'
        "   | ^^^^^^^^^^^^^^^^^^ backendcfg's own\n"
        "  state: nothing was changed\n"
        "  help: set the flag itself, as `threads.count = 4`; what is no flag belongs to the shell"
    )
    inside = '[[when]]\nframeworks = ["numpy"]\n[when.flags.environment]\nBACKENDCFG_X = "1"\n'
    assert "`environment` sets BACKENDCFG_X" in render(inside)
    told = render('environment.MINE = "a\\u0000b"\n')
    assert "`environment.MINE` must be a string without NUL" in told
    with pytest.raises(InvalidValueError, match="`environment` sets BACKENDCFG_PROFILE"):
        from_arguments({"environment": '{ BACKENDCFG_PROFILE = "fast" }'})
