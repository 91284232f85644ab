"""Where torch.backends is careless and we are not: the table of docs/backends.md, row by row."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

import backendcfg
from backendcfg import backends, errors, session
from backendcfg.schema import torch_backends
from backendcfg.schema.host import Host
from backendcfg.schema.profile import Flags, defaults
from backendcfg.session import planning

HOSTS = Path(__file__).parents[1] / "hosts"
DOCS = Path(__file__).parents[2] / "docs" / "backends.md"
ROWS = {}


@pytest.fixture(name="on_cpu")
def _on_cpu(monkeypatch):
    """A machine without a GPU, whichever this one is."""
    text = (HOSTS / "cloud-vm-zen4-no-gpu--openblas.json").read_text()
    monkeypatch.setattr(planning, "detect", lambda: Host.model_validate_json(text))
    session.reload()
    yield
    monkeypatch.undo()
    session.reload()


def row(title):
    """Register the test of a row of the table, by its first cell."""

    def register(test):
        assert title not in ROWS
        ROWS[title] = test
        return test

    return register


def test_every_flag_of_torch_backends_is_in_the_table_of_what_it_drives():
    section = DOCS.read_text().partition("## What each switch drives today")[2]
    cells = re.findall(
        r"^\| [^|]+ \| ([^|]*) \|", section.partition("\n\n| name |")[0], re.MULTILINE
    )
    patterns = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    models = {
        name
        for name, field in Flags.model_fields.items()
        if _is_of_torch_backends(field.annotation)
    }
    flags = [name for name in defaults() if name.partition(".")[0] in {*models, "fp32_precision"}]
    assert len(flags) > 40
    assert [f for f in flags if not any(fnmatch(f, pattern) for pattern in patterns)] == []


def _is_of_torch_backends(annotation):
    return getattr(annotation, "__module__", "") == torch_backends.__name__


def test_every_row_of_the_table_is_tested_and_every_test_has_its_row():
    section = DOCS.read_text().partition("## Where we differ on purpose")[2].partition("\n## ")[0]
    told = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)
    assert sorted(ROWS) == sorted(set(told) - {"what", "---"})


UNKNOWN = [
    ("cudnn", "benchmrk", "benchmark"),
    ("mkldnn", "enable", "enabled"),
    ("miopen", "imediate", "immediate"),
    ("opt_einsum", "stratgy", "strategy"),
    ("quantized", "engin", "engine"),
    ("nnpack", "is_avaliable", "is_available"),
    ("python_native", "tritom", "triton"),
    ("xeon", "run_cup", "run_cpu"),
]


@row("unknown attributes")
@pytest.mark.parametrize(("module", "wrong", "meant"), UNKNOWN)
def test_an_unknown_attribute_is_refused_with_the_one_that_was_meant(module, wrong, meant):
    holder = getattr(backends, module)
    for attempt in (lambda: getattr(holder, wrong), lambda: setattr(holder, wrong, True)):
        with pytest.raises(AttributeError) as refused:
            attempt()
        assert isinstance(refused.value, errors.UnknownAttributeError)
        assert str(refused.value) == f"`backendcfg.backends.{module}` has no attribute `{wrong}`"
        assert refused.value.helps == (f"did you mean `{meant}`?",)
    assert not hasattr(holder, wrong)


def test_what_is_no_switch_cannot_be_set_but_a_function_can_be_replaced(monkeypatch):
    for holder, name in (
        (backends.cudnn, "conv"),
        (backends.cudnn, "CUDNN_TENSOR_DTYPES"),
        (backends.mkldnn, "VERBOSE_ON"),
        (backends.python_native, "triton"),
    ):
        with pytest.raises(errors.UnknownAttributeError, match=r"cannot be set(?m:$)"):
            setattr(holder, name, 3)
    monkeypatch.setattr(backends.cudnn, "is_available", lambda: "replaced")
    assert backends.cudnn.is_available() == "replaced"
    monkeypatch.undo()
    assert backends.cudnn.is_available() is False


@row("`flags()` keeps")
def test_flags_keep_what_is_not_named():
    backends.cudnn.deterministic = True
    backends.mkldnn.matmul.fp32_precision = "ieee"
    with backends.cudnn.flags(benchmark=True), backends.mkldnn.flags(deterministic=True):
        assert backends.cudnn.enabled is True
        assert backends.cudnn.deterministic is True
        assert backends.cudnn.benchmark is True
        assert backends.mkldnn.enabled is True
        assert backends.mkldnn.matmul.fp32_precision == "ieee"
    assert backends.cudnn.benchmark is False


@row("`set_flags()` keeps")
def test_set_flags_keeps_what_is_not_named_and_gives_back_what_was_stored():
    backends.cudnn.fp32_precision = "tf32"
    backends.fp32_precision = "ieee"
    before = dict(session.flags)
    previous = backends.cudnn.set_flags(_enabled=False, _allow_tf32=False)
    assert previous == (True, False, 10, False, True, "tf32", "auto")
    assert backends.cudnn.fp32_precision == "tf32"
    assert backends.mkldnn.set_flags(_deterministic=True) == (True, False, False, "none")
    assert backends.mkldnn.fp32_precision == "ieee"
    backends.cudnn.set_flags(*previous)
    backends.mkldnn.set_flags(True, False, None, "none")
    assert {name: session.flags[name] for name in before} == before


@row("legacy reads")
def test_legacy_reads_never_raise():
    backends.cudnn.conv.fp32_precision = "ieee"
    backends.cudnn.rnn.fp32_precision = "ieee"
    assert backends.cudnn.allow_tf32 is False
    backends.fp32_precision = "tf32"
    assert backends.cudnn.allow_tf32 is False
    assert backends.mkldnn.allow_tf32 is True
    with backends.mkldnn.flags(fp32_precision="bf16"):
        assert backends.mkldnn.allow_tf32 is False
    assert backends.mkldnn.allow_tf32 is True


@row("`allow_tf32 = False`")
def test_turning_tf32_off_by_its_legacy_name_keeps_it_off_under_any_parent():
    backends.cudnn.allow_tf32 = False
    backends.fp32_precision = "tf32"
    assert backends.cudnn.conv.fp32_precision == "ieee"
    assert backends.cudnn.allow_tf32 is False


@row("`mkldnn.fp32_precision`")
def test_the_precision_of_onednn_is_of_onednn():
    backends.mkldnn.fp32_precision = "bf16"
    assert backends.mkldnn.conv.fp32_precision == "bf16"
    assert backends.fp32_precision == "none"
    assert backends.cudnn.conv.fp32_precision == "tf32"


@row("`mkldnn.allow_tf32`")
def test_tf32_of_onednn_reads_what_was_set():
    assert backends.mkldnn.allow_tf32 is False
    backends.mkldnn.allow_tf32 = True
    assert backends.mkldnn.allow_tf32 is True
    assert backends.mkldnn.matmul.fp32_precision == "tf32"


@row("a failed set")
def test_a_failed_set_leaves_the_old_values_of_all():
    backends.opt_einsum.strategy = "greedy"
    with pytest.raises(errors.InvalidValueError):
        backends.opt_einsum.set_flags(_enabled=False, _strategy="dp")
    with (
        pytest.raises(errors.InvalidValueError),
        backends.opt_einsum.flags(enabled=False, strategy="dp"),
    ):
        pass
    assert (backends.opt_einsum.enabled, backends.opt_einsum.strategy) == (True, "greedy")


WRONG_TYPES = [
    ("cudnn.enabled", 1),
    ("cudnn.benchmark_limit", True),
    ("cudnn.benchmark_limit", -1),
    ("cudnn.benchmark_limit", 2.5),
    ("cudnn.depthwise_kernel", "cuDNN"),
    ("cudnn.fp32_precision", "bf16"),
    ("cudnn.conv.fp32_precision", None),
    ("fp32_precision", "TF32"),
    ("miopen.immediate", "yes"),
    ("mkldnn.deterministic", 0),
    ("opt_einsum.enabled", "false"),
    ("opt_einsum.strategy", "bogus"),
    ("quantized.engine", ""),
]


@row("types")
@pytest.mark.parametrize(("flag", "wrong"), WRONG_TYPES)
def test_every_type_and_every_range_is_checked(flag, wrong):
    holder = backends
    *path, attr = flag.split(".")
    for part in path:
        holder = getattr(holder, part)
    before = getattr(holder, attr)
    with pytest.raises(errors.RequestError) as refused:
        setattr(holder, attr, wrong)
    assert refused.value.message.startswith(f"`{flag}` must be ")
    assert getattr(holder, attr) == before
    assert session.active() is None


@row("`mha.set_fastpath_enabled`")
def test_the_fast_path_takes_booleans_only():
    for wrong in ("x", None, 0):
        with pytest.raises(errors.WrongTypeError):
            backends.mha.set_fastpath_enabled(wrong)
    assert backends.mha.get_fastpath_enabled() is True
    backends.mha.set_fastpath_enabled(False)
    assert backends.mha.get_fastpath_enabled() is False


ASSIGNMENTS = [
    lambda: setattr(backends, "fp32_precision", "ieee"),
    lambda: backends.set_flags("ieee"),
    lambda: setattr(backends.cudnn, "enabled", False),
    lambda: setattr(backends.cudnn.conv, "fp32_precision", "ieee"),
    lambda: setattr(backends.cudnn.rnn, "fp32_precision", "ieee"),
    lambda: backends.cudnn.set_flags(_enabled=False),
    lambda: setattr(backends.mkldnn.matmul, "fp32_precision", "ieee"),
    lambda: backends.mkldnn.set_flags(_enabled=False),
    lambda: backends.mha.set_fastpath_enabled(False),
    lambda: backends.miopen.set_flags(True),
    lambda: backends.nnpack.set_flags(False),
    lambda: setattr(backends.opt_einsum, "strategy", "greedy"),
    lambda: backends.opt_einsum.set_flags(False),
    lambda: setattr(backends.quantized, "engine", "onednn"),
    lambda: setattr(backends.python_native.triton, "enabled", False),
    lambda: backends.python_native.triton.disable(),
    lambda: backends.python_native.disable_operations("bmm"),
    lambda: backends.python_native.enable_dispatch_keys("CUDA"),
    lambda: setattr(backends.cuda.matmul, "allow_tf32", True),
    lambda: setattr(backends.cuda.cufft_plan_cache, "max_size", 7),
    lambda: backends.cuda.enable_flash_sdp(False),
    lambda: backends.cuda.allow_fp16_bf16_reduction_math_sdp(True),
    lambda: backends.cuda.preferred_blas_library("default"),
    lambda: backends.cuda.cublas_workspace_size(1024),
]


@row("`disable_global_flags()`")
def test_disable_global_flags_freezes_every_assignment_and_no_scope():
    assert backends.flags_frozen() is False
    backends.disable_global_flags()
    assert backends.flags_frozen() is True
    for assign in ASSIGNMENTS:
        with pytest.raises(RuntimeError) as refused:
            assign()
        assert isinstance(refused.value, errors.FrozenFlagsError)
    assert session.active() is None
    assert backends.mkldnn.set_flags() == (True, False, False, "none")
    with backends.cudnn.flags(enabled=False), backends.flags("ieee"):
        assert (backends.cudnn.enabled, backends.fp32_precision) == (False, "ieee")
    with backends.python_native.triton.disabled():
        assert backends.python_native.is_dsl_disabled("triton")


@row("threads and tasks")
def test_threads_and_tasks_do_not_see_each_others_scopes(python):
    # Without PyTorch in the process; with it, its switches have one owner at a time.
    printed = python(
        """
        import asyncio, threading
        from backendcfg import backends
        inside, done, seen = threading.Event(), threading.Event(), []
        def hold():
            with backends.cudnn.flags(enabled=False):
                inside.set()
                done.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait()
        seen.append(backends.cudnn.enabled)
        done.set()
        thread.join()
        async def task(value):
            async with backends.cudnn.flags(enabled=value):
                await asyncio.sleep(0)
                seen.append(backends.cudnn.enabled is value)
        async def tasks():
            await asyncio.gather(task(True), task(False))
        asyncio.run(tasks())
        print(seen)
        """
    )
    assert printed == "[True, True, True]\n"


@row("`verbose`")
def test_verbose_contexts_nest_and_give_back_what_was_there():
    for module, flag in ((backends.mkl, "mkl.verbose"), (backends.mkldnn, "mkldnn.verbose")):
        backends.base.assign({flag: 1})
        with module.verbose(module.VERBOSE_OFF):
            assert session.flags[flag] == 0
            with module.verbose(module.VERBOSE_ON):
                assert session.flags[flag] == 1
            assert session.flags[flag] == 0
        assert session.flags[flag] == 1
        with pytest.raises(errors.RequestError), module.verbose(7):
            pass


@row("a tier")
def test_what_breaks_the_promise_of_the_profile_in_force_is_refused(monkeypatch):
    host = Host.model_validate_json((HOSTS / "epyc-h200-two-visible--openblas.json").read_text())
    monkeypatch.setattr(planning, "detect", lambda: host)
    session.apply("reproducible")
    for attempt in (
        lambda: setattr(backends.cudnn, "benchmark", True),
        lambda: backends.cudnn.set_flags(_benchmark=True, _benchmark_limit=3),
        backends.cudnn.flags(benchmark=True).__enter__,
    ):
        with pytest.raises(errors.ConflictingFlagsError) as refused:
            attempt()
        assert refused.value.message == (
            '`cudnn.benchmark = true` and `determinism.tier = "run-to-run"` cannot both hold'
        )
    assert (backends.cudnn.benchmark, backends.cudnn.benchmark_limit) == (False, 10)
    with backends.cudnn.flags(benchmark_limit=3):
        assert session.active().tier == "run-to-run"


@row("an assignment inside a scope")
def test_an_assignment_that_the_open_scope_would_hide_is_refused():
    with session.profile("reproducible"):
        with pytest.raises(errors.ProfileBusyError, match=r"holds `cudnn\.deterministic` at"):
            backends.cudnn.deterministic = False
        with backends.cudnn.flags(deterministic=False):
            assert backends.cudnn.deterministic is False
        assert backends.cudnn.deterministic is True


@row("`quantized.engine`")
def test_the_engine_is_refused_by_name():
    with pytest.raises(errors.InvalidValueError) as refused:
        backends.quantized.engine = "fbgem"
    assert refused.value.helps == ('write `quantized.engine = "fbgemm"`',)
    with pytest.raises(errors.UnknownAttributeError):
        backends.quantized.supported_engines = []
    backends.quantized.engine = "onednn"
    assert backends.quantized.engine == "onednn"


@row("`python_native`")
def test_unknown_languages_and_names_that_are_none_are_refused():
    for call in (
        backends.python_native.get_dsl_operations,
        backends.python_native.is_dsl_disabled,
        backends.python_native.DSLController,
    ):
        with pytest.raises(errors.InvalidArgumentError, match=r"must be one of cutedsl, triton"):
            call("tritom")
    with pytest.raises(errors.InvalidArgumentError):
        backends.python_native.disable_operations(3)
    backends.python_native.disable_operations("bmm", "bmm")
    with backends.python_native.operations_disabled("bmm", "topk"):
        assert backends.python_native.is_operation_disabled("topk")
    assert backends.python_native.is_operation_disabled("bmm")
    assert not backends.python_native.is_operation_disabled("topk")
    backends.python_native.enable_operations("bmm")
    assert session.flags["python_native.disabled_operations"] == []


@row("`mps`")
def test_away_from_a_mac_nothing_raises(monkeypatch):
    assert backends.mps.is_built() is backends.mps.is_available() is False
    assert (backends.mps.get_name(), backends.mps.get_core_count()) == ("", 0)
    assert backends.mps.is_macos_or_newer(10, 0) is False
    monkeypatch.setattr("platform.mac_ver", lambda: ("14.5", ("", "", ""), "arm64"))
    assert backends.mps.is_macos_or_newer(14, 5)
    assert backends.mps.is_macos13_or_newer()
    assert not backends.mps.is_macos_or_newer(14, 6)


@row("`cudnn.CUDNN_TENSOR_DTYPES`")
def test_the_element_types_of_cudnn_are_names_that_know_every_librarys_types():
    import numpy as np

    types = backends.cudnn.CUDNN_TENSOR_DTYPES
    assert types == {"float16", "float32", "float64"}
    assert np.float32 in types
    assert np.dtype("float64") in types
    assert np.dtype("int8") not in types
    assert backends.cudnn.is_acceptable(np.ones(3)) is False
    with pytest.raises(errors.InvalidArgumentError, match=r"^`tensor` must be an array"):
        backends.cudnn.is_acceptable(3)


@row("modules")
def test_every_module_is_there_without_being_imported_first(python):
    printed = python(
        """
        import backendcfg, sys
        print(sorted(n for n in sys.modules if n.startswith("backendcfg.backends")))
        print(backendcfg.backends.xnnpack.enabled)
        from backendcfg.backends import mps
        import backendcfg.backends.cudnn
        print("torch" in sys.modules, "numpy" in sys.modules, "pydantic" in sys.modules)
        """
    )
    assert printed.splitlines() == ["[]", "False", "False False False"]


@row("a library that cannot be used")
@pytest.mark.parametrize(
    ("name", "wrong"), [("linalg", "magma"), ("blas", "ck"), ("rocm_fa", "ck")]
)
def test_a_library_that_cannot_be_used_here_is_refused_and_the_choice_stays(on_cpu, name, wrong):
    prefer = getattr(backends.cuda, f"preferred_{name}_library")
    before = prefer()
    with pytest.raises(errors.MissingLibraryError):
        prefer(wrong)
    with pytest.raises(errors.InvalidArgumentError):
        prefer(wrong.upper())
    assert prefer() is before
    assert session.active() is None


@row("`sdpa_kernel`")
@pytest.mark.parametrize(
    "wrong", ["flash", ["flash"], [1], [None], [backends.cuda.SDPBackend.ERROR]]
)
def test_what_is_no_kernel_of_attention_is_refused(wrong):
    with pytest.raises(errors.InvalidArgumentError, match=r"^`backends` must be an SDPBackend"):
        backends.cuda.sdpa_kernel(wrong)


@row("the last kernel that could serve attention")
def test_turning_the_last_kernel_of_attention_off_is_refused(on_cpu):
    backends.cuda.enable_math_sdp(False)
    backends.cuda.enable_flash_sdp(False)
    with pytest.raises(errors.ConflictingFlagsError, match=r"cannot both hold(?m:$)"):
        backends.cuda.enable_mem_efficient_sdp(False)
    assert backends.cuda.mem_efficient_sdp_enabled() is True
    backends.cuda.enable_math_sdp(True)
    backends.cuda.enable_flash_sdp(True)


@row("`can_use_*`, `debug=True`")
def test_every_reason_against_a_kernel_is_told():
    import numpy as np

    array = np.ones((2, 3, 4), np.float64)
    params = backends.cuda.SDPAParams(array, array, array, None, 0.0, False, False)
    with pytest.warns(UserWarning, match=r"\w") as told:
        assert backends.cuda.can_use_cudnn_attention(params, debug=True) is False
    assert len(told) > 2


@row("`cufft_plan_cache`")
def test_the_cache_of_plans_takes_no_unknown_name_and_answers_without_a_gpu(on_cpu):
    with pytest.raises(errors.UnknownAttributeError):
        backends.cuda.cufft_plan_cache.maxsize = 3
    backends.cuda.cufft_plan_cache.max_size = 3
    assert (backends.cuda.cufft_plan_cache.max_size, backends.cuda.cufft_plan_cache.size) == (3, 0)


@row("`cublas_workspace_size` and its like")
def test_the_sizes_of_workspaces_can_be_set_without_a_gpu(on_cpu):
    assert backends.cuda.cublas_workspace_size(4096) == 4096
    assert backends.cuda.blas_workspace_size(backend="cublaslt") == 2**20
    with pytest.raises(errors.WrongTypeError):
        backends.cuda.cublas_workspace_size("4096")


@row("`cufft_plan_cache[i].max_size = n`")
def test_the_most_plans_are_one_flag_for_every_device(monkeypatch):
    text = (HOSTS / "dgx-h100--openblas.json").read_text()
    monkeypatch.setattr(planning, "detect", lambda: Host.model_validate_json(text))
    monkeypatch.setattr(backends.base, "ask_torch", lambda question: None)
    session.reload()
    backends.cuda.cufft_plan_cache[1].max_size = 5
    assert [backends.cuda.cufft_plan_cache[i].max_size for i in (0, 1)] == [5, 5]
    monkeypatch.undo()
    session.reload()


@row("enumerations")
def test_members_are_ours_and_are_taken_like_names(on_cpu):
    chosen = backends.cuda.preferred_linalg_library(backends.cuda.LinalgBackend.Default)
    assert chosen is backends.cuda.LinalgBackend.Default
    assert int(backends.cuda.BlasBackend.Ck) == 3


NEVER = [
    ("mkl", "is_enabled", "`mkl.is_available()`"),
    ("openmp", "is_enabled", "`openmp.is_available()`"),
    ("", "linalg", "`torch.linalg.eigvalsh`"),
]


@row("names that never were")
@pytest.mark.parametrize(("module", "name", "instead"), NEVER)
def test_a_name_that_only_tutorials_know_says_what_serves_instead(module, name, instead):
    holder = getattr(backends, module) if module else backends
    with pytest.raises(AttributeError) as refused:
        getattr(holder, name)
    assert instead in refused.value.helps[0]
    assert backendcfg.backends is backends
