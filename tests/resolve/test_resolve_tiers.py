"""A profile that cannot keep its tier on a host does not resolve, and says what is missing."""

from typing import get_args

import pytest
from resolve_builders import (
    BLIS,
    H100,
    MI300X,
    MKL,
    NUMPY_OPENBLAS,
    a_host,
    a_layer,
    a_profile,
    a_stack,
    variables,
)

from backendcfg.errors import TierNotKeptError
from backendcfg.resolve.explain import why_not
from backendcfg.resolve.plan import resolve
from backendcfg.resolve.tiers import REQUIREMENTS
from backendcfg.schema.base import Tier
from backendcfg.schema.profile import NO_PROFILE, defaults

TORCH = [("torch", "2.13.0")]
RUN_TO_RUN = {
    "determinism.algorithms": "deterministic",
    "threads.dynamic": False,
    "torch.mkl_detection": "at-load",
}
ON_GPU = {**RUN_TO_RUN, "cudnn.deterministic": True}
OLD_TORCH = [("torch", "2.8.0")]
OLD_GPU = {**ON_GPU, "torch.cublas_workspace_config": ":4096:8"}
ANYWHERE = {
    **RUN_TO_RUN,
    "threads.count": 1,
    "python.hash_seed": 0,
    "blas.library": {"require": "openblas"},
    "blas.openblas.core_type": "Haswell",
    "blas.mkl.cbwr": "compatible",
    "torch.cpu_capability": "avx2",
    "onednn.max_cpu_isa": "avx2",
    "environment": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
}


GRACE = {
    "architecture": "aarch64",
    "vendor": "nvidia",
    "microarchitecture": "neoverse_v2",
    "lineage": ("neoverse_v2", "aarch64"),
    "features": ("asimd", "sve"),
}


def unmet(tier, values, host):
    """The flags that keep a tier from being kept; the host itself is ""."""
    stack = a_profile({"determinism.tier": tier, **values})
    found = why_not(stack, host)
    flags = [check.need.split("`")[1] if "`" in check.need else "" for check in found.unmet]
    try:
        resolve(stack, host)
    except TierNotKeptError:
        assert flags, "a refusal without an unmet check"
    else:
        assert not flags, "an unmet check without a refusal"
    return flags


@pytest.mark.parametrize(
    ("tier", "host", "values", "expected"),
    [
        ("run-to-run", a_host(), {}, []),
        (
            "run-to-run",
            a_host(packages=TORCH),
            {},
            ["determinism.algorithms", "torch.mkl_detection", "threads.dynamic"],
        ),
        ("run-to-run", a_host(packages=TORCH), RUN_TO_RUN, []),
        ("run-to-run", a_host(libraries=(NUMPY_OPENBLAS, MKL)), {}, ["threads.dynamic"]),
        ("run-to-run", a_host(packages=TORCH, gpus=(H100,)), RUN_TO_RUN, ["cudnn.deterministic"]),
        ("run-to-run", a_host(packages=TORCH, gpus=(H100,)), ON_GPU, []),
        (
            "run-to-run",
            a_host(packages=[("torch", "2.8.0")], gpus=(H100,)),
            ON_GPU,
            ["torch.cublas_workspace_config"],
        ),
        (
            "run-to-run",
            a_host(packages=TORCH, gpus=(H100, H100)),
            {**ON_GPU, "nccl.algo": "NVLS"},
            ["nccl.algo"],
        ),
        ("run-to-run", a_host(packages=TORCH, gpus=(H100, H100)), ON_GPU, []),
        ("run-to-run", a_host(packages=OLD_TORCH, gpus=(H100, H100)), OLD_GPU, ["nccl.algo"]),
        (
            "run-to-run",
            a_host(packages=OLD_TORCH, gpus=(H100, H100)),
            {**OLD_GPU, "nccl.nvls": "off"},
            [],
        ),
        (
            "run-to-run",
            a_host(packages=[("jax", "0.10.2")], gpus=(MI300X,)),
            {},
            ["jax.deterministic_ops", "jax.autotune_level"],
        ),
        (
            "run-to-run",
            a_host(packages=[("tensorflow", "2.21.0")]),
            {},
            ["tensorflow.op_determinism"],
        ),
        ("thread-invariant", a_host(), {}, ["threads.count"]),
        ("thread-invariant", a_host(), {"threads.count": 2}, ["threads.count"]),
        ("thread-invariant", a_host(), {"threads.count": 1}, []),
        ("thread-invariant", a_host(libraries=()), {"threads.count": 4}, []),
        (
            "thread-invariant",
            a_host(packages=[("jax", "0.10.2")]),
            {"threads.count": 1},
            ["environment.NPROC"],
        ),
        ("restart", a_host(), {}, ["threads.count", "python.hash_seed"]),
        ("restart", a_host(), {"threads.count": 2, "python.hash_seed": 0}, []),
        ("cross-machine", a_host(packages=TORCH), ANYWHERE, []),
        (
            "cross-machine",
            a_host(),
            {},
            [
                "threads.count",
                "python.hash_seed",
                "blas.library",
                "blas.openblas.core_type",
                "environment.NPY_DISABLE_CPU_FEATURES",
            ],
        ),
        (
            "cross-machine",
            a_host(packages=TORCH, gpus=(H100,)),
            ANYWHERE,
            ["cudnn.deterministic", ""],
        ),
        (
            "cross-machine",
            a_host(packages=TORCH),
            {**ANYWHERE, "blas.library": {"prefer": ["openblas"]}},
            ["blas.library"],
        ),
        (
            "cross-machine",
            a_host(packages=TORCH),
            {**ANYWHERE, "mkldnn.fp32_precision": "bf16"},
            [
                "mkldnn.matmul.fp32_precision",
                "mkldnn.conv.fp32_precision",
                "mkldnn.rnn.fp32_precision",
            ],
        ),
        (
            "cross-machine",
            a_host(packages=TORCH),
            {
                **ANYWHERE,
                "route.numpy.matmul": "native",
                "route.torch.attention": "native",
                "route.torch.dropout": "native",
                "route.torch.matmul": "native",
            },
            [],
        ),
        (
            "cross-machine",
            a_host(packages=[("numpy", "2.2.0")]),
            ANYWHERE,
            ["environment.NPY_DISABLE_CPU_FEATURES"],
        ),
        (
            "cross-machine",
            a_host(packages=[("jax", "0.10.2")]),
            ANYWHERE,
            ["environment.NPROC", "environment.XLA_FLAGS"],
        ),
        (
            "cross-machine",
            a_host(packages=[*TORCH, ("jax", "0.10.2")], **GRACE),
            {
                **ANYWHERE,
                "blas.openblas.core_type": "armv8",
                "torch.cpu_capability": "auto",
                "environment": {"NPROC": "1"},
            },
            ["torch.cpu_capability", "mkldnn.enabled", ""],
        ),
        ("batch-invariant", a_host(), {}, ["blas.library"]),
        ("batch-invariant", a_host(), {"blas.library": {"require": "reference"}}, []),
        ("batch-invariant", a_host(), {"blas.library": {"require": "native"}}, []),
    ],
)
def test_a_tier_is_kept_exactly_where_its_requirements_hold(tier, host, values, expected):
    assert unmet(tier, values, host) == expected


def test_a_profile_without_a_tier_is_asked_nothing():
    found = why_not(a_profile(), a_host(packages=TORCH, gpus=(H100,)))
    assert (found.fits, found.checks) == (True, ())


def test_every_tier_has_requirements_and_every_requirement_a_tier():
    named = {tier for requirement in REQUIREMENTS for tier in requirement.tiers}
    assert named == set(get_args(Tier)) - {"none"}


def test_every_requirement_names_a_flag_a_variable_or_the_host():
    for requirement in REQUIREMENTS:
        known = requirement.flag in defaults() or requirement.flag.startswith("environment.")
        assert known or requirement.flag == ""


def test_what_holds_is_in_the_plan_with_its_reason():
    plan = resolve(
        a_profile({"determinism.tier": "restart", "threads.count": 2, "python.hash_seed": 0}),
        a_host(),
    )
    assert [(check.need, check.found, check.met) for check in plan.checks] == [
        ('`threads.count` must be a number rather than "auto"', "2, set in profile `mine`", True),
        ("`python.hash_seed` must be a number", "0, set in profile `mine`", True),
    ]
    assert plan.tier == "restart"


def test_where_no_profile_is_named_the_error_names_a_command_that_takes_none():
    settings = {"determinism.tier": "restart", "threads.count": 2, "python.hash_seed": "random"}
    with pytest.raises(TierNotKeptError) as caught:
        resolve(a_stack(variables(settings)).model_copy(update={"name": NO_PROFILE}), a_host())
    assert caught.value.helps[-1] == (
        "run `backendcfg plan --why-not`, with the same settings as `--set`, to list them all"
    )


def test_the_error_lists_each_unmet_line_and_what_would_keep_it():
    stack = a_stack(
        a_layer("base", {"determinism.tier": "restart", "python.hash_seed": 0}),
        a_layer("fast", {"threads.count": "auto"}),
        variables({"threads.dynamic": True}),
    )
    with pytest.raises(TierNotKeptError) as caught:
        resolve(stack, a_host(libraries=(NUMPY_OPENBLAS, MKL)))
    assert caught.value.render() == (
        "error[tier-not-kept]: profile `fast` cannot keep its tier `restart` on this machine: "
        "2 requirements are unmet\n"
        "  --> profiles/base.toml:3:8\n"
        "   |\n"
        ' 3 | tier = "restart"\n'
        "   |        ^^^^^^^^^ set here\n"
        "  --> profiles/fast.toml:3:9\n"
        "   |\n"
        ' 3 | count = "auto"\n'
        '   |         ^^^^^^ must be a number rather than "auto"\n'
        "  note: `threads.dynamic` must be false, and is true, set by BACKENDCFG_THREADS_DYNAMIC: "
        "MKL and OpenMP may otherwise use fewer threads than asked, and sum in another order\n"
        '  note: `threads.count` must be a number rather than "auto", and is "auto", which is 2 '
        "here, set in profile `fast` (profiles/fast.toml:3): a process that is started again may "
        "be allowed another number of processors, and OpenBLAS gives other bits at another thread "
        "count\n"
        "  state: nothing was changed\n"
        "  help: set `threads.dynamic = false`\n"
        "  help: set `threads.count` to a number\n"
        '  help: set `determinism.tier = "none"` to guarantee nothing\n'
        "  help: run `backendcfg plan fast --why-not` to list every unmet requirement"
    )


def test_the_error_offers_the_tiers_that_do_hold():
    with pytest.raises(TierNotKeptError) as caught:
        resolve(a_profile({"determinism.tier": "batch-invariant", "threads.count": 1}), a_host())
    assert caught.value.helps[1] == (
        "what the flags do keep here: `run-to-run`, `thread-invariant`; set one of these as "
        "`determinism.tier`"
    )


def test_the_host_itself_can_keep_a_tier_from_being_kept():
    stack = a_profile(
        {"determinism.tier": "cross-machine", **ANYWHERE, "cudnn.deterministic": True}
    )
    with pytest.raises(TierNotKeptError) as caught:
        resolve(stack, a_host(packages=TORCH, gpus=(H100,)))
    assert caught.value.notes == (
        (
            "it needs that no framework here can compute on a GPU; NVIDIA H100 can be used: no "
            "vendor promises the same bits on two models of GPU"
        ),
    )


@pytest.mark.parametrize("left_out", [flag for flag in ANYWHERE if flag != "environment"])
def test_across_machines_no_line_can_be_left_out(left_out):
    values = {flag: value for flag, value in ANYWHERE.items() if flag != left_out}
    assert unmet("cross-machine", values, a_host(packages=TORCH)) == [left_out]


@pytest.mark.parametrize(
    ("flag", "value", "libraries"),
    [
        ("onednn.default_fpmath_mode", "bf16", (NUMPY_OPENBLAS,)),
        ("blas.library", {"require": "blis"}, (NUMPY_OPENBLAS, BLIS)),
    ],
)
def test_across_machines_no_line_can_be_weakened(flag, value, libraries):
    host = a_host(packages=TORCH, libraries=libraries)
    blamed = "blas.blis.arch_type" if flag == "blas.library" else flag
    assert unmet("cross-machine", {**ANYWHERE, flag: value}, host) == [blamed]


@pytest.mark.parametrize(("flag", "gpu"), [("cudnn.benchmark", H100), ("torch.tunable_op", MI300X)])
def test_what_conflicts_with_a_tier_is_an_unmet_requirement_too(flag, gpu):
    stack = a_profile({**ON_GPU, "determinism.tier": "run-to-run", flag: True})
    found = why_not(stack, a_host(packages=TORCH, gpus=(gpu,)))
    assert [check.need for check in found.unmet] == [f"`{flag}` must be false"]


def test_a_restart_under_jax_needs_its_own_thread_count():
    values = {"threads.count": 2, "python.hash_seed": 0}
    host = a_host(packages=[("jax", "0.10.2")])
    assert unmet("restart", values, host) == ["environment.NPROC"]
    assert unmet("restart", {**values, "environment": {"NPROC": "2"}}, host) == []
