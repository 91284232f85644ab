"""What every flag owes: a text, a variable of its own, a valid default, a true spelling."""

import json
import re
from pathlib import Path

import pytest

import backendcfg
from backendcfg import environ
from backendcfg.load.complaints import adapt, valid
from backendcfg.schema.describe import Kind
from backendcfg.schema.profile import defaults, flags

CATALOGUE = [
    "fp32_precision",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_fp16_accumulation",
    "cuda.cufft_plan_cache.max_size",
    "cuda.preferred_linalg_library",
    "cuda.preferred_blas_library",
    "cuda.preferred_rocm_fa_library",
    "cuda.cublas_workspace_size",
    "cuda.cublaslt_workspace_size",
    "cuda.enable_flash_sdp",
    "cuda.enable_mem_efficient_sdp",
    "cuda.enable_math_sdp",
    "cuda.enable_cudnn_sdp",
    "cuda.allow_fp16_bf16_reduction_math_sdp",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.benchmark_limit",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cudnn.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "cudnn.depthwise_kernel",
    "mha.fastpath_enabled",
    "miopen.immediate",
    "mkl.verbose",
    "mkldnn.enabled",
    "mkldnn.deterministic",
    "mkldnn.allow_tf32",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "mkldnn.verbose",
    "nnpack.enabled",
    "opt_einsum.enabled",
    "opt_einsum.strategy",
    "quantized.engine",
    "python_native.triton.enabled",
    "python_native.cutedsl.enabled",
]
EVERY = sorted(flags())


def test_every_settable_name_of_torch_backends_is_a_flag():
    assert [name for name in CATALOGUE if name not in flags()] == []


@pytest.mark.parametrize("name", EVERY)
def test_a_flag_says_what_it_does_and_who_reads_it(name):
    flag = flags()[name].flag
    assert flag.summary.endswith(".")
    assert flag.readers


OPERATIONS = Path(backendcfg.__file__).parent
_LOOKED_AT = re.compile(r'"([a-z0-9_]+(?:\.[a-z0-9_]+)*)"')


def test_a_flag_that_our_operations_look_at_says_so():
    sources = [*OPERATIONS.glob("ops/**/*.py"), *OPERATIONS.glob("dispatch/*.py")]
    looked_at = {name for each in sources for name in _LOOKED_AT.findall(each.read_text("utf-8"))}
    silent = [
        name
        for name, field in flags().items()
        if name in looked_at and "native" not in field.flag.readers
    ]
    # MKL obeys that one, and is asked what it then keeps.
    assert silent == ["blas.mkl.cbwr"]


def test_every_flag_has_a_variable_of_its_own():
    names = [environ.flag_variable(name) for name in flags()]
    names += [variable.name for variable in environ.VARIABLES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("name", EVERY)
def test_the_default_of_a_flag_is_valid_and_json(name):
    flag = flags()[name]
    assert json.loads(json.dumps(flag.default)) == flag.default
    assert valid(Kind.field(flag.info), flag.default)


@pytest.mark.parametrize("name", [name for name in EVERY if flags()[name].flag.spells])
def test_a_legacy_spelling_writes_flags_that_exist_with_values_that_they_take(name):
    spells = flags()[name].flag.spells
    assert set(spells) == {True, False}
    assert name not in defaults()
    for writes in spells.values():
        for target, value in writes.items():
            assert valid(Kind.field(flags()[target].info), value)
            assert target in defaults()


VALUES = ("8", "off", 1, 0, True, 1.0, None, [], {}, "", -1, [1], {"a": 1})


@pytest.mark.parametrize("name", EVERY)
def test_a_flag_takes_a_value_as_it_is_or_not_at_all(name):
    kind = Kind.field(flags()[name].info)
    taken = [value for value in VALUES if valid(kind, value)]
    for value in taken:
        as_read = adapt(kind).validate_json(json.dumps(value), strict=True)
        if not isinstance(value, dict | list):
            assert (type(as_read), as_read) == (type(value), value)
    mixed = {"seed.value": {int, str}}
    assert {type(value) for value in taken} == mixed.get(name, {type(v) for v in taken[:1]})
    assert None not in taken
