"""Linear algebra on a GPU against float64: each library, function, type and stack."""

import pytest
import torch
from gpu_arrays import CYCLES, FP32, served, under, wide

from backendcfg import ops
from backendcfg.ops import linalg

DTYPES = ("float32", "float64", "complex64", "complex128")
# Of a norm, relative to that of what is wanted, for matrices whose condition is small.
ROUNDING = {"float32": 2e-5, "float64": 1e-12, "complex64": 2e-5, "complex128": 1e-12}
STACKS = {"one": (), "three": (3,), "two by two": (2, 2), "none": (0,)}


@pytest.fixture(params=["cusolver", "magma"])
def provider(request, cuda):
    with under(**{"cuda.preferred_linalg_library": request.param}):
        said = ops.explain("linalg.cholesky", ((4, 4),), "float32", device=cuda.place)
        if said.provider != request.param:
            pytest.skip(f"needs a GPU that {request.param} serves, which is not here")
        yield request.param


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture(params=STACKS)
def lead(request):
    return STACKS[request.param]


def square(cuda, lead, dtype):
    """Matrices far from singular."""
    n = cuda.size // 4
    return cuda.random(*lead, n, n, dtype=dtype) + n * torch.eye(n, device=cuda.device)


def positive(cuda, lead, dtype):
    """Hermitian matrices whose eigenvalues are positive."""
    a = square(cuda, lead, dtype)
    return a @ a.mH


def assert_near(result, wanted, dtype):
    assert (result.shape, str(result.dtype)) == (wanted.shape, f"torch.{dtype}")
    if wanted.numel():
        error = torch.linalg.norm(wide(result) - wide(wanted)) / torch.linalg.norm(wide(wanted))
        assert float(error) < ROUNDING[dtype]


def assert_unitary(columns, dtype):
    identity = torch.eye(columns.shape[-1], dtype=wide(columns).dtype, device=columns.device)
    off = (wide(columns).mH @ wide(columns) - identity).abs()
    assert not off.numel() or float(off.max()) < 10 * ROUNDING[dtype]


def real_of(dtype):
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_is_right(cuda, provider, dtype, lead, upper):
    a = positive(cuda, lead, dtype)
    factor, by = served(linalg.cholesky, a, upper=upper)
    assert by == provider
    assert_near(factor, torch.linalg.cholesky(wide(a), upper=upper), dtype)
    b = cuda.random(*lead, a.shape[-1], 3, dtype=dtype)
    solved = linalg.cholesky_solve(b, factor, upper=upper)
    assert_near(solved, torch.linalg.solve(wide(a), wide(b)), dtype)
    inverse = linalg.cholesky_inverse(factor, upper=upper)
    assert_near(inverse, torch.linalg.inv(wide(a)), dtype)


def test_inverses_and_solutions_are_right(cuda, provider, dtype, lead):
    a = square(cuda, lead, dtype)
    inverse, by = served(linalg.inv, a)
    assert by == provider
    assert_near(inverse, torch.linalg.inv(wide(a)), dtype)
    for b in (cuda.random(*lead, a.shape[-1], 5, dtype=dtype), a.mT):
        result, info = linalg.solve_ex(a, b)
        assert_near(result, torch.linalg.solve(wide(a), wide(b)), dtype)
        assert not bool(info.any())
    left = cuda.random(*lead, 5, a.shape[-1], dtype=dtype)
    result = linalg.solve(a, left, left=False)
    assert_near(result, torch.linalg.solve(wide(a), wide(left), left=False), dtype)


def test_a_matrix_is_the_product_of_its_factors(cuda, provider, dtype, lead):
    for a in (square(cuda, lead, dtype), square(cuda, lead, dtype)[..., :20, :]):
        p, lower, upper = linalg.lu(a)
        assert_near((p @ lower @ upper).to(a.dtype), a, dtype)
    a = square(cuda, lead, dtype)
    factors, pivots = linalg.lu_factor(a)
    b = cuda.random(*lead, a.shape[-1], 2, dtype=dtype)
    for adjoint in (False, True):
        solved = linalg.lu_solve(factors, pivots, b, adjoint=adjoint)
        of = wide(a).mH if adjoint else wide(a)
        assert_near(solved, torch.linalg.solve(of, wide(b)), dtype)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_is_right(cuda, provider, dtype, lead, mode):
    n = cuda.size // 4
    for shape in ((n, n), (n, 7), (7, n)):
        a = cuda.random(*lead, *shape, dtype=dtype)
        q, r = linalg.qr(a, mode)
        assert_near(q @ r, a, dtype)
        assert_unitary(q, dtype)
        assert torch.equal(r, r.triu())


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvalues_are_right(cuda, provider, dtype, lead, triangle):
    a = positive(cuda, lead, dtype)
    hidden = a.tril() if triangle == "L" else a.triu()  # the other triangle is not read
    (values, vectors), by = served(linalg.eigh, hidden, triangle)
    assert by == provider
    assert_near(values, torch.linalg.eigvalsh(wide(a)), real_of(dtype))
    assert_near((vectors * values[..., None, :]) @ vectors.mH, a, dtype)
    assert_unitary(vectors, dtype)
    assert_near(linalg.eigvalsh(a), torch.linalg.eigvalsh(wide(a)), real_of(dtype))


@pytest.mark.parametrize("full", [False, True])
def test_singular_values_are_right(cuda, provider, dtype, lead, full):
    n = cuda.size // 4
    for shape in ((n, n), (n, 7), (7, n)):
        a = cuda.random(*lead, *shape, dtype=dtype)
        u, s, vh = linalg.svd(a, full)
        assert_near(s, torch.linalg.svdvals(wide(a)), real_of(dtype))
        assert_near(linalg.svdvals(a), s, real_of(dtype))
        few = min(shape)
        assert_near((u[..., :few] * s[..., None, :]) @ vh[..., :few, :], a, dtype)
        assert_unitary(u, dtype)
        assert_unitary(vh.mH, dtype)


@pytest.mark.parametrize("n", [1, 8, 32, 33, 512])
def test_many_small_matrices_are_right(cuda, provider, n):
    n = min(n, cuda.size * 2)
    many = 3 if n > 64 else 40
    a = cuda.random(many, n, n) + 2 * n * torch.eye(n, device=cuda.device)
    b = cuda.random(many, n, 2)
    symmetric = a @ a.mT
    assert_near(linalg.solve(a, b), torch.linalg.solve(wide(a), wide(b)), "float32")
    assert_near(linalg.inv(a), torch.linalg.inv(wide(a)), "float32")
    factor = linalg.cholesky(symmetric)
    assert_near(factor, torch.linalg.cholesky(wide(symmetric)), "float32")
    assert_near(linalg.eigvalsh(symmetric), torch.linalg.eigvalsh(wide(symmetric)), "float32")


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [1, 31, 64, 511, 512])
def test_stacks_at_once_are_right(cuda, dtype, n, upper):
    n = min(n, cuda.size + 1)
    a = cuda.random(2, 3, n, n, dtype=dtype) + 2 * n * torch.eye(n, device=cuda.device)
    b = cuda.random(2, 3, n, 1, dtype=dtype)
    with ops.trace() as traced:
        factor = linalg.cholesky(a @ a.mH, upper=upper)
        solved = linalg.cholesky_solve(b, factor, upper=upper)
    assert all("the stack at once" in each.because for each in traced)
    assert_near(factor, torch.linalg.cholesky(wide(a @ a.mH), upper=upper), dtype)
    assert_near(solved, torch.linalg.solve(wide(a @ a.mH), wide(b)), dtype)
    inverse, info = linalg.inv_ex(a)
    assert_near(inverse, torch.linalg.inv(wide(a)), dtype)
    assert not bool(info.any())
    factors, pivots = linalg.lu_factor(a)
    assert pivots.dtype is torch.int32
    for left, side in ((True, b), (False, b.mT)):
        for adjoint in (False, True):
            of = wide(a).mH if adjoint else wide(a)
            solved = linalg.lu_solve(factors, pivots, side, left=left, adjoint=adjoint)
            assert_near(solved, torch.linalg.solve(of, wide(side), left=left), dtype)


def test_stacks_at_once_name_what_has_no_answer(cuda, dtype):
    n = 9
    a = cuda.random(40, n, n, dtype=dtype) + 2 * n * torch.eye(n, device=cuda.device)
    a[7, :, 4] = 0
    for function in (linalg.inv, linalg.lu_factor):
        with pytest.raises(linalg.LinAlgError, match="matrix 7 of the stack is singular"):
            function(a)
    inverse, info = linalg.inv_ex(a)
    assert info.nonzero().tolist() == [[7]]
    assert bool(inverse[7].isnan().all())
    assert not bool(inverse[torch.arange(40, device=a.device) != 7].isnan().any())
    positive = a @ a.mH
    positive[11] = -positive[11]
    assert linalg.cholesky_ex(positive).info[11].item() == 1


def test_a_graph_of_a_stack_at_once_can_be_replayed(cuda):
    if not cuda.is_real:
        pytest.skip("needs a GPU with graphs of its own")
    a, b = square(cuda, (9,), "float32"), cuda.random(9, cuda.size // 4, 2)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        linalg.solve_ex(a, b)  # makes the handles
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        result, _ = linalg.solve_ex(a, b)
    for _ in range(3):
        b.copy_(cuda.random(*b.shape))
        graph.replay()
        torch.cuda.synchronize()
        assert_near(result, torch.linalg.solve(wide(a), wide(b)), "float32")


def test_layouts_are_read_as_they_lie(cuda, provider, dtype):
    a = square(cuda, (4,), dtype)
    for view in (a.mT, a[::2], a[:, ::2, ::2], a[:1].expand(3, *a.shape[1:]), a.mT.contiguous().mT):
        assert_near(linalg.inv(view), torch.linalg.inv(wide(view)), dtype)
    if a.dtype.is_complex:
        assert_near(linalg.inv(a.conj()), torch.linalg.inv(wide(a.conj().resolve_conj())), dtype)


def test_tf32_has_no_part_in_it(cuda, provider):
    a = square(cuda, (), "float32")
    with under(**{"cuda.preferred_linalg_library": provider, FP32: "tf32"}):
        assert_near(linalg.inv(a), torch.linalg.inv(wide(a)), "float32")


def test_a_matrix_without_an_answer_is_named(cuda, provider, dtype):
    a = square(cuda, (4,), dtype)
    a[2] = 0
    with pytest.raises(linalg.LinAlgError, match="matrix 2 of the stack is singular"):
        linalg.inv(a)
    with pytest.raises(linalg.LinAlgError, match="matrix 2 of the stack"):
        linalg.cholesky(a @ a.mH)
    _, info = linalg.inv_ex(a)
    assert info.tolist() == [0, 0, 1, 0]
    a[2, 0, 0] = torch.nan
    with pytest.raises(linalg.LinAlgError, match="matrix 2 of the stack"):
        linalg.eigh(a @ a.mH)


FUNCTIONS = {
    "cholesky": lambda a: linalg.cholesky(a @ a.mH),
    "inv": linalg.inv,
    "lu": linalg.lu,
    "qr": linalg.qr,
    "eigh": lambda a: linalg.eigh(a @ a.mH),
    "svd": linalg.svd,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("stacked", [False, True])
def test_decompositions_have_the_same_bits(cuda, function, stacked):
    a = square(cuda, (5,) if stacked else (), "float32")
    call = FUNCTIONS[function]

    def bits():
        result = call(a)
        return result if isinstance(result, tuple) else (result,)

    flags = {"determinism.algorithms": "deterministic", "determinism.tier": "run-to-run"}
    with under(**flags), cuda.busy():
        first = bits()
        for _ in range(cuda.times):
            assert all(torch.equal(x, y) for x, y in zip(bits(), first, strict=True))


def test_what_need_not_wait_does_not(cuda):
    if not cuda.is_real:
        pytest.skip("needs a GPU with streams of its own")
    stream = torch.cuda.Stream()
    a = square(cuda, (), "float32")
    cuda.wait()
    with torch.cuda.stream(stream):
        for call in (linalg.inv_ex, linalg.qr, linalg.lu_factor_ex):
            call(a)  # makes the handle
            stream.synchronize()
            torch.cuda._sleep(CYCLES)
            call(a)
            assert not stream.query(), "the call waited for the device"
        stream.synchronize()
