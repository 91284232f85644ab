"""A condition is checked and explained by the same function."""

import pytest
from resolve_builders import AVX2, H100, MI300X, MKL, NUMPY_OPENBLAS, T4, a_host

from backendcfg.resolve.facts import check, in_words, within
from backendcfg.schema.profile import Condition, Place

CUDA = {"nvidia": "550.144.03", "cuda": "12.4"}


def answers(condition, host):
    """Need, found and met of every line."""
    found = check(Condition(**condition), host, "`requires` in profile `mine`", Place())
    return [(one.need, one.found, one.met) for one in found]


@pytest.mark.parametrize(
    ("condition", "host", "expected"),
    [
        (
            {"gpu": {"compute_capability": ">=8.0"}},
            a_host(gpus=(T4,)),
            ("CUDA compute capability 8.0 or newer", "the newest GPU here has 7.5", False),
        ),
        (
            {"gpu": {"compute_capability": ">=8.0,<10"}},
            a_host(gpus=(T4, H100.model_copy(update={"index": 1}))),
            (
                "CUDA compute capability 8.0 or newer and older than 10",
                "gpu 1 is NVIDIA H100, compute capability 9.0",
                True,
            ),
        ),
        (
            {"gpu": {"vendor": "nvidia", "compute_capability": ">=9.0"}},
            a_host(gpus=(MI300X,)),
            (
                "an NVIDIA GPU of CUDA compute capability 9.0 or newer",
                "the GPUs here are AMD Instinct MI300X",
                False,
            ),
        ),
        (
            {"gpu": {"vendor": "amd", "architecture": "gfx942"}},
            a_host(gpus=(MI300X,)),
            (
                "an AMD GPU of architecture `gfx942`",
                "gpu 0 is AMD Instinct MI300X, gfx942",
                True,
            ),
        ),
        (
            {"gpu": {"vendor": "nvidia"}},
            a_host(gpus=(H100.model_copy(update={"visible": False}),)),
            ("an NVIDIA GPU", "every GPU here is hidden from this process", False),
        ),
        ({"gpu": {}}, a_host(), ("a GPU", "no GPU is here", False)),
        (
            {"cpu": {"microarchitecture": "zen2"}},
            a_host(),
            ("CPU microarchitecture `zen2` or a descendant of it", "this CPU is `zen4`", True),
        ),
        (
            {"cpu": {"microarchitecture": "zen5"}},
            a_host(),
            ("CPU microarchitecture `zen5` or a descendant of it", "this CPU is `zen4`", False),
        ),
        (
            {"cpu": {"features": ("avx2", "avx512f", "amx_tile")}},
            a_host(features=AVX2),
            (
                "CPU features avx2, avx512f, amx_tile",
                "this CPU lacks avx512f, amx_tile",
                False,
            ),
        ),
        (
            {"cpu": {"vendor": "intel"}},
            a_host(),
            ("a CPU by Intel", "this CPU is by AMD", False),
        ),
        (
            {"cpu": {"architecture": "aarch64"}},
            a_host(),
            ("a CPU of architecture aarch64", "this one is x86_64", False),
        ),
        ({"os": "macos"}, a_host(), ("macOS", "this machine runs Linux", False)),
        (
            {"libraries": {"torch": ">=2.11"}},
            a_host(),
            ("torch 2.11 or newer", "torch is not here", False),
        ),
        (
            {"libraries": {"torch": ">=2.11"}},
            a_host(packages=[("torch", "2.13.0+cpu")]),
            ("torch 2.11 or newer", "torch 2.13.0+cpu", True),
        ),
        (
            {"libraries": {"cuda": ">=12.4"}},
            a_host(drivers=CUDA),
            ("CUDA 12.4 or newer", "CUDA 12.4", True),
        ),
        (
            {"libraries": {"nvidia": "<550"}},
            a_host(drivers=CUDA),
            ("NVIDIA driver older than 550", "NVIDIA driver 550.144.03", False),
        ),
        (
            {"libraries": {"mkl": ">=2025.0"}},
            a_host(libraries=(NUMPY_OPENBLAS, MKL)),
            ("mkl 2025.0 or newer", "mkl 2025.0", True),
        ),
        (
            {"libraries": {"torch": "~=2.13"}},
            a_host(packages=[("torch", "not-a-version")]),
            ("torch 2.13 or a compatible release", "torch not-a-version", False),
        ),
    ],
)
def test_a_line_says_what_is_needed_and_what_is_here(condition, host, expected):
    assert answers(condition, host) == [expected]


def test_one_gpu_must_meet_every_line_alone():
    host = a_host(gpus=(T4, MI300X))
    both = {"gpu": {"vendor": "amd", "compute_capability": ">=7.0"}}
    assert [met for *_, met in answers(both, host)] == [False]


def test_every_line_of_a_condition_is_answered():
    condition = {
        "os": "linux",
        "cpu": {"vendor": "amd", "features": ("avx2",)},
        "gpu": {"vendor": "nvidia"},
        "libraries": {"torch": ">=2", "numpy": ">=2"},
    }
    assert [met for *_, met in answers(condition, a_host())] == [
        True,
        True,
        True,
        False,
        False,
        True,
    ]


def test_an_empty_condition_holds_everywhere():
    assert answers({}, a_host()) == []


def test_a_range_that_is_none_never_holds():
    need, _, met = answers({"libraries": {"numpy": ">=2.x.y"}}, a_host())[0]
    assert (need, met) == ('numpy in the range ">=2.x.y", which is not a version range', False)


def test_a_range_of_thousands_of_digits_holds_nowhere():
    """Python reads no number of so many."""
    bounds = f">={'9' * 5000}"
    assert not within("2.4.6", bounds)
    assert in_words(bounds) == f"{'9' * 5000} or newer"
