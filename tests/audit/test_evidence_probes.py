"""The precision that `probe_precision` finds, of functions whose precision is known."""

from __future__ import annotations

import numpy as np
import pytest

import backendcfg
from backendcfg import ops, probe_precision

WHOLE = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


def rounded(array, bits):
    """float32 with this many bits of its fraction, to nearest, ties to even."""
    lost = 23 - bits
    whole = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    whole += (1 << (lost - 1)) - 1 + ((whole >> lost) & 1)
    return ((whole >> lost) << lost).astype(np.uint32).view(np.float32)


def truncated(array, bits):
    lost = 23 - bits
    return ((np.ascontiguousarray(array).view(np.uint32) >> lost) << lost).view(np.float32)


def with_sums_in(dtype):
    """A product that adds one term after another, and rounds to `dtype` each time."""

    def product(a, b):
        total = np.zeros((a.shape[0], b.shape[1]), dtype)
        for i in range(a.shape[1]):
            term = a[:, i : i + 1].astype(dtype) * b[i : i + 1].astype(dtype)
            total = (total + term).astype(dtype)
        return total

    return product


def in_three_parts(a, b):
    """Two parts of each operand, without the product of the lower ones, as bf16x3 has it."""
    high = [rounded(each, 7) for each in (a, b)]
    low = [rounded(each - part, 7) for each, part in zip((a, b), high, strict=True)]
    return high[0] @ high[1] + (high[0] @ low[1] + low[0] @ high[1])


def flushed(array):
    return np.where(abs(array) < np.finfo(np.float32).tiny, 0, array).astype(np.float32)


def convolve(x, w):
    return ops.conv2d(x, w, padding=w.shape[-1] // 2)


def attend(query, key, value):
    return ops.scaled_dot_product_attention(query, key, value, scale=1.0)


FUNCTIONS = {
    "product": np.matmul,
    "convolution": convolve,
    "attention": attend,
    "solve": np.linalg.solve,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_of_numpy_keeps_every_bit_and_sums_in_its_own_type(dtype):
    found = probe_precision(np.matmul, dtype)
    assert found == backendcfg.audit.evidence.probes.Precision(
        dtype,
        operands=WHOLE[dtype],
        accumulator=WHOLE[dtype],
        emulated=False,
        subnormals=True,
    )


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("bits", [7, 10, 22])
@pytest.mark.parametrize("to", [rounded, truncated])
def test_operands_that_are_narrowed_are_found_whatever_is_computed(kind, bits, to):
    function = FUNCTIONS[kind]
    assert probe_precision(function, kind=kind).operands == 23
    found = probe_precision(lambda *arrays: function(*(to(a, bits) for a in arrays)), kind=kind)
    assert found.operands == bits
    assert not found.emulated


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_one_narrow_operand_is_enough(kind):
    function = FUNCTIONS[kind]
    count = 3 if kind == "attention" else 2
    # The right side of a system is no operand of a product; what is found of it is the solution.
    for narrow in range(count):

        def narrowed(*arrays, narrow=narrow):
            return function(*(rounded(a, 10) if i == narrow else a for i, a in enumerate(arrays)))

        assert probe_precision(narrowed, kind=kind).operands == 10


NARROW_WHERE = {
    "only large matrices": lambda a, b: a.shape[0] >= 512,
    "only small ones": lambda a, b: a.shape[1] == 1,
    "only those that fill no tile": lambda a, b: a.shape[1] % 16,
    "only a row": lambda a, b: a.shape[0] == 1,
    "only a column": lambda a, b: b.shape[1] == 1,
    "only columns first": lambda a, b: a.flags.f_contiguous and min(*a.shape, *b.shape) > 1,
}


@pytest.mark.parametrize("where", NARROW_WHERE.values(), ids=NARROW_WHERE)
def test_a_kernel_that_is_chosen_for_some_shapes_only_is_found(where):
    def sometimes(a, b):
        return rounded(a, 10) @ rounded(b, 10) if where(a, b) else a @ b

    assert probe_precision(sometimes).operands == 10


def test_a_product_of_parts_is_told_from_a_whole_one():
    found = probe_precision(in_three_parts)
    assert (found.operands, found.emulated) == (23, True)


@pytest.mark.parametrize(
    ("dtype", "sums", "bits"),
    [
        ("float16", np.float16, 10),
        ("float16", np.float32, 23),
        ("float16", np.float64, 29),
        ("float32", np.float32, 23),
        ("float32", np.float64, 52),
        ("float64", np.float64, 52),
    ],
)
def test_the_width_of_sums_is_found(dtype, sums, bits):
    # float16 holds no number with which a sum of more than 29 bits could be seen to lose one.
    assert probe_precision(with_sums_in(sums), dtype, sizes=(1, 17)).accumulator == bits


def test_a_long_sum_that_is_put_together_from_narrow_parts_is_found():
    def in_parts(a, b):
        if a.shape[1] < 1024:
            return a @ b
        halves = np.split(np.arange(a.shape[1]), 2)
        return sum(rounded(a[:, half] @ b[half], 7) for half in halves)

    assert probe_precision(in_parts).accumulator == 7


@pytest.mark.parametrize("side", ["operands", "results"])
def test_subnormal_numbers_that_are_taken_for_zero_are_found(side):
    def product(a, b):
        return flushed(a) @ b if side == "operands" else flushed(a @ b)

    assert not probe_precision(product).subnormals


def test_a_result_that_is_not_a_number_keeps_no_bit():
    found = probe_precision(lambda a, b: np.full((a.shape[0], b.shape[1]), np.nan))
    assert (found.operands, found.accumulator, found.subnormals) == (0, 0, False)


def test_an_unknown_kind_and_dtype_are_named():
    with pytest.raises(backendcfg.errors.InvalidArgumentError) as caught:
        probe_precision(np.matmul, "tf32")
    assert str(caught.value) == "`dtype` is 'tf32', which probe_precision() does not know"
    assert caught.value.helps == ("pass one of 'float64', 'float32', 'float16', 'bfloat16'",)
    with pytest.raises(backendcfg.errors.InvalidArgumentError) as caught:
        probe_precision(np.matmul, kind="fft")
    assert str(caught.value) == "`kind` is 'fft', which probe_precision() does not know"
    assert caught.value.helps == ("pass one of 'product', 'convolution', 'attention', 'solve'",)


def test_a_function_that_computes_something_else_is_named_by_its_shapes():
    with pytest.raises(backendcfg.errors.InvalidArgumentError) as caught:
        probe_precision(lambda a, b: a)
    assert str(caught.value) == (
        "the function gave (1, 1) for (1, 1) and (1, 23), kind 'product' gives (1, 23)"
    )


def test_what_a_function_raises_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        probe_precision(lambda a, b: 1 / 0)


def test_probing_draws_from_no_generator_of_the_program():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002 - what a program draws from
    probe_precision(np.matmul)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
