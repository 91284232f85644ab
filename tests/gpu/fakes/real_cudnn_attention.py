"""Run as a program: what NVIDIA's own cuDNN says of our graphs of attention, without a device.

Its argument is libcudnn.so.9. Prints one JSON object: for each problem and each device that is
described, the notes, the status and the workspace of each engine's plan.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from real_cudnn import DEVICE, H100, build, engines, expect, give, make
from real_cudnn import cudnn as library

from backendcfg.gpu.attention.cudnn import Problem, graph
from backendcfg.gpu.cudnn.graph import dense

SHARED = {80: 166912, 90: 232448, 100: 232448, 120: 101376}
"""Devices, and how much shared memory a block may have there."""


def array(*shape, element="bfloat16", strides=None):
    whole = dense(shape, element)
    return whole._replace(strides=strides or whole.strides)


def problem(element="bfloat16", width=128, values=128, key_heads=8, **more):
    projected = (100 * 8 * width, width, 8 * width, 1)
    return Problem(
        array(2, 8, 100, width, element=element, strides=projected),
        array(2, key_heads, 300, width, element=element),
        array(2, key_heads, 300, values, element=element),
        array(2, 8, 100, values, element=element),
        **more,
    )


PROBLEMS = {
    "plain": problem(),
    "float16": problem("float16"),
    "causal": problem(is_causal=True),
    "logsumexp": problem(with_logsumexp=True),
    "groups": problem(key_heads=2),
    "narrow": problem(width=8, values=72),
    "mask": problem(bias=array(1, 1, 100, 300)),
    "mask of rows": problem(bias=array(2, 1, 100, 1, element="float32")),
    "everything": problem(
        key_heads=2, bias=array(2, 8, 1, 300), is_causal=True, with_logsumexp=True
    ),
    "of width 12": problem(width=12),
}


def described(capability):
    about = {**H100, "deviceVer": 10 * capability}
    about["maxSharedMemoryPerBlockOptin"] = SHARED[capability]
    device = make(DEVICE)
    give(device, 2702, 24, [bytes([each]) for each in json.dumps(about).encode()])
    expect(library.cudnnBackendFinalize(device), "the device")
    return device


def answer(graphs):
    """Print what is named for graphs, by name and device."""
    devices = {capability: described(capability) for capability in SHARED}
    said = {
        name: {capability: engines(built, device, 3) for capability, device in devices.items()}
        for name, each in graphs.items()
        for built in (build(each),)
    }
    print("answers: " + json.dumps(said))


if __name__ == "__main__":
    answer({name: graph(each) for name, each in PROBLEMS.items()})
