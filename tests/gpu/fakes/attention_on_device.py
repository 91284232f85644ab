"""Our own attention kernel on devices that are memory of the host: launched by the fake of the
driver, run by the host's emulation of a GPU.

The code of a variant is its number as text. So the fake knows nothing of kernels, and what it was
handed at a launch, the argument block above all, is what runs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

import numpy as np
from device_arrays import OnDevice, aligned, held, narrowed, widened

from backendcfg import ops
from backendcfg.gpu.attention import efficient as plain
from backendcfg.gpu.attention import flash
from backendcfg.gpu.attention import forward as device_attention
from backendcfg.gpu.attention import math as products
from backendcfg.gpu.kernels import loading, sources
from backendcfg.gpu.kernels import sources as cuda_compiler


def _of_dispatch(name):
    """A module of the tests of dispatch, of which there is one in a process."""
    path = Path(__file__).resolve().parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    if not hasattr(module, "Compiler"):
        spec.loader.exec_module(module)
    return module


emulated_gpu = _of_dispatch("emulated_gpu")
emulated_plain = _of_dispatch("emulated_plain")


CUDNN = loading.cudnn  # which tests of our own kernels replace
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_uint] * 3, ctypes.c_void_p
)
ILLEGAL_ADDRESS = 700


def _plain_parts(given, program):
    """Memory of a program without tensor cores that no test has made itself."""
    sizes = {0: 4, 1: 8, 2: 2, 3: 2}
    size = sizes[program.macros["ELEMENT"]]
    if program.name == "attention_gather":
        parts = [(given.target, given.count * sizes[program.macros["TO"]], 1)]
        # What a library has multiplied is known from the arguments, as what is made.
        return [*parts, (given.source, given.count * 4, 0)] if size == 4 else parts
    if program.name == "attention_softmax":
        scores = given.rows * given.keys * size
        return [(given.scores, scores, 1), (given.logsumexp, given.rows * max(size, 4), 1)]
    rows = given.pairs * given.queries
    return [
        (given.out, rows * given.value_width * size, 1),
        (given.logsumexp, rows * max(size, 4), 1),
    ]


def _reach(strides, sizes, size):
    """Bytes from the first number of an array to behind its last."""
    if 0 in sizes:
        return 0
    last = sum((count - 1) * step for count, step in zip(sizes, strides, strict=True))
    return (last + 1) * size


def _gradient_parts(given, program):
    """Memory of a gradient without tensor cores that no test has made itself."""
    sizes = {0: 4, 1: 8, 2: 2, 3: 2}
    size = sizes[program.macros["ELEMENT"]]
    rows = given.batch * given.heads * given.queries * max(size, 4)
    queries = given.batch, given.heads, given.queries
    keys = given.batch, given.heads // given.key_group, given.keys
    values = given.batch, given.heads // given.value_group, given.keys
    of = plain.OF[program.macros["OF"]]
    made = {
        "query": (*queries, given.width),
        "key": (*keys, given.width),
        "value": (*values, given.value_width),
        "mask": tuple(given.mask_sizes),
    }[of]
    kind = sizes[program.macros["MASK"] - 2] if of == "mask" else size
    pushed = _reach(given.grad_out_strides, (*queries, given.value_width), size)
    return [
        (given.gradient, _reach(given.gradient_strides, made, kind), 1),
        (given.grad_out, pushed, 0),
        (given.logsumexp, rows, 0),
        (given.delta, rows, 0),
    ]


def _delta_parts(given, program):
    """Memory of the sums of rows that no test has made itself."""
    size = {0: 4, 1: 8, 2: 2, 3: 2}[program.macros["ELEMENT"]]
    pairs = given.rows // given.queries
    lengths = pairs // given.heads, given.heads, given.queries, given.value_width
    return [
        (given.delta, given.rows * max(size, 4), 1),
        (given.out, _reach(given.out_strides, lengths, size), 0),
        (given.grad_out, _reach(given.grad_out_strides, lengths, size), 0),
    ]


def _forward_parts(given, chosen):
    """Memory that the forward kernel makes: (address, bytes, whether it is written)."""
    rows = given.pairs * given.queries
    width = chosen.macros["WIDTH"]
    return [(given.out, rows * width * 2, 1), (given.logsumexp, rows * 4, 1)]


def _backward_parts(given, chosen):
    """Memory of a backward kernel that no test has made itself."""
    call, of_keys, width = given.call, chosen.macros["OF_KEYS"], chosen.macros["WIDTH"]
    pairs = call.pairs * call.group if of_keys else call.pairs
    rows, keys = pairs * call.queries, pairs // call.group * call.keys
    steps = given.grad_out_strides[:3]
    lengths = pairs // call.heads, call.heads, call.queries
    reach = sum((size - 1) * step for size, step in zip(lengths, steps, strict=True) if size)
    parts = [
        (given.grad_out, (reach + width) * 2, 0),
        (call.logsumexp, rows * 4, 0),
        (given.delta, rows * 4, not of_keys),
    ]
    if of_keys:
        return [
            *parts,
            *((each, keys * width * 2, 1) for each in (given.grad_key, given.grad_value)),
        ]
    parts.append((call.out, rows * width * 2, 0))
    return [*parts, (given.grad_query, rows * width * 2, 1)]


KINDS = {
    flash.FORWARD: (flash.FlashArguments, _forward_parts),
    flash.BACKWARD: (flash.FlashBackwardArguments, _backward_parts),
    "attention_efficient": (plain.EfficientArguments, _plain_parts),
    "attention_gather": (products.GatherArguments, _plain_parts),
    "attention_softmax": (products.SoftmaxArguments, _plain_parts),
    "attention_efficient_backward": (plain.EfficientBackwardArguments, _gradient_parts),
    "attention_delta": (plain.DeltaArguments, _delta_parts),
}


class Sm90:
    """A compiler for every device that is asked of it."""

    def architecture(self, capability):
        """As NVRTC's."""
        return 90


class Emulator:
    """Runs what is launched.

    Attributes:
        variants: what was asked of the compiler, in order.
        arrays: memory that a kernel may read; what it makes is known from its arguments.
        launched: (variant, grid, threads, shared bytes, arguments) of each launch.
        fault: what the last kernel did wrong.
    """

    def __init__(self):
        self.compiler = emulated_gpu.Compiler()
        self.plain = emulated_plain.Compiler()
        self.callback = RUN(self._run)
        self.variants, self.arrays, self.launched, self.fault = [], [], [], b""

    def install(self, cuda, monkeypatch):
        """Be what the fake of the driver launches, and what compiles for it."""
        self.variants, self.arrays, self.launched, self.fault = [], [], [], b""
        monkeypatch.setattr(sources, "attention", self._compiled)
        monkeypatch.setattr(cuda_compiler, "compiler", Sm90)
        self.forget()
        cuda.library.fake_kernels(self.callback)

    def remove(self, cuda):
        """The reverse."""
        cuda.library.fake_kernels(None)
        self.forget()

    @staticmethod
    def forget():
        """Nothing is known of calls that were made before."""
        loading.forget()
        device_attention.forget()

    def _compiled(self, chosen, capability):
        self.variants.append(chosen)
        return f"{len(self.variants) - 1}".encode()

    def _run(self, code, name, grid, threads, shared, block):
        chosen = self.variants[int(code)]
        if name != chosen.name.encode():
            return ILLEGAL_ADDRESS
        kind, made = KINDS[chosen.name]
        given = kind.from_buffer_copy(ctypes.string_at(block, ctypes.sizeof(kind)))
        self.launched.append((chosen, grid, threads, shared, given))
        parts = made(given, chosen)
        for array in self.arrays:
            whole = emulated_gpu.whole(array)
            parts.append((whole.ctypes.data, whole.nbytes, 0))
        ranges = (emulated_gpu.Range * emulated_gpu.RANGES)()
        for at, part in enumerate(parts):
            ranges[at] = emulated_gpu.Range(*part)
        report = emulated_gpu.Report()
        is_plain = chosen.name in emulated_plain.PROGRAMS
        library = (self.plain if is_plain else self.compiler).library(chosen)
        run = library.run_program if is_plain else library.run_attention
        run(ctypes.byref(given), grid, ctypes.c_uint64(shared), 0, ranges, ctypes.byref(report))
        self.fault = report.fault
        return ILLEGAL_ADDRESS if report.fault else 0

    def reads(self, *arrays):
        """Let kernels read the memory of these arrays."""
        self.arrays += [each.array for each in arrays]


def normal(shape, element="bfloat16", seed=0, place=(2, 0)):
    """An array of random numbers on a device."""
    values = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    memory = aligned(shape, held(element))
    memory[...] = narrowed(values) if element == "bfloat16" else values.astype(element)
    return OnDevice(memory, element, place)


def truths(shape, seed=7):
    """A mask on a device: true where a query sees a key."""
    memory = aligned(shape, "bool")
    memory[...] = np.random.default_rng(seed).random(shape) < 0.7
    return OnDevice(memory, "bool")


def on_the_cpu(query, key, value, mask=None, **options):
    """What our kernels of the CPU make of the same numbers in float32."""
    arrays = [np.asarray(each.values(), "float32") for each in (query, key, value)]
    hidden = mask
    if mask is not None:
        hidden = mask.array if mask.element == "bool" else np.asarray(mask.values(), "float32")
    return ops.scaled_dot_product_attention(*arrays, hidden, **options)


def assert_near(result, wanted, element=""):
    """That a result is what 16 bits can hold of what is wanted."""
    assert type(result) is OnDevice
    assert result.shape == wanted.shape
    values = widened(result.array) if result.element == "bfloat16" else result.array
    unit = {"bfloat16": 2e-2, "float16": 3e-3, "float32": 2e-5, "float64": 1e-5}[
        element or result.element
    ]
    np.testing.assert_allclose(np.asarray(values, "float64"), wanted, rtol=unit, atol=unit)
