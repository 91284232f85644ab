"""Which layers a request rests on, in which order, and what makes the result stale."""

import os
from pathlib import Path

import pytest

from backendcfg import startup
from backendcfg.errors import (
    ConflictingFlagsError,
    InvalidValueError,
    InvalidVariableError,
    UnknownFlagError,
    UnknownKeyError,
    UnknownVariableError,
    UnreadableFileError,
    WrongTypeError,
)
from backendcfg.load.locations import locate, profiles
from backendcfg.load.stack import Request, load
from backendcfg.load.trust import store
from backendcfg.session.choice import rests_on_these_files


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A project, a user's and a system's directory, each with settings; the project is entered."""
    for name, variable in (("user", "CONFIG"), ("system", "SYSTEM")):
        (tmp_path / name / "profiles").mkdir(parents=True)
        monkeypatch.setenv(f"BACKENDCFG_{variable}_DIR", str(tmp_path / name))
    (tmp_path / "project" / "profiles").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def ranks(stack):
    return [(layer.rank, layer.title) for layer in stack.layers]


def settle(world, *, project="", user="", system=""):
    (world / "project" / "backendcfg.toml").write_text(project)
    (world / "user" / "config.toml").write_text(user)
    (world / "system" / "config.toml").write_text(system)


def test_without_anything_there_is_no_layer(world):
    stack = load(Request())
    assert (stack.name, stack.layers) == ("default", ())


def test_a_file_that_settings_name_lies_beside_them_wherever_the_process_is(world, monkeypatch):
    settle(world, project="profile = 'here.toml'")
    (world / "project" / "here.toml").write_text("[mkl]\nverbose = 1\n")
    (world / "project" / "below").mkdir()
    monkeypatch.chdir(world / "project" / "below")
    stack = load(Request())
    assert stack.name == "here.toml"
    assert [layer.profile for layer in stack.layers] == ["here"]
    assert stack.layers[0].path == str(world / "project" / "here.toml")


def test_layers_stand_from_weak_to_strong(world, monkeypatch):
    settle(world, project="log.level = 'info'", user="mkl.verbose = 1", system="threads.count = 1")
    monkeypatch.setenv("BACKENDCFG_MKLDNN_VERBOSE", "1")
    stack = load(Request("tf32-off", arguments={"ops.check_finite": "true"}))
    assert ranks(stack) == [
        ("system-file", "the system's config.toml"),
        ("user-file", "the user's config.toml"),
        ("project-file", "backendcfg.toml"),
        ("environment", "environment"),
        ("profile-by-argument", "profile `tf32-off`"),
        ("argument", "arguments"),
    ]


def test_a_profile_named_by_the_environment_is_weaker_than_a_variable(world, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_PROFILE", "tf32-off")
    monkeypatch.setenv("BACKENDCFG_MKLDNN_VERBOSE", "1")
    assert ranks(load(Request())) == [
        ("profile-by-environment", "profile `tf32-off`"),
        ("environment", "environment"),
    ]


@pytest.mark.parametrize("who", ["project", "user", "system"])
def test_a_profile_picked_by_settings_stands_directly_before_them(world, who):
    settle(world, **{who: "profile = 'tf32-off'\nmkl.verbose = 1"})
    stack = load(Request())
    assert [rank for rank, _ in ranks(stack)] == [f"{who}-file"] * 2
    assert [layer.profile for layer in stack.layers] == ["tf32-off", ""]


def test_one_pick_is_in_force_the_strongest(world, monkeypatch):
    settle(world, project="profile = 'fast'", user="profile = 'debug'", system="profile = 'x'")
    assert load(Request()).name == "fast"
    monkeypatch.setenv("BACKENDCFG_PROFILE", "tf32-off")
    assert load(Request()).name == "tf32-off"
    assert load(Request("max-throughput")).name == "max-throughput"
    assert load(Request(use_environment=False)).name == "fast"


def test_a_request_may_have_another_rank(world):
    settle(world, user="mkl.verbose = 1")
    stack = load(Request("tf32-off", rank="user-file"))
    assert ranks(stack) == [
        ("user-file", "profile `tf32-off`"),
        ("user-file", "the user's config.toml"),
    ]


def test_an_empty_pick_is_none(world):
    settle(world, project="profile = ''", user="profile = 'tf32-off'")
    assert load(Request()).name == "tf32-off"


def test_settings_without_flags_are_no_layer(world):
    settle(world, project="schema = 1")
    assert load(Request()).layers == ()


def test_assignments_have_their_place(world):
    settle(world, project="\n[log]\nlevel = 'info'")
    (assignment,) = load(Request()).layers[0].assignments
    place = assignment.place
    assert (str(place), place.column, place.length, place.source) == (
        "backendcfg.toml:3",
        9,
        6,
        "level = 'info'",
    )


@pytest.mark.parametrize(
    ("name", "text", "flag", "value"),
    [
        ("THREADS_COUNT", "4", "threads.count", 4),
        ("THREADS_COUNT", '"auto"', "threads.count", "auto"),
        ("THREADS_COUNT", "auto", "threads.count", "auto"),
        ("CUDNN_BENCHMARK", "true", "cudnn.benchmark", True),
        ("BLAS_LIBRARY", '"mkl"', "blas.library", {"prefer": ["mkl"]}),
        ("BLAS_LIBRARY", "mkl", "blas.library", {"prefer": ["mkl"]}),
        ("BLAS_LIBRARY", "{ require = 'mkl' }", "blas.library", {"require": "mkl"}),
        ("CUDA_SDP_PRIORITY", '["math"]', "cuda.sdp_priority", ["math"]),
        ("CUDA_SDP_PRIORITY", "flash, math", "cuda.sdp_priority", ["flash", "math"]),
        ("TORCH_CUBLAS_WORKSPACE_CONFIG", ":4096:8", "torch.cublas_workspace_config", ":4096:8"),
        ("CUDA_MATMUL_ALLOW_TF32", "true", "cuda.matmul.fp32_precision", "tf32"),
        ("ENVIRONMENT", "{ A = '1' }", "environment", {"A": "1"}),
        ("BLAS_PATH", "'/lib/x.so'", "blas.path", "/lib/x.so"),
        ("BLAS_PATH", "/lib/x y.so", "blas.path", "/lib/x y.so"),
        ("NCCL_ALGO", "^NVLS", "nccl.algo", "^NVLS"),
    ],
)
def test_a_variable_is_read_by_its_flags_type(world, monkeypatch, name, text, flag, value):
    monkeypatch.setenv(f"BACKENDCFG_{name}", text)
    (layer,) = load(Request()).layers
    (assignment,) = layer.assignments
    assert (assignment.flag, assignment.value, str(assignment.place)) == (
        flag,
        value,
        f"BACKENDCFG_{name}",
    )


def variable_error(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidVariableError) as raised:
        load(Request())
    return raised.value.render()


def test_a_wrong_word_is_refused_with_the_nearest_as_the_shell_takes_it(world, monkeypatch):
    name = "BACKENDCFG_CUDA_MATMUL_FP32_PRECISION"
    assert variable_error(monkeypatch, name, "tf23") == (
        f"error[invalid-variable]: environment variable {name} must be one of "
        '"none", "ieee", "tf32", not the string "tf23"\n'
        "  state: nothing was changed\n"
        f"  help: write `{name}=tf32`"
    )


def test_what_begins_as_toml_and_is_none_is_refused(world, monkeypatch):
    assert variable_error(monkeypatch, "BACKENDCFG_BLAS_PATH", '"/lib/x.so') == (
        "error[invalid-variable]: environment variable BACKENDCFG_BLAS_PATH is read as a TOML "
        'value, and "/lib/x.so is not one\n'
        "  note: `blas.path` must be a string\n"
        "  state: nothing was changed"
    )


def test_a_quoted_number_in_a_variable_says_what_to_write(world, monkeypatch):
    assert variable_error(monkeypatch, "BACKENDCFG_THREADS_COUNT", '"8"') == (
        "error[invalid-variable]: environment variable BACKENDCFG_THREADS_COUNT must be an integer "
        'from 1 to 4096 or "auto", not the string "8"\n'
        "  state: nothing was changed\n"
        "  help: write `BACKENDCFG_THREADS_COUNT=8`"
    )


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("1", "write `BACKENDCFG_CUDNN_BENCHMARK=true`"),
        ("True", "write `BACKENDCFG_CUDNN_BENCHMARK=true`"),
        ("on", "write `BACKENDCFG_CUDNN_BENCHMARK=true`"),
        ("off", "write `BACKENDCFG_CUDNN_BENCHMARK=false`"),
    ],
)
def test_a_boolean_of_another_language_says_what_to_write(world, monkeypatch, text, cure):
    assert variable_error(monkeypatch, "BACKENDCFG_CUDNN_BENCHMARK", text).endswith(cure)


@pytest.mark.parametrize(
    "text",
    ["4\nmkl.verbose = 1", "4 5", "[", "1979-05-27", "nan", "9" * 30, "\udcff", "[" * 3000, "="],
)
def test_a_variable_that_holds_no_value_of_its_flag_is_an_error(world, monkeypatch, text):
    message = variable_error(monkeypatch, "BACKENDCFG_THREADS_COUNT", text)
    assert message.startswith(
        "error[invalid-variable]: environment variable BACKENDCFG_THREADS_COUNT "
    )


def test_an_unknown_variable_is_an_error(world, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_CUDNN_BENCHMRK", "true")
    with pytest.raises(UnknownVariableError) as raised:
        load(Request())
    assert "did you mean BACKENDCFG_CUDNN_BENCHMARK?" in raised.value.helps


def test_an_empty_variable_is_unset(world, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_THREADS_COUNT", "")
    monkeypatch.setenv("BACKENDCFG_PROFILE", "")
    assert load(Request()).layers == ()


def test_variables_do_not_count_where_they_are_not_asked(world, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_THREADS_COUNT", "bogus")
    assert load(Request(use_environment=False)).layers == ()


def test_a_flag_and_its_legacy_spelling_conflict_among_variables(world, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_CUDA_MATMUL_ALLOW_TF32", "true")
    monkeypatch.setenv("BACKENDCFG_CUDA_MATMUL_FP32_PRECISION", '"tf32"')
    with pytest.raises(ConflictingFlagsError) as raised:
        load(Request())
    assert raised.value.message == (
        "`BACKENDCFG_CUDA_MATMUL_ALLOW_TF32` and `BACKENDCFG_CUDA_MATMUL_FP32_PRECISION` are two "
        "spellings of one flag"
    )


def test_an_argument_of_an_unknown_flag_names_the_nearest(world):
    with pytest.raises(UnknownFlagError) as raised:
        load(Request(arguments={"cudnn.benchmrk": "true"}))
    assert raised.value.helps == ("did you mean `cudnn.benchmark`?",)


def test_an_argument_of_a_wrong_type_is_an_error(world):
    with pytest.raises(WrongTypeError) as raised:
        load(Request(arguments={"threads.count": '"8"'}))
    assert raised.value.helps == ("write `--set threads.count=8`",)


def test_an_argument_may_be_a_bare_word(world):
    (layer,) = load(Request(arguments={"cuda.matmul.fp32_precision": "tf32"})).layers
    assert layer.assignments[0].value == "tf32"
    with pytest.raises(InvalidValueError) as raised:
        load(Request(arguments={"cuda.matmul.fp32_precision": "tf31"}))
    assert raised.value.helps == ("write `--set cuda.matmul.fp32_precision=tf32`",)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('{"A B" = "1"}', '"A B" must be a variable name: letters, digits and underscores'),
        ("{A = 1}", "`environment.A` must be a string without NUL, not the integer 1"),
    ],
)
def test_an_argument_that_is_a_table_names_the_entry_that_is_wrong(world, table, complaint):
    with pytest.raises(InvalidValueError) as raised:
        load(Request(arguments={"environment": table}))
    assert str(raised.value).splitlines()[0] == f"argument `environment`: {complaint}"


def test_every_file_that_was_read_is_recorded_with_its_time_and_size(world):
    settle(world, project="profile = 'mine'")
    mine = world / "project" / "profiles" / "mine.toml"
    mine.write_text("extends = 'tf32-off'")
    files = load(Request()).files
    state = mine.stat()
    assert files[str(mine)] == (state.st_mtime_ns, state.st_size)
    assert {Path(path).name for path in files} == {
        "backendcfg.toml",
        "config.toml",
        "mine.toml",
        "tf32-off.toml",
    }


def test_every_place_where_a_file_would_change_the_result_is_recorded(world):
    missing = load(Request("tf32-off")).missing
    for name in (
        "project/backendcfg.toml",
        "project/pyproject.toml",
        "backendcfg.toml",
        "user/config.toml",
        "system/config.toml",
        "user/profiles/tf32-off.toml",
        "system/profiles/tf32-off.toml",
    ):
        assert str(world / name) in missing
    assert not any(os.path.lexists(path) for path in missing)


def test_a_project_file_that_appears_nearer_is_among_the_missing(world, monkeypatch):
    settle(world)
    below = world / "project" / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    stack = load(Request("tf32-off"))
    assert str(below / "backendcfg.toml") in stack.missing
    assert str(world / "project" / "profiles" / "tf32-off.toml") in stack.missing
    assert str(world / "backendcfg.toml") not in stack.missing


def test_the_project_is_the_nearest_directory_upwards(world):
    settle(world)
    below = world / "project" / "a"
    below.mkdir()
    assert locate(below).project_root == world / "project"
    (below / "pyproject.toml").write_text("[tool.backendcfg]\n")
    assert locate(below).project_file == below / "pyproject.toml"


def test_backendcfg_toml_wins_over_pyproject_beside_it(world):
    settle(world)
    (world / "project" / "pyproject.toml").write_text("[tool.backendcfg]\n")
    assert locate().project_file == world / "project" / "backendcfg.toml"


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'x'\n", "this is not toml", "# backendcfg\nnor this"]
)
def test_a_pyproject_of_others_is_none_of_our_business(world, text):
    (world / "project" / "pyproject.toml").write_text(text)
    assert locate().project_root is None
    assert str(world / "project" / "pyproject.toml") in load(Request()).files


def test_a_broken_pyproject_with_our_table_is_an_error(world):
    (world / "project" / "pyproject.toml").write_text("[tool.backendcfg]\nprofile = fast\n")
    with pytest.raises(ValueError, match="is not TOML: invalid value"):
        load(Request())


def test_flags_in_pyproject_count(world):
    (world / "project" / "pyproject.toml").write_text("[tool.backendcfg.log]\nlevel = 'info'\n")
    (layer,) = load(Request()).layers
    assert (layer.title, layer.assignments[0].flag) == ("pyproject.toml", "log.level")


def test_every_profile_is_listed_with_its_place_and_what_hides_it(world):
    (world / "project" / "backendcfg.toml").write_text("")
    (world / "project" / "profiles" / "fast.toml").write_text("description = 'mine'")
    (world / "user" / "profiles" / "broken.toml").write_text("x = 1")
    found = profiles()
    assert [(one.name, one.title, one.hidden) for one in found] == [
        ("fast", "project", False),
        ("broken", "user", False),
        ("debug", "shipped", False),
        ("fast", "shipped", True),
        ("max-throughput", "shipped", False),
        ("reproducible", "shipped", False),
        ("reproducible-anywhere", "shipped", False),
        ("tf32-off", "shipped", False),
    ]
    assert found[0].description == "mine"
    assert found[1].problem.startswith("unknown key `x` at the top level (")


def test_a_deleted_working_directory_is_an_error_of_ours(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UnreadableFileError, match="the working directory does not exist any more"):
        load(Request())


@pytest.mark.parametrize("make", ["mkdir", "mkfifo"])
def test_a_pyproject_that_is_no_file_is_neither_read_nor_missing(world, make):
    path = world / "project" / "pyproject.toml"
    getattr(os, make)(path)
    stack = load(Request())
    assert str(path) not in stack.missing
    assert str(path) not in stack.files


def test_a_file_name_cannot_send_control_characters_to_the_terminal(world):
    path = world / "project" / "a\x1b[31m.toml"
    path.write_text("bogus = 1")
    with pytest.raises(UnknownKeyError) as raised:
        load(Request(str(path)))
    assert "\x1b" not in raised.value.render()
    assert "--> a?[31m.toml:1:1" in raised.value.render()


@pytest.mark.parametrize(("mode", "counts"), [(0o1777, False), (0o755, True)])
def test_a_plan_ends_where_its_project_s_file_does_not_count_any_more(
    world, monkeypatch, give_away, mode, counts
):
    settle(world, project="threads.count = 1", user="")
    project = world / "project"
    project.chmod(0o755)
    give_away(project / "backendcfg.toml")
    monkeypatch.setattr(startup, "upwards", lambda here: iter([str(project)]))
    before = load(Request("tf32-off"))
    assert str(project / "backendcfg.toml") in before.files
    project.chmod(mode)
    assert startup.marker(str(project)) == (str(project / "backendcfg.toml") if counts else "")
    # A plan that was made with it ends, and one without it is kept.
    assert rests_on_these_files({"files": before.files}) is counts
    now = load(Request("tf32-off"))
    assert rests_on_these_files({"files": now.files})
    assert str(project / "backendcfg.toml") not in now.missing


def test_a_record_of_trust_that_cannot_be_read_is_none_where_nothing_needs_trust(
    world, monkeypatch
):
    settle(world, project="threads.count = 1")
    store().write_text("{}")
    assert str(store()) in load(Request()).files
    asked = os.stat

    def refuse(path, **options):
        if str(path) == str(store()):
            raise PermissionError(13, "Permission denied")
        return asked(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert str(store()) not in load(Request()).files
