"""TorchInductor's folder of compiled code, for each way of compiling."""

from __future__ import annotations

import os

import pytest

from backendcfg.bridges.torch import compiled

VALUES = {
    "threads.count": 1,
    "determinism.algorithms": "any",
    "log.level": "error",
    "seed.value": 0,
}


@pytest.fixture(name="run")
def run_fixture(lines, tmp_path, monkeypatch):
    """Run a program with a temporary folder of its own, and give the lines that it printed."""
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return lines


def digest(**changed):
    found = compiled.folder({**VALUES, **changed}, VALUES)
    return os.path.basename(found[0]), found[1]


def test_what_changes_code_decides_the_folder_and_nothing_else(monkeypatch):
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    base = digest()
    assert (base[0].startswith("backendcfg-"), base[1]) == (True, "determinism.algorithms")
    assert [base] * 2 == [digest(**{"log.level": "info"}), digest(**{"seed.value": 3})]
    other = {digest(**{"threads.count": 2}), digest(**{"determinism.algorithms": "deterministic"})}
    assert 3 == len({base, *other})
    assert compiled.folder(VALUES, ["log.level", "seed.value"]) is None


def test_a_folder_of_the_user_s_own_is_left_alone(monkeypatch):
    monkeypatch.setenv(compiled.VARIABLE, "/mine")
    assert compiled.folder(VALUES, VALUES) is None
    # What a parent under another profile left for its children is no wish of the user's.
    monkeypatch.setenv(compiled.VARIABLE, "/tmp/torchinductor_me/backendcfg-0123456789ab")
    assert digest()[1] == "determinism.algorithms"


@pytest.mark.torch
def test_pytorch_looks_for_code_in_the_folder_of_the_profile_from_its_first_compilation_on(run):
    program = """
    import json, os, backendcfg
    backendcfg.apply(settings={"threads.count": 1})
    import torch
    print(json.dumps(os.environ.get("TORCHINDUCTOR_CACHE_DIR")))
    import torch._inductor.config
    from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir
    print(json.dumps([cache_dir(), default_cache_dir()]))
    backendcfg.apply(settings={"threads.count": 2})
    print(json.dumps([cache_dir(), backendcfg.verify().ok]))
    with backendcfg.profile("tf32-off"):
        print(json.dumps(cache_dir()))
    backendcfg.undo(), backendcfg.undo()
    print(json.dumps(os.environ.get("TORCHINDUCTOR_CACHE_DIR")))
    print(json.dumps(cache_dir()))
    backendcfg.apply(settings={"threads.count": 2})
    print(json.dumps(cache_dir()))
    """
    before, (one, default), (two, ok), inside, undone, without, again = run(program)
    assert (None, None, default, True) == (before, undone, without, ok)
    assert [default] * 2 == [os.path.dirname(path) for path in (one, two)]
    assert (inside, again) == (two, two) != (one, one)
    mine = os.path.join(os.path.dirname(default), "mine")
    own = run(program, TORCHINDUCTOR_CACHE_DIR=mine)
    assert [mine] * 3 == [own[0], own[1][0], own[2][0]]
