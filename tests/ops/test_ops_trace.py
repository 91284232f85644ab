"""trace() and served(): every call of this context and no other, whatever happens inside."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest

from backendcfg import _native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.serving import served
from backendcfg.transact.compiled import Compiled

A = np.ones((3, 4))


def under(*order):
    return Scope(Prepared("p", Compiled("p", "none", {}, order=order)), 0)


@pytest.fixture(autouse=True)
def _quiet():
    ops.reset_stats()
    yield
    # No test leaves a trace open: a call then calls no Python.
    before = _native.bind(traced=lambda *call: pytest.fail(f"still traced: {call}"))
    ops.matmul(A, A.T)
    _native.bind(**before)


def test_every_product_is_listed_with_who_served_it_and_why():
    with ops.trace() as calls, under("reference", "openblas"):
        ops.matmul(A, A.T)
        ops.matmul(np.ones((2, 5, 3, 4), "float32"), np.ones(4, "float32"))
        ops.matmul(A[:0], A.T)
    assert list(calls) == [
        ops.Call("matmul", (3, 3, 4), "float64", "reference", "the first of the order"),
        ops.Call("matmul", (2, 5, 3, 1, 4), "float32", "reference", "the first of the order"),
        ops.Call("matmul", (0, 3, 4), "float64", "", "there is nothing to multiply"),
    ]


def test_a_call_that_was_refused_is_not_listed():
    with ops.trace() as calls:
        with pytest.raises(InvalidArgumentError):
            ops.matmul(A, A)
        ops.matmul(A, A.T)
    assert len(calls) == 1


def test_it_ends_with_the_block_also_by_an_exception():
    calls = ops.trace()

    def fails():
        with calls:
            ops.matmul(A, A.T)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    ops.matmul(A, A.T)
    assert len(calls) == 1


def test_traces_nest_and_an_inner_call_is_in_both():
    with ops.trace() as outer:
        ops.matmul(A, A.T)
        with ops.trace() as inner:
            ops.matmul(A.T, A)
        ops.matmul(A, A.T)
    assert [call.sizes for call in inner] == [(4, 4, 3)]
    assert [call.sizes for call in outer] == [(3, 3, 4), (4, 4, 3), (3, 3, 4)]


def test_other_threads_are_not_seen_unless_they_carry_the_context():
    with ops.trace() as calls:
        for run in (lambda: ops.matmul(A, A.T), None):
            context = contextvars.copy_context()
            target = run or (lambda context=context: context.run(ops.matmul, A.T, A))
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert [call.sizes for call in calls] == [(4, 4, 3)]


def test_tasks_see_their_own_calls():
    async def work(columns):
        with ops.trace() as calls:
            for _ in range(3):
                ops.matmul(A, A.T[:, :columns])
                await asyncio.sleep(0)
        return [call.sizes for call in calls]

    async def both():
        return await asyncio.gather(work(2), work(3))

    assert asyncio.run(both()) == [[(3, 2, 4)] * 3, [(3, 3, 4)] * 3]


def test_a_trace_that_is_left_elsewhere_takes_no_more_where_it_is_still_seen():
    calls = ops.trace()
    contextvars.copy_context().run(calls.__enter__)
    inside = contextvars.copy_context()
    inside.run(calls.__exit__)
    inside.run(ops.matmul, A, A.T)

    def generate():
        with ops.trace() as mine:
            yield mine

    generator = generate()
    mine = contextvars.copy_context().run(next, generator)
    generator.close()
    ops.matmul(A, A.T)
    assert (len(calls), len(mine)) == (0, 0)


def test_a_full_trace_keeps_the_first_and_counts_the_others():
    with ops.trace(most=2) as calls:
        for columns in (1, 2, 3, 3):
            ops.matmul(A, A.T[:, :columns])
    assert [call.sizes for call in calls.calls] == [(3, 1, 4), (3, 2, 4)]
    assert calls.left_out == 2
    assert str(calls).splitlines()[-1] == "and 2 more, which were not kept"


def test_it_prints_a_table():
    with ops.trace() as calls:
        assert str(calls) == "nothing was called"
        served("einsum", "path", "two operands", (2, 3), "float64")
        served("scaled_dot_product_attention", "flash", "the first of the order", (1, 8, 64, 64))
    assert str(calls).splitlines() == [
        "einsum                        2x3        float64  path   two operands",
        "scaled_dot_product_attention  1x8x64x64           flash  the first of the order",
    ]


@pytest.mark.parametrize("most", [-1, 1.5, True, "10"])
def test_a_wrong_limit_is_refused(most):
    with pytest.raises(InvalidArgumentError, match="trace: `most` must be a number of calls, not"):
        ops.trace(most=most)


def test_a_trace_is_opened_once():
    with ops.trace() as calls, pytest.raises(InvalidArgumentError, match="is open already"):
        calls.__enter__()


def test_what_python_serves_is_counted_by_reason():
    served("linalg.qr", "openblas", "the first of the order", (4, 4))
    served("linalg.qr", "openblas", "the first of the order", (8, 8), "float32")
    served("linalg.qr", "mkl", "measured to be the fastest for its size")
    assert set(ops.stats().operations) == {
        ops.Record("linalg.qr", "openblas", "the first of the order", 2),
        ops.Record("linalg.qr", "mkl", "measured to be the fastest for its size", 1),
    }
    ops.reset_stats()
    assert ops.stats().operations == ()
    assert str(ops.stats()) == "nothing was served"


def test_no_count_is_lost_between_threads():
    def work():
        for _ in range(2000):
            served("einsum", "path", "two operands", (2, 2))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.calls for record in ops.stats().operations] == [8000]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("einsum",), "served takes"),
        (("einsum", "path", None), "served takes text, not NoneType"),
        (("a", "b", "c", (), "", 1), "served takes"),
    ],
)
def test_a_record_is_made_of_text(arguments, message):
    with pytest.raises(TypeError, match=message):
        served(*arguments)
    assert ops.stats().operations == ()


def test_statistics_are_the_libraries_and_a_table_of_the_operations():
    with under("reference", "openblas"):
        ops.matmul(np.ones((2, 3, 4)), A.T)
    stats = ops.stats()
    assert [library.provider for library in stats if library.calls] == ["reference"]
    assert [library.calls for library in stats[:1]] == [{"dgemm": 2}]
    assert len(stats) == len(stats.libraries)
    assert str(stats) == "dgemm  reference  2  the first of the order"


def test_a_child_that_is_forked_inside_goes_on():
    import os

    with ops.trace() as calls:
        child = os.fork()
        if child == 0:
            ops.matmul(A, A.T)
            with ops.trace() as inner:
                ops.matmul(A, A.T)
            os._exit(0 if (len(calls), len(inner)) == (2, 1) else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert len(calls) == 0


@pytest.mark.parametrize("shape", [(4, 4), (4, 1)])
def test_a_product_of_16_bits_is_traced_as_what_served_it(shape):
    with ops.trace() as calls:
        ops.matmul(np.ones((4, 4), "float16"), np.ones(shape, "float16"))
    assert [call.provider for call in calls] == ["native"]
