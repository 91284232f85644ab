"""The operations whose precision is measured: of every library that this process has imported.

Each takes and gives NumPy arrays, wherever its library computes, and names the flags that may grant
it less than its type has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import ops
from backendcfg.audit.evidence.probes import FORMATS, SIZES, Array, Kind
from backendcfg.bridges.imports import is_imported
from backendcfg.bridges.torch.precision import LEAVES, precision
from backendcfg.catalogue.frameworks import JAX, SCIPY, TENSORFLOW, TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

TYPES = ("float32", "float64")
_FPMATH = "onednn.default_fpmath_mode"


@dataclass(frozen=True)
class Operation:
    """One operation, on one device, in one type.

    Attributes:
        name: as its library calls it.
        device: "cpu", "cuda:0".
        dtype: of its operands and its result.
        kind: what it computes.
        call: takes and gives arrays, as `probe_precision` wants it.
        flags: those that may grant its operands fewer bits.
        sums: those that may grant its sums fewer bits.
        sizes: of the matrices that it is measured with.
        ready: takes arrays, and gives a call of the library with them alone: what brings them there
            can take longer than the operation. None where nothing does.
    """

    name: str
    device: str
    dtype: str
    kind: Kind
    call: Callable[..., Any]
    flags: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    sizes: tuple[int, ...] = SIZES
    ready: Callable[..., Callable[[], object]] | None = None


def operations() -> list[Operation]:
    """Those of NumPy, our own, and those of every other library that is imported here."""
    found = [*_numpy(), *_ours()]
    others = {
        f"{SCIPY.name}.linalg": _scipy,
        TORCH.name: _torch,
        JAX.name: _jax,
        TENSORFLOW.name: _tensorflow,
    }
    for module, of in others.items():
        if is_imported(module):
            found += of(sys.modules[module])
    return found


def granted(
    operation: Operation, values: Mapping[str, Any], asked: Collection[str]
) -> tuple[int, str]:
    """The fewest bits that a profile lets an operation's operands have, and the flag that does.

    Args:
        operation: one of `operations()`.
        values: every flag with its value, a default where nobody set it.
        asked: the flags that somebody set.
    """
    fewest, by = FORMATS[operation.dtype].fraction, ""
    for flag in operation.flags:
        value, decides = values[flag], flag
        if flag in LEAVES:
            value, decides = precision(flag, values, asked)
        bits = _GRANTS.get(flag, _BY_VALUE).get(value, fewest)
        if bits < fewest:
            fewest, by = bits, decides
    return fewest, by


def granted_to_sums(operation: Operation, values: Mapping[str, Any]) -> tuple[int, str]:
    """The same of its sums, which have those of float32 at least unless a flag says otherwise."""
    by = next((flag for flag in operation.sums if values[flag] not in (False, "none")), "")
    own = FORMATS[operation.dtype].fraction
    return (own if by else max(own, FORMATS["float32"].fraction)), by


_BY_VALUE: Mapping[Any, int] = {"tf32": 10, "f16": 10, "bf16": 7, "any": 7}

_GRANTS: dict[str, Mapping[Any, int]] = {
    # PyTorch starts with TF32 in cuDNN's convolutions.
    # https://docs.pytorch.org/docs/2.13/notes/cuda.html
    "cudnn.conv.fp32_precision": {**_BY_VALUE, "none": 10},
    "tensorflow.tensor_float_32_execution": {True: 10},
    # https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html
    "jax.default_matmul_precision": {"high": 10, "tensorfloat32": 10, "bfloat16": 7},
}
"""The bits of the fraction that a flag's values grant, where they are not those of `_BY_VALUE`."""


def _numpy() -> Iterator[Operation]:
    for dtype in TYPES:
        yield Operation("numpy.matmul", "cpu", dtype, "product", np.matmul)
    yield Operation("numpy.linalg.solve", "cpu", "float32", "solve", np.linalg.solve)


def _ours() -> Iterator[Operation]:
    for dtype in TYPES:
        yield Operation("ops.matmul", "cpu", dtype, "product", ops.matmul)
    others: dict[str, tuple[Kind, Callable[..., Any]]] = {
        "ops.conv2d": ("convolution", lambda x, w: ops.conv2d(x, w, padding=w.shape[-1] // 2)),
        "ops.scaled_dot_product_attention": (
            "attention",
            partial(ops.scaled_dot_product_attention, scale=1.0),
        ),
        "ops.linalg.solve": ("solve", ops.linalg.solve),
    }
    for name, (kind, call) in others.items():
        yield Operation(name, "cpu", "float32", kind, call)


def _scipy(linalg: Any) -> Iterator[Operation]:
    for dtype, name in zip(TYPES, ("sgemm", "dgemm"), strict=True):
        call = partial(getattr(linalg.blas, name), 1.0)
        yield Operation(
            f"scipy.linalg.blas.{name}",
            "cpu",
            dtype,
            "product",
            call,
            ready=partial(_by_columns, call),
        )
    yield Operation("scipy.linalg.solve", "cpu", "float32", "solve", linalg.solve)


def _by_columns(call: Callable[..., object], *arrays: Array) -> Callable[[], object]:
    # SciPy's BLAS would copy others to this layout.
    return partial(call, *map(np.asfortranarray, arrays))


def _torch(torch: Any) -> Iterator[Operation]:
    functional, linalg = torch.nn.functional, torch.linalg
    every = ("float32", "float64", "float16", "bfloat16")
    calls: tuple[tuple[str, Kind, tuple[str, ...], Callable[..., Any]], ...] = (
        ("torch.mm", "product", every, torch.mm),
        ("torch.bmm", "product", every[:1], lambda a, b: torch.bmm(a[None], b[None])[0]),
        (
            "torch.nn.functional.conv2d",
            "convolution",
            every[:1],
            lambda x, w: functional.conv2d(x, w, padding=w.shape[-1] // 2),
        ),
        (
            "torch.nn.functional.scaled_dot_product_attention",
            "attention",
            every[:1],
            partial(functional.scaled_dot_product_attention, scale=1.0),
        ),
        ("torch.linalg.solve", "solve", every[:1], linalg.solve),
    )
    for device in ("cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))):
        place = device.partition(":")[0]
        for name, kind, dtypes, function in calls:
            for dtype in dtypes:
                ready = partial(_ready_for_torch, torch, function, device, dtype)
                yield Operation(
                    name,
                    device,
                    dtype,
                    kind,
                    partial(_on_torch, torch, ready, dtype),
                    _torch_flags(place, kind) if dtype == "float32" else (),
                    _TORCH_SUMS.get((place, dtype), ()),
                    ready=ready,
                )


def _torch_flags(place: str, kind: Kind) -> tuple[str, ...]:
    part = "conv" if kind == "convolution" else "matmul"
    if place == "cpu":
        # A solver is LAPACK's.
        return () if kind == "solve" else (f"mkldnn.{part}.fp32_precision", _FPMATH)
    return ("cudnn.conv.fp32_precision" if part == "conv" else "cuda.matmul.fp32_precision",)


_TORCH_SUMS = {
    ("cuda", "float16"): (
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_fp16_accumulation",
    ),
    ("cuda", "bfloat16"): ("cuda.matmul.allow_bf16_reduced_precision_reduction",),
}


def _ready_for_torch(
    torch: Any, function: Callable[..., Any], device: str, dtype: str, *arrays: Array
) -> Callable[[], Any]:
    to = getattr(torch, dtype)
    return partial(function, *(torch.from_numpy(each).to(device, to) for each in arrays))


def _on_torch(
    torch: Any, ready: Callable[..., Callable[[], Any]], dtype: str, *arrays: Array
) -> Array:
    wide = torch.float64 if FORMATS[dtype].carrier is np.float64 else torch.float32
    found: Array = ready(*arrays)().detach().to("cpu", wide).numpy()
    return found


def _jax(jax: Any) -> Iterator[Operation]:
    def convolve(x: Array, w: Array) -> Any:
        return jax.lax.conv(x, w, (1, 1), "SAME")

    device = jax.devices()[0]
    place = "cpu" if device.platform == "cpu" else f"{device.platform}:{device.id}"
    # JAX compiles for every shape, some 40 ms each on a CPU.
    sizes = (64,)
    calls: dict[str, tuple[Kind, Callable[..., Any]]] = {
        "jax.numpy.matmul": ("product", jax.numpy.matmul),
        "jax.lax.conv": ("convolution", convolve),
    }
    for name, (kind, call) in calls.items():
        yield Operation(
            name, place, "float32", kind, call, ("jax.default_matmul_precision",), sizes=sizes
        )


def _tensorflow(tensorflow: Any) -> Iterator[Operation]:
    def convolve(x: Array, w: Array) -> Any:
        # On a CPU it takes channels last only.
        x, w = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
        return tensorflow.nn.conv2d(x, w, 1, "SAME").numpy().transpose(0, 3, 1, 2)

    calls: dict[str, tuple[Kind, Callable[..., Any]]] = {
        "tensorflow.matmul": ("product", tensorflow.linalg.matmul),
        "tensorflow.nn.conv2d": ("convolution", convolve),
    }
    on_gpu = tensorflow.config.list_logical_devices("GPU")
    place = "cuda:0" if on_gpu else "cpu"
    flags = ("tensorflow.tensor_float_32_execution",) if on_gpu else (_FPMATH,)
    for name, (kind, call) in calls.items():
        yield Operation(name, place, "float32", kind, call, flags)
