"""The shipped profiles are valid, say why for each value, and are what their names promise."""

import re
import tomllib

import pytest

from backendcfg.load.document import read_profile
from backendcfg.load.locations import profile_files, shipped_dir
from backendcfg.load.stack import Request, load

PROFILES = {path.stem: path for path in profile_files(shipped_dir())}
NAMES = sorted(PROFILES)
ASSIGNMENT = re.compile(r"""^\s*[A-Za-z0-9_."'-]+\s*=""")
URL = re.compile(r"https://[^\s)]+")


def effective(name):
    """The flags that a profile sets on a host where no condition holds."""
    return {a.flag: a.value for layer in load(Request(name)).layers for a in layer.assignments}


def test_the_shipped_profiles_are_these():
    assert NAMES == [
        "debug",
        "fast",
        "max-throughput",
        "reproducible",
        "reproducible-anywhere",
        "tf32-off",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_valid_and_describes_itself(name):
    profile = read_profile(PROFILES[name])
    assert 20 < len(profile.description) < 100
    assert tomllib.loads(PROFILES[name].read_text())["schema"] == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_comment_that_says_why(name):
    lines = PROFILES[name].read_text().splitlines()
    for number, line in enumerate(lines):
        if ASSIGNMENT.match(line):
            behind = "#" in re.sub(r'"[^"]*"', "", line)
            above = number > 0 and lines[number - 1].startswith("# ")
            assert behind or above, f"{name}:{number + 1}: {line}"


@pytest.mark.parametrize("name", NAMES)
def test_every_table_names_a_source(name):
    tables = [[]]
    for line in PROFILES[name].read_text().splitlines():
        if line.startswith("["):
            # The comment directly above a header belongs to its table.
            lead = []
            while tables[-1] and tables[-1][-1].startswith("#"):
                lead.insert(0, tables[-1].pop())
            tables.append(lead)
        tables[-1].append(line)
    for table in tables:
        assert URL.search("\n".join(table)), f"{name}: {table[:3]}"


def test_every_name_composes_with_every_other():
    for first in NAMES:
        for second in NAMES:
            assert load(Request(f"{first}+{second}")).layers


def test_reproducible_keeps_float32_and_times_nothing():
    values = effective("reproducible")
    expected = {
        "determinism.tier": "run-to-run",
        "determinism.algorithms": "deterministic",
        "threads.count": "auto",
        "threads.dynamic": False,
        "python.hash_seed": 0,
        "cudnn.benchmark": False,
        "cudnn.deterministic": True,
        "mkldnn.deterministic": True,
        "torch.cublas_workspace_config": ":4096:8",
        "torch.tunable_op": False,
        "torch.mkl_detection": "at-load",
        "mha.fastpath_enabled": False,
        "opt_einsum.strategy": "greedy",
        "cuda.matmul.allow_fp16_reduced_precision_reduction": False,
        "cuda.matmul.allow_bf16_reduced_precision_reduction": False,
    }
    assert {flag: values.get(flag) for flag in expected} == expected
    assert {v for f, v in values.items() if f.endswith("fp32_precision")} == {"ieee"}


def test_reproducible_anywhere_promises_other_machines():
    values = effective("reproducible-anywhere")
    assert values["determinism.tier"] == "cross-machine"
    assert values["threads.count"] == 1
    assert values["blas.library"] == {"require": "native"}
    assert values["blas.mkl.cbwr"] == "compatible"
    whens = load(Request("reproducible-anywhere")).layers[-1].whens
    for_x86 = {
        a.flag: a.value
        for when in whens
        if when.condition.cpu
        and when.condition.cpu.architecture == "x86_64"
        and not when.condition.libraries
        for a in when.assignments
    }
    assert for_x86 == {
        "blas.openblas.core_type": "Haswell",
        "blas.blis.arch_type": "haswell",
        "torch.cpu_capability": "avx2",
        "onednn.max_cpu_isa": "avx2",
    }


def test_tf32_off_sets_what_takes_bits_from_float32_and_nothing_else():
    values = effective("tf32-off")
    assert values.pop("torch.mkl_detection") == "at-load"  # else sqrt may have 12 bits
    assert all(
        word in flag
        for flag in values
        for word in [next(w for w in ("precision", "fpmath", "float_32", "compute") if w in flag)]
    )
    assert {v for f, v in values.items() if f.endswith("fp32_precision")} == {"ieee"}


def test_fast_allows_tf32_and_no_16_bit_sums():
    values = effective("fast")
    assert values["cuda.matmul.fp32_precision"] == "tf32"
    assert values["cudnn.benchmark"] is True
    assert values["cuda.matmul.allow_fp16_reduced_precision_reduction"] is False
    assert not any(flag.startswith(("mkldnn", "onednn")) for flag in values)


def test_fast_routes_what_gives_the_same_results_within_rounding():
    values = effective("fast")
    assert {flag: value for flag, value in values.items() if flag.startswith("route.")} == {
        "route.numpy.elementwise": "threads",
        "route.torch.attention": "native",
        "route.torch.dropout": "native",
    }


def test_max_throughput_allows_all_that_fast_does_not():
    values = effective("max-throughput")
    for flag in (
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_bf16_reduced_precision_reduction",
        "cuda.matmul.allow_fp16_accumulation",
        "cuda.allow_fp16_bf16_reduction_math_sdp",
    ):
        assert values[flag] is True
    assert values["mkldnn.matmul.fp32_precision"] == "bf16"
    assert values["cudnn.benchmark"] is True


def test_debug_is_verbose_strict_and_slow():
    values = effective("debug")
    expected = {
        "threads.count": 1,
        "determinism.algorithms": "deterministic",
        "mkl.verbose": 1,
        "mkldnn.verbose": 2,
        "log.level": "debug",
        "ops.check_finite": True,
    }
    assert {flag: values.get(flag) for flag in expected} == expected


def test_no_profile_writes_the_roots_of_the_precision_tree():
    roots = {"fp32_precision", "cudnn.fp32_precision", "mkldnn.fp32_precision"}
    assert [name for name in NAMES if roots & set(effective(name))] == []
