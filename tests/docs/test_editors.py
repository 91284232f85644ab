"""What docs/editors.md tells to write is taken: by our own command, by taplo, and as JSON."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "editors.md"
TAPLO = shutil.which("taplo")

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
needs_taplo = pytest.mark.skipif(TAPLO is None, reason="taplo is not installed")


def block(language, beginning):
    """The only block of the page in a language that begins so."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (text for text in blocks if text.startswith(beginning))
    return found


@pytest.fixture(name="project")
def _project(tmp_path):
    """A project that was begun before there were schemas, with the page's profile."""
    (tmp_path / "backendcfg.toml").write_text('profile = "team"\n')
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "team.toml").write_text(block("toml", "#:schema"))
    done = run("bash", "-ec", block("sh", "mkdir"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path


def run(*words, cwd):
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


def lint(project):
    return run("bash", "-ec", block("sh", "taplo"), cwd=project)


def replace(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_the_commands_write_the_schemas(project):
    for name in ("profile", "settings"):
        schema = json.loads((project / ".backendcfg" / f"{name}.json").read_text())
        assert schema["$id"] == f"urn:backendcfg:schema:1:{name}"
    assert "`urn:backendcfg:schema:1:profile`" in PAGE.read_text()


def test_the_page_names_the_lines_that_init_writes(tmp_path):
    assert run("backendcfg", "init", cwd=tmp_path).returncode == 0
    for name in ("backendcfg.toml", "profiles/team.toml"):
        line, _, _ = (tmp_path / name).read_text().partition("\n")
        assert f"`{line}`" in PAGE.read_text()
        assert ((tmp_path / name).parent / line.removeprefix("#:schema ")).is_file()


def test_the_associations_of_vs_code_are_of_these_files(project):
    pairs = json.loads(block("json", "{"))["evenBetterToml.schema.associations"]
    files = {file: schema for pattern, schema in pairs.items() for file in project.rglob("*.toml")
             if re.fullmatch(pattern, file.as_posix())}  # fmt: skip
    assert {file.name: (project / schema).name for file, schema in files.items()} == {
        "backendcfg.toml": "settings.json",
        "team.toml": "profile.json",
    }


@needs_taplo
@pytest.mark.parametrize("by", ["lines", "rules"])
def test_taplo_takes_the_files_and_finds_a_fault(project, by):
    settings, profile = project / "backendcfg.toml", project / "profiles" / "team.toml"
    if by == "lines":
        settings.write_text("#:schema .backendcfg/settings.json\n" + settings.read_text())
    else:
        replace(profile, "#:schema ../.backendcfg/profile.json\n", "")
        (project / ".taplo.toml").write_text(block("toml", "[[rule]]"))
    done = lint(project)
    assert (done.returncode, "error" in done.stderr) == (0, False)

    replace(profile, "threads.count = 4", 'threads.count = "8"')
    done = lint(project)
    assert done.returncode == 1
    assert 'error: "8" is not valid under any of the schemas' in done.stderr
    replace(profile, 'threads.count = "8"', "threads.count = 4")

    settings.write_text(settings.read_text() + "treads.count = 4\n")
    done = lint(project)
    assert done.returncode == 1
    assert "'treads' was unexpected" in done.stderr


@needs_taplo
def test_taplo_takes_every_shipped_profile():
    profiles = sorted(map(str, (TREE / "profiles").glob("*.toml")))
    done = run(TAPLO, "lint", *profiles, cwd=TREE)
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
