"""The precision that a function computes with, found from its results.

Every probe gives a function operands of which each sum is exact in any order of addition, so a bit
that differs is a bit that was dropped: of an operand, of a product of two, or of a sum. How it is
called, or which switch it obeys, does not matter. After Fasi, Higham, Mikaitis and Pranesh,
"Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330 (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backendcfg.errors import InvalidArgumentError

Array = NDArray[Any]
Function = Callable[..., Any]
Kind = Literal["product", "convolution", "attention", "solve"]


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Attributes:
        fraction: bits after the leading one.
        least: the exponent of the smallest normal number.
        carrier: the NumPy type whose values stand for its values.
        most: the largest exponent that a product of two numbers is given here.
    """

    fraction: int
    least: int
    carrier: type[np.floating[Any]]
    most: int


FORMATS = {
    "float64": Format(52, -1022, np.float64, 80),
    "float32": Format(23, -126, np.float32, 60),
    "float16": Format(10, -14, np.float32, 29),
    "bfloat16": Format(7, -126, np.float32, 60),
}

SIZES = (1, 17, 64, 512)
"""Libraries choose other kernels for vectors, for sizes that fill no tile, and for large ones."""

LENGTHS = (64, 4096)
"""How many products a sum has; a long one may be split among threads, and rounded where it is put
together."""

ONES = 62
"""How many ones a sum has beside the two numbers that cancel: few enough for sums of eight bits."""

REPEATS = 2
"""Sums with numbers of one size at other places: one that is kept in parts may be lucky."""


@dataclass(frozen=True)
class Precision:
    """What was found of one function.

    Attributes:
        dtype: the type of its operands and of its result.
        operands: bits of the fraction of its operands that it keeps: 52 for float64, 23 for
            float32, 10 for TF32 and float16, 7 for bfloat16; less where an odd bit is dropped.
        accumulator: bits of the fraction that its sums keep, as above; None where sums were not
            looked at.
        emulated: whether it keeps every bit of its operands and still drops one of a product that
            `dtype` holds: operands were split in parts, and not all parts were multiplied. None
            where that was not looked at.
        subnormals: whether subnormal numbers are kept as operands and results; None where that was
            not looked at.
    """

    dtype: str
    operands: int
    accumulator: int | None = None
    emulated: bool | None = None
    subnormals: bool | None = None


def probe_precision(
    function: Function,
    dtype: str = "float32",
    kind: Kind = "product",
    *,
    sizes: tuple[int, ...] = SIZES,
) -> Precision:
    """Find out with which precision a function computes.

    Args:
        function: for `product`, takes arrays (m, k) and (k, n) and gives their product (m, n); for
            `convolution`, takes (1, c, h, w) and (o, c, r, r) and gives what
            `torch.nn.functional.conv2d` gives with a padding of r // 2; for `attention`, takes
            query (1, h, n, d), key and value (1, h, m, d) and gives what
            `torch.nn.functional.scaled_dot_product_attention` gives with a scale of 1; for
            `solve`, takes (n, n) and (n, k) and gives x with a @ x = b. The arrays are NumPy's, of
            float64 where `dtype` is that, else of float32 with values that `dtype` holds. The
            result is anything that `numpy.asarray` takes.
        dtype: "float64", "float32", "float16" or "bfloat16": what the function converts them to.
        kind: what it computes.
        sizes: of the matrices that it is given.

    Raises:
        InvalidArgumentError: there is no such dtype or kind, or the result has another shape.
    """
    if dtype not in FORMATS:
        raise _unknown("dtype", dtype, FORMATS)
    if kind not in _KINDS:
        raise _unknown("kind", kind, _KINDS)
    of = FORMATS[dtype]

    def call(*arguments: Array) -> Array:
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arguments), of.carrier)
        shape = _SHAPES[kind](*(one.shape for one in arguments))
        if result.shape != shape:
            given = " and ".join(str(one.shape) for one in arguments)
            raise InvalidArgumentError(
                f"the function gave {result.shape} for {given}, kind {kind!r} gives {shape}",
                helps=["see `kind` in `help(backendcfg.probe_precision)`"],
            )
        return result

    return _KINDS[kind](call, dtype, of, sizes)


def _product(call: Function, dtype: str, of: Format, sizes: tuple[int, ...]) -> Precision:
    dropped: set[int] = set()
    for a, b, want, bits in _products(of, sizes):
        dropped |= _dropped(call(a, b), want, bits)
    operands = _kept(dropped, of.fraction)
    return Precision(
        dtype,
        operands,
        min(_accumulator(call, of, length) for length in LENGTHS),
        operands == of.fraction and not _is_exact(call, of),
        _keeps_subnormals(call, of),
    )


def _products(of: Format, sizes: tuple[int, ...]) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Operands, their product, and which bit each of its elements shows."""
    for n in sizes:
        turn = np.eye(n, dtype=of.carrier)[np.random.default_rng(n).permutation(n)]
        bits = _bits(of, max(n, of.fraction))[:, None].repeat(n, axis=1)
        rows = _with_bit(of, bits)
        yield rows, turn, rows, bits
        yield turn, np.ascontiguousarray(rows.T), rows.T, bits.T
    n = 64
    bits = _bits(of, n)[:, None].repeat(n, axis=1)
    rows, turn = _with_bit(of, bits), np.eye(n, dtype=of.carrier)[::-1]
    yield np.asfortranarray(rows), np.asfortranarray(turn), rows, bits
    yield np.asfortranarray(turn), rows.T, rows.T[::-1], bits.T[::-1]
    # A vector on either side, as the operand whose bits are looked at and as the other one.
    bits = bits[:, :1].T
    row, first = _with_bit(of, bits), np.eye(1, n, dtype=of.carrier)
    matrix = np.vstack([row, np.zeros((n - 1, n), of.carrier)])
    yield row, turn.copy(), row[:, ::-1], bits[:, ::-1]
    yield turn.copy(), row.T.copy(), row.T[::-1], bits.T[::-1]
    yield first, matrix, row, bits
    yield matrix.T.copy(), first.T.copy(), row.T, bits.T


def _bits(of: Format, count: int) -> Array:
    return 1 + np.arange(count) % of.fraction


def _with_bit(of: Format, bits: Array) -> Array:
    """Numbers with their leading bit and this one."""
    return (1 + np.ldexp(1.0, -bits)).astype(of.carrier)


def _dropped(got: Array, want: Array, bits: Array) -> set[int]:
    """Which bits did not reach the result."""
    return set(np.broadcast_to(bits, got.shape)[got != want].tolist())


def _kept(dropped: set[int], whole: int) -> int:
    return min(dropped) - 1 if dropped else whole


def _sums(of: Format, length: int) -> tuple[Array, Array, Array]:
    """Rows and columns whose diagonal of products is ONES, and the size of the numbers in each.

    In each are two numbers of that size, which cancel, and ONES ones, at places drawn anew.
    """
    random = np.random.default_rng(length)
    sizes = np.tile(1 + np.arange(of.most), REPEATS)
    a, b = np.zeros((sizes.size, length), of.carrier), np.ones((length, sizes.size), of.carrier)
    edge = length // 8
    for i, size in enumerate(sizes.tolist()):
        # Near the ends, so that most ones are added between them.
        both = [random.integers(edge), random.integers(length - edge, length)]
        a[i, random.permutation(np.delete(np.arange(length), both))[:ONES]] = 1
        # A factor in each operand, as float16 ends at 65504.
        a[i, both] = np.array([1, -1]) * 2.0 ** (size - size // 2)
        b[both, i] = 2.0 ** (size // 2)
    return a, b, sizes


def _accumulator(call: Function, of: Format, length: int) -> int:
    a, b, sizes = _sums(of, length)
    return _kept(_dropped(call(a, b).diagonal(), np.array(ONES), sizes), of.most)


def _is_exact(call: Function, of: Format) -> bool:
    """Whether a product of two numbers with few bits, which `dtype` holds, is right."""
    one = 1 + 2.0 ** -(of.fraction // 2)
    square = np.eye(64, dtype=of.carrier) * of.carrier(one)
    return bool((call(square, square).diagonal() == of.carrier(one * one)).all())


def _keeps_subnormals(call: Function, of: Format) -> bool:
    """Both as operands and as results. Bits are compared: a comparison may take them for 0, too."""
    n, least = 64, of.least
    if of.carrier is np.float32 and least == FORMATS["float32"].least:
        small = np.full((n, n), 1 << 19, np.uint32).view(np.float32)
    elif of.carrier is np.float64:
        small = np.full((n, n), 1 << 48, np.uint64).view(np.float64)
    else:
        small = np.full((n, n), 2.0 ** (least - 4), of.carrier)
    eye = np.eye(n, dtype=of.carrier)
    raised = call(small, eye * of.carrier(2.0**12))
    lowered = call(np.full((n, n), 2.0 ** (least + 8), of.carrier), eye * of.carrier(2.0**-12))
    whole = np.full((n, n), 2.0 ** (least + 8), of.carrier)
    kept: bool = raised.tobytes() == whole.tobytes() and lowered.tobytes() == small.tobytes()
    return kept


def _convolution(call: Function, dtype: str, of: Format, _: tuple[int, ...]) -> Precision:
    channels, side, at = 16, 32, 9
    bits = _bits(of, side * side).reshape(1, 1, side, side)
    x = _with_bit(of, bits).repeat(channels, axis=1)
    w = np.zeros((channels, channels, 3, 3), of.carrier)
    w[np.arange(channels), np.random.default_rng(1).permutation(channels), 1, 1] = 1
    dropped = _dropped(call(x, w), x, bits)
    # A single one in the image gives the weights, turned round.
    bits = _bits(of, channels * channels * 9).reshape(channels, channels, 3, 3)
    for channel in (0, channels - 1):
        x = np.zeros((1, channels, side, side), of.carrier)
        x[0, channel, at, at] = 1
        got = call(x, _with_bit(of, bits))[0, :, at - 1 : at + 2, at - 1 : at + 2]
        turned = bits[:, channel, ::-1, ::-1]
        dropped |= _dropped(got, _with_bit(of, turned), turned)
    # With a filter of one pixel, each pixel is a column of a product.
    a, b, sizes = _sums(of, LENGTHS[0])
    image = b.reshape(1, LENGTHS[0], REPEATS, of.most)
    diagonal = call(image, a[:, :, None, None]).reshape(sizes.size, sizes.size).diagonal()
    lost = _dropped(diagonal, np.array(ONES), sizes)
    return Precision(dtype, _kept(dropped, of.fraction), _kept(lost, of.most))


def _attention(call: Function, dtype: str, of: Format, _: tuple[int, ...]) -> Precision:
    heads, length, width = of.fraction, 64, 64
    bits = _bits(of, heads)[None, :, None]
    power = np.ldexp(1.0, bits)
    shape = (1, heads, length, width)
    ones = np.zeros(shape, of.carrier)
    ones[:, :, 0] = 1
    dropped: set[int] = set()
    # Two keys with logits 2**k * (1 + 2**-k) and 2**k, so 1 apart where bit k is kept; the others
    # are far below. `factors` are what the first logit is a product of, in the query and the key.
    for factors in ((_with_bit(of, bits), power), (power, _with_bit(of, bits))):
        query, key = np.zeros(shape, of.carrier), np.zeros(shape, of.carrier)
        query[..., 0], query[..., 1], query[..., 2] = factors[0], power, 1
        key[:, :, 0, 0] = factors[1][..., 0]
        key[:, :, 1, 1], key[:, :, 2:, 2] = 1, -(2.0**14)
        # A weight of 0.73, or of 0.5 where both logits are the same.
        dropped |= _dropped(call(query, key, ones) > 0.6, np.ones(1), bits[..., None])
    # One key that takes all the weight gives its value.
    query, key = np.zeros(shape, of.carrier), np.zeros(shape, of.carrier)
    query[..., 0] = 1
    key[..., 0] = -200
    key[:, :, 0, 0] = 200
    bits = _bits(of, width)
    value = ones * _with_bit(of, bits)
    dropped |= _dropped(call(query, key, value), value[:, :, :1].repeat(length, axis=2), bits)
    return Precision(dtype, _kept(dropped, of.fraction))


def _solve(call: Function, dtype: str, of: Format, _: tuple[int, ...]) -> Precision:
    """Of the products that a substitution subtracts: the second half of x is then 0."""
    dropped: set[int] = set()
    for n, columns in ((128, 1), (128, 64), (512, 64)):
        half = n // 2
        bits = _bits(of, half)[:, None]
        one = _with_bit(of, bits)
        a = np.eye(n, dtype=of.carrier)
        for first, below, right in ((1, np.ones_like(one), one), (2, one, np.ones_like(one) * 2)):
            a[range(half), range(half)] = first
            a[range(half, n), range(half)] = below[:, 0]
            b = np.vstack([right, one]).repeat(columns, axis=1)
            x = call(a, b)
            dropped |= _dropped(x[:half], right / of.carrier(first), bits)
            dropped |= _dropped(x[half:], np.zeros(1, of.carrier), bits)
    return Precision(dtype, _kept(dropped, of.fraction))


_KINDS: dict[Kind, Callable[..., Precision]] = {
    "product": _product,
    "convolution": _convolution,
    "attention": _attention,
    "solve": _solve,
}

_SHAPES: dict[Kind, Callable[..., tuple[int, ...]]] = {
    "product": lambda a, b: (a[0], b[1]),
    "convolution": lambda x, w: (x[0], w[0], *x[2:]),
    "attention": lambda q, _, v: (*q[:3], v[3]),
    "solve": lambda _, b: b,
}
"""The shape of the result."""


def _unknown(name: str, given: object, known: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"`{name}` is {given!r}, which probe_precision() does not know",
        helps=[f"pass one of {', '.join(map(repr, known))}"],
    )
