"""What a profile requires of a host, and what it pins by name, is checked before anything else."""

import pytest
from resolve_builders import AVX2, H100, MI300X, T4, a_host, a_profile, a_stack

from backendcfg.errors import InvalidValueError, UnsupportedHardwareError
from backendcfg.resolve.libraries import CORE_TYPES
from backendcfg.resolve.plan import resolve
from backendcfg.schema.host import Absent, Broken, Memory, System

NEEDS_8 = {'compute_capability = ">=8.0"': {"gpu": {"compute_capability": ">=8.0"}}}
CORE = "blas.openblas.core_type"


def refused(stack, host):
    with pytest.raises(UnsupportedHardwareError) as caught:
        resolve(stack, host)
    return caught.value


def test_an_unmet_requirement_reads_as_in_the_manual():
    host = a_host(gpus=(T4,), drivers={"nvidia": "550.144.03"})
    error = refused(a_profile(name="h200-tf32", requires=NEEDS_8), host)
    assert error.render() == (
        "error[unsupported-hardware]: profile `h200-tf32` needs CUDA compute capability 8.0 or "
        "newer; the newest GPU here has 7.5\n"
        "  --> profiles/h200-tf32.toml:2:22\n"
        "   |\n"
        ' 2 | compute_capability = ">=8.0"\n'
        "   |                      ^^^^^^^ required here\n"
        "  note: gpu 0 is Tesla T4, compute capability 7.5, driver 550.144.03\n"
        "  state: nothing was changed\n"
        "  help: run `backendcfg plan h200-tf32 --why-not` to list every unmet requirement"
    )


def test_every_unmet_requirement_is_named():
    lines = {**NEEDS_8, 'os = "macos"': {"os": "macos"}}
    error = refused(a_profile(requires=lines), a_host(gpus=(T4,)))
    assert error.notes == (
        "it also needs macOS; this machine runs Linux",
        "gpu 0 is Tesla T4, compute capability 7.5",
    )
    assert [span.line for span in error.spans] == [2, 2]


def test_what_a_probe_could_not_see_is_said():
    probes = (
        Broken(probe="nvidia", path="/lib/libnvidia-ml.so.1", reason="version mismatch"),
        Absent(probe="amd", reason="no /sys/class/kfd"),
    )
    assert refused(a_profile(requires=NEEDS_8), a_host(probes=probes)).notes == (
        "the probe for NVIDIA GPUs says: version mismatch",
        "the probe for AMD GPUs says: no /sys/class/kfd",
    )


def test_a_hidden_gpu_is_named_as_hidden():
    error = refused(
        a_profile(requires=NEEDS_8), a_host(gpus=(H100.model_copy(update={"visible": False}),))
    )
    assert error.message.endswith("; every GPU here is hidden from this process")
    assert error.notes == (
        "gpu 0 is NVIDIA H100, compute capability 9.0, hidden from this process",
    )


def test_a_met_requirement_is_in_the_plan():
    plan = resolve(a_profile(requires=NEEDS_8), a_host(gpus=(H100,)))
    assert [(check.need, check.found, check.met, check.because) for check in plan.checks] == [
        (
            "CUDA compute capability 8.0 or newer",
            "gpu 0 is NVIDIA H100, compute capability 9.0",
            True,
            "`requires` in profile `mine`",
        )
    ]


def test_hardware_comes_before_conflicts():
    stack = a_profile({"cudnn.conv.fp32_precision": "ieee"}, requires=NEEDS_8)
    assert refused(stack, a_host(gpus=(MI300X,), packages=[("torch", "2.13.0")]))


def test_kernels_that_the_cpu_cannot_run_are_refused():
    error = refused(a_profile({CORE: "SkylakeX"}), a_host(features=AVX2))
    assert error.message == (
        "profile `mine` needs a CPU that runs SkylakeX kernels (x86_64, avx512f, avx512cd, "
        "avx512bw, avx512dq, avx512vl); this CPU lacks avx512f, avx512cd, avx512bw, avx512dq, "
        "avx512vl"
    )


def test_kernels_of_another_architecture_are_refused():
    error = refused(
        a_profile({CORE: "Haswell"}), a_host(architecture="aarch64", features=("asimd",))
    )
    assert error.message.endswith("; this CPU is aarch64")


def test_kernels_are_named_without_regard_to_case():
    assert resolve(a_profile({CORE: "haswell"}), a_host()).entry(CORE).value == "haswell"


def test_a_capability_that_pytorch_would_run_unchecked_is_refused():
    stack = a_profile({"torch.cpu_capability": "avx512"})
    host = a_host(features=AVX2, packages=[("torch", "2.13.0")])
    assert "this CPU lacks avx512f" in refused(stack, host).message
    assert resolve(stack, a_host(features=AVX2)).entry("torch.cpu_capability").dormant


def test_a_kernel_set_that_does_not_exist_is_an_error_with_the_nearest_name():
    with pytest.raises(InvalidValueError) as caught:
        resolve(a_profile({CORE: "Hasvell"}), a_host())
    assert caught.value.message == (
        '`blas.openblas.core_type` is "Hasvell", which is no kernel set of OpenBLAS'
    )
    assert caught.value.spans[0].label == "did you mean `Haswell`?"
    assert caught.value.helps == ('write "Haswell"',)


def test_kernel_sets_of_every_architecture_that_openblas_dispatches_on_are_known():
    assert {kernels.architecture for kernels in CORE_TYPES.values()} == {
        *("x86_64", "aarch64", "ppc64le", "s390x")
    }


def test_threads_are_the_cores_of_the_process_and_say_why():
    host = a_host(logical=64, physical=32, cores=1, limits=("rank 0 of 2 here, by LOCAL_RANK",))
    change = resolve(a_stack(), host).entry("threads.count").adaptation
    assert (change.requested, change.got) == ("auto", 1)
    assert change.because == "1 of 32 cores are for this process (rank 0 of 2 here, by LOCAL_RANK)"


def test_hardware_threads_of_one_core_count_once():
    """Also on a host that was captured before cores were detected."""
    plan = resolve(a_stack(), a_host(logical=384, physical=192, usable=384))
    assert plan.entry("threads.count").adaptation.got == 192
    plan = resolve(a_stack(), a_host(logical=64, physical=32, usable=2))
    assert plan.entry("threads.count").adaptation.got == 2


@pytest.mark.parametrize(("cores", "got"), [(192, 2), (1, 1)])
def test_few_tasks_run_side_by_side(cores, got):
    change = resolve(a_stack(), a_host(cores=cores)).entry("threads.interop").adaptation
    assert change.got == got
    assert change.because == "few tasks run side by side"


def test_threads_that_were_asked_for_stay():
    entry = resolve(a_profile({"threads.count": 7}), a_host()).entry("threads.count")
    assert (entry.value, entry.adaptation) == (7, None)


@pytest.mark.parametrize(("vendor", "got"), [("intel", "avx2,strict"), ("amd", "auto")])
def test_an_mkl_branch_that_only_intel_has_is_adapted_elsewhere(vendor, got):
    stack = a_profile({"blas.mkl.cbwr": "avx2,strict"})
    entry = resolve(stack, a_host(vendor=vendor)).entry("blas.mkl.cbwr")
    assert entry.value == got
    assert (entry.adaptation is None) == (vendor == "intel")


GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "got", "because"),
    [
        ({"total": 8 * GIB}, GIB, "an eighth of the 8192 MiB for this process"),
        (
            {"total": 8 * GIB, "limit": 2 * GIB},
            GIB // 4,
            "an eighth of the 2048 MiB for this process",
        ),
        ({"total": 8 * GIB, "ranks": 4}, GIB // 4, "an eighth of the 2048 MiB for this process"),
        (
            {"total": 64 * GIB},
            2 * GIB - 1,
            "an eighth of the 65536 MiB for this process, and no more than mallopt can say",
        ),
        (
            {"total": 8 * GIB, "limit": GIB - 1},
            0,
            "an eighth of the 1023 MiB for this process is little: glibc decides",
        ),
    ],
)
def test_freed_memory_is_kept_by_what_the_process_may_use(memory, got, because):
    host = a_host().model_copy(
        update={
            "memory": Memory(**memory),
            "system": System(os="linux", libc="glibc 2.36"),
        }
    )
    entry = resolve(a_profile({"memory.keep_freed": "auto"}), host).entry("memory.keep_freed")
    assert (entry.value, entry.adaptation.because, entry.dormant) == (got, because, "")


def test_memory_is_kept_where_glibc_is_and_as_much_as_somebody_says():
    entry = resolve(a_profile({"memory.keep_freed": GIB}), a_host()).entry("memory.keep_freed")
    assert (entry.value, entry.adaptation, entry.dormant) == (GIB, None, "glibc is not here")


@pytest.mark.parametrize("precision", ["none", "ieee", "bf16", "tf32"])
def test_products_of_float32_are_not_routed_where_onednn_may_reduce_them(precision):
    values = {"route.torch.matmul": "float32", "mkldnn.matmul.fp32_precision": precision}
    entry = resolve(a_profile(values), a_host()).entry("route.torch.matmul")
    if precision in ("none", "ieee"):
        assert (entry.value, entry.adaptation) == ("float32", None)
    else:
        assert (entry.value, entry.adaptation.requested) == ("keep", "float32")
        assert entry.adaptation.because == (
            f'`mkldnn.matmul.fp32_precision = "{precision}"` asks for oneDNN\'s, in fewer bits'
        )
