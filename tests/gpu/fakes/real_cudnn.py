"""Run as a program: what NVIDIA's own cuDNN says of the graphs that we describe, without a device.

Its argument is libcudnn.so.9. A device is described to it by JSON, so that its heuristics answer for
one that is not here. Prints one JSON object: for each problem, what each mode names.
"""

import ctypes
import json
import sys
from ctypes import byref, c_int, c_int32, c_int64, c_void_p

from backendcfg.gpu import convolution as rules
from backendcfg.gpu.cudnn import graph as device_cudnn

# An H100. The names are those whose absence cuDNN 9.28 complains of.
H100 = {
    "maxGridSize": [2**31 - 1, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "deviceId": 0,
    "cudaDeviceId": 0,
    "pciDeviceId": 0,
    "deviceVer": 900,
    "driverVer": 13000,
    "totalGlobalMem": 80 << 30,
    "l2CacheSize": 50 << 20,
    "memoryBusWidth": 5120,
    "multiProcessorCount": 132,
    "smCountOrigin": 0,
    "warpSize": 32,
    "isTccDriver": 0,
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "supportCoopLaunch": 1,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000,
    "deviceName": "NVIDIA H100",
}
TYPES = {1: c_int, 2: ctypes.c_ubyte, 3: c_int64, 4: ctypes.c_float, 5: ctypes.c_double}
TYPES |= {
    7: c_int,
    8: c_int,
    14: c_int,
    18: c_int,
    11: c_int32,
    15: c_void_p,
    19: c_int32,
    24: ctypes.c_char,
}
DEVICE, HEURISTIC, CONFIGURATION, ENGINE, PLAN, GRAPH = 38, 4, 3, 2, 5, 15

cudnn = ctypes.CDLL(sys.argv[1])
cudnn.cudnnGetErrorString.restype = ctypes.c_char_p


def expect(status, what):
    """End where cuDNN refuses something."""
    if status:
        text = ctypes.create_string_buffer(256)
        cudnn.cudnnGetLastErrorString(text, ctypes.c_size_t(255))
        sys.exit(f"{what}: {cudnn.cudnnGetErrorString(status).decode()} {text.value.decode()}")


def make(kind):
    made = c_void_p()
    expect(cudnn.cudnnBackendCreateDescriptor(kind, byref(made)), f"create {kind}")
    return made


def give(descriptor, name, kind, values):
    given = (TYPES[kind] * len(values))(*values)
    status = cudnn.cudnnBackendSetAttribute(descriptor, name, kind, c_int64(len(values)), given)
    expect(status, f"attribute {name}")


def read(descriptor, name, kind, room, into=None):
    count, values = c_int64(), into or (TYPES[kind] * max(room, 1))()
    status = cudnn.cudnnBackendGetAttribute(
        descriptor, name, kind, c_int64(room), byref(count), values if room else None
    )
    expect(status, f"reading {name}")
    return count.value, list(values)[: count.value]


def build(described):
    """The graph, but for its handle, which needs a device."""
    made = []
    for kind, attributes in described[1]:
        made.append(make(kind))
        for name, of, values in attributes:
            if of == device_cudnn.TYPES["BACKEND_DESCRIPTOR"]:
                give(made[-1], name, of, [made[at].value for at in values])
            elif of != device_cudnn.TYPES["HANDLE"]:
                give(made[-1], name, of, values)
        expect(cudnn.cudnnBackendFinalize(made[-1]), f"descriptor of type {kind}")
    return made[-1]


def engines(graph, device, mode):
    """For each that cuDNN names: its notes, and the workspace of its plan."""
    heuristic = make(HEURISTIC)
    give(heuristic, 201, 15, [graph.value])
    give(heuristic, 200, 8, [mode])
    give(heuristic, 204, 15, [device.value])
    expect(cudnn.cudnnBackendFinalize(heuristic), f"heuristic in mode {mode}")
    count, _ = read(heuristic, 202, 15, 0)
    places = (c_void_p * max(count, 1))(*(make(CONFIGURATION).value for _ in range(count)))
    found, _ = read(heuristic, 202, 15, count, places)
    said = []
    for place in places[:found]:
        engine = (c_void_p * 1)(make(ENGINE).value)
        read(c_void_p(place), 300, 15, 1, engine)
        notes = read(c_void_p(engine[0]), 1303, 11, 32)[1]
        plan = make(PLAN)
        give(plan, 401, 15, [place])
        give(plan, 407, 15, [device.value])
        status = cudnn.cudnnBackendFinalize(plan)
        workspace = read(plan, 402, 3, 1)[1][0] if status == 0 else None
        said.append((sorted(notes), status, workspace))
    return said


def problem(element, x, w, *, channels_last=False, padding=None):
    padding = padding or (w[2] // 2, w[3] // 2)
    out = (x[0], w[0], *(x[2 + d] + 2 * padding[d] - w[2 + d] + 1 for d in range(2)))
    sizes = (x, w, out)
    strides = tuple(rules.packed(each, channels_last=channels_last) for each in sizes)
    return rules.Problem(element, sizes, strides, (32, 32, 32), padding, (1, 1), (1, 1))


def main():
    device, text = make(DEVICE), json.dumps(H100).encode()
    give(device, 2702, 24, [bytes([each]) for each in text])
    expect(cudnn.cudnnBackendFinalize(device), "the device")
    x, w = (8, 64, 28, 28), (64, 64, 3, 3)
    problems = {
        **{element: problem(element, x, w) for element in rules.ARITHMETIC},
        "channels last": problem("float16", x, w, channels_last=True),
        "depthwise": problem("float32", x, (64, 1, 3, 3)),
        # A copy that holds its zeros.
        "an odd zero": problem("float32", (8, 64, 29, 29), (64, 64, 2, 2), padding=(0, 0)),
    }
    modes = {"fastest": 3, "fallback": 2}
    print(
        json.dumps(
            {
                name: {mode: engines(graph, device, number) for mode, number in modes.items()}
                for name, each in problems.items()
                for graph in (build(rules.describe(each)),)
            }
        )
    )


if __name__ == "__main__":
    main()
