"""Text that is not ours reaches no terminal as it is: controls and bidi characters are escaped."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from proven_runs import changed, locked

from backendcfg.cli.group import verb_names
from backendcfg.errors import InvalidValueError
from backendcfg.fleet import saving
from backendcfg.fleet.agreement import HOST, SETTINGS

EVIL = "evil \x1b[31mred\x1b[0m\r\x07 \u202etxet \u2066 \x9b2J\nforged row"
AS_TOML = json.dumps(EVIL)
NAME = "bad\x1b[2J\nname"
"""Of a file and of a folder."""

COMPLAINS = ("nothing", "evil", "--", sys.executable, "-c", f"raise SystemExit({EVIL!r})")
"""A command whose own complaint is hostile."""

VERBS: dict[str, list[tuple[str, ...]]] = {
    "apply": [("evil",), (EVIL,)],
    "autoload": [(EVIL,)],
    "capture": [("--", EVIL), (EVIL,)],
    "compare": [("evil", EVIL, "--", "true"), ("evil", "fast", "--", EVIL), COMPLAINS],
    "completion": [(EVIL,)],
    "detect": [(), ("--host", "host.json")],
    "diff": [("evil", "fast"), ("evil", EVIL)],
    "doctor": [()],
    "env": [(EVIL,)],  # what a shell reads is exact; see below
    "explain": [(EVIL,), ("threads.count", "--profile", "evil"), ("python.hash_seed",)],
    "fleet": [
        ("plan", "evil", "host.json"),
        ("plan", EVIL, "host.json"),
        ("plan", "evil", EVIL),
        ("plan", "evil", "host.json", "-o", EVIL),
        ("report", EVIL),
        ("report", "ranks"),
        ("report", "ranks", "-o", EVIL),
    ],
    "history": [()],
    "init": [(EVIL,)],
    "list": [(), ("--all",)],
    "off": [()],
    "plan": [
        ("evil",),
        ("evil", "--host", "host.json"),
        ("evil", "--toml"),
        ("evil", "--why-not"),
        ("wrong",),
        (EVIL,),
        ("fast", "--host", EVIL),
        ("fast", "--set", EVIL),
        ("fast", "--set", f"threads.count={EVIL}"),
    ],
    "prove": [
        (EVIL, "--", "true"),
        ("evil", "--", EVIL),
        ("evil", "--files", EVIL, "--runs", "2", "--", "true"),
        ("evil", "-o", EVIL, "--runs", "2", "--", "true"),
        ("evil", "--against", "wrong.lock", "--", "true"),
        ("evil", "--against", "evil.lock", "--runs", "2", "--", "true"),
        ("evil", "--report", EVIL, "--runs", "2", "--", "true"),
    ],
    "purge": [()],
    "recommend": [(), ("--host", "host.json"), ("--for", EVIL)],
    "report": [(EVIL, "report.html"), ("host.json", EVIL), ("host.json", "host.json")],
    "run": [
        ("evil", "--", EVIL),
        (EVIL, "--", "true"),
        ("--locked", EVIL, "--", "true"),
        ("--fleet", EVIL, "--", "true"),
        ("--fleet", "host.json", "--", "true"),
        ("evil", "--save-ranks", f"host.json/{EVIL}", "--", "true"),
        ("--locked", "evil.lock", "--", "true"),
        ("--locked", "wrong.lock", "--", "true"),
        ("evil", "--locked", "evil.lock", "--", EVIL),
        ("evil", "--locked", "evil.lock", "--drift", "warn", "--guard", "--", "true"),
    ],
    "status": [()],
    "trust": [(), (EVIL,)],
    "tune": [
        (EVIL,),
        ("--operations", EVIL),
        ("evil", "--", EVIL),
        ("evil", "-o", EVIL, "--", EVIL),
        ("evil", "-o", f"{EVIL}/x.toml", "--", "true"),
        ("evil", "--rounds", "1", "--", "true", EVIL),
        ("evil", *COMPLAINS[2:]),
    ],
    "undo": [()],
    "validate": [(), ("profiles/evil.toml",), ("profiles/wrong.toml",), (EVIL,)],
    "verify": [("evil",), (EVIL,)],
}


@pytest.fixture(name="hostile")
def _hostile(project, host, monkeypatch, call):
    """The project, in a folder and with files whose names and contents are hostile."""
    profiles = project / "profiles"
    (profiles / "evil.toml").write_text(
        f"schema = 1\ndescription = {AS_TOML}\n[threads]\ncount = 1\n"
        f"[environment]\nMY_VARIABLE = {AS_TOML}\n"
        "[[when]]\ncpu.vendor = 'amd'\n[when.flags.threads]\ninterop = 3\n"
    )
    (profiles / "wrong.toml").write_text(
        f"schema = 1\ndescription = {AS_TOML}\n[threads]\ncount = {AS_TOML}\n{AS_TOML} = {AS_TOML}\n"
    )
    (profiles / f"{NAME}.toml").write_text(f"schema = 1\ndescription = {AS_TOML}\n")
    document = json.loads(Path(host).read_text())
    document["cpu"]["name"] = document["system"]["distribution"] = EVIL
    document["cpu"]["limits"] = [EVIL]
    document["libraries"][0]["version"] = document["libraries"][0]["path"] = EVIL
    document["packages"]["numpy"] = EVIL
    (project / "host.json").write_text(json.dumps(document))
    _locks(project)
    _ranks(project / "ranks")
    (project / NAME).mkdir()
    moved = project / NAME / "project"
    moved.mkdir()
    for name in ("profiles", "host.json", "backendcfg.toml", "evil.lock", "wrong.lock", "ranks"):
        (project / name).rename(moved / name)
    monkeypatch.chdir(moved)
    assert call("trust").code == 0
    return moved


def _locks(project):
    """A lock with hostile names and values, and a damaged one; what is here is another one."""
    evil = locked()
    for path in ("profile/name", "python/version", "numerics/token", f"machine/drivers/{EVIL}"):
        evil = changed(evil, path, EVIL)
    evil = changed(evil, f"libraries/{EVIL}", evil.libraries["numpy"])
    evil = changed(evil, f"results/files/{EVIL}", EVIL)
    (project / "evil.lock").write_text(evil.to_toml())
    text = evil.to_toml().replace("usable = 8", f"usable = {AS_TOML}\n{AS_TOML} = 1")
    (project / "wrong.lock").write_text(text)


def _ranks(folder):
    """What two ranks with hostile names and values saved, and a damaged file with such a name."""
    folder.mkdir()
    parts = {part: {} for part in (*SETTINGS, *HOST)}
    saving.write(str(folder), saving.Told(0, 3, "node", "fast"), parts)
    parts = {part: {EVIL: EVIL} for part in parts}
    saving.write(str(folder), saving.Told(1, 3, EVIL, EVIL), parts)
    (folder / f"rank-{NAME}.json").touch()


def dangerous(text: str) -> set[str]:
    return {one for one in text if not one.isprintable() and one not in "\n\xa0"}


def test_every_verb_is_tried():
    assert set(VERBS) == set(verb_names())


@pytest.mark.slow
@pytest.mark.sweep(6)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_prints_what_a_terminal_would_obey(verb, hostile, call):
    for words in VERBS[verb]:
        result = call(verb, *words)
        assert "Traceback" not in result.err
        assert not result.err.startswith("error[internal]")
        assert dangerous(result.out) == set(), (words, result.out)
        assert dangerous(result.err) == set(), (words, result.err)
        assert "\nforged" not in result.out + result.err, words


@pytest.mark.sweep(6)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_prints_hostile_variables(verb, hostile, call, monkeypatch):
    for name in ("BACKENDCFG_PROFILE", "BACKENDCFG_THREADS_COUNT", "BACKENDCFG_NO_SUCH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, EVIL)
            result = call(verb, *VERBS[verb][0])
        assert dangerous(result.out + result.err) == set(), (name, result)
        assert "\nforged" not in result.out + result.err, name


def test_json_carries_the_text_as_it_is(hostile, call):
    rows = json.loads(call("--json", "list").out)
    assert {EVIL} == {row["description"] for row in rows if row["name"] == "evil"}


def test_a_shell_reads_a_hostile_value_as_it_is(hostile, call):
    assert shlex.quote(EVIL) in call("env", "evil").out


def test_our_own_colours_are_the_only_ones(hostile, call, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = call("list")
    assert "\x1b[1m" in result.out
    assert "\x1b[31m" not in result.out
    assert r"\x1b[31mred" in result.out


def test_an_error_is_safe_wherever_it_is_printed():
    error = InvalidValueError(EVIL, notes=[EVIL], state=EVIL, helps=[EVIL])
    for text in (str(error), error.render(), *error.__notes__):
        assert dangerous(text) == set()
        assert "\nforged" not in text


STREAMS = [
    ("plan fast >&-", 0, "", ""),
    ("plan nope >&-", 2, "", "error[unknown-profile]"),
    ("plan nope 2>&-", 2, "", ""),
    ("--json plan nope >&-", 2, "", ""),
    ("plan nope 2>/dev/full", 2, "", ""),
    ("plan fast >/dev/full", 3, "", "error[state-unwritable]: cannot write the output"),
    ("plan fast >/dev/full 2>/dev/full", 3, "", ""),
    ("--help >/dev/full", 3, "", "error[state-unwritable]: cannot write the output"),
    ("plan --help >/dev/full", 3, "", "error[state-unwritable]: cannot write the output"),
    ("--version >/dev/full", 3, "", "error[state-unwritable]: cannot write the output"),
    ("--help >&- 2>&-", 0, "", ""),
    ("status <&-", 0, "", ""),
    ("list | :", 141, "", ""),
    ("plan nope 2>&1 >/dev/null | :", 2, "", ""),
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("words", "code", "out", "err"), STREAMS)
def test_closed_and_failing_streams_end_quietly(words, code, out, err, project):
    script = f'"{sys.executable}" -m backendcfg {words}'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"],
        cwd=project,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, err) == (code, done.stderr[: len(err)]), done.stderr
    if not err:
        assert done.stderr == ""
    if "error" in done.stdout or out:
        assert done.stdout == out
