"""Attention of device arrays: our own kernel, launched on their stream, gives the right numbers."""

import ctypes
import gc
import subprocess
import threading
import weakref

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice, aligned

from backendcfg import ops
from backendcfg.errors import DeviceFailedError

pytestmark = pytest.mark.sweep

attention = ops.scaled_dot_product_attention


def three(queries=(2, 3, 40, 64), keys=(2, 3, 70, 64), element="bfloat16"):
    return normal(queries, element), normal(keys, element, 1), normal(keys, element, 2)


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_attention_is_right_in_both_element_types(kernels, element):
    arrays = three(element=element)
    kernels.reads(*arrays)
    result, logsumexp = attention(*arrays, return_logsumexp=True)
    wanted, sums = on_the_cpu(*arrays, return_logsumexp=True)
    assert (result.element, result.place) == (element, (2, 0))
    assert_near(result, wanted)
    assert logsumexp.element == "float32"
    assert_near(logsumexp, sums)


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        ((40, 64), (70, 64)),
        ((3, 40, 64), (3, 70, 64)),
        ((2, 3, 1, 64), (2, 3, 1, 64)),
        ((2, 3, 40, 64), (70, 64)),
        ((2, 3, 40, 64), (1, 3, 70, 64)),
        ((2, 3, 40, 64), (2, 1, 70, 64)),
        ((1, 3, 40, 64), (2, 1, 70, 64)),
    ],
)
def test_leading_dimensions_broadcast_without_copies(kernels, queries, keys):
    arrays = three(queries, keys)
    kernels.reads(*arrays)
    result, logsumexp = attention(*arrays, return_logsumexp=True)
    wanted, sums = on_the_cpu(*arrays, return_logsumexp=True)
    assert_near(result, wanted)
    assert_near(logsumexp, sums)
    assert sorted(OnDevice.allocated) == sorted([result.array.nbytes, logsumexp.array.nbytes])


@pytest.mark.parametrize(
    "options",
    [{"is_causal": True}, {"scale": -0.3}, {"scale": 0.0}, {"dropout_p": 0.4, "seed": 2**64 - 3}],
    ids=str,
)
def test_options_mean_what_they_mean_on_the_cpu(kernels, options):
    arrays = three()
    kernels.reads(*arrays)
    assert_near(attention(*arrays, **options), on_the_cpu(*arrays, **options))


@pytest.mark.parametrize("shape", [(40, 70), (2, 1, 40, 70), (1, 70), (2, 3, 40, 1)])
@pytest.mark.parametrize("element", ["bool", "float32", "bfloat16"])
def test_masks_broadcast_to_the_scores(kernels, shape, element):
    arrays = three()
    mask = truths(shape) if element == "bool" else normal(shape, element, 5)
    kernels.reads(*arrays, mask)
    assert_near(attention(*arrays, mask), on_the_cpu(*arrays, mask))
    assert kernels.variants[-1].macros["MASK"] == {"bool": 1, "float32": 2, "bfloat16": 5}[element]


def test_heads_share_keys_where_they_are_told_to(kernels):
    arrays = three((2, 6, 40, 64), (2, 2, 70, 64))
    kernels.reads(*arrays)
    assert_near(attention(*arrays, enable_gqa=True), on_the_cpu(*arrays, enable_gqa=True))
    assert kernels.launched[-1][4].group == 3


def test_arrays_are_read_where_they_lie(kernels):
    # (batch, length, heads, width), as a projection leaves them, and every other row of the keys.
    query, key, value = (normal((2, 40, 3, 64), seed=seed) for seed in range(3))
    views = [OnDevice(each.array.swapaxes(1, 2), each.element) for each in (query, key, value)]
    views[1:] = [OnDevice(each.array[:, :, ::2], each.element) for each in views[1:]]
    kernels.reads(query, key, value)
    result = attention(*views)
    assert_near(result, on_the_cpu(*views))
    assert OnDevice.allocated == [result.array.nbytes]


def test_rows_that_begin_anywhere_have_a_variant_of_their_own(kernels):
    memory = aligned((1, 1, 40, 68), "uint16")
    memory[...] = normal((1, 1, 40, 68)).array
    query = OnDevice(memory[..., 4:], "bfloat16")
    plain = normal((1, 1, 40, 64))
    kernels.reads(query, plain)
    assert_near(attention(query, plain, plain), on_the_cpu(query, plain, plain))
    assert_near(attention(plain, plain, plain), on_the_cpu(plain, plain, plain))
    assert [each.macros["ALIGNED"] for each in kernels.variants] == [0, 1]


def test_without_keys_the_result_is_zeros_and_without_queries_it_is_nothing(kernels):
    query, empty = normal((1, 2, 40, 64)), normal((1, 2, 0, 64))
    kernels.reads(query)
    result, logsumexp = attention(query, empty, empty, return_logsumexp=True)
    assert (result.array == 0).all()
    assert np.isneginf(logsumexp.array).all()
    launches = len(kernels.launched)
    assert attention(empty, query, query).shape == (1, 2, 0, 64)
    assert len(kernels.launched) == launches


def test_a_call_is_one_launch_with_the_kernel_s_own_argument_block(kernels, devices):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    devices.cuda.reset()
    result = attention(*arrays)
    calls = devices.cuda.calls()
    assert [call.function for call in calls] == [
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuLaunchKernel",
        "cuCtxPopCurrent_v2",
    ]
    (call,) = devices.cuda.calls("cuLaunchKernel")
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")
    assert [call[name] for name in names] == [6, 1, 1, 128, 1, 1, 49152]
    assert (call["stream"], call["extra"]) == (None, None)
    block = kernels.launched[-1][4]
    assert [block.query, block.key, block.value, block.out] == [
        each.array.ctypes.data for each in (*arrays, result)
    ]


def test_a_variant_is_loaded_once(kernels, devices):
    arrays = three((1, 1, 40, 128), (1, 1, 70, 128))
    kernels.reads(*arrays)
    for shape in ((1, 1, 40, 128), (1, 1, 41, 128)):
        query = normal(shape)
        kernels.arrays[0] = query.array
        assert_near(attention(query, *arrays[1:]), on_the_cpu(query, *arrays[1:]))
    assert len(kernels.variants) == 1
    assert len(devices.cuda.calls("cuModuleLoadData")) == 1
    (allowed,) = devices.cuda.calls("cuFuncSetAttribute")
    assert (allowed["attribute"], allowed["value"]) == (8, 98304)


def test_the_kernel_lies_on_the_stream_of_the_arrays(kernels, devices, new_stream):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    (call,) = devices.cuda.calls("cuLaunchKernel")
    assert call["stream"] == new_stream
    assert devices.cuda.calls("cuStreamSynchronize") == []


def test_arrays_of_other_streams_are_put_in_order_by_events(kernels, devices, new_stream):
    query, key, value = three(element="float16")
    kernels.reads(query, key, value)
    others = [ByInterface(each.array, stream=2, place=(2, 0)) for each in (key, value)]
    assert_near(attention(query, *others), on_the_cpu(query, key, value))
    events = ("cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel")
    assert [(call.function, call["stream"]) for call in devices.cuda.calls(*events)] == [
        ("cuEventRecord", 2),
        ("cuStreamWaitEvent", new_stream),
        ("cuLaunchKernel", new_stream),
        ("cuEventRecord", new_stream),
        ("cuStreamWaitEvent", 2),
    ]


def test_an_array_that_names_no_stream_makes_the_call_wait(kernels, devices):
    query, key, value = three(element="float16")
    kernels.reads(query, key, value)
    mask = truths((40, 70))
    kernels.reads(mask)
    hidden = ByInterface(mask.array, place=(2, 0))
    assert_near(attention(query, key, value, hidden), on_the_cpu(query, key, value, mask))
    assert len(devices.cuda.calls("cuStreamSynchronize")) == 1


def test_nothing_is_kept_alive(kernels):
    arrays = three()
    kernels.reads(*arrays)
    seen = [weakref.ref(each) for each in (*arrays, attention(*arrays))]
    del arrays
    gc.collect()
    assert [ref() for ref in seen] == [None] * 4


def test_threads_share_what_one_of_them_has_loaded(kernels, devices):
    devices.cuda.library.fake_kernels(None)  # the host's emulation runs one block at a time
    together, found = threading.Barrier(4), []

    def work():
        together.wait()
        found.append(attention(*three()).shape)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(2, 3, 40, 64)] * 4
    assert len(devices.cuda.calls("cuModuleLoadData")) == 1
    assert len(devices.cuda.calls("cuLaunchKernel")) == 4


WAITING = """
#include <sched.h>
int arrived, released;
int wait(const char *code, const char *name, unsigned grid, unsigned threads, unsigned shared,
         const void *argument) {
    (void)code, (void)name, (void)grid, (void)threads, (void)shared, (void)argument;
    __atomic_store_n(&arrived, 1, __ATOMIC_SEQ_CST);
    for (long turn = 0; turn < 20000000; turn++) {
        if (__atomic_load_n(&released, __ATOMIC_SEQ_CST)) return 0;
        sched_yield();
    }
    return 719;
}
"""


def test_other_threads_go_on_while_the_driver_is_called(kernels, devices, tmp_path):
    (tmp_path / "waiting.c").write_text(WAITING)
    target = tmp_path / "waiting.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "waiting.c", "-o", target], check=True)
    library = ctypes.CDLL(str(target))
    arrived = ctypes.c_int.in_dll(library, "arrived")
    released = ctypes.c_int.in_dll(library, "released")
    devices.cuda.library.fake_kernels(library.wait)
    errors = []

    def work():
        try:
            attention(*three())
        except DeviceFailedError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and not arrived.value:
        pass
    released.value = 1
    thread.join()
    assert (arrived.value, errors) == (1, [])
