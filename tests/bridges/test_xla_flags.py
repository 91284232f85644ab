"""XLA_FLAGS: words put together, and a text tried out before it can end anybody's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from backendcfg.bridges import environment, xla_flags
from backendcfg.catalogue import xla_text
from backendcfg.errors import InvalidValueError

real = pytest.mark.skipif(find_spec("jaxlib") is None, reason="JAX is not installed")
DETERMINISTIC = {"jax.deterministic_ops": True, "jax.autotune_level": 0}
WORDS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def own(text):
    """A plan whose `[environment]` table sets XLA_FLAGS."""
    return {"environment": {"XLA_FLAGS": text}}


@pytest.fixture(name="alone", autouse=True)
def _alone(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(xla_flags, "_answers", {})


@pytest.fixture(name="unasked")
def _unasked(monkeypatch):
    """Take every text, also made-up ones: as where JAX is not installed."""
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "")


@pytest.mark.parametrize(
    ("present", "values", "text"),
    [
        ("", DETERMINISTIC, WORDS),
        ("", own("--xla_cpu_max_isa=AVX2"), "--xla_cpu_max_isa=AVX2"),
        ("--xla_dump_to=/x", DETERMINISTIC, f"--xla_dump_to=/x {WORDS}"),
        (
            "--xla_a=1 --xla_gpu_autotune_level=4 --xla_b",
            DETERMINISTIC,
            f"--xla_a=1 --xla_b {WORDS}",
        ),
        ("--xla_a=1 --xla_a=2", {"jax.autotune_level": 3}, "--xla_a=2 --xla_gpu_autotune_level=3"),
        (
            "--xla_dump_to='a b' --xla_c=\"d e\"",
            {"jax.deterministic_ops": False},
            "--xla_dump_to='a b' --xla_c=\"d e\" --xla_gpu_deterministic_ops=false",
        ),
        (
            "",
            {**DETERMINISTIC, **own("--xla_gpu_autotune_level=2 --xla_cpu_max_isa=AVX2")},
            "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=2 --xla_cpu_max_isa=AVX2",
        ),
    ],
)
@pytest.mark.usefixtures("unasked")
def test_the_words_of_a_plan_join_those_of_the_user_and_win(monkeypatch, present, values, text):
    monkeypatch.setenv("XLA_FLAGS", present)
    assert xla_flags.text_for(values, values) == text
    assert environment.variables(values, values)["XLA_FLAGS"] == text


@pytest.mark.usefixtures("unasked")
def test_words_in_a_file_are_taken_out_of_it(monkeypatch, tmp_path):
    file = tmp_path / "flags"
    file.write_text("--xla_a=1\n--xla_gpu_autotune_level=4\n")
    monkeypatch.setenv("XLA_FLAGS", str(file))
    assert xla_flags.text_for(DETERMINISTIC, DETERMINISTIC) == f"--xla_a=1 {WORDS}"


def test_words_of_the_user_that_jaxlib_does_not_take_are_left_as_they_are(monkeypatch, tmp_path):
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "jaxlib 1")
    monkeypatch.setattr(xla_flags, "_ask", lambda text: "no" if "bogus" in text else "")
    values = own("--xla_cpu_max_isa=AVX2")
    monkeypatch.setenv("XLA_FLAGS", "--xla_bogus=1")
    assert environment.variables(values, values)["XLA_FLAGS"] == "--xla_bogus=1"
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    joined = environment.variables(values, values)["XLA_FLAGS"]
    assert joined == "--xla_a=1 --xla_cpu_max_isa=AVX2"


def test_a_plan_that_wants_nothing_of_xla_leaves_its_variable_alone(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    values = {**DETERMINISTIC, "environment": {"OTHER": "1"}}
    assert xla_flags.text_for(values, ["environment"]) is None
    assert xla_flags.setting(values, ["environment"], "") == []
    assert "XLA_FLAGS" not in environment.variables(values, ["environment"])


def test_words_of_the_user_that_say_otherwise_are_named():
    values = {**DETERMINISTIC, **own("--xla_cpu_max_isa=AVX2")}
    text = "--xla_gpu_deterministic_ops=0 --xla_gpu_autotune_level=0 --xla_cpu_max_isa=SSE4_2"
    assert environment.contradictions(values, values, {"XLA_FLAGS": text}) == [
        "--xla_gpu_deterministic_ops=0 in XLA_FLAGS contradicts `jax.deterministic_ops = true`",
        (
            "--xla_cpu_max_isa=SSE4_2 in XLA_FLAGS contradicts `--xla_cpu_max_isa=AVX2` in"
            " `environment.XLA_FLAGS`"
        ),
    ]
    assert environment.contradictions(values, (), {"XLA_FLAGS": text}) == []


@pytest.mark.parametrize("text", ["--xla_gpu_deterministic_ops", "--xla_gpu_deterministic_ops=1"])
def test_the_spellings_of_true_are_one(text):
    values = {"jax.deterministic_ops": True}
    assert environment.contradictions(values, values, {"XLA_FLAGS": text}) == []
    assert xla_text.holds(text, xla_text.wanted(values, values))


def test_the_variable_is_written_and_put_back_with_the_users_own_words(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    (setting,) = xla_flags.setting(DETERMINISTIC, DETERMINISTIC, "run it")
    before = setting.switch.read()
    setting.switch.write(setting.wanted)
    during = os.environ["XLA_FLAGS"]
    assert setting.switch.read() == setting.wanted
    # More words, in another order: all that is wanted is still there.
    os.environ["XLA_FLAGS"] = f"--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops {during}"
    assert setting.switch.read() == setting.wanted
    setting.switch.write(before)
    assert (before, os.environ["XLA_FLAGS"]) == ("--xla_a=1", "--xla_a=1")
    assert (setting.flag, setting.remedy) == ("jax.deterministic_ops", "run it")


def test_a_second_profile_builds_on_the_users_words_and_not_on_the_firsts(program):
    code = """
import json, os, backendcfg
seen = []
for level in ("--xla_cpu_max_isa=AVX2 --xla_b=1", "--xla_cpu_max_isa=AVX"):
    backendcfg.apply(settings={"environment": {"XLA_FLAGS": level}})
    seen.append(os.environ["XLA_FLAGS"])
backendcfg.undo(); seen.append(os.environ["XLA_FLAGS"])
backendcfg.undo(); seen.append(os.environ["XLA_FLAGS"])
print(json.dumps(seen))
""".replace(" --xla_b=1", " --xla_cpu_enable_fast_math=false")
    assert program(code, XLA_FLAGS="--xla_dump_max_hlo_modules=3") == [
        "--xla_dump_max_hlo_modules=3 --xla_cpu_max_isa=AVX2 --xla_cpu_enable_fast_math=false",
        "--xla_dump_max_hlo_modules=3 --xla_cpu_max_isa=AVX",
        "--xla_dump_max_hlo_modules=3 --xla_cpu_max_isa=AVX2 --xla_cpu_enable_fast_math=false",
        "--xla_dump_max_hlo_modules=3",
    ]


def test_without_jaxlib_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "")
    monkeypatch.setattr(xla_flags, "_ask", lambda text: pytest.fail("asked"))
    assert xla_flags.refusal("--xla_bogus") == ""


def test_an_answer_is_kept_by_text_and_by_jaxlib(monkeypatch, tmp_path):
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path))
    asked = []

    def ask(text):
        asked.append(text)
        return "no" if "bogus" in text else ""

    monkeypatch.setattr(xla_flags, "_ask", ask)
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "jaxlib 1")
    assert [xla_flags.refusal(text) for text in ("--xla_bogus", "--xla_a", "--xla_bogus")] == [
        "no",
        "",
        "no",
    ]
    monkeypatch.setattr(xla_flags, "_answers", {})
    assert xla_flags.refusal("--xla_bogus") == "no"
    assert asked == ["--xla_bogus", "--xla_a"]
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "jaxlib 2")
    assert xla_flags.refusal("--xla_bogus") == "no"
    assert asked == ["--xla_bogus", "--xla_a", "--xla_bogus"]


def test_a_child_that_does_not_get_that_far_gives_no_answer_that_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "jaxlib 1")
    monkeypatch.setattr(xla_flags, "_CHILD", "raise ImportError('libstdc++ is too old')")
    assert xla_flags.refusal("--xla_a") == ""
    monkeypatch.setattr(xla_flags, "_CHILD", "print('asked', flush=True); raise SystemExit(1)")
    assert xla_flags.refusal("--xla_b") == "it ended the process that started with it"
    assert json.loads((tmp_path / "xla_flags.json").read_text()) == {
        "jaxlib 1 --xla_b": "it ended the process that started with it"
    }


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 3}'])
def test_a_damaged_file_of_answers_is_as_good_as_none(monkeypatch, tmp_path, content):
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path))
    (tmp_path / "xla_flags.json").write_text(content)
    monkeypatch.setattr(xla_flags, "_ask", lambda text: "no")
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "jaxlib 1")
    assert xla_flags.refusal("--xla_bogus") == "no"
    kept = json.loads((tmp_path / "xla_flags.json").read_text())
    assert kept["jaxlib 1 --xla_bogus"] == "no"


def test_the_newest_answers_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(xla_flags, "_ask", lambda text: "")
    monkeypatch.setattr(xla_flags, "_jaxlib", lambda: "j")
    for number in range(xla_flags.KEPT + 3):
        xla_flags.refusal(f"--xla_{number}")
    kept = list(json.loads((tmp_path / "xla_flags.json").read_text()))
    assert (len(kept), kept[-1]) == (xla_flags.KEPT, f"j --xla_{xla_flags.KEPT + 2}")


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (
            "W1 a.cc:1] slow\nF1120 14:00:02.45 72 flags.cc:234] Unknown flag: --x\n\ty",
            "Unknown flag: --x",
        ),
        ("2026-11-20 14:37:45.97: F external/flags.cc:233] Unknown flag: --x", "Unknown flag: --x"),
        ("Segmentation fault", "it ended the process that started with it"),
    ],
)
def test_the_complaint_is_found_among_what_jaxlib_prints(errors, said):
    assert xla_flags._said(errors) == said


@real
@pytest.mark.jax
def test_an_unknown_word_ends_a_process_that_starts_jax(child):
    """T27, on bare JAX: why a text is tried out first."""
    done = child("import jax.numpy as n; n.ones(1); print('lives')", XLA_FLAGS="--xla_bogus=1")
    assert done.returncode != 0
    assert "lives" not in done.stdout
    assert "Unknown flag in XLA_FLAGS: --xla_bogus=1" in done.stderr


@real
@pytest.mark.jax
@pytest.mark.parametrize(
    ("text", "because"),
    [
        (WORDS, ""),
        ("--xla_cpu_max_isa=AVX2", ""),
        ("--xla_bogus=1", "Unknown flag in XLA_FLAGS: --xla_bogus=1"),
        ("--xla_bogus=1 --xla_other", "Unknown flags in XLA_FLAGS: --xla_bogus=1 --xla_other"),
        (
            "--xla_gpu_autotune_level=much",
            "Couldn't interpret value much for flag xla_gpu_autotune_level.",
        ),
        (
            "xla_bogus=1",
            (
                'Could not open file "xla_bogus=1" to read flags for environment variable'
                ' "XLA_FLAGS". (We assumed "xla_bogus=1" was a file name because it did not start'
                ' with a "--".)'
            ),
        ),
    ],
)
def test_jaxlib_is_asked_in_a_child(text, because):
    assert xla_flags.refusal(text) == because


@real
@pytest.mark.jax
def test_a_plan_with_a_word_that_jaxlib_does_not_take_is_refused(monkeypatch):
    values = own("--xla_cpu_max_isa=AVX2 --xla_bogus=1")
    with pytest.raises(InvalidValueError) as caught:
        xla_flags.check(values, values)
    assert caught.value.render() == (
        "error[invalid-value]: the installed jaxlib does not take what the plan puts into XLA_FLAGS\n"
        "  note: XLA says: Unknown flag in XLA_FLAGS: --xla_bogus=1\n"
        "  note: the plan wants `--xla_cpu_max_isa=AVX2` in `environment.XLA_FLAGS`,"
        " `--xla_bogus=1` in `environment.XLA_FLAGS`\n"
        "  state: nothing was changed; with it JAX would have ended the process\n"
        "  help: correct the word, or remove it from the profile"
    )
    # A word of the user's is no fault of the plan's.
    monkeypatch.setenv("XLA_FLAGS", "--xla_bogus=1")
    xla_flags.check(own("--xla_cpu_max_isa=AVX2"), ["environment"])


@real
@pytest.mark.jax
def test_a_text_that_jaxlib_does_not_take_is_never_written(program):
    code = """
import json, os, backendcfg
report = backendcfg.apply(settings={"environment": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}})
states = [(o.switch, o.state, o.because) for o in report.outcomes]
try:
    backendcfg.apply(settings={"environment": {"XLA_FLAGS": "--xla_bogus=1"}})
except backendcfg.errors.InvalidValueError as error: refused = error.notes[0]
print(json.dumps([states, os.environ["XLA_FLAGS"], refused]))
"""
    states, text, refused = program(code, XLA_FLAGS="--xla_users_own=1")
    because = "jaxlib does not take it: Unknown flag in XLA_FLAGS: --xla_users_own=1"
    assert states == [["XLA_FLAGS", "unsupported", because]]
    assert text == "--xla_users_own=1"
    assert refused == "XLA says: Unknown flag in XLA_FLAGS: --xla_bogus=1"


@real
@pytest.mark.jax
@pytest.mark.parametrize(("word", "code"), [("--xla_cpu_max_isa=AVX2", 0), ("--xla_bogus=1", 2)])
def test_run_starts_a_command_only_with_words_that_jaxlib_takes(tmp_path, word, code):
    profiles = Path(os.environ["BACKENDCFG_CONFIG_DIR"], "profiles")
    profiles.mkdir(parents=True)
    text = f"schema = 1\n[environment]\nXLA_FLAGS = '{word}'\n"
    (profiles / "mine.toml").write_text(text)
    show = "import os; print(os.environ['XLA_FLAGS'])"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "backendcfg",
            "run",
            "mine",
            "--",
            sys.executable,
            "-c",
            show,
        ],
        cwd=tmp_path,
        env={**os.environ, "XLA_FLAGS": "--xla_dump_max_hlo_modules=3"},
        capture_output=True,
        text=True,
        check=False,
    )
    started = f"--xla_dump_max_hlo_modules=3 {word}\n"
    assert (done.returncode, done.stdout) == (code, started if code == 0 else ""), done.stderr
    assert ("the installed jaxlib does not take what the plan puts" in done.stderr) == (code != 0)


@real
@pytest.mark.jax
def test_the_text_is_in_time_until_jax_starts_its_backends(program):
    code = """
import json, jax, jax.numpy as jnp, backendcfg
wish = {"environment": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}}
def state(): return [(o.state, o.because, o.remedy) for o in backendcfg.apply(settings=wish).outcomes]
first = state(); backendcfg.undo()
jnp.ones(1).block_until_ready()
late = state()
readings = [(r.state, r.because) for r in backendcfg.verify().readings if r.switch == "XLA_FLAGS"]
print(json.dumps([first, late, readings]))
"""
    setting = 'environment={ XLA_FLAGS = "--xla_cpu_max_isa=AVX2" }'
    remedy = f"backendcfg run --set '{setting}' -- python ..."
    assert program(code) == [
        [["set", "", ""]],
        [["pending", "JAX has started its backends", remedy]],
        [["pending", f"JAX has started its backends; run `{remedy}`"]],
    ]


@real
@pytest.mark.jax
def test_xla_obeys_the_text(answer, tmp_path):
    """Read back in what XLA says that it compiled with."""
    values = {**DETERMINISTIC, **own(f"--xla_cpu_max_isa=AVX2 --xla_dump_to={tmp_path}")}
    code = f"""
import json, glob, jax, jax.numpy as jnp
jax.jit(lambda x: x * 2 + 1)(jnp.ones(16)).block_until_ready()
words = open(glob.glob("{tmp_path}/*jit__lambda*.debug_options")[0]).read().splitlines()
names = ("xla_cpu_max_isa", "xla_gpu_deterministic_ops", "xla_gpu_autotune_level")
print(json.dumps([word for word in words if word.startswith(names)]))
"""
    assert sorted(answer(code, **environment.variables(values, values))) == [
        'xla_cpu_max_isa: "AVX2"',
        "xla_gpu_autotune_level: 0",
        "xla_gpu_deterministic_ops: true",
    ]


def test_a_process_without_jax_is_never_too_late(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    assert xla_flags.started() == ""
    begun = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", begun)
    assert xla_flags.started() == "JAX has started its backends"
