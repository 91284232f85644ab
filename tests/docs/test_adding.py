"""Adding a thing is one place: each guide, followed in a copy of the tree, adds what it says.

The guides are the input: what a test writes into its copy, it reads there. See guides.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import guides
import pytest

pytestmark = pytest.mark.skipif(
    not (guides.TREE / "backendcfg" / "__init__.py").exists(), reason="needs the source tree"
)


def followed(tmp_path, guide, number=0):
    """A copy of the tree in which an example of a guide was followed."""
    example = list(guides.examples(guide))[number]
    copy = guides.Copy(tmp_path / "copy")
    copy.follow(example)
    assert copy.touched() == example.files
    return copy


def test_adding_a_verb(tmp_path):
    copy = followed(tmp_path, "adding-a-verb.md")
    overview = " ".join(copy.backendcfg("--help").split())
    assert " files Print the files that a profile is written in" in overview
    fast = str(copy.root / "profiles" / "fast.toml")
    assert copy.backendcfg("files", "fast").splitlines()[-1] == fast
    assert json.loads(copy.backendcfg("files", "fast", "--json"))["files"][-1] == fast
    assert "### backendcfg files" in copy.read("docs/commands.md")


def planned(copy, setting):
    """The entry of a flag in the plan of a captured host, under a profile that sets it."""
    flag, _, value = setting.partition("=")
    folder = Path(os.environ["BACKENDCFG_CONFIG_DIR"]) / "profiles"
    folder.mkdir(parents=True)
    text = f'schema = 1\ndescription = "It sets one flag."\n{flag} = {value}\n'
    (folder / "mine.toml").write_text(text)
    listed = {each["name"]: each for each in json.loads(copy.backendcfg("list", "--json"))}
    assert (listed["mine"]["description"], listed["mine"]["problem"]) == ("It sets one flag.", "")
    plan = json.loads(copy.backendcfg("plan", "mine", "--host", str(guides.HOST), "--json"))
    (entry,) = (entry for entry in plan["entries"] if entry["flag"] == flag)
    assert entry["value"] == json.loads(value)
    return entry


def assert_flag_is_known(copy, flag, summary):
    """A flag is in what is generated, and in what explains."""
    *tables, name = flag.split(".")
    for document in ("profile", "settings"):
        schema = json.loads(copy.read(f"schemas/{document}.json"))
        node = schema
        for table in tables:
            node = schema["$defs"][node["properties"][table]["$ref"].rpartition("/")[2]]
        assert node["properties"][name]["description"] == summary
    assert f"| `{flag}` |" in copy.read("docs/profiles.md")
    assert f'"{flag}": ' in copy.read("backendcfg/defaults.py")
    words = ("explain", flag, "--host", str(guides.HOST), "--json")
    assert json.loads(copy.backendcfg(*words))["summary"] == summary


@pytest.mark.slow
def test_adding_a_flag_that_c_reads(tmp_path):
    copy = followed(tmp_path, "adding-a-flag.md")
    summary = "Leave `out` as it was when a product fails: compute it elsewhere, then copy it."
    assert_flag_is_known(copy, "ops.protect_out", summary)
    assert planned(copy, "ops.protect_out=true")["dormant"] == ""
    listed = copy.read("native/include/backendcfg_flags.inc").splitlines()
    assert 'FLAG("ops.protect_out", OPS_PROTECT_OUT, BOOL, "")' in listed


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_c_of_a_flag_compiles(tmp_path):
    copy = followed(tmp_path, "adding-a-flag.md")
    folders = [f"-I{copy.root / 'native' / name}" for name in ("include", "src", "src/core")]
    source = copy.root / "native" / "src" / "core" / "product.c"
    subprocess.run(["cc", "-std=c17", "-fsyntax-only", *folders, str(source)], check=True)


@pytest.mark.exhaustive
def test_adding_a_flag_that_is_a_variable(tmp_path):
    copy = followed(tmp_path, "adding-a-flag.md", 1)
    summary = "Let OpenBLAS say which kernels it chose, at 2, and warn, at 1 (OPENBLAS_VERBOSE)."
    assert_flag_is_known(copy, "blas.openblas.verbose", summary)
    assert planned(copy, "blas.openblas.verbose=2")["dormant"] == ""
    said = copy.backendcfg("env", "reproducible", "--set", "blas.openblas.verbose=2")
    assert "OPENBLAS_VERBOSE=2" in said


FAKE = """
void armplversion(int *major, int *minor, int *patch, const char **tag)
{
    *major = *minor = *patch = 0;
    *tag = "";
}
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_adding_a_provider(tmp_path, monkeypatch):
    copy = followed(tmp_path, "adding-a-provider.md")
    version = tmp_path / "version.c"
    version.write_text(FAKE)
    library = tmp_path / "lib" / "libarmpl_lp64.so"
    library.parent.mkdir()
    defines = ["-DINTEGER=int32_t", "-DPREFIX=", "-DSUFFIX="]
    sources = [copy.root / "native" / "fakes" / "fake.c", version]
    subprocess.run(["cc", "-shared", "-fPIC", *defines, "-o", library, *sources], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))

    (found,) = (
        each
        for each in json.loads(copy.backendcfg("detect", "--json"))["libraries"]
        if each["kind"] == "armpl"
    )
    assert (found["provider"], found["path"]) == ("armpl", str(library))

    asked = 'blas.library={require = "armpl"}'
    plan = json.loads(copy.backendcfg("plan", "--set", asked, "--json"))
    (choice,) = (choice for choice in plan["choices"] if choice["flag"] == "blas.library")
    assert choice["chosen"] == "armpl"
    assert "armpl" in copy.backendcfg("explain", "blas.library", "--set", asked)
    assert '"armpl"' in copy.read("schemas/profile.json")
    assert '"armpl"' in copy.read("docs/profiles.md")

    program = """
import backendcfg, numpy
from backendcfg import ops

backendcfg.apply(settings={"blas.library": {"require": "armpl"}})
a = numpy.full((32, 32), 2.0)
assert (ops.matmul(a, a) == 128).all()
print(ops.explain("matmul", (a.shape, a.shape)))
"""
    said = " ".join(copy.python("-c", program).split())
    assert f"armpl serves: {library}" in said


@pytest.mark.exhaustive
def test_adding_a_framework(tmp_path, monkeypatch):
    copy = followed(tmp_path, "adding-a-framework.md")
    installed = tmp_path / "installed"
    (installed / "pyfftw").mkdir(parents=True)
    (installed / "pyfftw" / "__init__.py").write_text("from pyfftw import config\n")
    (installed / "pyfftw" / "config.py").write_text("PLANNER_EFFORT = 'FFTW_ESTIMATE'\n")
    (installed / "pyfftw-0.15.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: pyFFTW\nVersion: 0.15.0\n"
    (installed / "pyfftw-0.15.0.dist-info" / "METADATA").write_text(metadata)

    summary = "How long a plan is looked for, where a call does not say."
    assert_flag_is_known(copy, "pyfftw.planner_effort", summary)
    assert planned(copy, 'pyfftw.planner_effort="measure"')["dormant"] == "pyFFTW is not here"
    monkeypatch.syspath_prepend(str(installed))
    host = json.loads(copy.backendcfg("detect", "--json"))
    assert host["packages"]["pyfftw"] == "0.15.0"
    asked = 'pyfftw.planner_effort="measure"'
    plan = json.loads(copy.backendcfg("plan", "--set", asked, "--json"))
    (entry,) = (each for each in plan["entries"] if each["flag"] == "pyfftw.planner_effort")
    assert (entry["value"], entry["dormant"]) == ("measure", "")

    program = """
import backendcfg

backendcfg.apply(settings={"pyfftw.planner_effort": "measure"})
import pyfftw

assert pyfftw.config.PLANNER_EFFORT == "FFTW_MEASURE"
backendcfg.undo()
assert pyfftw.config.PLANNER_EFFORT == "FFTW_ESTIMATE"
"""
    copy.python("-c", program)


def test_adding_an_operation(tmp_path):
    copy = followed(tmp_path, "adding-an-operation.md")
    program = """
import numpy
from backendcfg import ops

a, b = numpy.arange(3.0), numpy.arange(5.0)
assert (ops.outer(a, b) == numpy.outer(a, b)).all()
try:
    ops.outer(a, numpy.eye(2))
except ValueError as error:
    print(error)
with ops.trace() as calls:
    ops.outer(a, b)
print(len(calls))
print(ops.explain("outer", (a.shape, b.shape)))
"""
    refusal, count, explained, *_ = copy.python("-c", program).splitlines()
    assert refusal == "outer: `vec2` must be an array of one dimension"
    assert (count, explained) == ("1", "dgemm of (3, 1) and (1, 5) under no profile")


@pytest.mark.parametrize("guide", [page.name for page in guides.TREE.glob("docs/adding-*.md")])
def test_every_file_that_a_guide_names_is_there(guide):
    text = (guides.TREE / "docs" / guide).read_text()
    made = {
        head[1]
        for block in guides.blocks(text)
        if (head := guides.HEAD.match(block.lines[0])) and head[2] == "a new file"
    }
    named = re.findall(r"`((?:backendcfg|native|tests|docs|schemas|profiles)/[\w./-]+)`", text)
    assert named
    assert [
        name
        for name in named
        if name not in made and "pyfftw" not in name and not (guides.TREE / name).exists()
    ] == []
