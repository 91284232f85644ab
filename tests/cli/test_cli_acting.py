"""apply, status, undo, off, history, verify: what becomes active, and what is printed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from backendcfg import startup
from backendcfg.audit.verify import Verification
from backendcfg.cli import output
from backendcfg.cli.verbs import apply as apply_verb
from backendcfg.session import autoload


@pytest.fixture(autouse=True)
def _here(project):
    """Everything here happens in the project."""


def test_apply_makes_a_profile_active_and_says_what_that_means(call, project):
    result = call("apply", "mine")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"mine is active for {project} (generation 1)"
    assert (
        re.sub(r"\s+", " ", result.out)
        .split(" host ")[0]
        .endswith(
            "governs what `backendcfg run` starts in this project, or imports backendcfg; plain"
            " `python` not before you run `backendcfg autoload on`"
        )
    )
    assert "tier      none" in lines
    assert lines[-2:] == [
        "next      python train.py",
        "          backendcfg undo",
    ]
    assert "PYTHONHASHSEED=0" in result.out


@pytest.mark.parametrize(
    "name",
    ["debug", "fast", "max-throughput", "reproducible", "reproducible-anywhere", "tf32-off"],
)
def test_apply_fits_a_screen(name, call, monkeypatch):
    monkeypatch.setattr(output, "terminal_width", lambda stream: 80)
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    lines = call("apply", name).out.splitlines()
    assert 5 < len(lines) <= 24
    # Only a single word that is longer than the screen may stand out.
    assert [line for line in lines[1:] if len(line) > 80] == []


def test_apply_under_json_carries_the_plan_and_the_variables(call, project):
    answer = json.loads(call("apply", "mine", "--set", "threads.count=1", "--json").out)
    assert (answer["profile"], answer["generation"]) == ("mine", 1)
    assert answer["project"] == str(project)
    assert answer["environment"]["OMP_NUM_THREADS"] == "1"
    assert answer["plan"]["name"] == "mine"
    assert answer["rehearsal"] is None


def test_apply_without_a_name_and_without_a_pick_is_a_mistake(call):
    result = call("apply")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[usage]: no profile is named, and no settings file picks one\n"
        "  state: nothing was changed\n"
        "  help: run `backendcfg apply reproducible`, or see `backendcfg list`\n"
    )


def test_apply_without_a_name_takes_what_the_settings_file_picks(call, project):
    (project / "backendcfg.toml").write_text('profile = "base"\n')
    assert call("apply").out.startswith(f"base is active for {project} (generation 1)\n")


def test_apply_without_a_name_stores_the_active_one_anew(call, project):
    call("apply", "mine", "--set", "threads.count=1")
    assert call("apply").out.startswith(f"mine is active for {project} (generation 2)\n")
    assert json.loads(call("status", "--json").out)["settings"] == {"threads.count": "1"}


def test_a_refused_apply_leaves_what_was_active(call):
    call("apply", "mine")
    refused = call("apply", "mine", "--set", 'blas.library={require="blis"}')
    assert refused.code == 3
    assert refused.err.startswith("error[missing-library]")
    assert json.loads(call("status", "--json").out)["generation"] == 1


def test_strict_refuses_what_would_be_pending(call):
    result = call("apply", "mine", "--strict")
    assert (result.code, result.out) == (3, "")
    assert result.err.splitlines()[0] == (
        "error[too-late]: profile `mine` would not hold in full in a `python` started from this "
        "shell"
    )
    assert json.loads(call("status", "--json").out)["profile"] is None


def test_what_a_plain_python_is_started_anew_for_is_not_pending(call, monkeypatch):
    monkeypatch.setattr(autoload, "silent", lambda: "")
    assert (call("apply", "mine", "--strict").code, call("status").code) == (0, 0)


def test_status_names_the_profile_and_who_picked_it(call, project):
    call("apply", "mine")
    result = call("status")
    assert (result.code, result.err) == (0, "")
    assert result.out.replace("of\n          ", "of ") == (
        "profile   mine\n"
        "tier      none\n"
        f"from      generation 1 of {project}\n"
        "settings  threads.dynamic in backendcfg.toml\n"
        "python    not before you run `backendcfg autoload on`\n"
        "next      backendcfg run -- python train.py\n"
    )


def test_status_names_the_flags_that_settings_files_set_where_they_are_in_force(call, project):
    own = Path(os.environ["BACKENDCFG_CONFIG_DIR"], "config.toml")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("seed.value = 7\nthreads.dynamic = true\n")
    call("apply", "mine")
    found = json.loads(call("status", "--json").out)["in_files"]
    assert found == {
        str(project / "backendcfg.toml"): ["threads.dynamic"],  # over the user's
        str(own): ["seed.value"],
    }


def test_status_says_that_nothing_is_in_force(call):
    Path("backendcfg.toml").write_text("")
    assert call("status").out == (
        "no profile is in force here\n"
        "next      backendcfg list\n"
        "          backendcfg apply reproducible\n"
    )


def test_status_says_that_backendcfg_is_turned_off(call, monkeypatch):
    call("apply", "mine")
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    assert call("status").out == "backendcfg is turned off by BACKENDCFG_DISABLE\n"


def test_apply_says_that_backendcfg_is_turned_off(call, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    result = call("apply", "mine")
    assert result.code == 0
    assert result.err == (
        "BACKENDCFG_DISABLE turns backendcfg off; the profile acts once it is unset\n"
    )


def test_what_apply_leaves_out_is_shown_by_the_verbs_that_it_names(call, project):
    named = re.compile("see `(backendcfg [a-z ]+)`")
    said = call("apply", "reproducible").out
    assert "\ndraws     the same random numbers in every process that starts\n" in said
    assert "threads.interop" not in said  # which nobody asked for, so that nothing sets it
    assert set(named.findall(said)) == {
        "backendcfg plan",
        "backendcfg env",
    }
    assert set(named.findall(call("apply", "reproducible", "--user").out)) == {
        "backendcfg plan reproducible",
        "backendcfg env reproducible",
    }


def test_apply_says_what_stays_in_force_where_that_comes_first(call, project, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_PROFILE", "tf32-off")
    result = call("apply", "mine")
    assert result.err == "here BACKENDCFG_PROFILE comes first: `tf32-off`\n"
    assert result.out.startswith(f"mine is active for {project} (generation 1)\n")
    monkeypatch.delenv("BACKENDCFG_PROFILE")
    assert call("apply", "mine").err == ""
    assert call("apply", "fast", "--user").err == (
        f"here generation 2 of {project} comes first: `mine`\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('profil = "fast"\n', "unknown key `profil` at the top level"),
        ('porfile = "fast"\n', "unknown key `porfile` at the top level"),
        ("#" * 2**20 + "#", "cannot read backendcfg.toml: it has 1,048,577 bytes"),
    ],
)
@pytest.mark.parametrize("words", [("status",), ("run", "--", "true")])
def test_a_wrong_settings_file_is_told_where_no_profile_is_in_force(
    call, project, text, said, words
):
    (project / "backendcfg.toml").write_text(text)
    result = call(*words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err.splitlines()[0]


def test_undo_is_shown_with_what_it_needs_to_undo_this(call, project, monkeypatch):
    assert call("apply", "mine").out.endswith(" backendcfg undo\n")
    assert call("apply", "debug", "--user").out.endswith(" backendcfg undo --user\n")
    assert "next      backendcfg undo --user, to" in call("off", "--user").out
    monkeypatch.chdir(project.parent)
    assert call("apply", "fast").out.endswith(" backendcfg undo\n")


def test_apply_is_done_also_where_the_stronger_one_cannot_be_read(call, project):
    call("apply", "mine")
    (stored,) = Path(startup.state_directory(), "generations").glob("*/1.json")
    stored.write_text("{")
    result = call("apply", "fast", "--user")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("fast is active for the user (generation 1)\n")
    assert call("status").code == 3


def test_status_of_a_wrong_name_is_an_error(call, monkeypatch):
    call("apply", "mine")
    monkeypatch.setenv("BACKENDCFG_PROFILE", "mnie")
    result = call("status")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        "error[unknown-profile]: environment variable BACKENDCFG_PROFILE names profile `mnie`, "
        "which does not exist\n"
    )


def test_status_says_why_a_stored_plan_is_stale(call, project):
    call("apply", "mine")
    with open(project / "profiles" / "mine.toml", "a") as file:
        file.write("# changed\n")
    stale = [line for line in call("status").out.splitlines() if line.startswith("stale")]
    assert stale == [
        "stale     file profiles/mine.toml changed; the first start here resolves the profile again"
    ]
    doctor = " ".join(call("doctor").out.split())
    assert "stored plan stale: file profiles/mine.toml changed; the first start" in doctor


def test_undo_goes_back_one_and_off_and_undo_are_inverse(call, project):
    call("apply", "base")
    call("apply", "mine")
    assert call("undo").out == f"base is active again for {project} (generation 1)\n"
    assert call("off").out == (
        "no profile is active any more (it was generation 1)\n"
        "next      backendcfg undo, to make it active again\n"
    )
    assert call("off").out == "no profile was active\n"
    assert call("undo").out == f"base is active again for {project} (generation 1)\n"
    assert call("undo").out == "no profile is active now, as before\n"


def test_undo_to_no_profile_says_what_the_project_s_file_picks(call, project):
    (project / "backendcfg.toml").write_text('profile = "base"\n')
    call("apply", "mine")
    assert call("undo").out.startswith(
        "no profile is active now, as before; base is in force here, by"
        f" {project}/backendcfg.toml\n"
        "python    not before you run `backendcfg trust` or `backendcfg apply` here\n"
    )


def test_undo_says_that_it_undid_though_the_project_s_file_is_wrong(call, project):
    call("apply", "mine")
    (project / "backendcfg.toml").write_text('profle = "base"\n')
    undone = call("undo")
    assert undone.code == 0
    assert undone.out == (
        "no profile is active now, as before; what is in force here cannot be told: unknown key"
        " `profle` at the top level\n"
    )


def test_undo_of_nothing_is_an_error(call, project):
    result = call("undo")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        f"error[nothing-to-undo]: there is no earlier generation for {project}\n"
    )


def test_history_lists_the_newest_first_and_marks_the_active_one(call):
    assert call("history").out == "no profile was made active here yet\n"
    call("apply", "base")
    call("apply", "mine", "--set", "threads.count=2")
    call("undo")
    times = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.sub(times, "TIME", call("history").out) == (
        "   2  TIME  mine  --set threads.count=2\n*  1  TIME  base\n"
    )
    rows = json.loads(call("history", "--json").out)
    assert [(row["generation"], row["profile"], row["active"]) for row in rows] == [
        (2, "mine", False),
        (1, "base", True),
    ]


def test_the_users_profile_holds_where_the_project_has_none(call, project):
    call("apply", "debug", "--user")
    assert json.loads(call("status", "--json").out)["source"] == "generation 1 of the user"
    call("apply", "mine")
    assert json.loads(call("status", "--json").out)["profile"] == "mine"
    status = json.loads(call("status", "--json").out)
    assert status["instead"] == [{"profile": "debug", "source": "generation 1 of the user"}]
    call("off")
    assert json.loads(call("status", "--json").out)["profile"] == "debug"
    assert call("history", "--user").out.split()[-1] == "debug"


def test_in_a_project_verbs_without_a_name_leave_the_users_profile_alone(call, project):
    call("apply", "fast", "--user", "--set", "threads.count=1")
    (project / "backendcfg.toml").write_text('profile = "base"\n')
    assert call("history").out == "no profile was made active here yet\n"
    assert call("off").out.startswith("no profile was active; base is in force here, by")
    assert call("undo").err.startswith(
        f"error[nothing-to-undo]: there is no earlier generation for {project}\n"
    )
    assert call("apply").out.startswith(f"base is active for {project} (generation 1)\n")
    status = json.loads(call("status", "--json").out)
    assert (status["profile"], status["settings"]) == ("base", {})
    assert status["instead"][-1] == {"profile": "fast", "source": "generation 1 of the user"}


def test_what_is_active_outside_of_a_project_takes_nothing_from_it(call, project, monkeypatch):
    (project / "backendcfg.toml").write_text("threads.count = 1\n")
    plan = json.loads(call("apply", "fast", "--user", "--json").out)["plan"]
    (count,) = (each for each in plan["entries"] if each["flag"] == "threads.count")
    assert count["origin"]["title"] == "profile `fast`"
    refused = call("apply", "mine", "--user")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error[unknown-profile]: profile `mine` does not exist\n")
    assert refused.err.endswith(
        "  note: a project's profiles are known by their names in the project only\n"
        "  state: no profile was applied; a wrong name never falls back to a default\n"
        "  help: give its file: `profiles/mine.toml`\n"
    )
    assert call("apply", "profiles/base.toml", "--user").code == 0
    monkeypatch.chdir(project.parent)
    assert json.loads(call("status", "--json").out)["profile"] == str(
        project / "profiles" / "base.toml"
    )


def test_flags_that_no_process_starts_with_are_named_as_such(call, project):
    said = "no process starts with the flags in backendcfg.toml: no profile is in force here"
    assert f"settings  {said}\n" in call("status").out
    assert json.loads(call("status", "--json").out)["alone"] == [str(project / "backendcfg.toml")]
    for words in (("plan",), ("explain", "threads.dynamic")):
        assert call(*words).err == f"{said}\n"
    assert f"  note: {said}\n" in call("run", "--", "true").err
    assert call("plan", "--set", "threads.count=1").err == ""  # as `run --set` starts a process
    (project / "backendcfg.toml").write_text("")
    assert "settings" not in call("status").out
    (project / "backendcfg.toml").write_text('profile = "base"\nthreads.dynamic = false\n')
    assert call("plan").err == ""


@pytest.mark.parametrize("option", ["", "--user", "--environment"])
def test_a_broken_profile_is_turned_off_by_the_words_that_its_error_gives(
    option, call, project, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    path = tmp_path / "away.toml"
    path.write_text("threads.count = 1\n")
    call("apply", str(path), *filter(None, [option]))
    path.unlink()
    wrong = call("status")
    assert wrong.code == 2
    words = re.search("run `backendcfg (off[^`]*)`", wrong.err)[1].split()
    assert words == ["off", *filter(None, [option])]
    assert call(*words).out.startswith("no profile is active any more")
    assert call("status").code == 0


def test_verify_without_a_profile_is_a_mistake(call):
    result = call("verify")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        "error[usage]: no profile is in force here, so there is nothing to verify\n"
    )


def test_the_host_line_names_what_computes_most_and_fits():
    summary = "AMD EPYC (zen4), 2 of 2 processors, no GPU; " + ", ".join(
        f"{name} 1.0" for name in ("archive", "jax", "mkl", "numpy", "scipy", "torch", "zzz")
    )
    assert apply_verb.host_line(summary) == (
        "AMD EPYC (zen4), 2 of 2 processors, no GPU; numpy 1.0, torch 1.0, scipy 1.0, ..."
    )


def reading(switch, state, found=2, because="", flag="threads.count"):
    return {
        "switch": switch,
        "flag": flag,
        "wanted": 2,
        "found": found,
        "state": state,
        "because": because,
        "broken": {},
        "measured": [],
    }


def tells(monkeypatch, answer):
    """Let the child that verifies say this, and whether it is all right, as it does."""
    named = ("readings", "measured")
    found = {name: tuple(SimpleNamespace(**one) for one in answer[name]) for name in named}
    ok = Verification(answer["profile"], answer["tier"], answer["in_force"], **found).ok
    monkeypatch.setattr("backendcfg.cli.child.verification", lambda name, **_: answer | {"ok": ok})


@pytest.mark.parametrize("state", ["differs", "overridden", "undone", "unreadable", "stuck"])
def test_verify_exits_with_1_when_a_switch_is_not_as_wanted(state, call, monkeypatch):
    answer = {
        "profile": "mine",
        "tier": "run-to-run",
        "in_force": False,
        "readings": [
            reading("openblas[numpy].threads", "ok"),
            reading("torch.num_threads", state, 4, "something other than backendcfg wrote it"),
            reading("PYTHONHASHSEED", "pending", None, "this interpreter has started"),
            reading("cudnn.benchmark", "dormant", None, "no GPU is here", "cudnn.benchmark"),
        ],
        "unkept": ["cudnn.benchmark"],
        "overrides": ["OMP_NUM_THREADS=4 contradicts `threads.count = 2`"],
        "because": ["`PYTHONHASHSEED` is pending: this interpreter has started"],
        "broken": {"jax": "RuntimeError: jaxlib is too old"},
        "measured": [],
    }
    tells(monkeypatch, answer)
    result = call("verify", "mine")
    assert (result.code, result.err) == (1, "")
    wide = max(len(state), len("pending"))
    assert result.out == (
        f"{'state':<{wide}}  switch                   wanted\n"
        f"{'ok':<{wide}}  openblas[numpy].threads  2\n"
        f"{state:<{wide}}  torch.num_threads        2       found 4; something other than "
        "backendcfg wrote it\n"
        f"{'pending':<{wide}}  PYTHONHASHSEED           2       this interpreter has started\n"
        "dormant   cudnn.benchmark: no GPU is here\n"
        "overrides OMP_NUM_THREADS=4 contradicts `threads.count = 2`\n"
        "not read  jax cannot be imported: RuntimeError: jaxlib is too old\n"
        "\n"
        "1 switch of 3 not as mine wants\n"
        "the tier `run-to-run` is not in force\n"
        "  `PYTHONHASHSEED` is pending: this interpreter has started\n"
    )


@pytest.mark.parametrize(
    ("tier", "in_force", "code"),
    [("run-to-run", False, 1), ("run-to-run", True, 0), ("none", False, 0)],
)
def test_verify_exits_with_1_and_the_reason_when_a_tier_is_not_in_force(
    tier, in_force, code, call, monkeypatch
):
    because = [] if in_force else ["`MKL_CBWR` is pending: mkl[torch] read it when loaded"]
    answer = {
        "profile": "mine",
        "tier": tier,
        "in_force": in_force,
        "readings": [reading("MKL_CBWR", "ok" if in_force else "pending", None)],
        "overrides": [],
        "because": because,
        "broken": {},
        "measured": [],
    }
    tells(monkeypatch, answer)
    result = call("verify", "mine")
    assert result.code == code
    told = f"the tier `{tier}` is {'' if in_force else 'not '}in force\n" if tier != "none" else ""
    end = f"1 switch read, none differs\n{told}" + "".join(f"  {one}\n" for one in because)
    assert result.out.endswith(end)
    call("apply", "mine")
    # Nor does it pass where a plain `python` starts without the profile.
    result = call("verify")
    assert result.code == 1
    assert result.out.endswith(f"{end}python    not before you run `backendcfg autoload on`\n")
    monkeypatch.setattr(autoload, "silent", lambda: "")
    result = call("verify")
    assert (result.code, result.out.endswith(end)) == (code, True)


def measured(
    operation, state, operands, sums=None, *, because="", device="cpu", subnormals=True, served=None
):
    precision = {"operands": operands, "accumulator": sums, "subnormals": subnormals}
    return {
        "operation": operation,
        "device": device,
        "dtype": "float32",
        "precision": None if operands is None else precision,
        "state": state,
        "because": because,
        "served": served,
    }


@pytest.mark.parametrize("profile", ["mine", ""])
def test_verify_exits_with_1_when_a_library_computes_with_less_than_is_granted(
    profile, call, monkeypatch
):
    answer = {
        "profile": profile,
        "tier": "none",
        "in_force": False,
        "readings": [reading("torch.num_threads", "ok")] if profile else [],
        "overrides": [],
        "because": [],
        "broken": {"jax": "RuntimeError: jaxlib is too old"},
        "measured": [
            measured(
                "numpy.matmul",
                "ok",
                23,
                23,
                served={"library": "numpy's OpenBLAS", "kernel": "sgemm_kernel", "part": 0.9},
            ),
            measured(
                "torch.mm",
                "differs",
                10,
                23,
                because="its operands keep 10 bits, 23 are granted",
                device="cuda:0",
            ),
            measured(
                "torch.bmm",
                "granted, not taken",
                23,
                23,
                because="`x` grants 7 bits",
                subnormals=False,
            ),
            measured("torch.linalg.solve", "not measured", None, because="RuntimeError: no LAPACK"),
        ],
    }
    tells(monkeypatch, answer)
    result = call("verify", "mine", "--measure")
    assert (result.code, result.err) == (1, "")
    switches = (
        "state  switch             wanted\n"
        "ok     torch.num_threads  2\n"
        "not read  jax cannot be imported: RuntimeError: jaxlib is too old\n"
        "\n"
        "1 switch read, none differs\n"
        "\n"
    )
    table = (
        "measured            operation           dtype    bits  sums\n"
        "ok                  numpy.matmul        float32  23    23\n"
        "differs             torch.mm on cuda:0  float32  10    23    its operands keep 10 bits,"
        " 23 are granted\n"
        "granted, not taken  torch.bmm           float32  23    23    `x` grants 7 bits\n"
        "not measured        torch.linalg.solve  float32              RuntimeError: no LAPACK\n"
        "subnormals taken for 0 by torch.bmm (float32)\n"
        "\n"
    )
    last = (
        "1 operation of 4 with fewer bits than granted\n"
        "\n"
        "served by         operation     dtype    function\n"
        "numpy's OpenBLAS  numpy.matmul  float32  sgemm_kernel\n"
    )
    unread = "not read  jax cannot be imported: RuntimeError: jaxlib is too old\n"
    assert result.out == (switches + table + last if profile else table + last + unread)


@pytest.mark.slow
def test_verify_and_apply_pass_over_a_framework_that_cannot_be_imported(process, tmp_path):
    (tmp_path / "jax.py").write_text("raise RuntimeError('jaxlib is too old')")
    path = {"PYTHONPATH": str(tmp_path)}
    assert process("apply", "mine", variables=path).code == 0
    result = process("verify", "mine", variables=path)
    assert (result.code, result.err) == (0, "")
    assert "\nnot read  jax cannot be imported: RuntimeError: jaxlib is too old\n" in result.out


def test_a_state_directory_under_a_file_names_that_file(process, project):
    file = project / "file"
    file.write_text("")
    result = process("apply", "mine", variables={"BACKENDCFG_STATE_DIR": str(file / "state")})
    assert result.code == 3
    first, *rest = result.err.splitlines()
    assert first.startswith(f"error[state-unwritable]: cannot make {file}/state/")
    assert first.endswith(f": {file} is a file, not a directory")
    assert rest == [
        "  state: the active profile is as before the call",
        "  help: set BACKENDCFG_STATE_DIR to a directory, or to a place for one",
    ]


def test_a_damaged_generation_is_a_line_of_the_history(call):
    from backendcfg.transact import generations

    call("apply", "base")
    call("apply", "mine")
    number = 1
    for folder, _, files in os.walk(generations.directory()):
        if f"{number}.json" in files:
            with open(os.path.join(folder, f"{number}.json"), "w") as file:
                file.write("{")
    result = call("history")
    assert (result.code, result.err) == (0, "")
    damaged = result.out.splitlines()[1]
    assert damaged.startswith("!")
    assert "cannot read generation 1" in damaged


@pytest.mark.slow
def test_the_log_goes_to_standard_error_when_asked(process):
    quiet = process("apply", "mine")
    assert (quiet.code, quiet.err) == (0, "")
    told = process("apply", "mine", variables={"BACKENDCFG_LOG_LEVEL": '"info"'})
    assert told.code == 0
    assert "generation 2 of " in told.err


def test_names_that_are_no_text_are_printed_escaped(process, project):
    name = b"\xff.toml".decode(errors="surrogateescape")
    (project / name).write_text("schema = 1\n")
    result = process("validate", name, "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out)["files"] == [name]


def test_a_profile_in_a_folder_whose_name_is_no_utf8_can_be_applied(call, tmp_path, monkeypatch):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.makedirs(folder + b"/profiles")
    monkeypatch.chdir(os.fsdecode(folder))
    Path("backendcfg.toml").touch()
    Path("profiles/mine.toml").write_text("threads.count = 1\n")
    assert call("apply", "mine").out.startswith("mine is active for ")
    assert json.loads(call("status", "--json").out)["profile"] == "mine"
    assert json.loads(call("plan", "--json").out)["name"] == "mine"
    assert call("undo").code == 0
