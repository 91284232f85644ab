"""ops.conv2d computes the definition, by every way, instruction set, thread count and batch."""

import threading
import tracemalloc

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import _native, ops
from backendcfg.dispatch.array_facts import dense_facts
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import convolution
from backendcfg.ops.convolution import WAYS, Convolution, shapes

ISAS = [name for name, runs, _ in _native.kernel_isas() if runs]
RANDOM = np.random.default_rng(0)


def served_by(isa):
    return next(count for name, _, count in _native.kernel_isas() if name == isa)


def pairs(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high))


def defined(x, w, b, stride, before, dilation, out, groups):
    """The definition in float64: every window of the padded input times the kernel."""
    sides = [(before[d], max(0, out[d] * stride[d] + w.shape[2 + d] * dilation[d])) for d in (0, 1)]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *sides))
    reach = tuple((w.shape[2 + d] - 1) * dilation[d] + 1 for d in (0, 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    windows = windows[:, :, : out[0], : out[1]]
    each = windows.shape[1] // groups
    windows = windows.reshape(len(x), groups, each, *windows.shape[2:])
    weights = w.astype(np.float64).reshape(groups, len(w) // groups, each, *w.shape[2:])
    found = np.einsum("ngcyxkl,gockl->ngoyx", windows, weights).reshape(len(x), len(w), *out)
    return found if b is None else found + b[:, None, None]


@st.composite
def calls(draw):
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    channels, outputs = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 5, 7, 13, 33)))
    kernel, stride, dilation = draw(pairs(1, 4)), draw(pairs(1, 3)), draw(pairs(1, 3))
    padding = draw(pairs(0, 3))
    least = [max(1, (kernel[d] - 1) * dilation[d] + 1 - 2 * padding[d]) for d in (0, 1)]
    size = [draw(st.integers(least[d], least[d] + 9)) for d in (0, 1)]
    seed = np.random.default_rng(draw(st.integers(0, 3)))
    x = seed.integers(-4, 5, (draw(st.integers(0, 3)), groups * channels, *size))
    w = seed.integers(-4, 5, (groups * outputs, channels, *kernel))
    b = seed.integers(-4, 5, groups * outputs) if draw(st.booleans()) else None
    dtype = draw(st.sampled_from(("float32", "float64")))
    x, w, b = (None if each is None else each.astype(dtype) for each in (x, w, b))
    if draw(st.booleans()):
        x = np.ascontiguousarray(x.transpose(3, 1, 0, 2)).transpose(2, 1, 3, 0)
    if draw(st.booleans()):
        x = x[:, ::-1, :, ::-1]
    return x, w, b, stride, padding, dilation, groups


@settings(deadline=None, max_examples=examples(80))
@given(calls())
def test_every_way_computes_the_definition(call):
    x, w, b, stride, padding, dilation, groups = call
    got = ops.conv2d(x, w, b, stride, padding, dilation, groups)
    how = described(x, w, b, stride, padding, dilation, groups)
    wanted = defined(x, w, b, *window_of(how), groups)
    assert got.dtype == x.dtype
    assert np.array_equal(got, wanted)
    dense = convolution._rows_dense(x)
    made = Convolution(how, dense, w, b)
    for way in ("direct", "im2col", *(["pointwise"] if how.is_pointwise else [])):
        assert np.array_equal(WAYS[way](made, FlagsInForce()), wanted), way


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [(2, 3), (4, 1), (5, 2)])
def test_words_for_padding(padding, kernel):
    x, w = RANDOM.integers(-4, 5, (2, 3, 9, 8)).astype("f8"), np.ones((2, 3, *kernel))
    got = ops.conv2d(x, w, padding=padding, dilation=(1, 2))
    reach = (kernel[0] - 1, 2 * (kernel[1] - 1))
    if padding == "same":
        assert got.shape[2:] == x.shape[2:]
        sides = [(r // 2, r - r // 2) for r in reach]
        x = np.pad(x, ((0, 0), (0, 0), *sides))
    assert np.array_equal(got, ops.conv2d(x, w, dilation=(1, 2)))


def test_one_image_without_a_batch():
    x, w = RANDOM.standard_normal((3, 8, 8)), RANDOM.standard_normal((4, 3, 3, 3))
    assert np.array_equal(ops.conv2d(x, w), ops.conv2d(x[None], w)[0])


def test_no_channels_leave_the_bias():
    got = ops.conv2d(np.ones((2, 0, 5, 5)), np.ones((3, 0, 3, 3)), np.arange(3.0))
    assert np.array_equal(got, np.broadcast_to(np.arange(3.0)[:, None, None], (2, 3, 3, 3)))


def test_an_empty_batch_has_a_result():
    assert ops.conv2d(np.ones((0, 3, 5, 5)), np.ones((4, 3, 3, 3))).shape == (0, 4, 3, 3)


def test_not_a_number_and_infinity_reach_what_sees_them_and_nothing_else():
    x, w = np.zeros((1, 1, 9, 9)), np.ones((1, 1, 3, 3))
    x[0, 0, 2, 3], x[0, 0, 7, 7] = np.nan, np.inf
    got = ops.conv2d(x, w)[0, 0]
    assert np.array_equal(
        np.argwhere(np.isnan(got)), np.argwhere(np.pad(np.ones((3, 3)), ((0, 4), (1, 3))))
    )
    assert np.array_equal(np.argwhere(np.isinf(got)), [[5, 5], [5, 6], [6, 5], [6, 6]])


def described(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    operands = [
        None if each is None else dense_facts(each.shape, each.dtype.name) for each in (x, w, b)
    ]
    return shapes.geometry(*operands, stride, padding, dilation, groups)


def window_of(how):
    """What `defined` needs of a geometry."""
    return how.stride, how.padding, how.dilation, how.out


def error_bound(x, w, window, groups):
    """Of a chain of n multiply-adds: n half units of the sum of the magnitudes."""
    terms = w[0].size + 1
    return terms * np.finfo(np.float32).eps / 2 * defined(abs(x), abs(w), None, *window, groups)


@pytest.mark.parametrize(
    "shape", [(2, 16, 20, 21, 24, 3, 1), (1, 64, 9, 9, 6, 5, 2), (2, 8, 17, 30, 8, 3, 8)]
)
def test_the_error_is_within_that_of_the_arithmetic(shape):
    batch, channels, height, width, outputs, kernel, groups = shape
    x = RANDOM.standard_normal((batch, channels, height, width), np.float32)
    w = RANDOM.standard_normal((outputs, channels // groups, kernel, kernel), np.float32)
    window = window_of(described(x, w, padding=1, groups=groups))
    wanted = defined(x, w, None, *window, groups)
    got = ops.conv2d(x, w, padding=1, groups=groups)
    assert (abs(got - wanted) <= error_bound(x, w, window, groups)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(dtype):
    x = RANDOM.standard_normal((2, 6, 33, 29)).astype(dtype)
    found = {}
    cases = [((1, 1), 1, 18), ((2, 3), 1, 18), ((1, 1), 6, 18), ((2, 2), 3, 18)]
    # Where many outputs share pixels, and where none does.
    for stride, groups, outputs in [*cases, ((2, 1), 1, 40), ((1, 2), 6, 6), ((2, 2), 6, 12)]:
        w = RANDOM.standard_normal((outputs, 6 // groups, 3, 5)).astype(dtype)
        b = RANDOM.standard_normal(outputs).astype(dtype)
        height, width = (33 + 2 - 3) // stride[0] + 1, (29 + 4 - 5) // stride[1] + 1
        for isa in ISAS:
            _native.force_kernel_isa(isa)
            try:
                before = served_by(isa)
                for threads in (1, 2, 3, 7):
                    out = np.empty((2, outputs, height, width), dtype)
                    _native.convolve(x, w, b, out, stride, (1, 2), (1, 1), groups, threads)
                    key = (stride, groups, outputs)
                    assert out.tobytes() == found.setdefault(key, out.tobytes()), (isa, threads)
                assert served_by(isa) == before + 4
            finally:
                _native.force_kernel_isa(None)


@settings(deadline=None, max_examples=examples(25))
@given(
    *(st.integers(1, 9), st.integers(1, 40), st.integers(1, 3), st.sampled_from((1, 4))),
    *(st.sampled_from((4, 12, 36)), st.sampled_from(("float32", "complex64"))),
)
def test_the_bits_of_an_image_do_not_depend_on_its_batch(
    batch, size, stride, groups, outputs, dtype
):
    random = np.random.default_rng(size)
    x = random.standard_normal((batch, 4, size, size + 3)).astype(dtype)
    w = random.standard_normal((outputs, 4 // groups, 3, 2)).astype(dtype)
    together = ops.conv2d(x, w, stride=stride, padding=1, groups=groups)
    for one, alone in zip(together, x, strict=True):
        assert (
            ops.conv2d(alone, w, stride=stride, padding=1, groups=groups).tobytes() == one.tobytes()
        )


def test_float16_is_computed_in_float32_and_rounded_once():
    x = RANDOM.standard_normal((1, 32, 12, 12)).astype(np.float16)
    w = RANDOM.standard_normal((5, 32, 3, 3)).astype(np.float16)
    got = ops.conv2d(x, w)
    assert got.dtype == np.float16
    assert np.array_equal(got, ops.conv2d(x.astype("f4"), w.astype("f4")).astype(np.float16))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_complex_convolution_is_four_real_ones(dtype, groups):
    def whole(*shape):
        real, imaginary = RANDOM.integers(-4, 5, (2, *shape))
        return (real + 1j * imaginary).astype(dtype)

    x, w, b = whole(2, 6, 9, 8), whole(12, 6 // groups, 3, 2), whole(12)
    how = (2, 1, 1, groups)
    got = ops.conv2d(x, w, b, *how)
    assert got.dtype == dtype
    parts = [
        [ops.conv2d(a.copy(), c.copy(), None, *how) for c in (w.real, w.imag)]
        for a in (x.real, x.imag)
    ]
    assert np.array_equal(got.real, parts[0][0] - parts[1][1] + b.real[:, None, None])
    assert np.array_equal(got.imag, parts[0][1] + parts[1][0] + b.imag[:, None, None])
    assert np.array_equal(ops.conv2d(x[0], w, b, *how), got[0])


def test_columns_are_made_in_bounded_pieces(monkeypatch):
    monkeypatch.setattr("backendcfg.ops.convolution.COLUMNS", 1 << 18)
    x, w = np.ones((2, 8, 96, 96), np.float32), np.ones((4, 8, 5, 5), np.float32)
    call = Convolution(described(x, w), x, w, None)
    tracemalloc.start()
    try:
        got = WAYS["im2col"](call, FlagsInForce())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (got == 200).all()
    assert peak < got.nbytes + (1 << 18) + (1 << 16)


def test_threads_may_compute_at_once():
    x = RANDOM.standard_normal((1, 8, 40, 40), np.float32)
    w = RANDOM.standard_normal((8, 8, 3, 3), np.float32)
    wanted, found = ops.conv2d(x, w), []
    threads = [
        threading.Thread(target=lambda: found.extend(ops.conv2d(x, w) for _ in range(5)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert all(np.array_equal(each, wanted) for each in found)


def test_a_read_only_input_is_read():
    x = RANDOM.standard_normal((1, 2, 6, 6))
    x.flags.writeable = False
    assert ops.conv2d(x, np.ones((1, 2, 3, 3))).shape == (1, 1, 4, 4)


def test_the_compiled_part_refuses_arrays_that_do_not_fit():
    x, w, out = np.ones((1, 2, 5, 5)), np.ones((3, 2, 3, 3)), np.empty((1, 3, 3, 3))
    ones = ((1, 1), (0, 0), (1, 1))
    for arguments, text in [
        ((x.astype("i4"), w, None, out, *ones, 1, 1), "input must be an array of float32"),
        ((x, w.astype("f4"), None, out, *ones, 1, 1), "weight must be a plain array"),
        ((x, w[::-1], None, out, *ones, 1, 1), "weight must be dense"),
        ((x, w, np.ones(2), out, *ones, 1, 1), "the shapes do not fit"),
        ((x, w, None, out[:, :2].copy(), *ones, 1, 1), "the shapes do not fit"),
        ((x, w, None, out, (0, 1), (0, 0), (1, 1), 1, 1), "a size is out of range"),
        ((x, w, None, out, (1, 1), (-1, 0), (1, 1), 1, 1), "a size is out of range"),
        ((x, w, None, out, *ones, 0, 1), "a size is out of range"),
    ]:
        with pytest.raises(ValueError, match=text):
            _native.convolve(*arguments)
    for place in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0)):
        with pytest.raises(ValueError, match="columns does not fit"):
            _native.unfold(x, np.empty((18, 9)), (3, 3), (3, 3), *ones, 1, place, 1)


def test_arrays_at_odd_addresses_are_read():
    images = np.zeros(2 * 400 * 4 + 1, np.uint8)[1:].view("f4").reshape(1, 2, 20, 20)
    weight = np.zeros(3 * 2 * 9 * 4 + 1, np.uint8)[1:].view("f4").reshape(3, 2, 3, 3)
    images[:], weight[:] = 1, 2
    assert (ops.conv2d(images, weight) == 36).all()
