"""Every switch of PyTorch, with every value that its flag may have, on the real PyTorch."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from packaging.version import Version

from backendcfg.bridges import torch as bridge
from backendcfg.bridges.torch import kernels
from backendcfg.schema.profile import flags

pytestmark = pytest.mark.torch
real = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

since_2_13 = pytest.mark.skipif(
    find_spec("torch") is None or Version(version("torch")) < Version("2.13"),
    reason="PyTorch has had this since 2.13",
)
on_cpu = pytest.mark.skipif(
    find_spec("triton") is not None, reason="a build of PyTorch for GPUs has every library"
)

ELSEWHERE = (
    "opt_einsum.",  # a bridge of its own
    "mkl.verbose",
    "mkldnn.verbose",  # the libraries' own bridge
)

PRELUDE = """
import json
import torch
from backendcfg.bridges import torch as bridge
from backendcfg.schema.profile import defaults, flags
def settings(values, asked=None):
    return bridge.settings({**defaults(), **values}, asked or values)
def why_not(setting):
    return getattr(setting.switch, "unsupported", str)()
"""


def test_every_flag_of_torch_backends_has_a_switch_that_scopes_may_write():
    read_by_torch = {
        name
        for name, found in flags().items()
        if found.flag.readers[:1] == ("torch",) and not found.flag.spells
    }
    here = {
        name
        for name in read_by_torch
        if name.split(".")[0] not in {"threads", "determinism", "torch", "route", "seed", "fleet"}
        and not name.startswith(ELSEWHERE)
    }
    assert here <= bridge.SCOPED_FLAGS
    assert {flag for flag in bridge.SCOPED_FLAGS if "fp32" in flag} == {
        flag for flag in here if "fp32" in flag
    }


@real
def test_every_value_of_every_flag_is_read_back_and_put_back_or_refused_with_a_reason(child):
    code = (
        PRELUDE
        + """
import typing
from backendcfg.schema.base import candidates
MORE = {
    "cuda.sdp_priority": [["math"], ["cudnn", "math", "flash", "overrideable", "efficient"]],
    "python_native.disabled_operations": [[]],
    "python_native.disabled_dispatch_keys": [[], ["CPU"], ["XPU", "CPU"]],
    "threads.count": [1, 2],
}
def values(flag):
    annotation = flags()[flag].info.annotation
    if flag in MORE: return MORE[flag]
    if annotation is bool: return [True, False]
    if annotation is int: return [0, 1, 4096]
    return candidates(annotation) or typing.get_args(annotation)
refused, count, wrong = {}, 0, []
for flag in sorted(bridge.SCOPED_FLAGS):
    for value in values(flag):
        for setting in settings({flag: value}):
            switch = setting.switch
            if why := why_not(setting):
                refused.setdefault(f"{flag}={value}", why); continue
            if not switch.reversible: continue
            before = switch.read(); switch.write(setting.wanted); during = switch.read()
            switch.write(before); count += 1
            if during != setting.wanted or switch.read() != before:
                wrong.append([flag, value, before, during, switch.read()])
print(json.dumps([wrong, count, refused, torch.__version__]))
"""
    )
    silence = "import logging; logging.getLogger('backendcfg').setLevel('ERROR')\n"
    done = child(silence + code)  # builds for GPUs call some switches experimental, on stderr
    assert done.returncode == 0, done.stderr
    wrong, count, refused, release = json.loads(done.stdout)
    assert wrong == []
    assert count > 90
    no_gpu = f"PyTorch {release} is built without CUDA and ROCm"
    late = "the program has not started CUDA yet, and asking would start it"
    if "+cpu" not in release:
        assert {refused[f"cuda.cufft_plan_cache.max_size={size}"] for size in (0, 1, 4096)} == {
            late
        }
    no_rocm = f"PyTorch {release} is not built for ROCm"
    split = "PyTorch refuses to split K only where it also refuses to reduce in 16 bits"
    if "+cpu" in release:
        plain = {name: why for name, why in refused.items() if "fp32_precision" not in name}
        assert plain.pop("quantized.engine=none").startswith(f"PyTorch {release} has the engines ")
        assert plain == {
            "cuda.cublas_workspace_size=1": no_gpu,
            "cuda.cublas_workspace_size=4096": no_gpu,
            "cuda.cublaslt_workspace_size=1": no_gpu,
            "cuda.cublaslt_workspace_size=4096": no_gpu,
            "cuda.cufft_plan_cache.max_size=0": no_gpu,
            "cuda.cufft_plan_cache.max_size=1": no_gpu,
            "cuda.cufft_plan_cache.max_size=4096": no_gpu,
            "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k=False": split,
            "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k=False": split,
            "cuda.preferred_blas_library=ck": no_rocm,
            "cuda.preferred_blas_library=cublaslt": no_gpu,
            "cuda.preferred_blas_library=hipblaslt": no_gpu,
            "cuda.preferred_linalg_library=cusolver": no_gpu,
            "cuda.preferred_linalg_library=magma": f"PyTorch {release} is built without MAGMA",
            "cuda.preferred_rocm_fa_library=aotriton": no_rocm,
            "cuda.preferred_rocm_fa_library=ck": no_rocm,
            "cudnn.benchmark_limit=0": no_gpu,
            "cudnn.benchmark_limit=1": no_gpu,
            "cudnn.benchmark_limit=4096": no_gpu,
        }


@real
def test_the_flags_that_scopes_may_set_are_those_with_a_switch_that_can_be_put_back(answer):
    code = (
        PRELUDE
        + """
values = {"threads.count": 1, "threads.interop": 1, "cuda.cublas_workspace_size": 1,
          "cuda.cublaslt_workspace_size": 1, "cuda.sdp_priority": ["math"],
          "quantized.engine": "x86", "cuda.preferred_blas_library": "cublas",
          "torch.mkl_detection": "at-load",
          "cuda.preferred_linalg_library": "default", "cuda.preferred_rocm_fa_library": "default"}
found = {}
for flag in {**defaults(), **values}:
    for s in settings(values, [flag]):
        found.setdefault(s.flag, set()).add(s.switch.latch in ("anytime", "each-thread")
                                            and s.switch.reversible)
print(json.dumps(sorted(flag for flag, can in found.items() if True in can)))
"""
    )
    after_cuda_started = {"cuda.cublas_workspace_size", "cuda.cublaslt_workspace_size"}
    assert set(answer(code)) == bridge.SCOPED_FLAGS - after_cuda_started


@since_2_13
def test_switches_are_where_pytorchs_own_names_read_them(answer):
    """Our switches call torch._C; people read torch.backends."""
    code = (
        PRELUDE
        + """
b, cuda = torch.backends, torch.backends.cuda
read = {
    "cudnn.enabled": lambda: b.cudnn.enabled, "cudnn.benchmark": lambda: b.cudnn.benchmark,
    "cudnn.deterministic": lambda: b.cudnn.deterministic,
    "cudnn.depthwise_kernel": lambda: b.cudnn.depthwise_kernel,
    "mkldnn.enabled": lambda: b.mkldnn.enabled,
    "mkldnn.deterministic": lambda: b.mkldnn.deterministic,
    "miopen.immediate": lambda: b.miopen.immediate,
    "nnpack.enabled": lambda: torch._C._get_nnpack_enabled(),
    "mha.fastpath_enabled": b.mha.get_fastpath_enabled,
    "cuda.matmul.allow_fp16_accumulation": lambda: cuda.matmul.allow_fp16_accumulation,
    "cuda.enable_flash_sdp": cuda.flash_sdp_enabled,
    "cuda.enable_mem_efficient_sdp": cuda.mem_efficient_sdp_enabled,
    "cuda.enable_math_sdp": cuda.math_sdp_enabled,
    "cuda.enable_cudnn_sdp": cuda.cudnn_sdp_enabled,
    "cuda.allow_fp16_bf16_reduction_math_sdp": cuda.fp16_bf16_reduction_math_sdp_allowed,
    "python_native.triton.enabled": lambda: b.python_native.triton.enabled,
    "python_native.cutedsl.enabled": lambda: b.python_native.cutedsl.enabled,
    "quantized.engine": lambda: b.quantized.engine,
    **{f"cuda.matmul.allow_{kind}_reduced_precision_reduction":
       (lambda kind=kind: [getattr(cuda.matmul, f"allow_{kind}_reduced_precision_reduction{part}")
                           for part in ("", "_split_k")]) for kind in ("fp16", "bf16")},
    "cuda.sdp_priority": torch._C._get_sdp_priority_order,
    "determinism.fill_uninitialized_memory":
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
}
other = {"cudnn.depthwise_kernel": "native", "quantized.engine": "qnnpack",
         "cuda.sdp_priority": ["math"],
         **{f"cuda.matmul.allow_{kind}_reduced_precision_reduction_split_k": False
            for kind in ("fp16", "bf16")}}
values = {flag: other.get(flag, not defaults()[flag]) for flag in [*read, *other]}
found = settings(values)
first = {flag: look() for flag, look in read.items()}
before = [s.switch.read() for s in found]
for s in found: s.switch.write(s.wanted)
during = {flag: look() for flag, look in read.items()}
for s, value in zip(reversed(found), reversed(before)): s.switch.write(value)
print(json.dumps([first, during, {flag: look() for flag, look in read.items()} == first]))
"""
    )
    first, during, restored = answer(code)
    assert restored
    assert {flag: during[flag] for flag in during if isinstance(first[flag], bool)} == {
        flag: not value for flag, value in first.items() if isinstance(value, bool)
    }
    assert {flag: during[flag] for flag in during if not isinstance(first[flag], bool)} == {
        "cudnn.depthwise_kernel": "native",
        "quantized.engine": "qnnpack",
        "cuda.matmul.allow_fp16_reduced_precision_reduction": [False, False],
        "cuda.matmul.allow_bf16_reduced_precision_reduction": [False, False],
        "cuda.sdp_priority": [0, 1, 2, 3, 4],
    }


@since_2_13
def test_frozen_flags_can_be_set_and_put_back_all_the_same(answer):
    """`disable_global_flags` is about assignments that nobody puts back."""
    code = (
        PRELUDE
        + """
torch.backends.disable_global_flags()
try: torch.backends.cudnn.benchmark = True
except RuntimeError as error: refused = str(error).split(";")[0]
values = {"cudnn.benchmark": True, "mkldnn.deterministic": True, "miopen.immediate": True,
          "cudnn.depthwise_kernel": "native", "python_native.triton.enabled": False,
          "fp32_precision": "ieee", "cudnn.enabled": False}
found = [s for s in settings(values) if s.switch.reversible]
before = [s.switch.read() for s in found]
for s in found: s.switch.write(s.wanted)
during = [s.switch.read() == s.wanted for s in found]
for s, value in zip(reversed(found), reversed(before)): s.switch.write(value)
print(json.dumps([refused, all(during), [s.switch.read() for s in found] == before,
                  torch.backends.flags_frozen()]))
"""
    )
    assert answer(code) == [
        "not allowed to set torch.backends.cudnn flags after disable_global_flags",
        True,
        True,
        True,
    ]


@real
@on_cpu
def test_a_preference_that_pytorch_refuses_half_way_is_repaired(answer):
    """Bare PyTorch raises and prefers MAGMA all the same."""
    code = (
        PRELUDE
        + """
look = lambda: torch._C._get_linalg_preferred_backend().name
try: torch.backends.cuda.preferred_linalg_library("cusolver")
except RuntimeError: bare = look()
torch.backends.cuda.preferred_linalg_library("default")
[setting] = settings({"cuda.preferred_linalg_library": "cusolver"})
try: setting.switch.write("cusolver")
except RuntimeError as error: raised = type(error).__name__
print(json.dumps([bare, raised, look()]))
"""
    )
    assert answer(code) == ["Cusolver", "RuntimeError", "Default"]


@since_2_13
def test_an_operator_without_such_a_kernel_is_refused_and_one_with_is_disabled(answer):
    """PyTorch takes any name."""
    code = (
        PRELUDE
        + """
native = torch.backends.python_native
native.disable_operations("nothing"); bare = native.is_operation_disabled("nothing")
native.enable_operations("nothing")
operations = {name for name, _ in native._get_registry_functions()[2]}
one = sorted(operations)[0]
[wrong] = settings({"python_native.disabled_operations": ["nothing", one]})
[right] = settings({"python_native.disabled_operations": [one]})
right.switch.write(right.wanted)
print(json.dumps([bare, why_not(wrong), why_not(right), sorted(operations), torch.__version__,
                  native.is_operation_disabled(one), right.switch.read() == right.wanted]))
"""
    )
    bare, wrong, right, operations, release, disabled, read = answer(code)
    assert bare is disabled is read is True
    assert right == ""
    assert wrong == (
        f"PyTorch {release} has such kernels only for {', '.join(operations)} here, not for nothing"
    )


@since_2_13
def test_a_dispatch_key_that_pytorch_does_not_know_is_refused(answer):
    """PyTorch takes any text, and spells its keys in capitals."""
    code = (
        PRELUDE
        + """
native = torch.backends.python_native
native.disable_dispatch_keys("cuda"); native.enable_dispatch_keys("cuda")
[wrong] = settings({"python_native.disabled_dispatch_keys": ["XPU", "cuda"]})
[right] = settings({"python_native.disabled_dispatch_keys": ["XPU", "CUDA"]})
print(json.dumps([why_not(wrong), why_not(right), torch.__version__]))
"""
    )
    wrong, right, release = answer(code)
    assert (wrong, right) == (f"PyTorch {release} has no dispatch key cuda", "")


@real
def test_the_kernels_for_attention_are_enabled_before_any_is_disabled(answer):
    code = (
        PRELUDE
        + """
for values in ({"cuda.enable_flash_sdp": False, "cuda.enable_math_sdp": True},
               {"cuda.enable_flash_sdp": True, "cuda.enable_math_sdp": False}):
    print([s.wanted for s in settings(values)])
"""
    )
    code = code.replace("print([", "seen.append([").replace("import json", "import json\nseen = []")
    assert answer(code + "print(json.dumps(seen))") == [[True, False], [True, False]]


@real
def test_on_a_cpu_the_switches_for_flash_and_math_decide_and_the_order_does_not(answer):
    """Where flash may not run, its sum has other bits; where neither may, attention raises."""
    code = (
        PRELUDE
        + """
torch.manual_seed(0)
q = torch.randn(1, 2, 64, 32)
def attend(values):
    found = settings(values)
    before = [s.switch.read() for s in found]
    for s in found: s.switch.write(s.wanted)
    try: return torch.nn.functional.scaled_dot_product_attention(q, q, q)
    except RuntimeError: return None
    finally:
        for s, value in zip(reversed(found), reversed(before)): s.switch.write(value)
flash, math = {"cuda.enable_math_sdp": False}, {"cuda.enable_flash_sdp": False}
first = attend(flash)
print(json.dumps([torch.equal(first, attend(flash)), torch.equal(first, attend(math)),
                  attend({**flash, **math}) is None,
                  torch.equal(first, attend({"cuda.sdp_priority": ["math"]}))]))
"""
    )
    assert answer(code) == [True, False, True, True]


def test_an_order_of_kernels_is_completed_and_nothing_else_reaches_pytorch():
    assert kernels.complete(("math", "math")) == (
        "math",
        "flash",
        "efficient",
        "cudnn",
        "overrideable",
    )
    told = []
    calls = SimpleNamespace(_set_sdp_priority_order=told.append)
    switch = kernels.Priority(SimpleNamespace(_C=calls))
    for wrong in (
        ("math",),
        ("error", "math", "flash", "efficient", "cudnn"),
        ("math", "math", "flash", "efficient", "cudnn"),
        (*kernels.complete(()), "math"),
    ):
        with pytest.raises(ValueError, match="not an order of flash, efficient, math, cudnn, over"):
            switch.write(wrong)
    assert told == []
    switch.write(kernels.complete(()))
    assert told == [[1, 2, 0, 3, 4]]


@real
def test_a_pytorch_without_mkl_has_nothing_to_find_out_and_keeps_the_tier(program):
    """As builds for other processors and BLAS are: its library has no vector functions."""
    code = (
        PRELUDE
        + """
import backendcfg
from backendcfg.bridges.torch import switches
mapped = switches.mapped_files
switches.mapped_files = lambda: [path for path in mapped() if "libtorch_cpu." not in path]
backendcfg.apply(settings={"torch.mkl_detection": "at-load"})
[read] = [one for one in backendcfg.verify().readings if one.flag == "torch.mkl_detection"]
backendcfg.apply("reproducible")
bare = [read.state, read.because, backendcfg.verify().because]
switches.mapped_files = mapped
[read] = [one for one in backendcfg.verify().readings if one.flag == "torch.mkl_detection"]
print(json.dumps([bare, torch.__version__, read.state, read.by]))
"""
    )
    (state, because, kept), release, later, by = program(code)
    assert (state, because) == ("dormant", f"PyTorch {release} computes without MKL")
    assert not [one for one in kept if "mkl_detection" in one]
    assert (later, by) == ("differs", "the profile was not in force where PyTorch was imported")
