"""Variables of other software that contradict the plan are named."""

import pytest
from resolve_builders import H100, a_host, a_profile

from backendcfg.resolve.plan import resolve

TORCH = [("torch", "2.13.0")]


def overrides(values, environment, **more):
    return resolve(a_profile(values), a_host(environment=environment, **more)).overrides


@pytest.mark.parametrize(
    ("values", "environment", "expected"),
    [
        (
            {"threads.count": 2},
            {"OMP_NUM_THREADS": "8"},
            ("OMP_NUM_THREADS=8 contradicts `threads.count = 2`",),
        ),
        ({"threads.count": 2}, {"OMP_NUM_THREADS": "2"}, ()),
        ({}, {"OMP_NUM_THREADS": "8", "PYTHONHASHSEED": "1"}, ()),
        (
            {"threads.count": 2},
            {"GOTO_NUM_THREADS": "4"},
            ("GOTO_NUM_THREADS=4 contradicts `threads.count = 2`",),
        ),
        (
            {"threads.dynamic": False},
            {"MKL_DYNAMIC": "TRUE"},
            ("MKL_DYNAMIC=TRUE contradicts `threads.dynamic = false`",),
        ),
        (
            {"python.hash_seed": 0},
            {"PYTHONHASHSEED": "7"},
            ("PYTHONHASHSEED=7 contradicts `python.hash_seed = 0`",),
        ),
        (
            {"onednn.default_fpmath_mode": "strict"},
            {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"},
            (
                'ONEDNN_DEFAULT_FPMATH_MODE=BF16 contradicts `onednn.default_fpmath_mode = "strict"`',
            ),
        ),
        (
            {"blas.openblas.core_type": "SkylakeX"},
            {"OPENBLAS_CORETYPE": "Haswell"},
            ('OPENBLAS_CORETYPE=Haswell contradicts `blas.openblas.core_type = "SkylakeX"`',),
        ),
        ({"blas.openblas.core_type": "Haswell"}, {"OPENBLAS_CORETYPE": "HASWELL"}, ()),
        (
            {},
            {"OPENBLAS_CORETYPE": "Haswell"},
            (
                (
                    "OPENBLAS_CORETYPE=Haswell chooses the kernels of every OpenBLAS, whatever the CPU "
                    'could run; the plan has `blas.openblas.core_type = "auto"`'
                ),
            ),
        ),
    ],
)
def test_a_variable_that_says_otherwise_is_named(values, environment, expected):
    assert overrides(values, environment, packages=TORCH) == expected


def test_openblas_l2_size_is_named_also_when_nobody_asked():
    (text,) = overrides({}, {"OPENBLAS_L2_SIZE": "512"})
    assert text.startswith("OPENBLAS_L2_SIZE=512 replaces the cache size")


def test_nvidia_tf32_override_is_named_where_there_is_a_gpu():
    environment = {"NVIDIA_TF32_OVERRIDE": "1"}
    ieee = {"cuda.matmul.fp32_precision": "ieee"}
    assert overrides(ieee, environment, packages=TORCH) == ()
    assert overrides(ieee, environment, packages=TORCH, gpus=(H100,)) == (
        'NVIDIA_TF32_OVERRIDE=1 contradicts `cuda.matmul.fp32_precision = "ieee"`',
    )
    assert len(overrides({}, environment, packages=TORCH, gpus=(H100,))) == 1


def test_the_value_that_pytorch_starts_from_is_named():
    assert overrides(
        {"cuda.matmul.fp32_precision": "ieee"},
        {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
        packages=TORCH,
        gpus=(H100,),
    ) == ('TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 contradicts `cuda.matmul.fp32_precision = "ieee"`',)
