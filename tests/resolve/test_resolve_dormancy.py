"""A flag that nothing on the host reads is dormant, with the reason."""

import pytest
from resolve_builders import BLIS, H100, MI300X, MKL, NUMPY_OPENBLAS, a_host, a_stack

from backendcfg.resolve.facts import READERS
from backendcfg.resolve.plan import resolve
from backendcfg.schema.profile import flags

TORCH = [("torch", "2.13.0")]


def dormant(flag, host):
    return resolve(a_stack(), host).entry(flag).dormant


@pytest.mark.parametrize(
    ("flag", "host", "reason"),
    [
        ("cudnn.conv.fp32_precision", a_host(packages=TORCH), "no NVIDIA or AMD GPU is here"),
        ("cudnn.rnn.fp32_precision", a_host(gpus=(H100,)), "PyTorch is not here"),
        ("cudnn.conv.fp32_precision", a_host(gpus=(H100,)), ""),
        ("cudnn.conv.fp32_precision", a_host(gpus=(H100,), packages=TORCH), ""),
        ("cudnn.conv.fp32_precision", a_host(gpus=(MI300X,), packages=TORCH), ""),
        ("cudnn.benchmark", a_host(), ""),
        (
            "cudnn.conv.fp32_precision",
            a_host(gpus=(H100.model_copy(update={"visible": False}),), packages=TORCH),
            "every NVIDIA or AMD GPU is hidden",
        ),
        ("miopen.immediate", a_host(gpus=(H100,), packages=TORCH), "no AMD GPU is here"),
        ("mha.fastpath_enabled", a_host(), "PyTorch is not here"),
        ("mha.fastpath_enabled", a_host(packages=TORCH), ""),
        ("jax.default_matmul_precision", a_host(), "JAX is not here"),
        ("tensorflow.onednn_opts", a_host(), "TensorFlow is not here"),
        ("blas.mkl.cbwr", a_host(), "MKL is not here"),
        ("blas.mkl.cbwr", a_host(packages=TORCH), ""),
        ("blas.mkl.cbwr", a_host(packages=TORCH, architecture="aarch64"), "MKL is not here"),
        ("blas.mkl.cbwr", a_host(libraries=(NUMPY_OPENBLAS, MKL)), ""),
        ("blas.blis.arch_type", a_host(), "BLIS is not here"),
        ("blas.blis.arch_type", a_host(libraries=(BLIS,)), ""),
        ("blas.openblas.core_type", a_host(libraries=(BLIS,)), "OpenBLAS is not here"),
        ("threads.dynamic", a_host(), "no MKL or OpenMP is here"),
        ("threads.dynamic", a_host(packages=TORCH), ""),
        ("onednn.max_cpu_isa", a_host(), "oneDNN is not here"),
        ("nccl.algo", a_host(gpus=(H100,)), "NCCL is not here"),
        ("nccl.algo", a_host(gpus=(H100,), packages=TORCH), ""),
    ],
)
def test_the_reason_says_what_is_missing(flag, host, reason):
    assert dormant(flag, host) == reason


@pytest.mark.parametrize(
    "flag",
    ["threads.count", "blas.library", "determinism.tier", "python.hash_seed", "environment"],
)
def test_what_we_read_ourselves_is_never_dormant(flag):
    assert dormant(flag, a_host(libraries=())) == ""


def test_every_reader_and_every_need_of_every_flag_is_known():
    readers = {reader for field in flags().values() for reader in field.flag.readers}
    needs = {need for field in flags().values() for need in field.flag.needs}
    assert readers <= set(READERS)
    assert needs <= {"nvidia-gpu", "amd-gpu", "intel-gpu"}
