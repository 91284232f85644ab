"""Run as a program: linear algebra of PyTorch's own tensors, said to be on a device, by the fakes.

Its arguments are the compiled exchange.c and the fakes of the driver, cuSOLVER and cuBLAS.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch_on_device  # noqa: F401 - it changes PyTorch's table of functions


def main():
    """Each line that is printed is one function that held; an exception ends it."""
    from backendcfg.ops import linalg

    torch.manual_seed(0)

    def held(said, results, wanted):
        results = results if isinstance(results, tuple) else (results,)
        wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
        for result, other in zip(results, wanted, strict=True):
            assert type(result) is torch.Tensor, (said, type(result))
            assert result.dtype is other.dtype, (said, result.dtype, other.dtype)
            assert result.shape == other.shape, (said, result.shape)
            assert not result.requires_grad, said
            assert torch.allclose(result, other.detach(), rtol=1e-4, atol=1e-4), said
        return said

    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):

        def random(*shape, dtype=dtype):
            return torch.randn(*shape, dtype=torch.complex128).to(dtype)

        a, b = random(3, 4, 4), random(3, 4, 2)
        p = a @ a.mH + torch.eye(4, dtype=dtype)
        factor, flat = torch.linalg.cholesky(p), random(2, 3, 5)
        print(dtype, *(
            held("cholesky", linalg.cholesky(p, upper=True), torch.linalg.cholesky(p, upper=True)),
            held("cholesky_ex", linalg.cholesky_ex(-p)[1], torch.linalg.cholesky_ex(-p)[1]),
            held("cholesky_solve", linalg.cholesky_solve(b, factor), torch.cholesky_solve(b, factor)),
            held("cholesky_inverse", linalg.cholesky_inverse(factor), torch.cholesky_inverse(factor)),
            held("inv", linalg.inv(a), torch.linalg.inv(a)),
            held("inv_ex", linalg.inv_ex(a.mT), torch.linalg.inv_ex(a.mT)),
            held("solve", linalg.solve(a, b), torch.linalg.solve(a, b)),
            held("vector", linalg.solve(a, b[..., 0]), torch.linalg.solve(a, b[..., 0])),
            held("right", linalg.solve(a, b.mT, left=False), torch.linalg.solve(a, b.mT, left=False)),
            held("shared", linalg.solve(a[0], b), torch.linalg.solve(a[0], b)),
            held("solve_ex", linalg.solve_ex(a, b), torch.linalg.solve_ex(a, b)),
            held("lu_factor", linalg.lu_factor(flat), torch.linalg.lu_factor(flat)),
            held("lu_factor_ex", linalg.lu_factor_ex(a), torch.linalg.lu_factor_ex(a)),
            held("lu", linalg.lu(flat.mT), torch.linalg.lu(flat.mT)),
            *(
                held("lu_solve", linalg.lu_solve(*torch.linalg.lu_factor(a), c, left=left,
                                                 adjoint=adjoint),
                     torch.linalg.lu_solve(*torch.linalg.lu_factor(a), c, left=left,
                                           adjoint=adjoint))
                for left, c in ((True, b), (False, b.mT)) for adjoint in (False, True)
            ),
            held("qr", linalg.qr(flat), torch.linalg.qr(flat)),
            held("complete", linalg.qr(flat.mT, "complete"), torch.linalg.qr(flat.mT, "complete")),
            held("r", linalg.qr(flat, "r"), torch.linalg.qr(flat, "r")),
            held("eigvalsh", linalg.eigvalsh(p, "U"), torch.linalg.eigvalsh(p, "U")),
            held("eigh", linalg.eigh(p)[0], torch.linalg.eigh(p)[0]),
            held("svdvals", linalg.svdvals(flat), torch.linalg.svdvals(flat)),
        ))  # fmt: skip
        values, vectors = linalg.eigh(p)
        torch.testing.assert_close(
            p @ vectors, vectors * values[..., None, :], rtol=1e-3, atol=1e-3
        )
        for each in (flat, flat.mT):
            for full in (False, True):
                u, s, vh = linalg.svd(each, full)
                product = u[..., :3] * s[..., None, :] @ vh[..., :3, :]
                torch.testing.assert_close(product, each, rtol=1e-3, atol=1e-3)
        a.requires_grad_()
        print(held("gradients", linalg.inv(a), torch.linalg.inv(a)))
        if dtype.is_complex:
            with torch.no_grad():
                lazy = a.detach().conj()
                print(
                    held(
                        "conjugate", linalg.solve(lazy, b.mH.mT), torch.linalg.solve(lazy, b.conj())
                    )
                )
                upper = factor.conj()
                print(
                    held("factor", linalg.cholesky_solve(b, upper), torch.cholesky_solve(b, upper))
                )

    singular = torch.zeros(2, 3, 3)
    result, info = linalg.inv_ex(singular)
    print(info.tolist(), bool(result.isnan().all()))
    for call in (lambda: linalg.inv(singular), lambda: linalg.eigh(singular * torch.nan)):
        try:
            call()
        except linalg.LinAlgError as error:
            print(error.render().splitlines()[0].partition(": ")[2])
    print([each.shape for each in linalg.svd(torch.zeros(3, 0))])
    print([each.shape for each in linalg.qr(torch.zeros(0, 3, 2))])


if __name__ == "__main__":
    main()
