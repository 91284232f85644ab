"""Inheritance: order, shadowing, cycles, names that nobody has."""

import pytest

from backendcfg.errors import (
    BackendCfgError,
    InheritanceCycleError,
    InvalidValueError,
    InvalidVariableError,
    SeveralErrors,
    UnknownKeyError,
)
from backendcfg.load.stack import Request, load


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in the working directory; call it to write profiles, by name, `extends` given."""
    root = tmp_path / "project"
    (root / "profiles").mkdir(parents=True)
    (root / "backendcfg.toml").write_text("")
    monkeypatch.chdir(root)

    def write(directory=None, **profiles):
        directory = directory or root / "profiles"
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in profiles.items():
            (directory / f"{name}.toml").write_text(text)
        return root

    return write


@pytest.fixture
def user_profiles(tmp_path, monkeypatch):
    directory = tmp_path / "user"
    monkeypatch.setenv("BACKENDCFG_CONFIG_DIR", str(directory))
    return directory / "profiles"


def names(name):
    return [layer.profile for layer in load(Request(name)).layers]


def rendered(name=None):
    with pytest.raises(BackendCfgError) as raised:
        load(Request(name))
    return raised.value.render()


def test_parents_stand_before_the_profile_that_extends_them(project):
    project(a='extends = ["b", "c"]', b='extends = "d"', c="", d="")
    assert names("a") == ["d", "b", "c", "a"]


def test_of_a_parent_reached_twice_the_last_stands(project):
    project(top='extends = ["left", "right"]', left='extends = "base"', base="")
    project(right='extends = "base"')
    assert names("top") == ["left", "base", "right", "top"]


def test_many_diamonds_are_read_once_each(project):
    for level in range(40):
        below = level + 1
        project(**{f"p{level}": f'extends = ["q{level}", "p{below}"]'})
        project(**{f"q{level}": f'extends = "p{below}"'})
    project(p40="")
    assert len(names("p0")) == 81


def test_a_composition_is_a_profile_that_extends_each_in_order(project):
    project(a='extends = "c"', b="", c="")
    assert names("a+b") == ["c", "a", "b"]
    assert names("b+a") == ["b", "c", "a"]
    assert load(Request("a+b")).name == "a+b"


def test_a_project_profile_shadows_the_shipped_one(project):
    project(fast="cudnn.benchmark = false")
    assert [layer.shipped for layer in load(Request("fast")).layers] == [False]


def test_a_profile_may_extend_the_next_one_of_its_name(project, user_profiles):
    project(fast='extends = "fast"')
    project(user_profiles, fast='extends = "fast"')
    layers = load(Request("fast")).layers
    assert [(layer.profile, layer.shipped) for layer in layers] == [
        ("fast", True),
        ("fast", False),
        ("fast", False),
    ]
    assert "project" in layers[-1].path


def test_another_profile_that_leads_back_to_the_shadow_is_a_cycle(project):
    project(fast='extends = "tuned"', tuned='extends = "fast"')
    assert "fast -> tuned -> fast" in rendered("fast")


def test_a_file_by_its_path_may_extend_a_profile_of_its_own_name(project):
    root = project()
    (root / "fast.toml").write_text('extends = "fast"')
    layers = load(Request("./fast.toml")).layers
    assert [layer.shipped for layer in layers] == [True, False]


def test_a_cycle_shows_every_edge(project):
    project(
        fast='schema = 1\nextends = "tuned"',
        tuned='schema = 1\nextends = "base"',
        base='schema = 1\n\nextends = "fast"',
    )
    assert rendered("fast") == (
        "error[inheritance-cycle]: profile `fast` extends itself: fast -> tuned -> base -> fast\n"
        "  --> profiles/fast.toml:2:11\n"
        "   |\n"
        ' 2 | extends = "tuned"\n'
        "   |           ^^^^^^^ fast extends tuned\n"
        "  --> profiles/tuned.toml:2:11\n"
        "   |\n"
        ' 2 | extends = "base"\n'
        "   |           ^^^^^^ tuned extends base\n"
        "  --> profiles/base.toml:3:11\n"
        "   |\n"
        ' 3 | extends = "fast"\n'
        "   |           ^^^^^^ base extends fast, which closes the cycle\n"
        "  state: nothing was changed\n"
        "  help: remove one of the three `extends` lines; `base` is usually the root"
    )


def test_everything_that_is_wrong_with_what_is_extended_is_named_at_once(project):
    project(
        top='extends = ["nobody", "left", "right"]',
        left='extends = ["broken", "noone"]',
        right='extends = ["right", "broken"]',
        broken="threads.cuont = 2\nextends = 3",
    )
    with pytest.raises(SeveralErrors) as raised:
        load(Request("top"))
    assert [error.message for error in raised.value.errors] == [
        "profile `top` extends `nobody`, which does not exist",
        "profile `left` extends `noone`, which does not exist",
        "profile `right` extends itself: right -> right",
        "unknown key `cuont` in table `[threads]`",
        "`extends` must be a string or an array of strings, not the integer 3",
    ]
    assert raised.value.message == "5 errors in profile `top`"


def test_every_part_of_a_composition_that_does_not_exist_is_named(project):
    project(a="")
    with pytest.raises(SeveralErrors) as raised:
        load(Request("nobody+a+noone"))
    assert [error.message for error in raised.value.errors] == [
        "profile `nobody` does not exist",
        "profile `noone` does not exist",
    ]
    assert raised.value.message == "2 errors in profile `nobody+a+noone`"


def test_what_is_extended_is_checked_though_the_file_is_wrong_itself(project):
    project(mine='extends = "nobody"\nthreads.cuont = 2')
    assert rendered("mine").endswith("\n\n2 errors in profiles/mine.toml")


def test_a_cycle_that_is_entered_from_outside_shows_its_own_edges_only(project):
    project(top='extends = "a"', a='extends = ["x", "b"]', b='extends = "a"', x="")
    text = rendered("top")
    assert text.startswith("error[inheritance-cycle]: profile `a` extends itself: a -> b -> a\n")
    assert "top" not in text


def test_a_profile_that_extends_itself_and_nothing_else_has_that_name_is_a_cycle(project):
    project(own='extends = "own"')
    assert rendered("own") == (
        "error[inheritance-cycle]: profile `own` extends itself: own -> own\n"
        "  --> profiles/own.toml:1:11\n"
        "   |\n"
        ' 1 | extends = "own"\n'
        "   |           ^^^^^ own extends itself\n"
        "  state: nothing was changed\n"
        "  help: remove the `extends` line; no other profile `own` is further along"
    )


def test_a_line_of_inheritance_has_an_end(project):
    for level in range(100):
        project(**{f"p{level}": f'extends = "p{level + 1}"'})
    project(p100="")
    with pytest.raises(InvalidValueError, match="profile `p0` extends more than 64 others"):
        load(Request("p0"))


def test_a_cycle_of_hundreds_is_still_an_error_of_ours(project):
    for level in range(300):
        project(**{f"p{level}": f'extends = "p{(level + 1) % 300}"'})
    with pytest.raises((InheritanceCycleError, InvalidValueError)):
        load(Request("p0"))


def test_a_wrong_name_in_the_environment_never_falls_back(project, user_profiles, monkeypatch):
    project(base="", **{"cpu-openblas": ""})
    monkeypatch.setenv("BACKENDCFG_PROFILE", "fsat")
    system = str(user_profiles.parent.parent / "system")
    monkeypatch.setenv("BACKENDCFG_SYSTEM_DIR", system)
    assert rendered() == (
        "error[unknown-profile]: environment variable BACKENDCFG_PROFILE names profile `fsat`, "
        "which does not exist\n"
        f"  note: searched, in order: ./profiles, {user_profiles}, {system}/profiles, "
        "and the profiles installed with backendcfg\n"
        "  note: profiles found: `base`, `cpu-openblas`, `debug`, `fast`, `max-throughput`, "
        "`reproducible`, `reproducible-anywhere`, `tf32-off`\n"
        "  state: no profile was applied; a wrong name never falls back to a default\n"
        "  help: did you mean `fast`?\n"
        "  help: run `export BACKENDCFG_PROFILE=fast`, or unset the variable"
    )


def test_a_wrong_part_of_a_composition_is_corrected_within_it(project, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_PROFILE", "tf32-off+fsat")
    assert "export BACKENDCFG_PROFILE=tf32-off+fast`" in rendered()


def test_a_name_that_resembles_nothing_points_to_the_list(project):
    assert rendered("xyzzy").endswith("help: run `backendcfg list` to see them all")


def test_more_than_eight_profiles_are_counted(project):
    project(**{f"p{n:02}": "" for n in range(20)})
    assert "`p04` and 18 more, see `backendcfg list`" in rendered("xyzzy")


def test_an_unknown_parent_has_the_place_where_it_is_named(project):
    project(mine='schema = 1\nextends = ["fast", "fsat"]')
    assert rendered("mine").split("  note")[0] == (
        "error[unknown-profile]: profile `mine` extends `fsat`, which does not exist\n"
        "  --> profiles/mine.toml:2:20\n"
        "   |\n"
        ' 2 | extends = ["fast", "fsat"]\n'
        "   |                    ^^^^^^ no profile has this name\n"
    )


def test_an_unknown_profile_in_settings_has_its_place(project):
    (project() / "backendcfg.toml").write_text('profile = "fsat"')
    text = rendered()
    assert text.startswith(
        "error[unknown-profile]: backendcfg.toml picks profile `fsat`, which does not exist\n"
        "  --> backendcfg.toml:1:11\n"
    )


@pytest.mark.parametrize("name", ["a b", "", "+", "fast+", ".hidden", "-x", "a\nb", "é", "x" * 300])
def test_what_cannot_be_a_name_is_refused(project, name):
    with pytest.raises(InvalidValueError, match="is not the name of a profile"):
        load(Request(name))


def test_what_cannot_be_a_name_is_refused_in_the_variable(project, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_PROFILE", "a b")
    with pytest.raises(InvalidVariableError, match='BACKENDCFG_PROFILE names profile "a b"'):
        load(Request())


@pytest.mark.parametrize("name", ["./x.toml", "x.toml", "../project/x.toml"])
def test_a_path_names_a_file(project, name):
    (project() / "x.toml").write_text('description = "mine"')
    (layer,) = load(Request(name)).layers
    assert (layer.profile, layer.description) == ("x", "mine")


def test_a_path_is_never_taken_apart(project):
    (project() / "a+b.toml").write_text("")
    assert names("./a+b.toml") == ["a+b"]


def test_a_broken_shadow_is_an_error_and_not_skipped(project):
    (project() / "profiles" / "fast.toml").mkdir()
    assert "profiles/fast.toml: it is a directory" in rendered("fast")


def test_an_error_in_a_parent_is_the_error_of_the_child(project):
    project(a='extends = "b"', b="bogus = 1")
    with pytest.raises(UnknownKeyError, match="unknown key `bogus`"):
        load(Request("a"))
