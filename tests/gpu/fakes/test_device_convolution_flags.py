"""What each flag does to the engine that computes a convolution on a device, and what is told."""

import pytest
from convolutions import attributes, engines_run, normal
from device_arrays import OnDevice
from products import under

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.defaults import DEFAULTS
from backendcfg.gpu import convolution as device_convolution
from backendcfg.gpu import convolution as rules
from backendcfg.transact.compiled import Compiled

FLAGS = {flag: DEFAULTS[flag] for flag in rules.FLAGS}
HEURISTIC, MODE_A, MODE_FALLBACK = 4, 3, 2


@pytest.fixture(autouse=True)
def _chosen_anew(devices):
    device_convolution.forget()


def run(element="float32", **options):
    """A convolution that every engine of the fake takes, but for its type."""
    return ops.conv2d(normal((2, 4, 8, 8), element), normal((4, 4, 3, 3), element), **options)


@pytest.mark.parametrize(
    ("flags", "element", "engine"),
    [
        ({}, "float32", "split"),
        ({"cudnn__deterministic": True}, "float32", "tensor"),
        ({"determinism__algorithms": "deterministic"}, "float32", "tensor"),
        ({"determinism__tier": "run-to-run"}, "float32", "tensor"),
        (
            {"cudnn__deterministic": True, "cudnn__conv__fp32_precision": "ieee"},
            "float32",
            "winograd",
        ),
        (
            {"cudnn__deterministic": True, "cudnn__conv__fp32_precision": "tf32"},
            "float32",
            "tensor",
        ),
        ({"cudnn__deterministic": True, "cudnn__fp32_precision": "ieee"}, "float32", "winograd"),
        ({"cudnn__deterministic": True, "fp32_precision": "ieee"}, "float32", "winograd"),
        # Tensor cores keep float16 and bfloat16 as they are.
        (
            {"cudnn__deterministic": True, "cudnn__conv__fp32_precision": "ieee"},
            "float16",
            "tensor",
        ),
        ({"cudnn__deterministic": True, "fp32_precision": "ieee"}, "bfloat16", "tensor"),
        ({"cudnn__deterministic": True}, "float64", "winograd"),
    ],
)
def test_the_engine_is_the_first_whose_notes_the_flags_allow(devices, flags, element, engine):
    with under(**flags):
        run(element)
    assert engines_run(devices) == [engine]


@pytest.mark.parametrize("leaf", [None, "none", "ieee", "tf32"])
@pytest.mark.parametrize("cuda", ["none", "ieee", "tf32"])
@pytest.mark.parametrize("root", ["none", "ieee", "tf32", "bf16"])
def test_tf32_is_allowed_where_torch_backends_says_so(leaf, cuda, root):
    from backendcfg.backends import base

    values = {"cudnn.fp32_precision": cuda, "fp32_precision": root}
    if leaf is not None:
        values[rules.PRECISION] = leaf
    compiled = Compiled("test", "none", {**FLAGS, **values}, tuple(values))
    with Scope(Prepared("test", compiled)):
        wanted = base.effective(rules.PRECISION) == "tf32"
        assert rules.tf32(*device_convolution.flags_in_force()) == wanted


def test_no_engine_that_narrows_its_operands_is_ever_taken():
    for flags in ({}, {"cudnn.deterministic": True}, {rules.PRECISION: "tf32"}):
        for element in ("float32", "float64", "float16", "bfloat16"):
            refused = rules.refused({**FLAGS, **flags}, set(flags), element)
            assert "DOWN_CONVERT_INPUTS" in refused


def test_what_reaches_cudnn_is_the_call(devices):
    x, w = normal((2, 6, 9, 8), "float16"), normal((4, 3, 3, 2), "float16")
    ops.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 3), groups=2)
    assert attributes(devices, 1) == [
        {
            100: (1, [0]),  # summed in float32
            101: (7, [1]),  # cross-correlation
            106: (3, [2]),
            102: (3, [1, 3]),
            103: (3, [2, 1]),
            105: (3, [1, 2]),
            104: (3, [1, 2]),
        }
    ]
    tensors = attributes(devices, 17)
    assert [each[906] for each in tensors] == [(3, [1]), (3, [2]), (3, [3])]
    assert [each[901] for each in tensors] == [(1, [2])] * 3  # CUDNN_DATA_HALF
    assert [each[902] for each in tensors] == [
        (3, [2, 6, 9, 8]),
        (3, [4, 3, 3, 2]),
        (3, [2, 4, 5, 9]),
    ]
    assert [each[900] for each in tensors] == [(3, [32])] * 3
    heuristics = attributes(devices, HEURISTIC)
    assert [each[200] for each in heuristics] == [(8, [MODE_A]), (8, [MODE_FALLBACK])]


@pytest.mark.parametrize(
    ("element", "data", "arithmetic"),
    [("float32", 0, 0), ("float64", 1, 1), ("float16", 2, 0), ("bfloat16", 9, 0)],
)
def test_each_type_of_element_has_its_number_and_its_arithmetic(devices, element, data, arithmetic):
    run(element)
    assert {each[901][1][0] for each in attributes(devices, 17)} == {data}
    assert attributes(devices, 1)[0][100] == (1, [arithmetic])


def test_alignment_is_that_of_the_memory(devices):
    memory = normal((1, 1, 4, 65)).array.reshape(-1)[1:257].reshape(1, 1, 16, 16)
    ops.conv2d(OnDevice(memory, "float32"), normal((2, 1, 3, 3)))
    assert [each[900][1][0] for each in attributes(devices, 17)] == [4, 32, 32]


def test_a_known_call_asks_nothing_and_runs_its_plan(devices):
    x, w = normal((2, 4, 8, 8)), normal((4, 4, 3, 3))
    ops.conv2d(x, w)
    devices.cudnn.reset()
    ops.conv2d(x, w)
    made = devices.cudnn.calls("cudnnBackendCreateDescriptor")
    assert [call["type"] for call in made] == [16]  # the variant pack
    assert len(devices.cudnn.calls("cudnnBackendExecute")) == 1


def test_benchmark_times_every_engine_that_may_serve_and_keeps_the_fastest(devices):
    devices.cudnn.set(spent_3=1)
    x, w = normal((2, 4, 8, 8)), normal((4, 4, 3, 3))
    with under(cudnn__benchmark=True, cudnn__benchmark_limit=0):
        ops.conv2d(x, w)
        # Each runs once to load its code and once between two events; the fastest once more.
        timed = ["split", "tensor", "winograd", "fourier", "implicit", "implicit"]
        assert engines_run(devices) == [each for name in timed for each in (name, name)] + [
            "winograd"
        ]
        devices.cudnn.reset()
        ops.conv2d(x, w)
        assert engines_run(devices) == ["winograd"]


def test_events_for_times_are_on_the_stream_and_are_destroyed(devices):
    with under(cudnn__benchmark=True, cudnn__benchmark_limit=2):
        run()
    cuda = devices.cuda
    assert [call["flags"] for call in cuda.calls("cuEventCreate")] == [0] * 4
    assert len(cuda.calls("cuEventRecord")) == len(cuda.calls("cuEventDestroy_v2")) == 4
    assert {call["stream"] for call in cuda.calls("cuEventRecord")} == {None}
    assert len(cuda.calls("cuEventElapsedTime")) == 2


def test_benchmark_limit_counts_the_engines_that_were_timed(devices):
    devices.cudnn.set(unsupported=1 << 5)  # which is the first that may serve
    with under(cudnn__benchmark=True, cudnn__benchmark_limit=2):
        run()
    assert engines_run(devices) == ["tensor", "tensor", "winograd", "winograd", "tensor"]


@pytest.mark.parametrize(
    "flags",
    [
        {"cudnn__deterministic": True},
        {"determinism__algorithms": "deterministic"},
        {"determinism__tier": "same-machine"},
    ],
    ids=str,
)
def test_nothing_is_timed_where_bits_must_not_differ(devices, flags):
    with under(cudnn__benchmark=True, **flags):
        run()
    assert engines_run(devices) == ["tensor"]
    assert devices.cuda.calls("cuEventElapsedTime") == []


def test_what_is_remembered_is_bounded(devices, monkeypatch):
    for cache in (device_convolution._engines, device_convolution._latest):
        monkeypatch.setattr(cache, "most", 2)
    w = normal((2, 1, 1, 1))
    for height in (3, 4, 5):
        ops.conv2d(normal((1, 1, height, 4)), w)
    assert len(device_convolution._engines) == len(device_convolution._latest) == 2


def test_a_profile_of_its_own_has_engines_of_its_own(devices):
    x, w = normal((2, 4, 8, 8)), normal((4, 4, 3, 3))
    for flags in ({}, {"cudnn__deterministic": True}, {}):
        with under(**flags):
            ops.conv2d(x, w)
    assert engines_run(devices) == ["split", "tensor", "split"]


def test_stats_and_traces_tell_who_served(devices):
    with ops.trace() as calls:
        run()
    assert [(call.operation, call.provider) for call in calls] == [("conv2d", "cudnn")]
    assert "conv2d  cudnn  1  the first engine that takes it" in str(ops.stats())


def explained(**flags):
    with under(**flags):
        return str(
            ops.explain("conv2d", ((2, 4, 8, 8), (4, 4, 3, 3)), "float32", device="cuda:0")
        ).splitlines()


def test_explain_says_beforehand_which_engines_no_call_will_take(devices):
    lines = explained(cudnn__deterministic=True, cudnn__fp32_precision="ieee")
    assert lines[0] == (
        "conv2d of (2, 4, 8, 8) by (4, 4, 3, 3) float32 on cuda:0 under profile `test`"
    )
    said = [line.partition("  ")[2].strip() for line in lines[1:5]]
    assert said[0].endswith(
        "libcudnn.so.9, its engines are asked for by the first call of this shape"
    )
    assert [line.split("  ")[1] for line in lines[2:5]] == [
        "DOWN_CONVERT_INPUTS",
        "TENSOR_CORE",
        "NONDETERMINISTIC",
    ]
    assert lines[3].endswith(
        "no engine with this note: it computes in TF32, which the flags do not allow"
    )
    assert lines[4].endswith(
        "no engine with this note: its bits may differ from run to run, and "
        "`cudnn.deterministic` is on"
    )
    assert devices.cudnn.calls() == []


def test_explain_shows_the_engine_of_a_call_and_why_it_was_no_other(devices):
    with under(cudnn__deterministic=True, cudnn__conv__fp32_precision="ieee"):
        run()
        lines = str(
            ops.explain("conv2d", ((2, 4, 8, 8), (4, 4, 3, 3)), "float32", device="cuda:0")
        ).splitlines()
    assert lines[1].endswith(
        "libcudnn.so.9, the first engine that takes it: engine 3 (WINOGRAD, WINOGRAD_TILE_4x4)"
    )
    said = {line[2:].partition("  ")[0]: line[2:].partition("  ")[2].strip() for line in lines[2:]}
    assert said["engine 2 (TENSOR_CORE, DOWN_CONVERT_INPUTS)"] == (
        "DOWN_CONVERT_INPUTS: it narrows what it reads; "
        "TENSOR_CORE: it computes in TF32, which the flags do not allow"
    )
    assert said["engine 5 (REDUCED_PRECISION_REDUCTION, NONDETERMINISTIC)"] == (
        "NONDETERMINISTIC: its bits may differ from run to run, and `cudnn.deterministic` is on"
    )
    assert said["engine 0"] == "behind engine 3"
    assert said["direct"] == "it is of the CPU"


def test_explain_shows_the_times_of_a_measured_call(devices):
    with under(cudnn__benchmark=True, cudnn__benchmark_limit=2):
        run()
        text = str(ops.explain("conv2d", ((2, 4, 8, 8), (4, 4, 3, 3)), "float32", device="cuda"))
    assert "the fastest engine when it was measured: engine 1 (TENSOR_CORE)" in text
    assert "4 ms, and 2 ms is the fastest" in text
    assert "2 were timed, as `cudnn.benchmark_limit` says" in text


@pytest.mark.parametrize(
    ("flags", "device", "dtype", "why"),
    [
        ({"cudnn__enabled": False}, "cuda:0", "float32", "`cudnn.enabled` is off"),
        ({}, "rocm:0", "float32", "it is NVIDIA's"),
        ({}, "cuda:0", "complex64", "it convolves no complex64"),
        (
            {"determinism__tier": "cross-machine"},
            "cuda:0",
            "float32",
            "`determinism.tier` promises `cross-machine`, which no library on a device keeps",
        ),
    ],
)
def test_explain_says_why_nothing_would_serve(devices, flags, device, dtype, why):
    with under(**flags):
        said = ops.explain("conv2d", ((2, 4, 8, 8), (4, 4, 3, 3)), dtype, device=device)
    assert said.provider == ""
    assert (said.reasons[0].provider, said.reasons[0].why) == ("cudnn", why)
