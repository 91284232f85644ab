"""Values that cannot both hold are refused with both sides, where the host makes them clash."""

import pytest
from resolve_builders import H100, MI300X, a_host, a_layer, a_profile, a_stack, variables

from backendcfg.catalogue.variables import VARIABLES
from backendcfg.errors import ConflictingFlagsError, SeveralErrors
from backendcfg.resolve.conflicts import CONFLICTS, clashes
from backendcfg.resolve.plan import examine, resolve

TORCH = [("torch", "2.13.0"), ("jax", "0.10.2"), ("tensorflow", "2.21.0")]
CPU = a_host(packages=TORCH)
NVIDIA = a_host(packages=TORCH, gpus=(H100,))
AMD = a_host(packages=TORCH, gpus=(MI300X,))

SDP = "cuda.enable_{}_sdp"
MATMUL = "cuda.matmul.allow_{}_reduced_precision_reduction"
NO_SDP = {SDP.format(kernel): False for kernel in ("flash", "mem_efficient", "math")}

CASES = {
    "benchmark-and-tier": (NVIDIA, {"cudnn.benchmark": True, "determinism.tier": "run-to-run"}),
    "warn-only-and-tier": (CPU, {"determinism.algorithms": "warn", "determinism.tier": "restart"}),
    "fp16-reduction-and-split-k": (NVIDIA, {f"{MATMUL.format('fp16')}_split_k": False}),
    "bf16-reduction-and-split-k": (AMD, {f"{MATMUL.format('bf16')}_split_k": False}),
    "fp16-split-k-and-cublas": (
        NVIDIA,
        {f"{MATMUL.format('fp16')}_split_k": False, MATMUL.format("fp16"): False},
    ),
    "bf16-split-k-and-cublas": (
        NVIDIA,
        {
            f"{MATMUL.format('bf16')}_split_k": False,
            MATMUL.format("bf16"): False,
            "cuda.preferred_blas_library": "cublas",
        },
    ),
    "fp16-accumulation-and-reduction": (
        NVIDIA,
        {"cuda.matmul.allow_fp16_accumulation": True, MATMUL.format("fp16"): False},
    ),
    "cudnn-attention-and-determinism": (
        NVIDIA,
        {**NO_SDP, "determinism.algorithms": "deterministic"},
    ),
    "cpu-attention": (CPU, NO_SDP),
    "no-attention": (NVIDIA, {**NO_SDP, SDP.format("cudnn"): False}),
    "tf32-off-and-override": (
        NVIDIA,
        {"environment": {"NVIDIA_TF32_OVERRIDE": "1"}, "cuda.matmul.fp32_precision": "ieee"},
    ),
    "tf32-on-and-override": (
        NVIDIA,
        {"environment": {"NVIDIA_TF32_OVERRIDE": "0"}, "cuda.matmul.fp32_precision": "tf32"},
    ),
    "ieee-and-onednn-fpmath": (
        CPU,
        {"onednn.default_fpmath_mode": "bf16", "mkldnn.matmul.fp32_precision": "ieee"},
    ),
    "parent-tf32-and-leaf-none": (
        NVIDIA,
        {
            "cudnn.fp32_precision": "tf32",
            "cudnn.conv.fp32_precision": "none",
            "cudnn.rnn.fp32_precision": "tf32",
        },
    ),
    "conv-and-rnn": (NVIDIA, {"cudnn.conv.fp32_precision": "ieee"}),
    "mkl-and-openmp-threads": (
        CPU,
        {"environment": {"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "4"}},
    ),
    "tunable-op-and-tier": (AMD, {"torch.tunable_op": True, "determinism.tier": "run-to-run"}),
    "tunable-op-variable-and-tier": (
        AMD,
        {"environment": {"PYTORCH_TUNABLEOP_ENABLED": "1"}, "determinism.tier": "run-to-run"},
    ),
    "xla-fast-math-and-tier": (
        CPU,
        {
            "environment": {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"},
            "determinism.tier": "run-to-run",
        },
    ),
    "xla-flags-and-jax.deterministic_ops": (
        NVIDIA,
        {
            "environment": {"XLA_FLAGS": "--xla_gpu_deterministic_ops=false"},
            "jax.deterministic_ops": True,
        },
    ),
    "xla-flags-and-jax.autotune_level": (
        NVIDIA,
        {"environment": {"XLA_FLAGS": "--xla_gpu_autotune_level=4"}, "jax.autotune_level": 0},
    ),
    "OMP_NUM_THREADS-and-threads.count": (
        CPU,
        {"environment": {"OMP_NUM_THREADS": "4"}, "threads.count": 2},
    ),
    "PYTHONHASHSEED-and-python.hash_seed": (
        CPU,
        {"environment": {"PYTHONHASHSEED": "1"}, "python.hash_seed": 0},
    ),
}


def names(values, host):
    """The conflicts of a profile on a host."""
    found = examine(a_profile(values), host)
    return [clash.conflict.name for clash in found.clashes]


@pytest.mark.parametrize("name", CASES)
def test_each_conflict_is_found_where_it_exists(name):
    host, values = CASES[name]
    assert name in names(values, host)


@pytest.mark.parametrize("name", CASES)
def test_a_conflict_alone_raises_with_its_own_words(name):
    host, values = CASES[name]
    with pytest.raises((ConflictingFlagsError, SeveralErrors)) as caught:
        resolve(a_profile(values), host)
    errors = getattr(caught.value, "errors", (caught.value,))
    record = next(conflict for conflict in CONFLICTS if conflict.name == name)
    assert any(record.note in error.notes for error in errors)


def test_every_conflict_that_is_written_by_hand_has_a_case():
    generated = {f"{row.name}-and-{row.flag}" for row in VARIABLES}
    generated |= {f"{name}-and-{row.flag}" for row in VARIABLES for name in row.rivals}
    assert {conflict.name for conflict in CONFLICTS} - generated <= set(CASES)


def test_no_two_conflicts_have_one_name():
    assert len({conflict.name for conflict in CONFLICTS}) == len(CONFLICTS)


def test_the_table_finds_nothing_in_the_defaults():
    for host in (CPU, NVIDIA, AMD):
        assert list(clashes(CONFLICTS, examine(a_stack(), host).ground)) == []


@pytest.mark.parametrize(
    ("host", "values"),
    [
        (CPU, CASES["benchmark-and-tier"][1]),
        (CPU, CASES["conv-and-rnn"][1]),
        (AMD, CASES["fp16-split-k-and-cublas"][1]),
        (NVIDIA, CASES["cpu-attention"][1]),
        (a_host(), CASES["warn-only-and-tier"][1]),
        (a_host(), CASES["ieee-and-onednn-fpmath"][1]),
        (NVIDIA, {**CASES["conv-and-rnn"][1], "cudnn.rnn.fp32_precision": "ieee"}),
        (NVIDIA, {"cudnn.fp32_precision": "ieee", "cudnn.conv.fp32_precision": "ieee"}),
        (NVIDIA, {"environment": {"NVIDIA_TF32_OVERRIDE": "0"}}),
        (CPU, {"environment": {"OMP_NUM_THREADS": "2"}, "threads.count": 2}),
        (CPU, {"environment": {"PYTHONHASHSEED": "1"}}),
    ],
)
def test_there_is_no_conflict_where_it_cannot_happen(host, values):
    assert names(values, host) == []


def test_both_sides_are_shown_with_their_places():
    stack = a_stack(
        a_layer("base", {"determinism.tier": "run-to-run"}),
        a_layer("fast", {"cudnn.benchmark": True}),
    )
    with pytest.raises(ConflictingFlagsError) as caught:
        resolve(stack, NVIDIA)
    assert caught.value.render() == (
        'error[conflicting-flags]: `cudnn.benchmark = true` and `determinism.tier = "run-to-run"` '
        "cannot both hold\n"
        "  --> profiles/base.toml:3:1\n"
        "   |\n"
        ' 3 | tier = "run-to-run"\n'
        "   | ^^^^^^^^^^^^^^^^^^^ set in `base`\n"
        "  --> profiles/fast.toml:3:1\n"
        "   |\n"
        " 3 | benchmark = true\n"
        "   | ^^^^^^^^^^^^^^^^ set in `fast`, which extends `base`\n"
        "  note: benchmarking times the algorithms and keeps the fastest, so the next process may "
        "keep another one, also when only deterministic ones are tried\n"
        "  state: nothing was changed\n"
        "  help: in profiles/fast.toml, set `cudnn.benchmark = false`"
    )


def test_a_conflict_with_a_default_says_so():
    with pytest.raises(ConflictingFlagsError) as caught:
        resolve(a_profile({"cudnn.conv.fp32_precision": "ieee"}), NVIDIA)
    assert caught.value.message == (
        '`cudnn.conv.fp32_precision = "ieee"` and `cudnn.rnn.fp32_precision = "tf32"` '
        "(the default) cannot both hold"
    )
    assert caught.value.notes[0] == "`cudnn.rnn.fp32_precision` is at its default; nobody set it"
    assert [span.path for span in caught.value.spans] == ["profiles/mine.toml"]


def test_a_side_that_a_variable_sets_is_named():
    stack = a_stack(
        a_layer("fast", {"cudnn.benchmark": True}), variables({"determinism.tier": "run-to-run"})
    )
    with pytest.raises(ConflictingFlagsError) as caught:
        resolve(stack, NVIDIA)
    assert caught.value.notes[0] == (
        '`determinism.tier = "run-to-run"` is set by BACKENDCFG_DETERMINISM_TIER'
    )
    assert caught.value.helps == ("in profiles/fast.toml, set `cudnn.benchmark = false`",)


def test_composed_profiles_are_not_said_to_extend_each_other():
    stack = a_stack(
        a_layer("a", {"determinism.tier": "run-to-run"}),
        a_layer("b", {"cudnn.benchmark": True}),
        name="a+b",
    )
    with pytest.raises(ConflictingFlagsError) as caught:
        resolve(stack, NVIDIA)
    assert [span.label for span in caught.value.spans] == ["set in `a`", "set in `b`"]


def test_several_conflicts_are_reported_at_once():
    values = {
        "cudnn.conv.fp32_precision": "ieee",
        "cuda.matmul.allow_fp16_accumulation": True,
        MATMUL.format("fp16"): False,
    }
    with pytest.raises(SeveralErrors) as caught:
        resolve(a_profile(values), NVIDIA)
    assert caught.value.message == "2 errors in profile `mine`"
    assert [type(error) for error in caught.value.errors] == [ConflictingFlagsError] * 2


def test_thread_counts_conflict_with_the_environment_table_also_by_default():
    with pytest.raises(ConflictingFlagsError) as caught:
        resolve(a_profile({"environment": {"OMP_NUM_THREADS": "4"}}), CPU)
    assert caught.value.message == (
        '`environment.OMP_NUM_THREADS = "4"` and `threads.count = 2` (the default) cannot both hold'
    )
