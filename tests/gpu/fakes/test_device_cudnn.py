"""cuDNN's graphs as they are handed to it: handles, plans, streams; and its fake's rules."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_bool, c_double, c_float, c_int, c_int64, c_void_p

import pytest
from convolutions import assert_near, engines_run, normal, on_the_cpu
from device_arrays import ByInterface, OnDevice
from products import under
from test_device_abi import check  # noqa: F401 - a fixture

from backendcfg import ops
from backendcfg.gpu import convolution
from backendcfg.gpu import convolution as rules
from backendcfg.gpu.cudnn import CudnnHandle
from backendcfg.gpu.cudnn import graph as device_cudnn
from backendcfg.gpu.cudnn.graph import MODES, REDUCERS
from backendcfg.gpu.libraries.calling import Fault, Session

PLAN, PACK = 5, 16


@pytest.fixture(autouse=True)
def _chosen_anew(devices):
    convolution.forget()
    with under(cudnn__deterministic=True, cudnn__conv__fp32_precision="ieee"):
        yield


def other_stream(devices):
    cuda, made, context = devices.cuda.library, c_void_p(), c_void_p()
    cuda.cuDevicePrimaryCtxRetain(byref(context), 0)
    cuda.cuCtxPushCurrent_v2(context)
    assert cuda.cuStreamCreate(byref(made), 0) == 0
    cuda.cuCtxPopCurrent_v2(byref(context))
    return made.value


def test_the_numbers_in_python_are_those_of_our_header(check):  # noqa: F811
    numbers = {name: int(value) for name, value in check.declared("cudnn").constants.items()}
    tables = {
        "CUDNN_BACKEND_{}_DESCRIPTOR": device_cudnn.DESCRIPTORS,
        "CUDNN_TYPE_{}": device_cudnn.TYPES,
        "CUDNN_ATTR_{}": {name: number for name, (number, _) in device_cudnn.ATTRIBUTES.items()},
        "CUDNN_POINTWISE_{}": MODES,
        "CUDNN_REDUCE_TENSOR_{}": REDUCERS,
        "CUDNN_NUMERICAL_NOTE_{}": device_cudnn.NOTES,
        "CUDNN_BEHAVIOR_NOTE_{}": device_cudnn.BEHAVIOURS,
    }
    for pattern, table in tables.items():
        assert table == {name: numbers[pattern.format(name)] for name in table}
    data = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
    data |= {"int32": "INT32", "bool": "BOOLEAN"}
    assert device_cudnn.DATA == {
        element: numbers[f"CUDNN_DATA_{name}"] for element, name in data.items()
    }
    assert rules.CROSS_CORRELATION == numbers["CUDNN_CROSS_CORRELATION"]
    assert set(device_cudnn.TYPES.values()) >= {
        kind for _, kind in device_cudnn.ATTRIBUTES.values()
    }


def test_a_stream_has_a_handle_of_its_own_that_stays(devices, new_stream):
    x, w = normal((1, 2, 5, 5)), normal((2, 2, 3, 3))
    for _ in range(2):
        ops.conv2d(x, w)
    assert len(devices.cudnn.calls("cudnnCreate")) == 1
    (stream,) = devices.cudnn.calls("cudnnSetStream")
    assert stream["stream"] == new_stream
    assert {call["stream"] for call in devices.cudnn.calls("cudnnBackendExecute")} == {new_stream}


def test_another_stream_makes_the_plan_of_the_engine_that_is_known(devices, new_stream):
    x, w = normal((1, 2, 5, 5)), normal((2, 2, 3, 3))
    first = ops.conv2d(x, w)
    OnDevice.stream = other_stream(devices)
    devices.cudnn.reset()
    second = ops.conv2d(x, w)
    assert engines_run(devices) == ["winograd"]
    made = devices.cudnn.calls("cudnnBackendCreateDescriptor")
    assert [call["type"] for call in made].count(PLAN) == 1
    assert (first.array == second.array).all()


def test_arrays_on_several_streams_are_ordered_before_and_after(devices, new_stream):
    other = other_stream(devices)
    x, w = normal((1, 2, 5, 5)), ByInterface(normal((2, 2, 3, 3)).array, other)
    result = ops.conv2d(x, w)
    waits = devices.cuda.calls("cuStreamWaitEvent")
    # To choose an engine, to make its plan and to run it.
    assert [call["stream"] for call in waits] == [new_stream, other] * (len(waits) // 2)
    w.values = lambda: w.array
    assert_near(result, on_the_cpu(x, w))


def test_an_owner_that_knows_no_stream_is_waited_for(devices, new_stream):
    x, w = normal((1, 2, 5, 5)), ByInterface(normal((2, 2, 3, 3)).array, None)
    ops.conv2d(x, w)
    settled = devices.cuda.calls("cuStreamSynchronize")
    assert {call["stream"] for call in settled} == {new_stream}


def test_the_context_of_the_caller_is_current_again(devices, new_stream):
    ops.conv2d(normal((1, 2, 5, 5)), normal((2, 2, 3, 3)))
    cuda = devices.cuda
    pushed, popped = cuda.calls("cuCtxPushCurrent_v2"), cuda.calls("cuCtxPopCurrent_v2")
    assert len(pushed) == len(popped) > 0


def test_threads_that_share_a_stream_each_get_their_result(devices, new_stream):
    arrays = [(normal((1, 2, 5, 5), seed=n), normal((2, 2, 3, 3), seed=n)) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            results = list(pool.map(lambda each: ops.conv2d(*each), arrays))
            for each, result in zip(arrays, results, strict=True):
                assert_near(result, on_the_cpu(*each), 5e-3)  # a thread has no profile of ours


def test_a_handle_without_the_plan_gets_it_before_it_runs(devices, new_stream, monkeypatch):
    """As when other threads have the handles that it was made for."""
    x, w = normal((1, 2, 5, 5)), normal((2, 2, 3, 3))
    ops.conv2d(x, w)
    run, answers = CudnnHandle.run, [False]
    monkeypatch.setattr(
        CudnnHandle, "run", lambda *given: answers.pop() if answers else run(*given)
    )
    assert_near(ops.conv2d(x, w), on_the_cpu(x, w))
    assert answers == []


def test_plans_are_kept_up_to_a_number_and_then_destroyed(devices, new_stream):
    w = normal((1, 1, 1, 1))
    before = devices.cudnn.library.fake_descriptors()
    for height in range(1, 601):
        convolution.forget()
        ops.conv2d(normal((1, 1, height, 1)), w)
    # 512 plans, a graph of five descriptors and its eight engines.
    assert devices.cudnn.library.fake_descriptors() - before <= 512 + 5 + 8
    assert_near(ops.conv2d(normal((1, 1, 1, 1)), w), on_the_cpu(normal((1, 1, 1, 1)), w))


def test_a_descriptor_that_is_not_there_yet_cannot_be_referred_to(devices, new_stream):
    graph = device_cudnn.Graph()
    said = graph.done(3)
    work = (devices.find("cudnn"), devices.find("cuda").handle, 0, new_stream, (), False)
    with pytest.raises(Fault) as caught, Session(work, CudnnHandle) as handle:
        handle.engines(said)
    function, status, name, _ = caught.value.args
    assert (function, status) == ("cudnnBackendSetAttribute", 2000)
    assert name == "CUDNN_STATUS_BAD_PARAM"


class Raw:
    """The fake called as a program would."""

    def __init__(self, library):
        self.library = library

    def make(self, kind):
        made = c_void_p()
        assert self.library.cudnnBackendCreateDescriptor(kind, byref(made)) == 0
        return made

    def set(self, descriptor, name, kind, *values):
        types = {1: c_int, 2: c_bool, 3: c_int64, 4: c_float, 5: c_double, 7: c_int, 15: c_void_p}
        given = (types[kind] * len(values))(*values)
        return self.library.cudnnBackendSetAttribute(
            descriptor, name, kind, c_int64(len(values)), given
        )

    def get(self, descriptor, name, kind):
        count, value = c_int64(), c_int64()
        return self.library.cudnnBackendGetAttribute(
            descriptor, name, kind, c_int64(1), byref(count), byref(value)
        )

    def tensor(self, sizes, strides, alignment=16):
        made = self.make(17)
        for name, kind, values in (
            (906, 3, (1,)),
            (901, 1, (0,)),
            (900, 3, (alignment,)),
            (902, 3, sizes),
            (903, 3, strides),
        ):
            assert self.set(made, name, kind, *values) == 0
        return made, self.library.cudnnBackendFinalize(made)

    def said(self):
        text = ctypes.create_string_buffer(256)
        self.library.cudnnGetLastErrorString(text, ctypes.c_size_t(255))
        return text.value.decode()


def test_the_fake_refuses_what_cudnn_refuses(devices):
    """Each of these was seen of cuDNN 9.28."""
    raw = Raw(devices.cudnn.library)
    tensor, status = raw.tensor((1, 3, 8, 8), (192, 64, 8, 1))
    assert status == 0
    assert raw.set(tensor, 906, 3, 5) == 2000  # it is finalised
    fresh = raw.make(17)
    assert raw.set(fresh, 906, 1, 5) == 2010  # not of that type
    assert raw.set(fresh, 906, 3, 5, 6) == 2000  # not so many
    assert raw.set(fresh, 100, 1, 0) == 2000  # of another type of descriptors
    assert raw.said() != ""
    assert raw.said() == ""
    assert raw.library.cudnnBackendFinalize(fresh) == 2000  # without what is required
    assert raw.get(fresh, 906, 3) == 1001  # it is not finalised
    assert raw.tensor((1, 3, 8, 8), (192, 64, 8, -1))[1] == 2000
    assert raw.tensor((1, 3, 8, 8), (192, 64, 8, 1), alignment=2)[1] == 2000
    assert raw.tensor((0, 3, 8, 8), (192, 64, 8, 1))[1] == 0
    graph = raw.make(15)
    assert raw.set(graph, 801, 15, fresh.value) == 2004  # an operation that is not finalised
    pack = raw.make(PACK)
    assert raw.set(pack, 1000, 3, 1) == 0
    assert raw.library.cudnnBackendFinalize(pack) == 2000
    assert raw.library.cudnnBackendDestroyDescriptor(None) == 2002
    assert raw.library.cudnnBackendCreateDescriptor(999, byref(c_void_p())) == 4003
    for each in (tensor, fresh, graph, pack):
        assert raw.library.cudnnBackendDestroyDescriptor(each) == 0
    assert raw.library.cudnnBackendDestroyDescriptor(tensor) == 2000


def test_an_engine_is_told_by_its_notes():
    engine = device_cudnn.engine((7, 0b10001, 0b1))
    assert engine == (7, ("TENSOR_CORE", "NONDETERMINISTIC"), ("RUNTIME_COMPILATION",))
    assert str(engine) == "engine 7 (TENSOR_CORE, NONDETERMINISTIC, RUNTIME_COMPILATION)"
    assert str(device_cudnn.engine((0, 0, 0))) == "engine 0"
    assert device_cudnn.engine((0, 1 << 30, 0)).notes == ("note 30",)


@pytest.mark.parametrize(
    ("address", "alignment"), [(0x1000, 32), (0x1004, 4), (0x1010, 16), (0x1001, 1), (0, 32)]
)
def test_alignment_is_the_largest_power_of_two_up_to_a_limit(address, alignment):
    assert device_cudnn.alignment(address) == alignment
