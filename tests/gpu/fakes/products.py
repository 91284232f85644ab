"""What the tests of products on devices share: the fakes in use, and calls under flags."""

from __future__ import annotations

import numpy as np
from device_arrays import OnDevice, aligned, held, narrowed

from backendcfg._native import Prepared, Scope
from backendcfg.transact.compiled import Compiled

TOLERANCES = {"float32": 1e-5, "float64": 1e-12, "complex64": 1e-5, "complex128": 1e-12}
PREFER = "cuda.preferred_blas_library"
GEMMS = ("cublasGemmEx_64", "cublasGemmStridedBatchedEx_64", "cublasLtMatmul")


def under(**flags):
    """A scope with flags of `[cuda]` and others, written with `__` for a dot."""
    values = {name.replace("__", "."): value for name, value in flags.items()}
    tier = values.get("determinism.tier", "none")
    return Scope(Prepared("test", Compiled("test", tier, values)))


def numbers(shape, element, seed=0):
    """Small whole numbers, which every type holds exactly, as memory of an element."""
    made = np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")
    if element.startswith("complex"):
        made = made + 1j * np.random.default_rng(seed + 1).integers(-4, 5, shape)
    values = narrowed(made) if element == "bfloat16" else made.astype(element)
    memory = aligned(shape, held(element))
    memory[...] = values
    return memory


def on_device(shape, element="float32", seed=0, place=(2, 0)):
    """An array of whole numbers on a device."""
    return OnDevice(numbers(shape, element, seed), element, place)


def view(array, change):
    """A view of an array on a device, as `change` makes it of NumPy's."""
    return OnDevice(change(array.array), array.element, array.place)
