"""Traps that this build cannot show: they need a GPU, a cluster or another release.

What PyTorch and the libraries do there was read, not run. What is tested is our half: what the
plan of a captured host with such hardware refuses, pins or says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import backendcfg
from backendcfg.bridges.environment import settings, variables
from backendcfg.schema.host import Host

HOSTS = Path(__file__).parents[1] / "hosts"


def host(name):
    return Host.model_validate_json((HOSTS / f"{name}.json").read_text())


def planned(name=None, on="dgx-h100--openblas", **settings):
    """The values of a plan for a captured host; in `settings`, `__` stands for a dot."""
    given = {flag.replace("__", "."): value for flag, value in settings.items()}
    plan = backendcfg.plan(name, host=host(on), settings=given)
    return {entry.flag: entry.value for entry in plan.entries}


def refusal(name=None, on="dgx-h100--openblas", **settings):
    """What is wrong, why and what helps, without the place in the shipped profile's file."""
    with pytest.raises(backendcfg.errors.BackendCfgError) as caught:
        planned(name, on, **settings)
    error = caught.value
    return error.message, error.notes, error.helps


def test_t13_warnings_instead_of_errors_do_not_go_with_a_promise():
    message, notes, _ = refusal("reproducible", determinism__algorithms="warn")
    assert message == (
        '`determinism.algorithms = "warn"` and `determinism.tier = "run-to-run"` cannot both hold'
    )
    assert notes[-1] == (
        "with `warn`, PyTorch warns and then runs the nondeterministic kernel all the same"
    )


def test_t19_benchmarking_does_not_go_with_a_promise():
    message, notes, _ = refusal("reproducible", cudnn__benchmark=True)
    assert message == (
        '`cudnn.benchmark = true` and `determinism.tier = "run-to-run"` cannot both hold'
    )
    assert notes[-1] == (
        "benchmarking times the algorithms and keeps the fastest, so the next process may keep "
        "another one, also when only deterministic ones are tried"
    )


def test_t20_workspaces_of_fixed_size_are_set_before_the_process_starts():
    values = planned("reproducible")
    flag = "torch.cublas_workspace_config"
    assert variables(values, {flag}) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    [switch] = [one.switch for one in settings(values, {flag})]
    assert (switch.name, switch.latch) == ("CUBLAS_WORKSPACE_CONFIG", "before-first-use")


def test_t22_t23_one_precision_is_written_at_every_leaf():
    """PyTorch 2.9 and 2.10 cannot compile with mixed APIs; before 2.13 a root reached no leaf."""
    for profile, precision in (("reproducible", "ieee"), ("tf32-off", "ieee"), ("fast", "tf32")):
        values = planned(profile, "dgx-b200--openblas")
        assert values["cuda.matmul.fp32_precision"] == precision
        assert values["cudnn.conv.fp32_precision"] == precision
        assert values["cudnn.rnn.fp32_precision"] == precision
        assert values["fp32_precision"] == values["cudnn.fp32_precision"] == "none"


def test_t33_collectives_add_in_one_order():
    values = planned("reproducible")
    assert (values["nccl.algo"], values["nccl.proto"]) == ("Ring", "Simple")
    assert values["nccl.nvls"] == "off"


def test_t34_magma_is_not_chosen_where_pytorch_ignores_it():
    new = host("dgx-h100--openblas")
    new = new.model_copy(update={"packages": {**new.packages, "torch": "2.13.0+cu130"}})
    settings = {"cuda.preferred_linalg_library": "magma"}
    plan = backendcfg.plan(host=new, settings=settings)
    [entry] = [one for one in plan.entries if one.flag == "cuda.preferred_linalg_library"]
    assert entry.value == "default"
    assert entry.adaptation.because == (
        "magma: PyTorch deprecated MAGMA in 2.11 and ignores it for several decompositions; "
        "2.13.0+cu130 is here"
    )
    assert planned(cuda__preferred_linalg_library="magma")["cuda.preferred_linalg_library"] == (
        "magma"
    )


def test_t35_the_library_of_products_is_pinned_on_each_vendor():
    pinned = "cuda.preferred_blas_library"
    assert planned("reproducible")[pinned] == "cublas"
    assert planned("reproducible", "mi300x--openblas")[pinned] == "hipblas"


def test_t36_what_cublas_cannot_be_told_is_refused():
    message, notes, helps = refusal(
        cuda__matmul__allow_fp16_reduced_precision_reduction=False,
        cuda__matmul__allow_fp16_reduced_precision_reduction_split_k=False,
        cuda__preferred_blas_library="cublas",
    )
    assert message == (
        "`cuda.matmul.allow_fp16_reduced_precision_reduction_split_k = false` and "
        '`cuda.preferred_blas_library = "cublas"` cannot both hold'
    )
    assert notes[-1] == (
        "cuBLAS cannot be told not to split K and PyTorch raises at the first product; PyTorch's "
        "own default on NVIDIA is cuBLAS"
    )
    assert helps == ('set `cuda.preferred_blas_library = "cublaslt"`',)


def test_t37_xla_is_not_tuned_by_time():
    values = planned("reproducible")
    assert values["jax.autotune_level"] == 0
    assert values["jax.deterministic_ops"] is True


def test_t26_a_variable_that_outranks_tf32_is_named_on_a_host_with_a_gpu():
    overridden = host("dgx-h100--openblas")
    overridden = overridden.model_copy(
        update={"environment": {**overridden.environment, "NVIDIA_TF32_OVERRIDE": "1"}}
    )
    assert 'NVIDIA_TF32_OVERRIDE=1 contradicts `cuda.matmul.fp32_precision = "ieee"`' in (
        backendcfg.plan("tf32-off", host=overridden).overrides
    )
