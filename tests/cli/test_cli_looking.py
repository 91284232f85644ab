"""The verbs that look and change nothing: whole outputs on a host that is a file."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from backendcfg import startup
from backendcfg.cli.sources import read_host
from backendcfg.load.stack import Request, load
from backendcfg.load.trust import trust
from backendcfg.resolve.plan import resolve
from backendcfg.session.children import in_words
from backendcfg.transact.compiled import Asked

SHIPPED = [
    "debug",
    "fast",
    "max-throughput",
    "reproducible",
    "reproducible-anywhere",
    "tf32-off",
]


def test_plan_shows_every_set_flag_with_value_origin_and_adaptation(call, project, host):
    result = call("plan", "mine", "--host", host)
    assert (result.code, result.err) == (0, "")
    assert result.out.partition("\nchoice")[0] == (
        "profile   mine: As many threads as there are\n"
        "host      AMD EPYC (zen4), 4 of 8 processors (affinity: 4 of 8), no GPU; numpy 2.4.6\n"
        "tier      none\n"
        "\n"
        "threads.count     4      profile `mine` (profiles/mine.toml:10)\n"
        '    requested "auto", because 4 of 4 cores are for this process (affinity: 4 of 8)\n'
        "threads.interop   2      default, dormant\n"
        '    requested "auto", because few tasks run side by side\n'
        "threads.dynamic   false  backendcfg.toml (backendcfg.toml:2), dormant\n"
        "python.hash_seed  0      profile `mine` (profiles/mine.toml:13)\n"
    )


def test_plan_verbose_shows_every_flag(call, project, host):
    from backendcfg.schema.profile import defaults

    lines = call("plan", "mine", "--host", host, "-v").out.splitlines()
    shown = {line.split()[0] for line in lines if line and not line.startswith(" ")}
    assert [flag for flag in defaults() if flag not in shown] == []


def test_plan_without_a_name_is_the_one_that_the_environment_names(
    call, project, host, monkeypatch
):
    monkeypatch.setenv("BACKENDCFG_PROFILE", "base")
    assert call("plan", "--host", host).out.startswith("profile   base: One thread\n")


def test_settings_win_over_the_profile(call, project, host):
    result = call("plan", "base+mine", "--host", host, "--set", "threads.count=3", "--json")
    plan = json.loads(result.out)
    entry = next(entry for entry in plan["entries"] if entry["flag"] == "threads.count")
    assert (plan["name"], entry["value"], entry["origin"]["rank"]) == ("base+mine", 3, "argument")


def test_a_setting_of_another_type_is_an_error(call, project, host):
    result = call("plan", "mine", "--host", host, "--set", "threads.count=four")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[invalid-value]: argument `threads.count` must be an integer from 1 to 4096 or "
        '"auto", not the string "four"\n'
        "  state: nothing was changed\n"
    )


def test_explain_says_what_a_value_hides(call, project, host):
    result = call("explain", "threads.count", "--profile", "mine", "--host", host)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "threads.count = 4  from profile `mine` (profiles/mine.toml:10)\n"
        '  adapted: requested "auto", got 4, because 4 of 4 cores are for this process '
        "(affinity: 4 of 8)\n"
        "  hides 1 from profile `base` (profiles/base.toml:5)\n"
        '  hides "auto" from default\n'
        "\n"
        'does      Threads of every pool; "auto" is the cores of this process, or of its rank.\n'
        'accepts   an integer from 1 to 4096 or "auto"\n'
        'default   "auto"\n'
        "read by   native, openblas, mkl, blis, openmp, torch, tensorflow, jax, numba\n"
        "variable  BACKENDCFG_THREADS_COUNT\n"
        "source    https://www.openmp.org/spec-html/5.2/openmpch21.html\n"
    )


def test_explain_of_a_legacy_spelling_explains_what_it_stands_for(call, project, host):
    result = call("explain", "cuda.matmul.allow_tf32", "--profile", "mine", "--host", host)
    assert result.out.startswith(
        "cuda.matmul.allow_tf32 is an older spelling of cuda.matmul.fp32_precision\n"
        'cuda.matmul.fp32_precision = "none"  from default\n'
    )


def test_explain_of_what_is_no_flag_names_the_nearest(call, project):
    assert call("explain", "threads.cuont").err == (
        "error[unknown-flag]: no flag has `threads.cuont` in its name, in PyTorch's name for it or "
        "in what it does\n"
        "  state: nothing was changed\n"
        "  help: did you mean `threads.count`?\n"
        "  help: run `backendcfg explain` to list every flag\n"
    )


FOUND = {
    ("allow_tf32",): """\
cuda.matmul.allow_tf32        Legacy spelling of `cuda.matmul.fp32_precision`.
cudnn.allow_tf32              Legacy spelling of `cudnn.conv.fp32_precision` and `cudnn.rnn.fp32_precision`.
mkldnn.allow_tf32             Legacy spelling of the three `mkldnn.*.fp32_precision`.
cuda.matmul.fp32_precision    Internal precision of float32 GEMM on the GPU.
cudnn.conv.fp32_precision     Internal precision of float32 in cuDNN.
cudnn.rnn.fp32_precision      Internal precision of float32 in cuDNN.
mkldnn.matmul.fp32_precision  Internal precision of float32 in oneDNN.
mkldnn.conv.fp32_precision    Internal precision of float32 in oneDNN.
mkldnn.rnn.fp32_precision     Internal precision of float32 in oneDNN.
""",
    ("deterministic", "algorithms"): """\
determinism.algorithms                 torch.use_deterministic_algorithms: off, warn only, on.
cudnn.deterministic                    Only deterministic convolution algorithms.
determinism.fill_uninitialized_memory  Under deterministic algorithms, fill torch.empty.
""",
}


@pytest.mark.parametrize("words", FOUND, ids=" ".join)
def test_explain_finds_flags_by_what_people_call_them(words, call):
    for asked in (words, (" ".join(words),)):
        result = call("explain", *asked)
        assert (result.code, result.err, result.out) == (0, "", FOUND[words])
    assert list(json.loads(call("explain", *words, "--json").out)) == [
        line.split()[0] for line in FOUND[words].splitlines()
    ]


def test_explain_of_words_that_lead_to_one_flag_explains_it(call, host):
    whole = call("explain", "cudnn.benchmark", "--host", host).out
    found = call("explain", "torch.backends.cudnn.benchmark", "--host", host).out
    assert found == whole
    assert call("explain", "PYTHONHASHSEED", "--host", host).out.startswith("python.hash_seed = ")


def test_explain_of_an_operation_says_whose_code_computes_it(call, monkeypatch):
    asked = []

    def child(module, environment, **given):
        asked.append((module, environment.get("BACKENDCFG_PROFILE"), given["name"]))
        library = {"library": "numpy's OpenBLAS", "kernel": "sgemm_kernel", "part": 0.964}
        return {
            "profile": environment.get("BACKENDCFG_PROFILE", ""),
            "known": ["numpy.matmul"],
            "served": {"float32": library, "float64": None},
        }

    monkeypatch.setattr("backendcfg.childprocess.testimony", child)
    monkeypatch.delenv("BACKENDCFG_PROFILE", raising=False)
    result = call("explain", "np.matmul", "--profile", "fast")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "numpy.matmul on the CPU, under profile `fast`\n"
        "dtype    served by         samples  function\n"
        "float32  numpy's OpenBLAS  96 %     sgemm_kernel\n"
        "float64  not known\n"
    )
    result = call("explain", "numpy.matmul")
    assert result.out.startswith("numpy.matmul on the CPU, without a profile\n")
    assert json.loads(call("--json", "explain", "numpy.matmul").out)["operation"] == "numpy.matmul"
    call("explain", "torch.matmul")  # which is no flag either, though `route.torch.matmul` is
    where = "backendcfg.audit.evidence.served"
    assert asked == [
        (where, "fast", "numpy.matmul"),
        *[(where, None, "numpy.matmul")] * 2,
        (where, None, "torch.mm"),
    ]
    for words in ("route.numpy.matmul", "torch.attention"):
        assert call("explain", words).out.startswith(
            f'route.{words.removeprefix("route.")} = "keep"'
        )


def test_explain_of_an_operation_that_only_a_route_is_about_names_the_route(call, monkeypatch):
    found = {"profile": None, "known": ["torch.mm"], "served": {}}
    monkeypatch.setattr("backendcfg.childprocess.testimony", lambda *_, **__: found)
    assert call("explain", "F.dropout").err == (
        "error[usage]: `torch.nn.functional.dropout` is neither a flag nor an operation that is"
        " measured\n"
        "  state: nothing was changed\n"
        "  help: run `backendcfg explain route.torch.dropout`\n"
        "  help: those of its package are torch.mm\n"
    )


REFUSED = {
    ("numpy.mtamul",): (
        "`numpy.mtamul` is neither a flag nor an operation that is measured\n"
        "  state: nothing was changed\n"
        "  help: those of its package are numpy.linalg.solve, numpy.matmul\n"
    ),
    ("np.matmul", "--set", "threads.count=1"): (
        "`--set` and `--host` are for flags, and `numpy.matmul` is an operation\n"
        "  state: nothing was changed\n"
        "  help: name a profile: `backendcfg explain numpy.matmul --profile fast`\n"
    ),
    ("cupy.matmul",): (
        "nothing serves `cupy.matmul` here: `cupy` cannot be imported\n"
        "  note: ImportError: no GPU\n"
        "  state: nothing was changed\n"
    ),
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_explain_says_why_it_names_nobody(words, process, tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('no GPU')")
    result = process("explain", *words, variables={"PYTHONPATH": str(tmp_path)})
    assert (result.code, result.out) == (2, "")
    assert result.err == f"error[usage]: {REFUSED[words]}"


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("torch.cublas_workspce_config", "torch.cublas_workspace_config"),
        ("ops.chek_finite", "ops.check_finite"),
        ("jax.defalt_matmul_precision", "jax.default_matmul_precision"),
    ],
)
def test_explain_of_a_misspelt_flag_of_a_package_names_the_flag(word, flag, call):
    assert call("explain", word).err == (
        f"error[unknown-flag]: no flag has `{word}` in its name, in PyTorch's name for it or in what"
        f" it does\n  state: nothing was changed\n  help: did you mean `{flag}`?\n"
        "  help: run `backendcfg explain` to list every flag\n"
    )


def test_explain_of_an_operation_under_a_profile_that_is_not_there_says_so(call, monkeypatch):
    said = call("explain", "np.matmul", "--profile", "nosuch").err
    assert said.startswith("error[unknown-profile]: profile `nosuch` does not exist\n")
    monkeypatch.setenv("BACKENDCFG_PROFILE", "nosuch")
    result = call("explain", "np.matmul")
    assert result.code == 2
    assert result.err.startswith(
        "error[unknown-profile]: environment variable BACKENDCFG_PROFILE names profile `nosuch`"
    )


def test_explain_without_a_flag_lists_every_flag(call):
    from backendcfg.schema.profile import flags

    assert [line.split()[0] for line in call("explain").out.splitlines()] == list(flags())


def test_diff_shows_both_values(call, project, host):
    result = call("diff", "base", "mine", "--host", host)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "flag              base      mine\n"
        "threads.count     1         4\n"
        "threads.interop   3         2     dormant: no PyTorch or TensorFlow is here\n"
        'python.hash_seed  "random"  0\n'
    )


def test_diff_exits_with_1_only_when_asked(call, project, host):
    assert call("diff", "base", "mine", "--host", host, "--exit-code").code == 1
    same = call("diff", "base", "base", "--host", host, "--exit-code")
    assert (same.code, same.out) == (0, "base and base mean the same on this host\n")


def test_why_not_names_what_is_missing_and_exits_with_1(call, project, host):
    (project / "profiles" / "gpu.toml").write_text(
        'schema = 1\n[requires]\ngpu.compute_capability = ">=8.0"\n'
    )
    result = call("plan", "gpu", "--why-not", "--host", host)
    assert (result.code, result.err) == (1, "")
    lines = result.out.splitlines()
    assert lines[0].startswith("no   CUDA compute capability 8.0 or newer; found no GPU")
    assert lines[1] == "     asked by `requires` in profile `gpu` (profiles/gpu.toml:3)"
    assert "gpu cannot be used here, for 1 reason:" in lines


def test_why_not_of_a_profile_that_fits_exits_with_0(call, project, host):
    result = call("plan", "mine", "--why-not", "--host", host)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(
        "yes  Linux; found this machine runs Linux\n"
        "     asked by `requires` in profile `mine` (profiles/mine.toml:7)\n"
    )
    assert result.out.endswith("mine can be used here\n")


def test_recommend_orders_every_profile(call, project, host):
    answer = json.loads(call("recommend", "--host", host, "--json").out)
    assert sorted(one["name"] for one in answer) == sorted(["base", "mine", *SHIPPED])
    fits = [one["fits"] for one in answer]
    assert fits == sorted(fits, reverse=True)
    assert call("recommend", "--host", host).out.endswith(
        f"next      backendcfg apply {answer[0]['name']}\n"
        "          what for? `backendcfg recommend --for training | inference | papers | debugging`\n"
    )


def test_recommend_puts_reduced_precision_first_only_when_asked(call, tmp_path, monkeypatch):
    from typing import get_args

    from backendcfg.cli.verbs.recommend import PURPOSES
    from backendcfg.resolve.recommend import Purpose

    monkeypatch.chdir(tmp_path)
    hosts = Path(__file__).parents[1] / "hosts"
    for asked, first in {
        (): "reproducible fits\n          it keeps its tier here: `run-to-run`\n",
        ("--for", "papers"): "reproducible fits\n          it keeps its tier here: `run-to-run`\n",
        ("--for", "debugging"): "debug fits\n          it keeps its tier here: `run-to-run`\n",
        ("--for", "training"): (
            "fast fits\n          it reduces precision: `cuda.matmul.fp32_precision` and 2 more\n"
        ),
    }.items():
        host = str(hosts / "epyc-h200-two-visible--openblas.json")
        assert call("recommend", *asked, "--host", host).out.startswith(first)
    assert get_args(Purpose) == PURPOSES


def test_list_shows_whose_each_profile_is_and_its_tier(call, project):
    (project / "profiles" / "fast.toml").write_text('schema = 1\nextends = "fast"\n')
    (project / "profiles" / "bad.toml").write_text("schema = 1\nnonsense = 1\n")
    result = call("list", "--json")
    assert (result.code, result.err) == (0, "")
    rows = [(one["name"], one["from"], one["tier"]) for one in json.loads(result.out)]
    assert rows[:5] == [
        ("bad", "project", ""),
        ("base", "project", "none"),
        ("fast", "project", "none"),
        ("mine", "project", "none"),
        ("debug", "shipped", "run-to-run"),
    ]
    lines = call("list").out.splitlines()
    assert lines[0].split() == ["profile", "from", "tier", "description"]
    assert "cannot be used: unknown key `nonsense`" in lines[1]
    assert (
        len([line for line in lines if "(hidden by the profile of this name above)" in line]) == 1
    )


def test_what_the_project_picks_is_marked_by_list_and_shown_by_plan_toml(call, project):
    (project / "backendcfg.toml").write_text('profile = "mine"\n')
    marked = [line.split()[1] for line in call("list").out.splitlines() if line.startswith("*")]
    assert marked == ["mine"]
    assert call("plan", "--toml").out == call("plan", "mine", "--toml").out


def test_show_is_toml_with_a_comment_for_each_origin(call, project):
    result = call("plan", "mine", "--toml")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "# mine\n"
        "# profile `base`: profiles/base.toml\n"
        "# profile `mine`: profiles/mine.toml\n"
        "schema = 1\n"
        'description = "As many threads as there are"\n'
        "\n"
        'threads.count = "auto"  # mine:10\n'
        "python.hash_seed = 0  # mine:13\n"
        "\n"
        "[requires]\n"
        'os = "linux"\n'
    )


@pytest.mark.parametrize("name", ["mine", "base", "base+tf32-off", "fast+base", *SHIPPED])
def test_what_show_prints_means_the_same_as_the_profile(name, call, project, host):
    copy = project / "profiles" / "copy.toml"
    copy.write_text(call("plan", name, "--toml").out)
    trust(copy)  # a project's own file may not set variables before
    machine = read_host(host)
    plans = [
        resolve(load(Request(name=profile, use_environment=False)), machine)
        for profile in (name, "copy")
    ]
    assert plans[0].values() == plans[1].values()
    assert plans[0].asked() == plans[1].asked()


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("plan", "mine", "--toml"),
        ("plan", "mine"),
        ("explain", "blas.library"),
        ("diff", "base", "mine"),
        ("plan", "mine", "--why-not"),
        ("recommend",),
        ("status",),
        ("history",),
        ("detect",),
        ("validate", "profiles/mine.toml"),
        ("validate", "--schema"),
        ("trust", "--list"),
        ("completion", "bash"),
        ("env", "mine"),
    ],
    ids=lambda words: words[0],
)
def test_under_json_standard_output_is_one_document(words, call, project, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_LOG_LEVEL", '"debug"')
    result = call(*words, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out) is not None


def test_colour_adds_nothing_but_colour(call, project, host, monkeypatch):
    import re

    for words in (("plan", "mine"), ("plan", "mine", "--why-not"), ("explain", "threads.count")):
        monkeypatch.setenv("NO_COLOR", "1")
        plain = call(*words, "--host", host)
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("FORCE_COLOR", "1")
        coloured = call(*words, "--host", host)
        assert coloured.out != plain.out
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.out) == plain.out


def test_a_shipped_profile_is_named_by_file_and_line_and_its_whole_path_is_in_the_json(
    call, project, host
):
    lines = call("plan", "tf32-off", "--host", host).out.splitlines()
    line = next(line for line in lines if line.startswith("cuda.matmul.fp32_precision"))
    assert re.search(r" profile `tf32-off` \(tf32-off\.toml:\d+, shipped\), dormant$", line)
    plan = json.loads(call("plan", "tf32-off", "--host", host, "--json").out)
    entry = next(one for one in plan["entries"] if one["flag"] == "cuda.matmul.fp32_precision")
    place = entry["origin"]["place"]
    assert place["shipped"]
    assert os.path.isabs(place["path"])
    assert os.path.isfile(place["path"])
    explained = call("explain", "cuda.matmul.fp32_precision", "--profile", "tf32-off").out
    assert re.match(r".* from profile `tf32-off` \(tf32-off\.toml:\d+, shipped\)\n", explained)


def test_what_the_project_s_file_picks_is_in_force_in_every_verb(call, project):
    (project / "backendcfg.toml").write_text('profile = "base"\n')
    result = call("status")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "profile   base\n"
        "tier      none\n"
        f"from      {project}/backendcfg.toml\n"
        "python    not before you run `backendcfg autoload on`\n"
        "next      backendcfg run -- python train.py\n"
    )
    assert "export BACKENDCFG_PROFILE=base\n" in call("env").out
    assert json.loads(call("plan", "--json").out)["name"] == "base"
    assert json.loads(call("verify", "--json").out)["profile"] == "base"
    (project / "backendcfg.toml").write_text('profile = "bsae"\n')
    assert call("status").code == 2


def test_a_project_in_somebody_else_s_folder_does_not_count_and_status_says_so(
    call, tmp_path, monkeypatch, give_away
):
    (tmp_path / "backendcfg.toml").write_text('profile = "fast"\n')
    monkeypatch.chdir(tmp_path)
    give_away(tmp_path)
    does_not = f"backendcfg.toml does not count: {tmp_path} is another user's"
    own_it = "run as the user whose folder it is, or make it yours with `chown`"
    assert " ".join(call("status").out.split()) == (
        f"no project {does_not}; {own_it} no profile is in force here "
        "next backendcfg list backendcfg apply reproducible"
    )
    for words in (["validate"], ["run", "--", "true"], ["plan", "--toml"], ["apply"]):
        assert f"\n  note: {does_not}\n" in call(*words).err
    assert call("validate").err.endswith(f"\n  help: {own_it}\n")
    applied = " ".join(call("apply", "fast").out.split())
    assert "fast is active for the user" in applied
    assert f" no project {does_not} host " in applied
    call("off")
    assert f"note trust {does_not}" in " ".join(call("doctor").out.split())
    for kept in (["backendcfg.toml"], []):
        refused = call("init")
        assert refused.code == 2
        assert f"a project here would not count: {tmp_path} is another user's\n" in refused.err
        assert os.listdir(tmp_path) == kept
        (tmp_path / "backendcfg.toml").unlink(missing_ok=True)
    (tmp_path / "backendcfg.toml").touch()
    assert json.loads(call("status", "--json").out)["passed_over"] == f"{tmp_path}/backendcfg.toml"


def test_a_folder_of_another_user_s_below_one_s_own_project_is_named(call, tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder to another user")
    (tmp_path / "backendcfg.toml").touch()
    inside = tmp_path / "other" / "inside"
    inside.mkdir(parents=True)
    os.chown(inside.parent, 4321, -1)
    monkeypatch.chdir(inside)
    why = f"{tmp_path}/backendcfg.toml does not count: {inside.parent} is another user's"
    assert f"\n  note: {why}\n" in call("validate").err


def test_another_user_s_file_in_a_group_s_folder_is_named_as_theirs(call, tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root may give a file to another user")
    file = tmp_path / "backendcfg.toml"
    file.write_text('profile = "team"\n')
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "team.toml").write_text("schema = 1\n")
    tmp_path.chmod(0o2775)
    os.chown(file, 4321, -1)
    monkeypatch.chdir(tmp_path)
    assert json.loads(call("status", "--json").out)["passed_over"] == str(file)
    assert (
        "\n  note: backendcfg.toml does not count: it is another user's\n" in call("validate").err
    )
    said = call("plan", "team").err
    assert " is there, and is not searched: backendcfg.toml is another user's\n" in said
    (tmp_path / "pyproject.toml").write_text('[tool.backendcfg]\nprofile = "tf32-off"\n')
    found = json.loads(call("status", "--json").out)
    assert (found["passed_over"], found["profile"]) == ("", "tf32-off")
    (tmp_path / "pyproject.toml").unlink()
    above = tmp_path / "below" / "inside"
    above.mkdir(parents=True)
    (above.parent / "backendcfg.toml").touch()
    monkeypatch.chdir(above)
    assert json.loads(call("status", "--json").out)["passed_over"] == ""


def test_what_the_program_around_a_verb_applied_is_in_force_for_the_verb(backendcfg, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "mine.toml").write_text("threads.dynamic = false\n")
    handed = in_words([Asked("./mine.toml", "profile-by-argument", {}, str(tmp_path / "below"))])
    found = json.loads(backendcfg("status", "--json", BACKENDCFG_INHERIT=handed))
    assert (found["profile"], found["source"]) == ("./mine.toml", "the parent process")
    below = {"BACKENDCFG_INHERIT": handed, "BACKENDCFG_STARTED_BY": "run mine"}
    found = json.loads(backendcfg("verify", "--json", **below))
    assert found["profile"] == "./mine.toml"
    since = {"BACKENDCFG_PROFILE": "debug", "BACKENDCFG_INHERIT": handed}
    assert json.loads(backendcfg("status", "--json", **since))["profile"] == "debug"
    wrong = backendcfg("status", fails=2, BACKENDCFG_INHERIT="nonsense")
    assert "\n  help: run `unset BACKENDCFG_INHERIT`\n" in wrong


def test_who_picks_nothing_has_no_profile_whatever_weaker_ones_pick(call, project, monkeypatch):
    call("apply", "fast", "--user")
    (project / "backendcfg.toml").write_text('profile = "nothing"\n')
    for source, variable in ((project / "backendcfg.toml", ""), ("BACKENDCFG_PROFILE", "nothing")):
        monkeypatch.setenv("BACKENDCFG_PROFILE", variable)
        assert call("status").out.splitlines()[0] == (
            f"no profile is in force here, as {source} picks `nothing`"
        )
        assert json.loads(call("status", "--json").out)["profile"] is None
        assert call("plan", "--json").code == 0
        assert json.loads(call("plan", "--json").out)["name"] == "default"
        assert call("run", "--", "true").code == 2
    assert call("validate", "backendcfg.toml").code == 0
    assert call("apply", "tf32-off").err == "here BACKENDCFG_PROFILE comes first: `nothing`\n"
    monkeypatch.delenv("BACKENDCFG_PROFILE")
    assert json.loads(call("status", "--json").out)["profile"] == "tf32-off"


def test_a_profile_of_a_project_that_does_not_count_and_a_file_that_is_here_are_named(
    call, tmp_path, monkeypatch, give_away
):
    other = tmp_path / "other"
    (other / "profiles").mkdir(parents=True)
    (other / "backendcfg.toml").write_text('profile = "team"\n')
    for file in (other / "profiles" / "team.toml", other / "captured.toml"):
        file.write_text("threads.count = 1\n")
    monkeypatch.chdir(other)
    found = call("plan", "captured").err
    assert "\n  help: write `./captured.toml` for the file that is here\n" in found
    (other / "below").mkdir()
    (other / "below" / "backendcfg.toml").write_text("")
    monkeypatch.chdir(other / "below")
    found = call("plan", "team").err
    assert f"/team.toml is there, and is not searched: the project here is {Path.cwd()}\n" in found
    assert "\n  help: give the file's path\n" in found
    monkeypatch.chdir(other)
    give_away(other)
    found = call("plan", "team").err
    assert (
        f"\n  note: profiles/team.toml is there, and is not searched: {other} is another user's\n"
        in found
    )
    assert "\n  help: run as that user, or give the file's path\n" in found


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0o666, "it is not a plain file that you own and nobody else may write"),
        (-1, "permission denied"),
    ],
)
def test_what_is_active_and_does_not_count_is_named(call, monkeypatch, mode, why):
    call("apply", "fast")
    file = Path(os.environ["BACKENDCFG_STATE_DIR"], "v2", "active")
    if mode >= 0:
        file.chmod(mode)
    else:
        real = os.lstat

        def lstat(path, **more):
            if os.fspath(path) == str(file):
                raise PermissionError
            return real(path, **more)

        monkeypatch.setattr(os, "lstat", lstat)
    said = call("status")
    assert said.code == 0
    assert f"ignored {file}: {why} " in " ".join(said.out.split())
    said = call("doctor")
    assert said.code == 1
    assert f"wrong active {file} is ignored: {why} if it is yours, run" in " ".join(
        said.out.split()
    )


@pytest.mark.parametrize("text", ["tf32", '"tf32"', "'tf32'"])
def test_a_word_is_set_bare_or_as_toml(text, call, host):
    result = call(
        "explain",
        "cuda.matmul.fp32_precision",
        "--profile",
        "tf32-off",
        "--set",
        f"cuda.matmul.fp32_precision={text}",
        "--host",
        host,
    )
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0] == (
        'cuda.matmul.fp32_precision = "tf32"  from --set cuda.matmul.fp32_precision'
    )
    assert "--set FLAG=VALUE" in call("plan", "--help").out


def test_profiles_that_are_joined_are_described_by_their_order(call, project, host):
    result = call("plan", "base+mine", "--host", host)
    assert result.out.startswith("profile   base+mine: `mine` over `base`\n")
    assert 'description = "`mine` over `base`"\n' in call("plan", "base+mine", "--toml").out


def test_why_not_does_not_call_a_library_used_that_cannot_be(call, project, host):
    result = call(
        "plan", "mine", "--why-not", "--set", 'blas.library={require="blis"}', "--host", host
    )
    assert result.code == 1
    assert "blas.library: blis is required and cannot be used\n" in result.out
    assert "     not openblas: blis is required by arguments\n" in result.out
    assert call("plan", "mine", "--why-not", "--host", host).out.count(" is used\n") == 1


def test_a_project_s_pick_beats_what_is_applied_outside_it(call, project):
    (project / "backendcfg.toml").write_text('profile = "base"\n')
    call("apply", "fast", "--user")
    status = json.loads(call("status", "--json").out)
    assert (status["profile"], status["instead"]) == (
        "base",
        [{"profile": "fast", "source": "generation 1 of the user"}],
    )
    call("apply", "mine")
    status = json.loads(call("status", "--json").out)
    assert (status["profile"], [one["profile"] for one in status["instead"]]) == (
        "mine",
        ["base", "fast"],
    )
    assert call("off").out.startswith(
        f"generation 1 is no longer active; base is in force here, by {project}/backendcfg.toml\n"
    )


def test_a_system_s_file_that_may_not_be_read_is_told_by_every_verb_and_start(
    call, tmp_path, monkeypatch
):
    """In a folder of root's that is closed nobody can see whether it is there."""
    folder = tmp_path / "closed"
    monkeypatch.setenv("BACKENDCFG_SYSTEM_DIR", str(folder))
    opened = os.open

    def refuse(path, *given, **options):
        if str(path).startswith(str(folder)):
            raise PermissionError(13, "Permission denied")
        return opened(path, *given, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert startup.may_have_profile(committed=False) == (True, "")
    said = f"cannot read {folder}/config.toml: permission denied"
    assert call("status").err == (
        f"error[unreadable-file]: {said}\n  state: nothing was changed\n"
        f"  help: root can open it: `chmod a+rX {folder} {folder}/config.toml`\n"
    )
    assert call("plan", "fast").err.startswith(f"error[unreadable-file]: {said}\n")
    for words in (["doctor"], ["autoload", "status"]):
        assert said in " ".join(call(*words).out.split())


def test_root_writes_nothing_below_the_home_of_who_ran_sudo(call, tmp_path, monkeypatch):
    """`sudo -E` leaves HOME as it was."""
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder to another user")
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / "project" / "backendcfg.toml").touch()
    os.chown(home, 4321, -1)
    monkeypatch.setenv("HOME", str(home))
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.delenv(f"BACKENDCFG_{name}_DIR")
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home / "project")
    monkeypatch.setenv("SUDO_UID", "4321")
    for words, folder, variable in (
        (["apply", "fast", "--user"], ".local/state/backendcfg/v2", "STATE"),
        (["trust"], ".config/backendcfg", "CONFIG"),
        (["autoload", "off", "--user"], ".local/state/backendcfg/v2", "STATE"),
    ):
        refused = call(*words)
        assert refused.code == 3
        assert refused.err == (
            f"error[state-unwritable]: cannot write {home}/{folder}: this is root, and HOME is "
            "that of who ran sudo\n  state: nothing was changed\n  help: run it without sudo\n"
            f"  help: or for root itself, with `sudo -H` or BACKENDCFG_{variable}_DIR\n"
        )
    assert os.listdir(home) == ["project"]
    monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(home / "meant"))
    assert call("apply", "fast", "--user").code == 0
    # Root of a container, whose HOME is a mount.
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.delenv("BACKENDCFG_STATE_DIR")
    assert call("apply", "fast", "--user").code == 0
