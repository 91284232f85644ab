"""Which library serves, by preference and by what is usable, with a reason for each other one."""

import pytest
from resolve_builders import (
    BLIS,
    H100,
    MI300X,
    MKL,
    NUMPY_OPENBLAS,
    SCIPY_OPENBLAS,
    a_host,
    a_profile,
    a_stack,
)

from backendcfg.errors import MissingLibraryError
from backendcfg.resolve.explain import explain_flag, why_not
from backendcfg.resolve.plan import resolve
from backendcfg.schema.host import Absent, Broken

EVERYTHING = (MKL, BLIS, SCIPY_OPENBLAS, NUMPY_OPENBLAS)
TORCH = [("torch", "2.13.0+cpu")]
BLAS = "blas.library"


def choice_of(plan, flag=BLAS):
    return next(choice for choice in plan.choices if choice.flag == flag)


def reasons(plan, candidate, flag=BLAS):
    return next(
        (one.reasons for one in choice_of(plan, flag).rejected if one.candidate == candidate), ()
    )


def test_without_a_preference_the_order_is_the_default_one():
    plan = resolve(a_stack(), a_host(libraries=EVERYTHING))
    assert choice_of(plan).order == (
        "openblas",
        "scipy-openblas",
        "blis",
        "mkl",
        "native",
        "reference",
    )
    assert plan.entry(BLAS).value == "openblas"
    assert plan.entry(BLAS).adaptation is None


def test_the_plan_lists_the_files_in_the_order_of_use():
    plan = resolve(a_profile({BLAS: {"prefer": ["blis"]}}), a_host(libraries=EVERYTHING))
    assert [library.path for library in plan.libraries] == [
        library.path for library in (BLIS, NUMPY_OPENBLAS, SCIPY_OPENBLAS, MKL)
    ]


def test_what_is_preferred_comes_first():
    plan = resolve(a_profile({BLAS: {"prefer": ["mkl", "blis"]}}), a_host(libraries=EVERYTHING))
    assert choice_of(plan).order == (
        "mkl",
        "blis",
        "openblas",
        "scipy-openblas",
        "native",
        "reference",
    )


def test_a_preference_that_is_not_usable_is_adapted_loudly():
    plan = resolve(a_profile({BLAS: {"prefer": ["blis", "scipy-openblas"]}}), a_host())
    change = plan.entry(BLAS).adaptation
    assert (change.requested, change.got) == ("blis", "openblas")
    assert change.because == (
        "blis: no file of it was found; scipy-openblas: no file of it was found"
    )


def test_what_is_forbidden_never_serves():
    plan = resolve(a_profile({BLAS: {"forbid": ["openblas"]}}), a_host(libraries=EVERYTHING))
    assert choice_of(plan).order == ("scipy-openblas", "blis", "mkl", "native", "reference")
    assert reasons(plan, "openblas") == ("forbidden by profile `mine`",)
    assert NUMPY_OPENBLAS not in plan.libraries


def test_only_what_is_required_serves():
    plan = resolve(a_profile({BLAS: {"require": "blis"}}), a_host(libraries=EVERYTHING))
    assert choice_of(plan).order == ("blis",)
    assert plan.libraries == (BLIS,)


def test_mkl_beside_pytorch_serves_only_where_pytorch_is_imported_first():
    plan = resolve(a_stack(), a_host(libraries=EVERYTHING, packages=TORCH))
    assert "mkl" in choice_of(plan).order
    (condition,) = choice_of(plan).conditional
    assert condition.candidate == "mkl"
    assert condition.reasons == (
        (
            "only in a process that has imported PyTorch before: imported later, PyTorch would "
            "bind to this MKL"
        ),
    )
    assert f"  mkl {condition.reasons[0]}" in explain_flag(plan, BLAS)


def test_mkl_without_pytorch_serves_without_condition():
    plan = resolve(a_stack(), a_host(libraries=EVERYTHING))
    assert choice_of(plan).conditional == ()


def test_mkl_is_not_opened_under_ld_bind_now():
    plan = resolve(a_stack(), a_host(libraries=EVERYTHING, environment={"LD_BIND_NOW": "1"}))
    assert reasons(plan, "mkl") == (
        "LD_BIND_NOW is set, under which MKL cannot load its own layers and ends the process",
    )


def test_the_mkl_inside_pytorch_serves_nobody_else():
    inside = MKL.model_copy(update={"owner": "torch", "path": "/venv/torch/lib/libtorch_cpu.so"})
    plan = resolve(a_stack(), a_host(libraries=(NUMPY_OPENBLAS, inside)))
    assert reasons(plan, "mkl") == (
        "the only MKL here is the one inside PyTorch, which serves PyTorch alone",
    )


def test_a_broken_file_is_the_reason():
    broken = Broken(probe="blis", path="/usr/lib/libblis.so.4", reason="not an ELF file")
    plan = resolve(a_stack(), a_host(probes=(broken,)))
    assert reasons(plan, "blis") == ("/usr/lib/libblis.so.4: not an ELF file",)


def test_scipys_broken_file_says_nothing_about_numpys():
    path = "/venv/site-packages/scipy.libs/libscipy_openblas-def.so"
    broken = Broken(probe="openblas", path=path, reason="truncated")
    plan = resolve(a_stack(), a_host(libraries=(), probes=(broken,)))
    assert reasons(plan, "scipy-openblas") == (f"{path}: truncated",)
    assert reasons(plan, "openblas") == ("no file of it was found",)


def test_where_a_probe_looked_is_the_reason_for_what_is_absent():
    absent = Absent(probe="mkl", reason="no MKL in this environment or on the loader path")
    plan = resolve(a_stack(), a_host(probes=(absent,)))
    assert reasons(plan, "mkl") == ("no MKL in this environment or on the loader path",)


def test_our_own_kernels_serve_where_there_is_nothing_else():
    plan = resolve(a_stack(), a_host(libraries=()))
    assert (plan.entry(BLAS).value, plan.libraries) == ("native", ())


def test_a_path_replaces_the_detected_files():
    path = "/opt/mine/libopenblas.so.0"
    plan = resolve(a_profile({"blas.path": path}), a_host(libraries=EVERYTHING))
    assert choice_of(plan).order == ("openblas", "native", "reference")
    assert [(one.path, one.owner) for one in plan.libraries] == [(path, "path")]
    assert reasons(plan, "mkl") == ("`blas.path` names another library",)


def test_a_detected_path_keeps_what_was_detected():
    plan = resolve(a_profile({"blas.path": BLIS.path}), a_host(libraries=EVERYTHING))
    assert plan.libraries == (BLIS,)


def test_a_required_library_that_is_not_usable_is_an_error():
    stack = a_profile({BLAS: {"require": "mkl"}})
    with pytest.raises(MissingLibraryError) as caught:
        resolve(stack, a_host(libraries=EVERYTHING, environment={"LD_BIND_NOW": "1"}))
    assert caught.value.render() == (
        "error[missing-library]: cannot load MKL, which profile `mine` requires\n"
        "  --> profiles/mine.toml:3:11\n"
        "   |\n"
        ' 3 | library = { require = "mkl" }\n'
        "   |           ^^^^^^^^^^^^^^^^^^^ required here\n"
        "  note: tried /venv/lib/libmkl_rt.so.2: LD_BIND_NOW is set, under which MKL cannot load its "
        "own layers and ends the process\n"
        "  state: nothing was changed\n"
        '  help: to allow another library, write `library = { prefer = ["mkl"] }` under `[blas]`\n'
        "  help: run `backendcfg plan mine --why-not` to list every unmet requirement"
    )


def test_a_required_library_that_is_not_there_says_how_to_get_it():
    with pytest.raises(MissingLibraryError) as caught:
        resolve(a_profile({BLAS: {"require": "scipy-openblas"}}), a_host())
    assert caught.value.notes == ("tried scipy-openblas: no file of it was found",)
    assert caught.value.helps[0] == "install it with `pip install scipy-openblas64`"


def test_a_required_library_that_is_forbidden_too_is_an_error():
    with pytest.raises(MissingLibraryError) as caught:
        resolve(a_profile({BLAS: {"require": "openblas", "forbid": ["openblas"]}}), a_host())
    assert caught.value.notes == (f"tried {NUMPY_OPENBLAS.path}: forbidden by profile `mine`",)


def test_forbidding_everything_is_an_error():
    with pytest.raises(MissingLibraryError) as caught:
        resolve(a_profile({BLAS: {"forbid": ["openblas", "native", "reference"]}}), a_host())
    assert caught.value.message == (
        "no library is left for `blas.library` after what profile `mine` forbids"
    )


@pytest.mark.parametrize(
    ("gpu", "wished", "got"),
    [
        (MI300X, "cublas", "hipblas"),
        (MI300X, "cublaslt", "hipblaslt"),
        (H100, "hipblaslt", "cublaslt"),
        (H100, "ck", "default"),
    ],
)
def test_a_library_of_another_vendor_gives_way_to_its_counterpart(gpu, wished, got):
    flag = "cuda.preferred_blas_library"
    entry = resolve(a_profile({flag: {"prefer": [wished]}}), a_host(gpus=(gpu,))).entry(flag)
    assert (entry.value, entry.adaptation.requested, entry.adaptation.got) == (got, wished, got)
    assert gpu.name in entry.adaptation.because


def test_a_library_of_the_vendor_is_taken_as_it_is():
    flag = "cuda.preferred_blas_library"
    entry = resolve(a_profile({flag: "cublaslt"}), a_host(gpus=(H100,))).entry(flag)
    assert (entry.value, entry.adaptation) == ("cublaslt", None)


@pytest.mark.parametrize(("torch", "got"), [("2.10.0", "magma"), ("2.11.0", "default")])
def test_magma_is_refused_where_pytorch_ignores_it(torch, got):
    flag = "cuda.preferred_linalg_library"
    host = a_host(gpus=(H100,), packages=[("torch", torch)])
    plan = resolve(a_profile({flag: {"prefer": ["magma"]}}), host)
    assert plan.entry(flag).value == got
    if got == "default":
        assert plan.entry(flag).adaptation.because == (
            "magma: PyTorch deprecated MAGMA in 2.11 and ignores it for several decompositions; "
            "2.11.0 is here"
        )


def test_why_not_gives_the_reasons_that_the_resolver_used():
    stack, host = a_profile({BLAS: {"prefer": ["mkl"]}}), a_host(libraries=EVERYTHING)
    assert why_not(stack, host).choices == resolve(stack, host).choices
