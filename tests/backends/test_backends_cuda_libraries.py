"""Preferred libraries and workspaces of `backends.cuda`, on this machine and on invented ones.

What they do on a GPU was read, not run: the GPUs here are facts that are written down.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from backendcfg.backends import base, cuda
from backendcfg.backends.cuda import libraries
from backendcfg.errors import InvalidArgumentError, MissingLibraryError
from backendcfg.schema.host import Gpu

FUNCTIONS = [
    cuda.preferred_linalg_library,
    cuda.preferred_blas_library,
    cuda.preferred_rocm_fa_library,
]


@pytest.fixture(name="gpus")
def _gpus(monkeypatch):
    """Pretend GPUs, and no PyTorch to ask."""

    def pretend(*found):
        monkeypatch.setattr(base, "ask_torch", lambda question: None)
        monkeypatch.setattr(
            base, "gpus", lambda *vendors: tuple(g for g in found if g.vendor in vendors)
        )

    pretend()
    return pretend


def nvidia(capability):
    return Gpu(index=0, vendor="nvidia", name="GPU", compute_capability=capability)


def amd(architecture):
    return Gpu(index=0, vendor="amd", name="GPU", architecture=architecture)


def test_members_have_pytorchs_names_and_numbers():
    assert {member.name: int(member) for member in cuda.BlasBackend} == {
        "Default": 0,
        "Cublas": 1,
        "Cublaslt": 2,
        "Ck": 3,
    }
    assert {m.name: int(m) for m in cuda.LinalgBackend} == {"Default": 0, "Cusolver": 1, "Magma": 2}
    assert {m.name: int(m) for m in cuda.ROCmFABackend} == {"Default": 0, "AOTriton": 1, "Ck": 2}


def test_asking_gives_a_member_and_changes_nothing(gpus):
    assert [function() for function in FUNCTIONS] == [
        cuda.LinalgBackend.Default,
        cuda.BlasBackend.Cublas,
        cuda.ROCmFABackend.Default,
    ]
    from backendcfg import _native

    assert _native.current() is None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_default_is_taken_by_name_and_by_member(function):
    assert function("default") == function(type(function()).Default) == function()


@pytest.mark.sweep(6)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("wrong", ["MAGMA", "cublaslT", "nonsense", "", 1, True, 2.5])
def test_what_is_no_library_is_refused(function, wrong):
    before = function()
    with pytest.raises(InvalidArgumentError, match=r"^`backend` must be one of default, "):
        function(wrong)
    assert function() is before


def test_a_misspelt_library_is_suggested():
    with pytest.raises(InvalidArgumentError) as caught:
        cuda.preferred_linalg_library("cusolv")
    assert caught.value.helps == ("did you mean 'cusolver'?",)


def test_a_member_of_another_function_is_refused():
    with pytest.raises(InvalidArgumentError):
        cuda.preferred_linalg_library(cuda.BlasBackend.Cublas)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (cuda.preferred_linalg_library, "magma"),
        (cuda.preferred_linalg_library, "cusolver"),
        (cuda.preferred_blas_library, "cublaslt"),
        (cuda.preferred_blas_library, "ck"),
        (cuda.preferred_rocm_fa_library, "ck"),
    ],
)
def test_a_library_that_this_machine_cannot_use_is_refused_and_the_choice_stays(function, name):
    """PyTorch raises too for magma, and prefers it from then on (T1); it takes ck anywhere."""
    if base.gpus("nvidia", "amd"):
        pytest.skip("this machine has a GPU, and may have the library")
    before = function()
    with pytest.raises(MissingLibraryError, match=f"cannot be '{name}' on this machine") as caught:
        function(name)
    assert "no GPU is visible here" in " ".join(caught.value.notes)
    assert function() is before


@pytest.mark.parametrize("name", ["cublas", "hipblas", cuda.BlasBackend.Cublas])
def test_what_default_means_anyway_is_never_refused(gpus, name):
    assert cuda.preferred_blas_library(name) is cuda.BlasBackend.Cublas


def test_hipblaslt_is_the_default_on_instinct(gpus):
    gpus(amd("gfx942"))
    assert cuda.preferred_blas_library() is cuda.BlasBackend.Cublaslt
    gpus(amd("gfx1100"))
    assert cuda.preferred_blas_library() is cuda.BlasBackend.Cublas


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_is_asked_when_it_is_there_and_its_members_are_taken(python):
    code = """
    import json, torch, warnings
    warnings.simplefilter("ignore")
    from backendcfg.backends import cuda
    theirs = torch.backends.cuda
    found = [
        [cuda.preferred_linalg_library().name, theirs.preferred_linalg_library().name],
        [cuda.preferred_blas_library().name, theirs.preferred_blas_library().name],
        [cuda.preferred_rocm_fa_library().name, theirs.preferred_rocm_fa_library().name],
        [cuda.preferred_linalg_library(torch._C._LinalgBackend.Default).name, "Default"],
        [cuda.preferred_blas_library(torch._C._BlasBackend.Cublas).name, "Cublas"],
        [cuda.is_ck_sdpa_available(), theirs.is_ck_sdpa_available()],
        [cuda.is_built(), theirs.is_built()],
    ]
    try:
        cuda.preferred_linalg_library("magma")
    except Exception as error:
        found.append([type(error).__name__, "MissingLibraryError"])
    found.append([theirs.preferred_linalg_library().name, "Default"])
    print(json.dumps(found))
    """
    found = json.loads(python(code))
    assert len(found) == 9
    assert [ours for ours, _ in found] == [theirs for _, theirs in found]


@pytest.mark.parametrize(
    ("found", "text", "size"),
    [
        ((), "", 8_519_680),
        ((nvidia("8.0"),), "", 8_519_680),
        ((nvidia("9.0"),), "", 33_554_432),
        ((amd("gfx942"),), "", 134_217_728),
        ((amd("gfx1100"),), "", 33_554_432),
        ((nvidia("9.0"),), ":4096:8", 33_554_432),
        ((nvidia("9.0"),), ":16:8", 131_072),
        ((nvidia("9.0"),), "nonsense:4", 33_554_432),
        ((nvidia("9.0"),), ":4096", 33_554_432),
    ],
)
def test_the_workspace_of_cublas_by_gpu_and_by_variable(gpus, monkeypatch, found, text, size):
    gpus(*found)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", text)
    assert cuda.cublas_workspace_size() == size


@pytest.mark.parametrize(
    ("found", "text", "size"),
    [((), "", 1_048_576), ((amd("gfx942"),), "", 79_691_776), ((), "2048", 2_097_152)],
)
def test_the_workspace_of_cublaslt(gpus, monkeypatch, found, text, size):
    gpus(*found)
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", text)
    assert cuda.cublaslt_workspace_size() == size


def test_a_workspace_is_set_read_and_given_back(gpus):
    assert cuda.cublas_workspace_size(4096) == 4096
    assert (cuda.cublas_workspace_size(), cuda.cublaslt_workspace_size()) == (4096, 1_048_576)
    assert cuda.cublas_workspace_size(0) == 8_519_680


@pytest.mark.sweep(3)
@pytest.mark.parametrize("function", [cuda.cublas_workspace_size, cuda.cublaslt_workspace_size])
@pytest.mark.parametrize("wrong", [-1, 1.5, "4096", True])
def test_a_wrong_size_is_refused_and_leaves_the_one_before(gpus, function, wrong):
    function(777)
    with pytest.raises(ValueError, match="must be an integer of at least 0"):
        function(wrong)
    assert function() == 777


def test_the_workspace_of_the_preferred_library_or_of_another(gpus):
    cuda.cublas_workspace_size(100)
    cuda.cublaslt_workspace_size(200)
    assert cuda.blas_workspace_size() == 100
    assert cuda.blas_workspace_size(backend="hipblaslt") == 200
    assert cuda.blas_workspace_size(300, cuda.BlasBackend.Cublaslt) == 300
    assert cuda.blas_workspace_size(backend="default") == 100
    assert (cuda.cublas_workspace_size(), cuda.cublaslt_workspace_size()) == (100, 300)


def test_composable_kernel_has_no_workspace():
    with pytest.raises(InvalidArgumentError, match=r"^CK backend does not use a workspace(?m:$)"):
        cuda.blas_workspace_size(backend="ck")


def test_pytorchs_own_size_is_told_while_no_profile_says_one(monkeypatch):
    """Read, not run: only a PyTorch with CUDA has these calls."""
    calls = SimpleNamespace(_cuda_getCublasWorkspaceSize=lambda: 555)
    torch = SimpleNamespace(_C=calls)
    monkeypatch.setattr(base, "ask_torch", lambda question: question(torch))
    assert libraries.cublas_workspace_size() == 555
    monkeypatch.undo()
    assert libraries.cublas_workspace_size(99) == 99
