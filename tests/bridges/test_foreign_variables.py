"""The table of other software's variables: spelling, sameness, contradiction."""

from __future__ import annotations

from typing import get_args

import pytest

from backendcfg.catalogue.variables import (
    PRECISIONS,
    TF32_OVERRIDE,
    VARIABLES,
    contradictions,
    names,
    tf32_override,
)
from backendcfg.probe.environment import relevant
from backendcfg.schema.profile import flags
from backendcfg.transact.protocol import Latch

ROWS = {row.name: row for row in VARIABLES}


def allowed(flag):
    """Some values that the schema allows for a flag, its default among them."""
    info = flags()[flag].info
    literals = [value for value in get_args(info.annotation) if isinstance(value, (str, bool, int))]
    return [flags()[flag].default, *literals]


def test_every_row_names_a_flag_a_latch_and_a_variable_that_detection_watches():
    for row in VARIABLES:
        assert row.flag in flags()
        assert row.latch in get_args(Latch)
        assert relevant({row.name: "1"}) == {row.name: "1"}
    assert set(PRECISIONS) <= set(flags())


def test_every_name_of_the_table_is_listed_once():
    listed = names()
    assert len(listed) == len(set(listed))
    assert {TF32_OVERRIDE, "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "BLIS_IC_NT"} <= set(listed)


def test_every_allowed_value_of_every_flag_has_a_spelling():
    for row in VARIABLES:
        for value in allowed(row.flag):
            text = row.encode(value)
            assert text is None or (text and text.isascii())


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("OMP_NUM_THREADS", 6, "6"),
        ("MKL_DYNAMIC", False, "FALSE"),
        ("OPENBLAS_CORETYPE", "auto", None),
        ("OPENBLAS_CORETYPE", "Haswell", "Haswell"),
        ("OPENBLAS_THREAD_TIMEOUT", 0, None),
        ("OPENBLAS_THREAD_TIMEOUT", 4, "4"),
        ("MKL_THREADING_LAYER", "gnu", "GNU"),
        ("MKL_CBWR", "off", None),
        ("MKL_CBWR", "avx2,strict", "AVX2,STRICT"),
        ("PYTHONHASHSEED", "random", None),
        ("PYTHONHASHSEED", 0, "0"),
        ("PYTORCH_TUNABLEOP_ENABLED", True, "1"),
        ("ONEDNN_DEFAULT_FPMATH_MODE", "strict", "STRICT"),
        ("ONEDNN_VERBOSE", 2, "2"),
        ("TF_ENABLE_ONEDNN_OPTS", False, "0"),
        ("NCCL_ALGO", "", None),
        ("NCCL_NVLS_ENABLE", "auto", None),
        ("NCCL_NVLS_ENABLE", "on", "1"),
        ("NCCL_NVLS_ENABLE", "off", "0"),
        ("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", 0, "0"),
        ("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", -1, "-1"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8", ":4096:8"),
    ],
)
def test_a_value_is_spelled_as_its_reader_wants_it(variable, value, text):
    assert ROWS[variable].encode(value) == text


@pytest.mark.parametrize(
    ("variable", "found", "wanted", "same"),
    [
        ("OMP_NUM_THREADS", "2", "2", True),
        ("OMP_NUM_THREADS", "2,1", "2", False),
        ("OMP_NUM_THREADS", None, "2", False),
        ("MKL_DYNAMIC", "false", "FALSE", True),
        ("MKL_DYNAMIC", "0", "FALSE", True),
        ("MKL_DYNAMIC", None, "TRUE", True),
        ("MKL_DYNAMIC", None, "FALSE", False),
        ("OPENBLAS_CORETYPE", "haswell", "Haswell", True),
        ("OPENBLAS_CORETYPE", "Haswell", None, False),
        ("OPENBLAS_CORETYPE", "", None, True),
        ("PYTHONHASHSEED", "random", None, True),
        ("PYTHONHASHSEED", "0", None, False),
        ("MKL_CBWR", "OFF", None, True),
        ("NCCL_NVLS_ENABLE", "0", "0", True),
        ("NCCL_NVLS_ENABLE", None, "0", False),
        ("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", None, "10000", True),
        ("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "1", "10000", False),
        ("ONEDNN_DEFAULT_FPMATH_MODE", None, "STRICT", True),
        ("ONEDNN_DEFAULT_FPMATH_MODE", None, "BF16", False),
    ],
)
def test_two_texts_are_the_same_when_their_reader_does_the_same(variable, found, wanted, same):
    assert ROWS[variable].says(found, wanted) is same


def test_a_preset_variable_that_says_otherwise_is_named_with_both_values():
    values = {"threads.count": 2, "blas.openblas.core_type": "auto", "threads.dynamic": False}
    environment = {
        "OMP_NUM_THREADS": "7",
        "MKL_NUM_THREADS": "2",
        "OPENBLAS_CORETYPE": "Haswell",
        "OMP_DYNAMIC": "false",
        "MKL_DYNAMIC": "TRUE",
        "BLIS_IC_NT": "4",
        "OPENBLAS_L2_SIZE": "512",
    }
    assert contradictions(values, values, environment) == [
        "OMP_NUM_THREADS=7 contradicts `threads.count = 2`",
        "BLIS_IC_NT=4 contradicts `threads.count = 2`",
        "MKL_DYNAMIC=TRUE contradicts `threads.dynamic = false`",
        'OPENBLAS_CORETYPE=Haswell contradicts `blas.openblas.core_type = "auto"`',
        'OPENBLAS_L2_SIZE=512 contradicts `blas.openblas.core_type = "auto"`',
    ]


@pytest.mark.parametrize(("limit", "count"), [("1", 1), ("2", 0), ("64", 0), ("many", 0)])
def test_a_thread_limit_contradicts_only_a_higher_count(limit, count):
    values = {"threads.count": 2}
    words = [f"OMP_THREAD_LIMIT={limit} contradicts `threads.count = 2`"] * count
    assert contradictions(values, values, {"OMP_THREAD_LIMIT": limit}) == words


def test_what_nobody_asked_for_is_contradicted_by_nothing():
    values = {"threads.count": 2, "blas.openblas.core_type": "auto"}
    environment = {"OMP_NUM_THREADS": "7", "OPENBLAS_CORETYPE": "Haswell", TF32_OVERRIDE: "1"}
    assert contradictions(values, (), environment) == []


@pytest.mark.parametrize(
    ("values", "override", "words"),
    [
        (
            {"cuda.matmul.fp32_precision": "ieee"},
            "1",
            ['NVIDIA_TF32_OVERRIDE=1 contradicts `cuda.matmul.fp32_precision = "ieee"`'],
        ),
        ({"cuda.matmul.fp32_precision": "ieee"}, "0", []),
        (
            {"cudnn.conv.fp32_precision": "tf32"},
            "0",
            ['NVIDIA_TF32_OVERRIDE=0 contradicts `cudnn.conv.fp32_precision = "tf32"`'],
        ),
        ({"cudnn.conv.fp32_precision": "tf32"}, "1", []),
        ({"fp32_precision": "none"}, "0", []),
    ],
)
def test_the_tf32_override_is_compared_with_the_precisions_asked_for(values, override, words):
    assert contradictions(values, values, {TF32_OVERRIDE: override}) == words


def test_one_flag_that_wants_tf32_decides_what_the_override_may_be():
    values = {"cuda.matmul.fp32_precision": "ieee", "cudnn.conv.fp32_precision": "tf32"}
    assert tf32_override(values, values) == ("cudnn.conv.fp32_precision", "1")
    assert tf32_override(values, ()) is None


def test_variables_of_the_profiles_own_table_are_compared_too():
    values = {"environment": {"KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}}
    environment = {"KMP_BLOCKTIME": "200", "GOMP_SPINCOUNT": "0"}
    assert contradictions(values, values, environment) == [
        'KMP_BLOCKTIME=200 contradicts `environment.KMP_BLOCKTIME = "0"`'
    ]
