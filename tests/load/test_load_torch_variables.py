"""PyTorch's own variables are wishes of the same rank as BACKENDCFG_<FLAG>, unless we set them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from backendcfg import environ
from backendcfg.catalogue.variables import VARIABLES
from backendcfg.load.assignments import from_initial
from backendcfg.load.stack import Request, load
from backendcfg.probe.environment import relevant
from backendcfg.probe.stamp import holds, stamp
from backendcfg.resolve.explain import explain_flag
from backendcfg.resolve.plan import resolve
from backendcfg.schema.host import Cpu, Gpu, Host, Interpreter, Memory, System
from backendcfg.schema.profile import flags
from backendcfg.schema.torch_backends import INITIALS, initial_settings

NAMES = [each.variable for each in INITIALS]
H100 = Gpu(
    index=0, vendor="nvidia", name="NVIDIA H100", compute_capability="9.0", architecture="sm_90"
)
GRAPHICS = Host(
    system=System(os="linux"),
    python=Interpreter(version="3.11.7"),
    cpu=Cpu(
        vendor="amd",
        name="a CPU",
        architecture="x86_64",
        microarchitecture="zen4",
        logical=2,
        physical=2,
        usable=2,
    ),
    memory=Memory(total=8 << 30),
    gpus=(H100,),
    packages={"torch": "2.13.0"},
)


@pytest.fixture(name="world", autouse=True)
def _world(tmp_path, monkeypatch):
    """A directory without a project, and an environment without PyTorch's variables."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def planned(request):
    """The plan of a request on a host with a GPU whose environment is this process's."""
    host = GRAPHICS.model_copy(update={"environment": relevant()})
    return resolve(load(request), host)


def profile(world, text, name="mine"):
    (world / f"{name}.toml").write_text(f"schema = 1\n{text}\n")
    return f"./{name}.toml"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, {}),
        (
            {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
            {"cuda.matmul.fp32_precision": "tf32"},
        ),
        ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0"}, {}),
        # PyTorch warns of these and ignores them.
        ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "yes"}, {}),
        (
            {"TORCH_LINALG_PREFER_CUSOLVER": "1"},
            {"cuda.preferred_linalg_library": {"prefer": ["cusolver"]}},
        ),
        (
            {"TORCH_LINALG_PREFER_HIPSOLVER": "1"},
            {"cuda.preferred_linalg_library": {"prefer": ["cusolver"]}},
        ),
        (
            {"TORCH_BLAS_PREFER_CUBLASLT": "1"},
            {"cuda.preferred_blas_library": {"prefer": ["cublaslt"]}},
        ),
        (
            {"TORCH_BLAS_PREFER_CUBLASLT": "0"},
            {"cuda.preferred_blas_library": {"prefer": ["cublas"]}},
        ),
        # A 1 in either wins over a 0 in the other, as in PyTorch.
        (
            {"TORCH_BLAS_PREFER_CUBLASLT": "0", "TORCH_BLAS_PREFER_HIPBLASLT": "1"},
            {"cuda.preferred_blas_library": {"prefer": ["hipblaslt"]}},
        ),
        (
            {"TORCH_ROCM_FA_PREFER_CK": "1"},
            {"cuda.preferred_rocm_fa_library": {"prefer": ["ck"]}},
        ),
        ({"CUBLASLT_WORKSPACE_SIZE": "512"}, {"cuda.cublaslt_workspace_size": 512 << 10}),
        ({"CUBLASLT_WORKSPACE_SIZE": "-1"}, {}),
        ({"CUBLASLT_WORKSPACE_SIZE": "512k"}, {}),
    ],
)
def test_a_text_means_what_pytorch_takes_it_for(environment, found):
    assert {one.flag: one.value for one in from_initial(environment)} == found


def test_the_two_tables_of_variables_agree():
    rows = {row.name: row for row in VARIABLES if row.initial}
    aliases = {rival for row in rows.values() for rival in row.rivals}
    assert {*rows, *aliases} == set(NAMES)
    for each in INITIALS:
        assert each.flag in flags()
        if each.variable in rows:
            row = rows[each.variable]
            texts = {row.encode(value): value for value in reversed(each.values.values())}
            assert texts == dict(each.values)


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("variable", "text"),
    [(each.variable, text) for each in INITIALS for text in each.values],
)
def test_pytorch_starts_with_that_value(variable, text):
    """Measured on the CPU build, which keeps the preferences all the same."""
    code = """
import torch
C = torch._C
print(torch.backends.cuda.matmul.fp32_precision, C._get_linalg_preferred_backend().name,
      C._get_blas_preferred_backend().name, C._get_rocm_fa_preferred_backend().name)
"""
    environment = {name: one for name, one in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "BACKENDCFG_DISABLE": "1", variable: text},
        capture_output=True,
        text=True,
        check=True,
    )
    ((flag, (_, value)),) = initial_settings({variable: text}).items()
    words = dict(
        zip(
            (
                "cuda.matmul.fp32_precision",
                "cuda.preferred_linalg_library",
                "cuda.preferred_blas_library",
                "cuda.preferred_rocm_fa_library",
            ),
            done.stdout.lower().split(),
            strict=True,
        )
    )
    # PyTorch has one name for cuBLAS and hipBLAS.
    assert words[flag] == value.replace("hip", "cu")


def test_the_layer_stands_beside_and_below_ours(world, monkeypatch):
    monkeypatch.setenv("TORCH_LINALG_PREFER_CUSOLVER", "1")
    monkeypatch.setenv("BACKENDCFG_THREADS_COUNT", "1")
    monkeypatch.setenv("BACKENDCFG_PROFILE", profile(world, "log.level = 'info'"))
    layers = load(Request()).layers
    assert [(layer.rank, layer.title) for layer in layers] == [
        ("profile-by-environment", "profile `mine`"),
        ("environment", "PyTorch's variables"),
        ("environment", "environment"),
    ]
    assert load(Request(use_environment=False)).layers == ()


def test_the_variable_is_the_origin_that_explain_and_plan_name(monkeypatch):
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    plan = planned(Request())
    entry = plan.entry("cuda.matmul.fp32_precision")
    assert (entry.value, entry.origin.rank, str(entry.origin.place)) == (
        "tf32",
        "environment",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    )
    assert plan.overrides == ()
    lines = "\n".join(explain_flag(plan, "cuda.matmul.fp32_precision"))
    assert 'cuda.matmul.fp32_precision = "tf32"  from TORCH_ALLOW_TF32_CUBLAS_OVERRIDE' in lines


def test_it_wins_over_a_profile_named_by_the_environment_and_says_so(world, monkeypatch):
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    path = profile(world, "cuda.matmul.fp32_precision = 'ieee'")
    monkeypatch.setenv("BACKENDCFG_PROFILE", path)
    plan = planned(Request())
    assert plan.entry("cuda.matmul.fp32_precision").value == "tf32"
    assert plan.overrides == (
        (
            "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 wins over"
            ' `cuda.matmul.fp32_precision = "ieee"` of profile `mine`'
        ),
    )


def test_it_says_nothing_where_the_profile_wants_the_same(world, monkeypatch):
    monkeypatch.setenv("TORCH_BLAS_PREFER_CUBLASLT", "1")
    path = profile(world, "cuda.preferred_blas_library = 'cublaslt'")
    monkeypatch.setenv("BACKENDCFG_PROFILE", path)
    plan = planned(Request())
    assert plan.entry("cuda.preferred_blas_library").value == "cublaslt"
    assert plan.overrides == ()


def test_our_own_variable_wins_over_it_and_the_conflict_is_named(monkeypatch):
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    monkeypatch.setenv("BACKENDCFG_CUDA_MATMUL_FP32_PRECISION", "'ieee'")
    plan = planned(Request())
    entry = plan.entry("cuda.matmul.fp32_precision")
    assert (entry.value, str(entry.origin.place)) == (
        "ieee",
        "BACKENDCFG_CUDA_MATMUL_FP32_PRECISION",
    )
    assert [str(hidden.origin.place) for hidden in entry.hides] == [
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "",
    ]
    assert plan.overrides == (
        'TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 contradicts `cuda.matmul.fp32_precision = "ieee"`',
    )


def test_a_profile_named_by_argument_wins_over_it_and_the_conflict_is_named(world, monkeypatch):
    monkeypatch.setenv("TORCH_LINALG_PREFER_CUSOLVER", "1")
    path = profile(world, "cuda.preferred_linalg_library = 'default'")
    plan = planned(Request(path))
    assert plan.entry("cuda.preferred_linalg_library").value == "default"
    assert plan.overrides == (
        'TORCH_LINALG_PREFER_CUSOLVER=1 contradicts `cuda.preferred_linalg_library = "default"`',
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_plan_is_stale_when_one_appears(name):
    made = stamp([], environment={})
    assert holds(made, environment={name: "1"}) == f"{name} is set now"
    assert holds(made, environment={"BACKENDCFG_CARRIED": f"{name}=1"}) == ""


def test_what_a_profile_put_there_is_no_wish(monkeypatch):
    theirs = {"TORCH_LINALG_PREFER_CUSOLVER": "1", "PATH": "/bin"}
    marked = {**theirs, **environ.carried({"TORCH_LINALG_PREFER_CUSOLVER": "1"})}
    assert environ.wishes(marked) == {"PATH": "/bin"}
    for name, text in marked.items():
        monkeypatch.setenv(name, text)
    assert load(Request()).layers == ()
    # Whoever changes it afterwards means it.
    assert environ.wishes({**marked, "TORCH_LINALG_PREFER_CUSOLVER": "0"}) == {
        "PATH": "/bin",
        "TORCH_LINALG_PREFER_CUSOLVER": "0",
    }
    assert environ.carried({}) == {}


def test_another_profile_in_a_child_of_run_is_not_overruled_by_what_run_set(world):
    """The host has no GPU, so the child's stack is looked at rather than its plan."""
    from backendcfg.bridges.environment import variables

    values = {"cuda.matmul.fp32_precision": "tf32", "cuda.preferred_blas_library": "cublaslt"}
    child = {name: text for name, text in variables(values, values).items() if text is not None}
    code = """
from backendcfg.load.stack import Request
from backendcfg.load.stack import load
print([(layer.title, [one.flag for one in layer.assignments]) for layer in load(Request()).layers])
"""
    other = profile(world, "cuda.matmul.fp32_precision = 'ieee'", "other")
    root = str(Path(environ.__file__).parents[1])

    def seen(**more):
        base = {**os.environ, "PYTHONPATH": root, "BACKENDCFG_PROFILE": other}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**base, "BACKENDCFG_DISABLE": "1", **child, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    mine = "('profile `other`', ['cuda.matmul.fp32_precision'])"
    assert seen() == f"[{mine}]"
    theirs = "(\"PyTorch's variables\", ['cuda.preferred_blas_library'])"
    assert seen(TORCH_BLAS_PREFER_CUBLASLT="0") == f"[{mine}, {theirs}]"
