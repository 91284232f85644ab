"""Resolving is pure: it imports little, touches nothing, and gives the same plan every time."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from resolve_builders import H100, a_host, a_profile

import backendcfg.resolve
from backendcfg.resolve.plan import host_digest, resolve

STAGE = Path(next(iter(backendcfg.resolve.__path__)))
MODULES = sorted(STAGE.glob("*.py"))

# Pure parts of the standard library, and what stands to the left of this stage.
ALLOWED = {
    *("__future__", "difflib", "hashlib", "json", "re", "typing"),
    *("collections.abc", "packaging.specifiers", "packaging.version"),
    *("backendcfg.errors", "backendcfg.records", "backendcfg.catalogue.variables"),
}

WATCHED = r"""
import sys
sys.path.insert(0, {tests!r})
from resolve_builders import H100, MKL, NUMPY_OPENBLAS, a_host, a_profile
from backendcfg.errors import BackendCfgError
from backendcfg.resolve.explain import diff, explain_flag, why_not
from backendcfg.resolve.plan import resolve
from backendcfg.resolve.recommend import recommend

host = a_host(
    gpus=(H100,),
    packages=[("torch", "2.13.0")],
    libraries=(NUMPY_OPENBLAS, MKL),
    environment={{"OMP_NUM_THREADS": "8"}},
)
good = a_profile({{"threads.count": 2, "blas.library": {{"prefer": ["mkl"]}}}})
bad = [
    a_profile({{"determinism.tier": "cross-machine"}}),
    a_profile({{"cudnn.conv.fp32_precision": "ieee"}}),
    a_profile({{"blas.library": {{"require": "blis"}}}}),
]
touched = []
def watch(event, arguments):
    if event.split(".")[0] in ("open", "os", "ctypes", "subprocess", "socket", "import", "shutil"):
        touched.append(event)
sys.addaudithook(watch)
plan = resolve(good, host)
assert plan == resolve(good, host)
for stack in bad:
    try:
        resolve(stack, host)
    except BackendCfgError:
        pass
    else:
        raise AssertionError("it resolved")
    why_not(stack, host)
explain_flag(plan, "blas.library")
diff(plan, plan)
recommend([good, *bad], host)
print(touched)
"""


def imported(path):
    """Every module that a file imports, type checking included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_there_are_modules():
    assert len(MODULES) >= 10


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_imports_only_what_cannot_touch_anything(path):
    strange = {
        name
        for name in imported(path)
        if name not in ALLOWED
        and not name.startswith(("backendcfg.schema", "backendcfg.resolve", "backendcfg.catalogue"))
    }
    assert strange == set()


def test_resolving_touches_nothing_outside():
    script = WATCHED.format(tests=str(Path(__file__).parent))
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BACKENDCFG_DISABLE": "1", "PYTHONPATH": str(STAGE.parent.parent)},
    )
    assert (answer.stdout, answer.stderr) == ("[]\n", "")


def test_the_same_request_gives_the_same_plan():
    stack, host = a_profile({"threads.count": 2}), a_host(gpus=(H100,))
    copy = type(host).model_validate_json(host.model_dump_json(by_alias=True))
    assert resolve(stack, host).model_dump_json() == resolve(stack, copy).model_dump_json()


def test_a_plan_survives_json():
    plan = resolve(a_profile({"cuda.sdp_priority": ["math"]}), a_host(gpus=(H100,)))
    assert type(plan).model_validate_json(plan.model_dump_json(by_alias=True)) == plan


def test_the_digest_ignores_what_changes_while_the_host_stays():
    host = a_host()
    library = host.libraries[0].model_copy(update={"loaded": False, "threads": 9})
    moved = host.model_copy(
        update={
            "memory": host.memory.model_copy(update={"total": 1}),
            "system": host.system.model_copy(update={"name": "other"}),
            "libraries": (library,),
        }
    )
    assert host_digest(moved) == host_digest(host)


def test_the_digest_changes_with_the_hardware():
    assert host_digest(a_host(gpus=(H100,))) != host_digest(a_host())
    assert host_digest(a_host(packages=[("torch", "2.13.0")])) != host_digest(a_host())
