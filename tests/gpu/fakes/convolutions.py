"""Convolutions on devices, for tests: arrays, the truth, and what reached cuDNN."""

import numpy as np
from device_arrays import OnDevice, aligned, held, narrowed

from backendcfg import ops

ENGINES = ("implicit", "tensor", "narrow", "winograd", "fourier", "split")
"""Of the fake, by their numbers."""

# Relative to the largest number of the result.
TOLERANCES = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.5e-2}


def normal(shape, element="float32", seed=0, *, channels_last=False):
    """Normally distributed numbers on a device."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    if channels_last:
        values = values.transpose(0, 2, 3, 1)
    array = aligned(values.shape, held(element))
    array[...] = narrowed(values.astype(np.float32)) if element == "bfloat16" else values
    return OnDevice(array.transpose(0, 3, 1, 2) if channels_last else array, element)


def on_the_cpu(x, w, bias=None, **options):
    """The same in float64."""
    arrays = [None if each is None else each.values().astype(np.float64) for each in (x, w, bias)]
    return ops.conv2d(*arrays, **options)


def assert_near(result, wanted, tolerance=None):
    """Whether a result is right to what its type can hold."""
    error = np.abs(result.values() - wanted).max() / np.abs(wanted).max()
    assert error < (tolerance or TOLERANCES[result.element]), error


def engines_run(devices):
    """The engines that were run, by their names here."""
    return [ENGINES[call["engine"]] for call in devices.cudnn.calls("cudnnBackendExecute")]


def attributes(devices, kind):
    """What descriptors of a type were given: for each, its attributes by number."""
    cudnn = devices.cudnn
    made = cudnn.calls("cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute")
    found, latest = [], None
    for call in made:
        if call.function == "cudnnBackendCreateDescriptor":
            latest = None
            if call["type"] == kind:
                latest = {}
                found.append(latest)
        elif latest is not None:
            latest[call["name"]] = (call["type"], call["values"])
    return found
