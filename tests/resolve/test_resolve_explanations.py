"""Explanations come from what the resolver used, never from logic of their own."""

import pytest
from resolve_builders import (
    BLIS,
    H100,
    NUMPY_OPENBLAS,
    T4,
    a_host,
    a_layer,
    a_profile,
    a_stack,
    settings,
    variables,
)

from backendcfg.errors import ConflictingFlagsError, MissingLibraryError
from backendcfg.resolve.explain import diff, explain_flag, why_not
from backendcfg.resolve.plan import resolve
from backendcfg.resolve.recommend import recommend

TORCH = [("torch", "2.13.0")]


def test_a_value_says_where_it_comes_from_and_what_it_hides():
    stack = a_stack(
        settings("user-file", "config.toml", {"threads.count": 8}, "/home/ana/config.toml"),
        a_layer("fast", {"threads.count": 4}),
        variables({"threads.count": 1}),
    )
    assert explain_flag(resolve(stack, a_host()), "threads.count") == (
        "threads.count = 1  from BACKENDCFG_THREADS_COUNT",
        "  hides 4 from profile `fast` (profiles/fast.toml:3)",
        "  hides 8 from config.toml (/home/ana/config.toml:3)",
        '  hides "auto" from default',
    )


def test_a_choice_of_library_says_why_the_others_were_not_chosen():
    plan = resolve(a_profile({"blas.library": {"forbid": ["mkl"]}}), a_host())
    assert explain_flag(plan, "blas.library") == (
        'blas.library = "openblas"  from profile `mine` (profiles/mine.toml:3)',
        "  usable, best first: openblas, native, reference",
        "  not scipy-openblas: no file of it was found",
        "  not blis: no file of it was found",
        "  not mkl: forbidden by profile `mine`; no file of it was found",
        "  hides nothing from default",
    )


def test_an_adaptation_and_dormancy_are_said():
    plan = resolve(a_stack(), a_host(logical=4))
    assert explain_flag(plan, "threads.interop") == (
        "threads.interop = 2  from default",
        '  adapted: requested "auto", got 2, because few tasks run side by side',
        "  dormant: no PyTorch or TensorFlow is here",
    )


def test_a_legacy_spelling_explains_what_it_stands_for():
    plan = resolve(a_stack(), a_host(gpus=(H100,), packages=TORCH))
    assert explain_flag(plan, "cudnn.allow_tf32") == (
        'cudnn.conv.fp32_precision = "tf32"  from default',
        'cudnn.rnn.fp32_precision = "tf32"  from default',
    )


def test_why_not_has_every_check_met_and_unmet():
    lines = {
        'vendor = "nvidia"': {"gpu": {"vendor": "nvidia"}},
        'compute_capability = ">=8.0"': {"gpu": {"compute_capability": ">=8.0"}},
    }
    found = why_not(a_profile(requires=lines), a_host(gpus=(T4,)))
    assert [(check.met, check.need) for check in found.checks] == [
        (True, "an NVIDIA GPU"),
        (False, "CUDA compute capability 8.0 or newer"),
    ]
    assert [check.need for check in found.unmet] == ["CUDA compute capability 8.0 or newer"]
    assert not found.fits


def test_why_not_collects_every_kind_of_refusal():
    stack = a_profile(
        {
            "cudnn.conv.fp32_precision": "ieee",
            "blas.library": {"require": "blis"},
            "determinism.tier": "run-to-run",
        },
        requires={'os = "macos"': {"os": "macos"}},
    )
    found = why_not(stack, a_host(gpus=(H100,), packages=TORCH))
    assert [error.code for error in found.refusals] == [
        "unsupported-hardware",
        "conflicting-flags",
        "missing-library",
        "tier-not-kept",
    ]
    assert found.to_dict()["fits"] is False


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"cudnn.conv.fp32_precision": "ieee"}, ConflictingFlagsError),
        ({"blas.library": {"require": "blis"}}, MissingLibraryError),
    ],
)
def test_why_not_gives_the_very_error_that_resolving_raises(values, error):
    stack, host = a_profile(values), a_host(gpus=(H100,), packages=TORCH)
    with pytest.raises(error) as caught:
        resolve(stack, host)
    assert [one.to_dict() for one in why_not(stack, host).refusals] == [caught.value.to_dict()]


def test_a_condition_that_does_not_hold_is_no_refusal():
    found = why_not(a_profile(when=[({"os": "macos"}, {"threads.count": 1})]), a_host())
    assert (found.fits, [check.met for check in found.conditions]) == (True, [False])


def test_two_plans_differ_where_their_values_do():
    left = resolve(a_profile({"threads.count": 2}, name="a"), a_host())
    right = resolve(a_profile({"threads.count": 1, "mkldnn.enabled": False}, name="b"), a_host())
    assert [
        (one.flag, one.left, one.right, one.right_origin.title) for one in diff(left, right)
    ] == [
        ("mkldnn.enabled", True, False, "profile `b`"),
        ("threads.count", 2, 1, "profile `b`"),
    ]
    assert diff(left, left) == ()


def test_profiles_that_fit_come_first_and_those_with_most_effect_before_others():
    stacks = [
        a_profile({"blas.library": {"require": "blis"}}, name="needs-blis"),
        a_profile({"mkldnn.verbose": 1, "threads.count": 1}, name="talkative"),
        a_profile({"cudnn.rnn.fp32_precision": "ieee", "threads.count": 2}, name="for-gpus"),
        a_profile({"threads.count": 2}, name="for-cpus"),
    ]
    found = recommend(stacks, a_host(packages=TORCH))
    assert [(one.name, one.fits) for one in found] == [
        ("for-cpus", True),
        ("for-gpus", True),
        ("talkative", True),
        ("needs-blis", False),
    ]
    assert found[1].reasons == (
        "1 of its 2 flags has an effect here",
        "1 without effect: no NVIDIA or AMD GPU is here",
    )
    assert found[3].reasons == ("cannot load BLIS, which profile `needs-blis` requires",)


def test_a_recommendation_says_what_the_host_changed_and_what_its_tier_is():
    stack = a_profile({"blas.library": {"prefer": ["mkl"]}, "determinism.tier": "run-to-run"})
    (one,) = recommend([stack], a_host(libraries=(NUMPY_OPENBLAS, BLIS)))
    assert one.reasons == (
        "it keeps its tier here: `run-to-run`",
        "2 of its 2 flags have an effect here",
        '`blas.library` becomes "openblas" instead of "mkl": mkl: no file of it was found',
    )
