"""Ours beside PyTorch's own, on the inputs that PyTorch's tests make: a program for a process of its own.

Writes JSON: for each operation how many inputs were compared, and what was wrong with others.
"""

import json
import sys
import warnings

import torch
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError

DTYPES = (
    *(torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.bfloat16, torch.float16),
)
CLOSE = {
    torch.float32: 1e-3,
    torch.complex64: 1e-3,
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.bfloat16: 2e-2,
    torch.float16: 5e-3,
}

OURS = {
    "addmm": ops.addmm,
    "baddbmm": ops.baddbmm,
    "bmm": ops.bmm,
    "matmul": ops.matmul,
    "einsum": ops.einsum,
    "nn.functional.conv2d": ops.conv2d,
    "nn.functional.scaled_dot_product_attention": ops.scaled_dot_product_attention,
    "cholesky_inverse": ops.linalg.cholesky_inverse,
    "cholesky_solve": ops.linalg.cholesky_solve,
}
OURS |= {
    f"linalg.{name}": getattr(ops.linalg, name)
    for name in (
        *("cholesky", "cholesky_ex", "eigh", "eigvalsh", "inv", "inv_ex", "lu", "lu_factor"),
        *("lu_solve", "qr", "solve", "svd", "svdvals"),
    )
}
OURS |= {
    f"fft.{name}": getattr(ops.fft, name)
    for name in (
        *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2"),
        *("fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift"),
    )
}


def arguments(name, sample):
    """By position, as both take them; PyTorch's samples of einsum have the operands first."""
    if name == "einsum":
        return (sample.args[0], *sample.input)
    return (sample.input, *sample.args)


def expected(info, sample):
    """What PyTorch's function gives; None where it refuses its own sample."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return info(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, NotImplementedError):
        return None


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def hermitian(a, uplo):
    """What eigh reads of a matrix, as a whole one."""
    a = a.mH if uplo == "U" else a
    diagonal = torch.diag_embed(torch.diagonal(a, dim1=-2, dim2=-1).real).to(a.dtype)
    return torch.tril(a, -1) + torch.tril(a, -1).mH + diagonal


def orthonormal(q):
    return q.mH @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)


def pairs(name, sample, got, wanted):
    """What must be close: factors with a free sign or phase are multiplied out."""
    a = sample.input
    if name == "linalg.eigh":
        vectors = got[1]
        made = vectors @ torch.diag_embed(got[0]).to(a.dtype) @ vectors.mH
        yield got[0], wanted[0]
        yield made, hermitian(a, sample.kwargs.get("UPLO", "L"))
        yield orthonormal(vectors)
    elif name == "linalg.svd":
        yield got[1], wanted[1]
        assert [x.shape for x in got] == [x.shape for x in wanted]
        least = min(a.shape[-2:])
        u, v = got[0][..., :least], got[2][..., :least, :]
        yield u * got[1].unsqueeze(-2).to(a.dtype) @ v, a
        yield orthonormal(got[0])
        yield orthonormal(got[2].mH)
    elif name == "linalg.qr":
        assert [x.shape for x in got] == [x.shape for x in wanted]
        if sample.kwargs.get("mode") == "r":
            yield got[1].mH @ got[1], a.mH @ a
        else:
            yield got[0] @ got[1], a
            yield orthonormal(got[0])
    else:
        yield from zip(flat(got), flat(wanted), strict=True)


def compare(name, info, sample, dtype):
    wanted = expected(info, sample)
    if wanted is None:
        return False
    options = dict(sample.kwargs)
    is_random = bool(options.get("dropout_p"))
    if is_random:
        options["seed"] = 3
    got = OURS[name](*arguments(name, sample), **options)
    for mine, theirs in zip(flat(got), flat(wanted), strict=True):
        assert mine.dtype == theirs.dtype, (mine.dtype, theirs.dtype)
        assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    if not is_random:  # which weights are dropped is another choice of numbers
        limit = CLOSE[dtype]
        for mine, theirs in pairs(name, sample, got, wanted):
            assert_close(mine, theirs, rtol=limit, atol=limit)
    return True


def main():
    found = {name: {"compared": 0, "wrong": []} for name in OURS}
    for info in op_db:
        if info.name not in OURS or info.variant_test_name:
            continue
        report = found[info.name]
        for dtype in [d for d in DTYPES if d in info.dtypes]:
            torch.manual_seed(0)
            for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
                for way in (sample, sample.noncontiguous()):
                    try:
                        report["compared"] += compare(info.name, info, way, dtype)
                    except Exception as error:  # each is reported by its test
                        text = f"{dtype}: {type(error).__name__}: {error}; {way.summary()}"
                        report["wrong"].append(text[:600])
        for bad in info.error_inputs("cpu") if info.error_inputs_func else ():
            sample = bad.sample_input
            try:
                OURS[info.name](*arguments(info.name, sample), **sample.kwargs)
                report["wrong"].append(f"not refused: {sample.summary()}")
            except (InvalidArgumentError, TypeError):
                report["compared"] += 1
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
