"""Signals on a device, for tests of transforms."""

import numpy as np
from device_arrays import OnDevice, aligned


def signals(shape, dtype="complex128", seed=0):
    """Random numbers in memory as an allocator of a device gives it."""
    random = np.random.default_rng(seed)
    made = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * random.standard_normal(shape)
    array = aligned(shape, dtype)
    array[...] = made
    return array


def on_device(shape, dtype="complex128", place=(2, 0)):
    """The same as an array on a device."""
    return OnDevice(signals(shape, dtype), place=place)


def forget():
    """Forget every plan, and what is known of calls."""
    from backendcfg.gpu import fft as device
    from backendcfg.ops.fft import plan_cache

    device.forget()
    for index in range(2):
        plan_cache[index].clear()
