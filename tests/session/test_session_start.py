"""What `import backendcfg` does: the profile in force, or nothing at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backendcfg import startup
from backendcfg.session import planning
from backendcfg.transact import generations

SHOW = "import backendcfg; a = backendcfg.active(); print(a and a.name)"


def test_a_wrong_name_in_the_environment_never_falls_back(python):
    message = python(SHOW, fails=1, BACKENDCFG_PROFILE="reproducable")
    assert (
        "environment variable BACKENDCFG_PROFILE names profile `reproducable`, which does not exist"
        in message
    )


def test_an_unknown_variable_of_ours_is_a_warning(tmp_path):
    done = started(tmp_path, BACKENDCFG_PROFLE="fast")
    assert (done.stdout, done.returncode) == ("None\n", 0)
    assert done.stderr == (
        "warning: what is active was not applied to this process: environment variable"
        " BACKENDCFG_PROFLE is not one that backendcfg reads (did you mean BACKENDCFG_PROFILE?);"
        " `backendcfg status` says more, BACKENDCFG_DISABLE=1 starts without it\n"
    )


def test_a_profile_in_the_environment_is_in_force(python):
    assert "fast\n" == python(SHOW, BACKENDCFG_PROFILE="fast")
    assert "fast+tf32-off\n" == python(SHOW, BACKENDCFG_PROFILE="fast+tf32-off")


def test_flags_in_the_environment_win_over_the_profile_and_act_alone(python):
    show = "import backendcfg; print(backendcfg.flags.threads.count)"
    assert "1\n" == python(show, BACKENDCFG_PROFILE="fast", BACKENDCFG_THREADS_COUNT="1")
    assert "1\n" == python(show, BACKENDCFG_THREADS_COUNT="1")


def test_a_program_has_no_profile_where_nothing_is_picked_but_flags_of_variables(
    python, backendcfg, tmp_path
):
    backendcfg("apply", "fast")
    assert "None\n" == python(SHOW, BACKENDCFG_PROFILE="nothing")
    (tmp_path / "backendcfg.toml").write_text('profile = "nothing"\n')
    assert "None\n" == python(SHOW)
    show = "import backendcfg; print(backendcfg.flags.threads.count)"
    assert "1\n" == python(show, BACKENDCFG_PROFILE="nothing", BACKENDCFG_THREADS_COUNT="1")


def test_the_active_profile_of_the_user_is_in_force_until_it_is_off(python, backendcfg):
    backendcfg("apply", "fast")
    assert "fast\n" == python(SHOW)
    backendcfg("apply", "tf32-off")
    assert "tf32-off\n" == python(SHOW)
    backendcfg("undo")
    assert "fast\n" == python(SHOW)
    backendcfg("off")
    assert "None\n" == python(SHOW)


def test_the_project_s_profile_wins_over_the_user_s(python, backendcfg, tmp_path):
    backendcfg("apply", "fast")
    (tmp_path / "backendcfg.toml").write_text("schema = 1\n")
    backendcfg("apply", "tf32-off")
    assert "tf32-off\n" == python(SHOW)
    assert "fast\n" == python("import os; os.chdir('/')\n" + SHOW)


@pytest.mark.slow
def test_a_profile_that_was_edited_since_is_resolved_again(python, backendcfg, tmp_path):
    (tmp_path / "backendcfg.toml").write_text("schema = 1\n")
    (tmp_path / "profiles").mkdir()
    mine = tmp_path / "profiles" / "mine.toml"
    mine.write_text("[threads]\ncount = 1\n")
    backendcfg("apply", "mine")
    show = "import backendcfg; print(backendcfg.flags['threads.count'])"
    assert "1\n" == python(show)
    mine.write_text("[threads]\ncount = 22\n")
    assert "22\n" == python(show)
    mine.write_text("[threads]\ncount = 'many'\n")
    assert "`threads.count` must be an integer from 1 to 4096" in started(tmp_path).stderr


def test_a_start_with_a_valid_plan_imports_no_heavy_module(python, backendcfg):
    backendcfg("apply", "reproducible")
    heavy = """
import sys
import backendcfg
assert backendcfg.active().name == "reproducible"
print([m for m in ("pydantic", "numpy", "click", "packaging", "archspec", "platformdirs", "logging")
       if m in sys.modules])
"""
    assert "[]\n" == python(heavy)


def test_the_stored_plan_of_a_name_is_used_by_the_next_process(python):
    show = """
import sys
import backendcfg
print("pydantic" in sys.modules)
"""
    assert "True\n" == python(show, BACKENDCFG_PROFILE="reproducible")
    assert "False\n" == python(show, BACKENDCFG_PROFILE="reproducible")
    assert "True\n" == python(show, BACKENDCFG_PROFILE="reproducible", OMP_NUM_THREADS="1")


def test_the_command_works_when_the_active_profile_does_not(backendcfg):
    said = backendcfg("off", BACKENDCFG_PROFILE="no such")
    assert said == "no profile was active; no such is in force here, by BACKENDCFG_PROFILE\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "/usr/bin/backendcfg", "status"], True),
        (["python", "-m", "backendcfg", "off"], True),
        (["python", "-mbackendcfg", "off"], True),
        (["python", "-X", "dev", "-W", "error", "-m", "backendcfg"], True),
        (["python", "-m", "backendcfg.session.shell"], False),
        (["python", "-c", "import backendcfg", "backendcfg"], False),
        (["python", "train.py", "backendcfg"], False),
        (["python"], False),
    ],
)
def test_the_command_is_told_from_programs(words, expected):
    assert expected is startup.is_command_line(words)


TOO_LATE = (
    "note: the tier `run-to-run` of profile `reproducible` is not in force in this process:"
    " `PYTHONHASHSEED` can no longer be set, this interpreter has started; start it with"
    " `backendcfg run -- python ...`\n"
)


@pytest.mark.parametrize(("profile", "told"), [("reproducible", TOO_LATE), ("fast", "")])
def test_a_program_that_puts_a_profile_in_force_too_late_for_its_tier_is_told(
    python, tmp_path, profile, told
):
    (tmp_path / "backendcfg.toml").write_text(f'profile = "{profile}"\n')
    said = python(
        "import sys, warnings; warnings.simplefilter('error'); sys.stderr = sys.stdout\n"
        "import backendcfg\n"
        "print(backendcfg.active().name)\n"
    )
    assert said == f"{told}{profile}\n"


def test_the_advice_keeps_the_flags_of_the_file_that_picks_the_profile(
    python, backendcfg, tmp_path
):
    (tmp_path / "backendcfg.toml").write_text('profile = "reproducible"\nseed.value = 7\n')
    said = python("import sys; sys.stderr = sys.stdout; import backendcfg")
    words = said.partition("start it with `backendcfg ")[2].partition(" python ...`")[0].split()
    show = "import backendcfg; print(backendcfg.flags.seed.value)"
    assert backendcfg(*words, sys.executable, "-c", show) == "7\n"
    assert backendcfg("run", "reproducible", "--", sys.executable, "-c", show) == "0\n"


@pytest.mark.parametrize("stderr", ["sys.stderr.close()", "sys.stderr = None"])
def test_a_program_that_nobody_can_tell_starts_all_the_same(python, tmp_path, stderr):
    (tmp_path / "backendcfg.toml").write_text('profile = "reproducible"\n')
    said = python(f"import sys; {stderr}; import backendcfg; print(backendcfg.active().name)")
    assert said == "reproducible\n"


def test_what_was_told_at_the_import_is_warned_of_at_the_next_apply(python, tmp_path):
    (tmp_path / "backendcfg.toml").write_text('profile = "reproducible"\n')
    said = python("""
        import backendcfg, warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            backendcfg.apply("reproducible"), backendcfg.apply("reproducible")
        print([one.category.__name__ for one in seen])
    """)
    assert said == "['PendingWarning']\n"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("variables", "notes"),
    [({}, 1), ({"RANK": "0", "WORLD_SIZE": "2"}, 1), ({"RANK": "1", "WORLD_SIZE": "2"}, 0)],
)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_program_is_told_once_and_neither_its_workers_nor_further_ranks(
    tmp_path, method, variables, notes
):
    (tmp_path / "backendcfg.toml").write_text('profile = "reproducible"\n')
    (tmp_path / "pool.py").write_text(f"""
import multiprocessing
import backendcfg
def work(number):
    import backendcfg
    return backendcfg.active().name
if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print(*pool.map(work, range(2)))
""")
    done = subprocess.run(
        [sys.executable, "pool.py"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "reproducible reproducible\n"
    assert done.stderr == TOO_LATE * notes


def test_a_removed_working_directory_is_no_project(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "/" == startup.working_directory()
    assert not os.path.exists(gone)


COUNT = "import backendcfg; print(backendcfg.flags['threads.count'])"


@pytest.mark.exhaustive
def test_the_user_s_profile_takes_on_the_settings_of_each_project(python, backendcfg, tmp_path):
    backendcfg("apply", "fast", "--set", "threads.interop=1")
    project = tmp_path / "project"
    project.mkdir()
    (project / "backendcfg.toml").write_text("threads.count = 33\n")
    inside = "import os; os.chdir('project')\n"
    assert "33\n" == python(inside + COUNT)
    assert "33\n" != python(COUNT)


@pytest.mark.exhaustive
def test_the_user_s_profile_does_not_carry_a_project_s_settings_out_of_it(
    python, backendcfg, tmp_path
):
    (tmp_path / "backendcfg.toml").write_text("threads.count = 33\n")
    backendcfg("apply", "fast", "--user")
    assert "33\n" == python(COUNT)
    assert "33\n" != python("import os; os.chdir('/')\n" + COUNT)


@pytest.mark.exhaustive
def test_a_wrong_settings_file_is_found_under_the_user_s_profile(backendcfg, tmp_path):
    backendcfg("apply", "fast")
    (tmp_path / "backendcfg.toml").write_text("threads.cuont = 3\n")
    assert "unknown key `cuont` in table `[threads]`" in started(tmp_path).stderr


@pytest.mark.exhaustive
def test_a_pyproject_of_others_does_not_make_the_stored_plan_stale_elsewhere(
    python, backendcfg, tmp_path
):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'theirs'\n")
    backendcfg("apply", "fast")
    show = "import sys; import backendcfg; print('pydantic' in sys.modules)"
    assert "False\n" == python("import os; os.chdir('/')\n" + show)
    (tmp_path / "pyproject.toml").write_text("[tool.backendcfg]\nthreads.count = 33\n")
    assert "33\n" == python(COUNT)
    assert "33\n" != python("import os; os.chdir('/')\n" + COUNT)


@pytest.mark.exhaustive
def test_run_to_run_bits_do_not_depend_on_the_kernels_that_a_shell_presets(backendcfg):
    program = (
        "import hashlib, numpy\n"
        "a = numpy.random.default_rng(0).random((300, 300))\n"
        "print(hashlib.sha256((a @ a).tobytes()).hexdigest())"
    )
    words = ("run", "reproducible", "--", sys.executable, "-c", program)
    preset = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "65536", "OMP_NUM_THREADS": "1"}
    assert backendcfg(*words) == backendcfg(*words, **preset)


@pytest.mark.exhaustive
def test_a_file_that_a_variable_names_is_the_active_profile_in_every_folder(
    python, backendcfg, tmp_path
):
    (tmp_path / "mine.toml").write_text("threads.count = 33\n")
    backendcfg("apply", "--user", BACKENDCFG_PROFILE="./mine.toml")
    # The stored plan does not hold under another preset, so the name is resolved again.
    elsewhere = "import os; os.chdir('/')\n" + COUNT
    assert "33\n" == python(elsewhere, OMP_NUM_THREADS="3")


@pytest.mark.exhaustive
def test_a_picked_profile_means_the_same_when_it_is_resolved_again(python, backendcfg, tmp_path):
    settings = tmp_path / "settings"
    (settings / "profiles").mkdir(parents=True)
    (settings / "config.toml").write_text("threads.count = 33\n")
    (settings / "profiles" / "mine.toml").write_text("threads.count = 32\n")
    place = {"BACKENDCFG_CONFIG_DIR": str(settings)}
    backendcfg("apply", "--user", BACKENDCFG_PROFILE="mine", **place)
    assert python(COUNT, **place) == python(COUNT, OMP_NUM_THREADS="3", **place)


@pytest.mark.exhaustive
def test_a_file_in_the_home_directory_can_be_named_with_a_tilde(python, backendcfg, tmp_path):
    (tmp_path / "mine.toml").write_text("threads.count = 33\n")
    backendcfg("apply", "~/mine.toml", HOME=str(tmp_path))
    assert "33\n" == python(COUNT)


@pytest.mark.exhaustive
def test_a_plan_is_not_taken_from_another_configuration_of_the_user(python, tmp_path):
    for count in ("32", "33"):
        settings = tmp_path / count / "backendcfg"
        settings.mkdir(parents=True)
        (settings / "config.toml").write_text(f"threads.count = {count}\n")
    places = [{"XDG_CONFIG_HOME": str(tmp_path / count)} for count in ("32", "33")]
    common = {"BACKENDCFG_CONFIG_DIR": "", "BACKENDCFG_PROFILE": "tf32-off"}
    assert ["32\n", "33\n"] == [python(COUNT, **common, **place) for place in places]


def test_an_empty_variable_of_ours_puts_nothing_in_force(python):
    show = "import backendcfg; print(backendcfg.active())"
    assert "None\n" == python(show, BACKENDCFG_CUDNN_BENCHMARK="")


def started(tmp_path, **variables):
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


DAMAGE = {
    "an empty index": ("active", b"", "{} is damaged: its last line is cut off"),
    "the index of a later release": (
        "active",
        b"backendcfg 7\n",
        "cannot read {}: a later release of backendcfg wrote it",
    ),
    "a damaged generation": (
        "generations/user/1.json",
        b"[" * 200_000,
        (
            "cannot read generation 1, {}: it is nested too deeply,"
            " so another release of backendcfg wrote it, or it is damaged"
        ),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_program_goes_on_where_what_is_active_is_damaged(damage, python, backendcfg, tmp_path):
    backendcfg("apply", "fast")
    place, content, says = DAMAGE[damage]
    file = Path(generations.directory(), place)
    file.write_bytes(content)
    done = started(tmp_path)
    assert (done.stdout, done.returncode) == ("None\n", 0)
    assert done.stderr == (
        f"warning: what is active was not applied to this process: {says.format(file)};"
        " `backendcfg status` says more, BACKENDCFG_DISABLE=1 starts without it\n"
    )
    assert python(SHOW, BACKENDCFG_PROFILE="tf32-off") == "tf32-off\n"
    assert file.read_bytes() == content


def test_off_rescues_a_damaged_index_as_the_message_says(python, backendcfg):
    backendcfg("apply", "fast")
    Path(generations.directory(), "active").write_bytes(b"")
    backendcfg("off")
    assert python(SHOW) == "None\n"
    backendcfg("undo")
    assert python(SHOW) == "fast\n"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "damage", [b"[" * 200_000, b"", b"{}", None], ids=["deep", "empty", "no plan", "a pipe"]
)
def test_a_cached_plan_that_cannot_be_read_is_made_again(damage, python):
    python(SHOW, BACKENDCFG_PROFILE="fast")
    [file] = Path(planning.cache_directory()).glob("*.json")
    file.unlink()
    if damage is None:
        os.mkfifo(file)
    else:
        file.write_bytes(damage)
    assert python(SHOW, BACKENDCFG_PROFILE="fast") == "fast\n"
    assert file.is_file()


def test_a_project_s_file_with_an_endless_key_is_refused_at_once(tmp_path):
    text = 'schema = 1\nprofile = "fast"\n' + ".".join(["a"] * 50_000) + " = 1\n"
    (tmp_path / "backendcfg.toml").write_text(text)
    message = started(tmp_path).stderr
    assert "backendcfg.toml nests more than 32 tables or arrays in each other" in message


def test_why_a_profile_does_not_act_is_said_once_also_after_a_note(capsys, monkeypatch):
    monkeypatch.delattr(sys, startup._WARNED, raising=False)
    startup.say("note: this Python starts without a profile")
    for _ in range(2):
        startup.warn(ValueError("no such profile"))
    monkeypatch.delattr(sys, startup._WARNED)
    assert capsys.readouterr().err == (
        "note: this Python starts without a profile\n"
        "warning: what is active was not applied to this process: no such profile; `backendcfg status` "
        "says more, BACKENDCFG_DISABLE=1 starts without it\n"
    )
