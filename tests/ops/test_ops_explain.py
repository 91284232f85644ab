"""explain() and stats(): who would serve, who did, and why the others did not."""

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.catalogue.cpu import PROVIDERS
from backendcfg.errors import InvalidArgumentError, MissingLibraryError
from backendcfg.ops import explanation
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.schema.base import candidates
from backendcfg.schema.tables import Blas
from backendcfg.transact.compiled import Compiled

CPU_BLAS = candidates(Blas.model_fields["library"].annotation)


def under(*order):
    return Scope(Prepared("p", Compiled("p", "none", {}, order=order)), 0)


def test_the_explanation_and_the_counters_agree():
    a = np.ones((3, 4), "float32")
    for order in (("openblas", "reference"), ("reference", "openblas")):
        with under(*order):
            said = ops.explain("matmul", shapes=(a.shape, a.T.shape), dtype=a.dtype)
            ops.reset_stats()
            ops.matmul(a, a.T)
            served = [s for s in ops.stats() if s.calls]
        assert [(said.provider, said.path)] == [(s.provider, s.path) for s in served]
        assert served[0].calls == {"sgemm": 1}
        assert said.provider == order[0]


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((3, 4), (4, 1)), ((1, 4), (4, 5)),
                                    ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,))])  # fmt: skip
def test_the_operation_that_is_explained_is_the_one_that_is_called(shapes):
    a, b = (np.ones(shape, "complex128") for shape in shapes)
    ops.reset_stats()
    ops.matmul(a, b)
    called = [name for served in ops.stats() for name in served.calls]
    assert called == [ops.explain("matmul", shapes, "complex128").operation]


def test_every_provider_is_accounted_for():
    with under("reference"):
        said = ops.explain("matmul", ((4, 5), (5, 1)))
    assert said.operation == "dgemv"
    assert said.sizes == (4, 1, 5)
    assert {said.provider, *(r.provider for r in said.reasons)} == set(CPU_BLAS)
    why = {r.provider: r.why for r in said.reasons}
    assert why["mkl"] == "not among those that the profile may use"


def test_it_prints_one_line_for_each_provider():
    with under("reference", "openblas"):
        lines = str(ops.explain("matmul", ((2, 3), (3, 2)), "complex64")).splitlines()
    assert lines[:3] == [
        "cgemm of (2, 3) and (3, 2) under profile `p`",
        "  reference       serves: compiled in, the first of the order",
        "  openblas        behind `reference`",
    ]
    assert lines[-2] == (
        '  flags: blas.library = nothing, blas.path = "", determinism.tier = "none", '
        "ops.calibration = true, ops.check_finite = false"
    )
    assert lines[-1] == "  calibration not used: there is none: `backendcfg tune` makes one"
    assert len(lines) == 3 + len(PROVIDERS)


def test_sizes_beyond_32_bits_are_served_by_64_bit_libraries():
    large = 2**31
    with under("openblas"):
        said = ops.explain("matmul", ((large, 4), (4, 4)), "float64")
    assert said.provider == "openblas"


def test_a_batch_counts_each_matrix():
    ops.reset_stats()
    ops.matmul(np.ones((2, 3, 4, 5)), np.ones((5, 6)))
    assert sum(s.calls.get("dgemm", 0) for s in ops.stats()) == 6
    ops.reset_stats()
    assert [s.calls for s in ops.stats() if s.calls] == []


def test_the_providers_are_those_of_the_schema_in_its_order():
    assert tuple(provider.name for provider in PROVIDERS) == CPU_BLAS


def test_a_profile_without_a_usable_library_says_why():
    with under("blis"), pytest.raises(MissingLibraryError) as caught:
        ops.matmul(np.ones((2, 2)), np.ones((2, 2)))
    assert caught.value.message == "no library can serve products of CPU arrays under profile `p`"
    assert caught.value.notes == ("blis: absent: no file of it was found",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("svd", ((2, 2), (2, 2))), "explain: there is no operation 'svd'"),
        (("matmull",), "explain: there is no operation 'matmull'"),
        ((None, ((2, 2), (2, 2))), "explain: there is no operation None"),
        (("matmul", ((2, 3), (2, 3))), "explain: `shapes` (2, 3) and (2, 3) have no product"),
        (
            ("matmul", ((2, 3, 4), (3, 4, 5))),
            "explain: `shapes` (2, 3, 4) and (3, 4, 5) have no product",
        ),
        (
            ("matmul", ((-2, 3), (3, 4))),
            "explain: `shapes` must be two shapes, ((m, k), (k, n)), not ((-2, 3), (3, 4))",
        ),
        (("matmul", 3), "explain: `shapes` must be two shapes, ((m, k), (k, n)), not 3"),
        (
            ("matmul", ((2, 2), (2, 2)), "int8"),
            "explain: `dtype` must be one of float32, float64, complex64, complex128, bfloat16, float16, not 'int8'",
        ),
    ],
)
def test_wrong_questions_are_refused(arguments, message):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.explain(*arguments)
    assert caught.value.message == message


def test_an_unknown_operation_lists_those_that_are_known():
    with pytest.raises(InvalidArgumentError) as caught:
        ops.explain("matmull", ((2, 2), (2, 2)))
    assert caught.value.notes == (f"there are: {', '.join(explanation.names())}",)
    assert caught.value.helps == ('did you mean "matmul"?',)


@pytest.fixture(name="family")
def _family(monkeypatch):
    """A family of one operation for one test."""
    monkeypatch.setattr(explanation, "_explainers", dict(explanation._explainers))

    def explain(question):
        causal = question.option("is_causal", False)
        return Answer(
            "flash attention",
            f"attention of {question.shapes}, {question.dtype}",
            (1, 2),
            "flash",
            because="causal" if causal else "the first of the order",
            reasons=(Reason("math", "", "behind `flash`"),),
            flags=("cuda.enable_flash_sdp", "not.there"),
        )

    explanation.register("attention", explain)


def test_a_family_registers_its_own_explainer(family):
    said = ops.explain("attention", ((1, 2),), "bfloat16", is_causal=True)
    assert (said.operation, said.provider, said.because) == ("flash attention", "flash", "causal")
    assert said.flags == {"cuda.enable_flash_sdp": True}
    assert str(said).splitlines() == [
        "attention of ((1, 2),), bfloat16 under no profile",
        "  flash  serves: causal",
        "  math   behind `flash`",
        "  flags: cuda.enable_flash_sdp = true",
    ]


def test_an_argument_that_no_family_takes_is_refused_by_name(family):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.explain("attention", ((1, 2),), causal=True)
    assert caught.value.message == "explain: `attention` has no argument `causal`"
    assert caught.value.notes == ("beside `shapes` and `dtype` it takes: is_causal",)


def test_the_flags_are_those_in_force():
    values = {"ops.check_finite": True, "blas.library": "reference"}
    with Scope(Prepared("p", Compiled("p", "none", values, order=("reference",))), 0):
        said = ops.explain("matmul", ((2, 2), (2, 2)))
    assert said.flags["ops.check_finite"] is True
    assert said.flags["blas.library"] == "reference"
