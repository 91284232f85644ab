"""ops.einsum computes np.einsum's sums by the flags' order, and refuses by name."""

import sys
import types

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import einsum as module_function
from backendcfg.ops import serving
from backendcfg.transact.compiled import Compiled

pytestmark = pytest.mark.sweep

assert module_function is ops.einsum
RANDOM = np.random.default_rng(0)
DTYPES = ("float32", "float64", "complex64", "complex128")
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 1, "A": 3}


def under(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    return Scope(
        Prepared("test", Compiled("test", "none", named, order=("openblas", "reference"))), 0
    )


def whole(shape, dtype="float64", random=RANDOM):
    parts = random.integers(-3, 4, (2, *shape))
    return (parts[0] + 1j * parts[1] if "complex" in dtype else parts[0]).astype(dtype)


@st.composite
def contractions(draw):
    """An equation of one to four operands, its output spelled out or not."""
    terms = [
        "".join(draw(st.lists(st.sampled_from("abcdeA"), max_size=4)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    known = sorted(set("".join(terms)))
    equation = ",".join(terms)
    if draw(st.booleans()):
        kept = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        equation += "->" + "".join(kept)
    return equation, [tuple(SIZES[letter] for letter in term) for term in terms]


@settings(deadline=None, max_examples=examples(120))
@given(contractions(), st.sampled_from(DTYPES), st.booleans())
def test_every_equation_gives_numpys_sum(contraction, dtype, backwards):
    equation, shapes = contraction
    operands = [whole(shape, dtype) for shape in shapes]
    if backwards:
        operands = [each.T.copy().T for each in operands]
    wanted = np.einsum(equation, *operands)
    for values in ({}, {"opt_einsum__enabled": False}):
        with under(**values):
            got = ops.einsum(equation, *operands)
        assert got.dtype == dtype
        assert np.array_equal(got, wanted)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...,...", [(2, 3), (3,)]),
        ("a...,...b", [(2, 3), (3, 4)]),
        ("a...->...", [(2, 3, 4)]),
        ("...a->a...", [(2, 3, 4)]),
        ("a...b,b...->...a", [(2, 3, 4), (4, 3)]),
        ("ij,ij->ij", [(2, 1), (2, 3)]),
        ("i,ij->j", [(1,), (3, 4)]),
        (" i j , j k -> i k ", [(2, 3), (3, 4)]),
        ("ij,jk->ik", [(2, 0), (0, 4)]),
        ("ij,jk->ik", [(0, 3), (3, 4)]),
        ("", [()]),
        (",ij->ji", [(), (2, 3)]),
    ],
)
def test_ellipses_broadcasting_and_empty_operands(equation, shapes):
    operands = [whole(shape) for shape in shapes]
    assert np.array_equal(ops.einsum(equation, *operands), np.einsum(equation, *operands))


def test_dimensions_of_an_ellipsis_that_the_output_lacks_are_summed():
    a = whole((2, 3, 4))
    assert np.array_equal(ops.einsum("...a->a", a), a.sum(axis=(0, 1)))


def test_a_label_that_is_1_everywhere_but_in_the_output_spreads():
    a, b = whole((1, 2)), whole((3, 2))
    assert np.array_equal(ops.einsum("ij,ij->i", a, b), (a * b).sum(axis=1))


def test_lists_of_labels():
    a, b = whole((2, 3)), whole((3, 4))
    assert np.array_equal(ops.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    assert np.array_equal(ops.einsum(a, [7, 3]), a.T)
    assert np.array_equal(ops.einsum(a, [..., 30], [30, ...]), a.T)


def test_operands_in_one_list():
    a, b = whole((2, 3)), whole((3, 4))
    assert np.array_equal(ops.einsum("ij,jk", [a, b]), a @ b)


def test_integers_and_bool_are_exact():
    a, b = RANDOM.integers(-9, 9, (3, 4)), RANDOM.integers(-9, 9, (4, 5))
    assert np.array_equal(ops.einsum("ij,jk->ik", a, b), a @ b)
    assert ops.einsum("ij->", a).dtype == np.int64
    assert ops.einsum("ij,jk->ik", a > 0, b > 0).dtype == np.bool_


def test_several_dtypes_are_promoted_as_numpy_does():
    a, b = whole((2, 3), "float32"), whole((3, 4), "complex64")
    got = ops.einsum("ij,jk->ik", a, b)
    assert got.dtype == np.complex64
    assert np.array_equal(got, a @ b)
    assert ops.einsum("i,i", whole((3,), "int64"), whole((3,), "float32")).dtype == np.float64


def test_float16_is_computed_in_float32_and_rounded_once():
    a, b = (RANDOM.standard_normal((40, 40)).astype(np.float16) for _ in range(2))
    got = ops.einsum("ij,jk->ik", a, b)
    assert got.dtype == np.float16
    assert np.array_equal(got, (a.astype("f4") @ b.astype("f4")).astype(np.float16))


def test_not_a_number_reaches_its_row_alone():
    a, b = np.ones((3, 4)), np.ones((4, 5))
    a[1, 2] = np.nan
    got = ops.einsum("ij,jk->ik", a, b)
    assert np.isnan(got[1]).all()
    assert (got[[0, 2]] == 4).all()


def test_the_error_is_within_that_of_the_arithmetic():
    a, b, c = (RANDOM.standard_normal((30, 30)).astype(np.float32) for _ in range(3))
    exact = a.astype("f8") @ b.astype("f8") @ c.astype("f8")
    bound = 62 * np.finfo(np.float32).eps * (abs(a) @ abs(b) @ abs(c))
    assert (abs(ops.einsum("ij,jk,kl->il", a, b, c) - exact) <= bound).all()


CHAIN = ("ab,bc,cd->ad", [(40, 2), (2, 40), (40, 2)])


def who(**values):
    """Who chose the order, and the pairs that were contracted."""
    before = serving.counted()
    operands = [whole(shape) for shape in CHAIN[1]]
    with under(**values):
        got = ops.einsum(CHAIN[0], *operands)
    assert np.array_equal(got, operands[0] @ operands[1] @ operands[2])
    after = serving.counted()
    return [key[1] for key in after if key[0] == "einsum" and after[key] > before.get(key, 0)]


def test_the_flag_decides_who_chooses_the_order():
    pytest.importorskip("opt_einsum")
    assert who() == ["opt_einsum"]
    assert who(opt_einsum__enabled=False) == ["left to right"]


@pytest.mark.parametrize("tier", ["cross-machine", "batch-invariant"])
def test_tiers_that_need_one_order_take_the_one_from_left_to_right(tier):
    assert who(determinism__tier=tier) == ["left to right"]


@pytest.mark.parametrize("strategy", ["auto", "greedy", "optimal"])
def test_the_strategy_is_handed_on(monkeypatch, strategy):
    from backendcfg.ops.einsum import contraction

    asked = []

    def contract_path(equation, *shapes, optimize, **options):
        asked.append((equation, optimize))
        return [(1, 2), (0, 1)], None

    fake = types.SimpleNamespace(get_symbol=lambda i: chr(97 + i - 26), contract_path=contract_path)
    monkeypatch.setitem(sys.modules, "opt_einsum", fake)
    monkeypatch.setattr(contraction, "_is_installed", lambda: True)
    contraction._path.cache_clear()
    assert who(opt_einsum__strategy=strategy) == ["opt_einsum"]
    assert asked == [("ab,bc,cd->ad", strategy)]
    contraction._path.cache_clear()


def test_without_opt_einsum_it_goes_from_left_to_right(monkeypatch):
    from backendcfg.ops.einsum import contraction

    monkeypatch.setattr(contraction, "_is_installed", lambda: False)
    assert who() == ["left to right"]


def test_the_same_bits_each_time():
    operands = [RANDOM.standard_normal((20, 20), np.float32) for _ in range(4)]
    found = {ops.einsum("ab,bc,cd,da->ac", *operands).tobytes() for _ in range(5)}
    assert len(found) == 1


OWN = Compiled(
    "test",
    "batch-invariant",
    {"determinism.tier": "batch-invariant"},
    order=("native", "reference"),
)
BATCHED = (
    # Equations in which n is the batch, and which operands have it.
    *("nij,njk->nik", "nij,jk->nik", "ij,njk->nik", "nhid,nhjd->nhij", "nhij,nhjd->nihd"),
    *("ni,ni->n", "ni,i->n", "ni->n", "nij->nj", "nij,nk->njk", "ni,nj->nij", "ni,ni->ni"),
    *(
        "nij,njk,kl->nil",
        "nij,kj,nk->n",
        "nij,nij->n",
        "nii,ni->ni",
        "na,nb,abc->nc",
        "n...j,jk->n...k",
    ),
)


@pytest.mark.parametrize("equation", BATCHED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_under_batch_invariance_a_row_has_the_bits_that_it_has_alone(equation, dtype):
    random = np.random.default_rng(1)
    sizes = {"n": 11, "i": 23, "j": 301, "k": 17, "l": 7, "h": 2, "d": 70, "a": 9, "b": 33, "c": 5}
    sizes["i"] = 301 if equation == "nii,ni->ni" else sizes["i"]
    terms = equation.partition("->")[0].replace("...", "hi").split(",")
    operands = [random.standard_normal([sizes[label] for label in term]) for term in terms]
    if "complex" in dtype:
        operands = [each + 1j * random.standard_normal(each.shape) for each in operands]
    operands = [each.astype(dtype) for each in operands]
    with Scope(Prepared("test", OWN), 0):
        together = ops.einsum(equation, *operands)
        assert np.allclose(together, np.einsum(equation, *operands), atol=1e-2)
        for low, high in ((0, 1), (4, 5), (3, 10)):
            rows = [
                each[low:high] if term[0] == "n" else each
                for each, term in zip(operands, terms, strict=True)
            ]
            copies = [np.asfortranarray(each) for each in rows]  # nor the strides
            assert ops.einsum(equation, *rows).tobytes() == together[low:high].tobytes()
            assert ops.einsum(equation, *copies).tobytes() == together[low:high].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_has_the_bits_of_a_row_alone_and_of_its_transpose(dtype):
    random = np.random.default_rng(3)
    a, b = random.standard_normal((5, 301)), random.standard_normal((301, 6))
    if "complex" in dtype:
        a, b = a + 1j * a[::-1], b - 1j * b[:, ::-1]
    a, b = a.astype(dtype), b.astype(dtype)
    with Scope(Prepared("test", OWN), 0):
        whole = ops.matmul(a, b)
        assert ops.matmul(a[1], b).tobytes() == whole[1].tobytes()
        assert ops.matmul(a, b[:, 2]).tobytes() == whole[:, 2].tobytes()
        assert ops.matmul(b.T, a.T).T.tobytes() == whole.tobytes()


@settings(deadline=None, max_examples=examples(60))
@given(contractions(), st.sampled_from(DTYPES), st.integers(1, 5))
def test_under_batch_invariance_a_label_of_every_operand_is_a_batch(contraction, dtype, batch):
    equation, shapes = contraction
    if "->" not in equation:
        equation += "->"
    terms, result = equation.split("->")
    equation = ",".join(f"z{term}" for term in terms.split(",")) + f"->z{result}"
    random = np.random.default_rng(batch)
    operands = [
        (random.standard_normal((batch, *shape)) * (1 + 1j if "c" in dtype else 1)).astype(dtype)
        for shape in shapes
    ]
    with Scope(Prepared("test", OWN), 0):
        together = ops.einsum(equation, *operands)
        for row in range(batch):
            alone = ops.einsum(equation, *(each[row : row + 1] for each in operands))
            assert alone.tobytes() == together[row : row + 1].tobytes()


@pytest.mark.parametrize("equation", BATCHED[:8])
def test_under_invariance_the_bits_do_not_depend_on_the_threads(equation):
    random = np.random.default_rng(2)
    sizes = {"n": 16, "i": 60, "j": 301, "k": 90, "h": 2, "d": 70}
    terms = equation.partition("->")[0].split(",")
    shapes = [[sizes[label] for label in term] for term in terms]
    operands = [random.standard_normal(shape).astype("f4") for shape in shapes]
    found = set()
    for threads in (1, 2, 3):
        values = {**OWN.values, "threads.count": threads}
        compiled = Compiled("test", "batch-invariant", values, order=("native", "reference"))
        with Scope(Prepared("test", compiled), 0):
            found.add(ops.einsum(equation, *operands).tobytes())
    assert len(found) == 1


A, B = np.ones((2, 3)), np.ones((3, 4))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "at least an equation and one operand must be given"),
        (("ij,jk->ik", A), "`equation` 'ij,jk->ik' must have as many operands as were given, 1, not 2"),
        (("ij", A, B), "`equation` 'ij' must have as many operands as were given, 2, not 1"),
        (("ij->ji->ij", A), '`equation` must have one "->", not \'ij->ji->ij\''),
        (("i1", A), "`equation` 'i1' must label operand 0 with letters and `...`, not '1'"),
        (("i.", A), "`equation` 'i.' must label operand 0 with letters and `...`, not '.'"),
        (("ij->i?", A), "`equation` 'ij->i?' must label the result with letters and `...`, not '?'"),
        (("......", A), "operand 0 must have one `...` at most"),
        (("ijk", A), "operand 0 must have 3 dimensions, as many as its labels, not 2"),
        (("i", A), "operand 0 must have 1 dimensions, as many as its labels, not 2"),
        (("ij,...ijkl", A, B), "operand 1 must have at least 4 dimensions, as many as its labels, not 2"),
        (("ii", A), "operand 0 must have equal sizes for its repeated label `i`, not 2 and 3"),
        (("ij,ji", A, np.ones((2, 2))), "operand 1 has size 2 for `j`, which does not broadcast with the size 3 of operand 0"),
        (("...,...", A, B), "operand 1 has size 3 for `...`, which does not broadcast with the size 2 of operand 0"),
        (("ij->ii", A), "the result must have `i` once, not 2 times"),
        (("ij->ik", A), "the result must have labels of operands, and none has `k`"),
        (("ij,jk", A, [[1.0]]), "operand 1 must be an array, not list"),
        (("ij", np.array([["a"]])), "operand 0 must hold numbers, not str32"),
        ((A,), "operand 0 must be followed by the list of its labels"),
        ((A, 3), "operand 0 must have a list of labels, not int"),
        ((A, [0, 52]), "operand 0 must have labels from 0 to 51 or `...`, not 52"),
        ((A, [0, "j"]), "operand 0 must have labels from 0 to 51 or `...`, not 'j'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(arguments, line):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.einsum(*arguments)
    text = caught.value.render().splitlines()
    assert text[0].replace("`operand 1`", "operand 1") == f"error[invalid-argument]: einsum: {line}"
    assert text[1] == "  state: nothing was computed"


def test_check_finite_refuses_a_result_with_its_place():
    with (
        under(ops__check_finite=True),
        pytest.raises(InvalidArgumentError, match=r"einsum: the result is inf at \(0, 1\), which"),
    ):
        ops.einsum("ij,j->ij", np.ones((2, 2)), np.array([1.0, np.inf]))


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_a_sum_of_everything_has_no_dimensions(element):
    assert np.shape(ops.einsum("i->", np.ones(3, element))) == ()
