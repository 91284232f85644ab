"""What a call on a device costs the host, over libraries that do nothing.

    python benchmarks/device_calls.py [--quick]

Needs a C compiler and PyTorch, and no GPU: PyTorch's own tensors on the CPU are said to be on a
device, and the doubles of native/doubles/device stand for NVIDIA's libraries. Once a kind of call
is known they are told to do nothing, so that what is left is ours and PyTorch's.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import Row, emit, machine, nanoseconds, side_by_side

NATIVE = Path(__file__).parents[1] / "native"
FLAGS = ("-shared", "-fPIC", "-fvisibility=hidden", "-O2", "-pthread")
DOUBLES = {
    "exchange": "libexchange.so",
    "cuda": "libcuda.so.1",
    "cublas": "libcublas.so.13",
    "cublaslt": "libcublasLt.so.13",
    "cufft": "libcufft.so.12",
    "cudnn": "libcudnn.so.9",
}
TARGET = 2e-6
# What, the call, and the memory that PyTorch makes for it: result, copies, what is worked in.
CALLS = (
    ("matmul", "ops.matmul(a, a)", "empty(16, 16)"),
    ("matmul into `out`", "ops.matmul(a, a, out=out)", ""),
    ("attention by flash", "ops.scaled_dot_product_attention(q, q, q)", "empty_like(q)"),
    ("attention by cudnn", "ops.scaled_dot_product_attention(k, k, k)", "empty_like(k)"),
    ("fft", "fft.fft(z)", "empty(8, 64, dtype=complex64); empty(4096, dtype=uint8)"),
    ("fft2", "fft.fft2(z)", "empty(8, 64, dtype=complex64); empty(4096, dtype=uint8)"),
    ("rfft", "fft.rfft(x)", "empty(8, 33, dtype=complex64); empty(4096, dtype=uint8)"),
    (
        "ifft",
        "fft.ifft(z)",
        "empty(8, 64, dtype=complex64).mul_(0.5); empty(4096, dtype=uint8)",
    ),
    (
        "irfft",
        "fft.irfft(h)",
        "t = empty(8, 33, dtype=complex64); t.copy_(h.detach()); empty(4096, dtype=uint8); "
        "empty(8, 64).mul_(0.5)",
    ),
    ("conv2d", "ops.conv2d(i, w)", "empty(2, 4, 6, 6); empty(4096, dtype=uint8)"),
    (
        "conv2d with a bias",
        "ops.conv2d(i, w, b, padding=1)",
        "empty(2, 4, 6, 6).add_(b.detach()[:, None, None]); empty(4096, dtype=uint8)",
    ),
)


def compiled(folder: Path) -> dict[str, ctypes.CDLL]:
    """The doubles, in this process under the names of what they stand for."""
    libraries = {}
    for source, name in DOUBLES.items():
        target = folder / name
        file = NATIVE / "doubles" / "device" / f"{source}.c"
        command = ["cc", *FLAGS, f"-I{NATIVE / 'include'}", f"-Wl,-soname,{name}", str(file)]
        subprocess.run([*command, "-o", str(target), "-lm"], check=True)
        libraries[source] = ctypes.CDLL(str(target))
    return libraries


def put_on_a_device(exchange: ctypes.CDLL) -> None:
    """Let PyTorch's table of functions say that its tensors are on a device."""
    import torch

    python, name = ctypes.pythonapi, b"dlpack_exchange_api"
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    exchange.double_exchange.restype = ctypes.c_void_p
    exchange.double_exchange.argtypes = [ctypes.c_void_p]
    original = python.PyCapsule_GetPointer(torch.Tensor.__dlpack_c_exchange_api__, name)
    made = python.PyCapsule_New(exchange.double_exchange(original), name, None)
    torch.Tensor.__dlpack_c_exchange_api__ = made
    put_on_a_device.kept = name, made  # the capsule keeps the address of its name


def tensors() -> dict[str, Any]:
    """What the statements of `CALLS` refer to."""
    import torch

    from backendcfg import ops

    return {
        "ops": ops,
        "fft": ops.fft,
        "empty": torch.empty,
        "empty_like": torch.empty_like,
        "complex64": torch.complex64,
        "uint8": torch.uint8,
        "a": torch.ones(16, 16),
        "out": torch.empty(16, 16),
        "q": torch.ones(1, 8, 64, 64, dtype=torch.bfloat16),
        "k": torch.ones(1, 8, 128, 64, dtype=torch.bfloat16),
        "z": torch.ones(8, 64, dtype=torch.complex64),
        "x": torch.ones(8, 64),
        "h": torch.ones(8, 33, dtype=torch.complex64),
        "i": torch.ones(2, 4, 8, 8),
        "w": torch.ones(4, 4, 3, 3),
        "b": torch.ones(4),
    }


def attention_without_a_compiler() -> None:
    """Let our own kernels be code that nobody looks into."""
    from backendcfg import _native
    from backendcfg.dispatch import device_kernels

    def loaded(driver: Any, ordinal: int, capability: Any, chosen: Any) -> Any:
        del capability
        return _native.device_kernel(driver.handle, ordinal, b"\0", chosen.name, 0)

    device_kernels.attention = loaded


def main() -> int:
    """A row for each call; 1 where one misses the target."""
    rounds = 9 if "--quick" in sys.argv else 41
    with tempfile.TemporaryDirectory() as folder:
        libraries = compiled(Path(folder))
        put_on_a_device(libraries["exchange"])
        names = tensors()
        attention_without_a_compiler()
        from backendcfg.dispatch import device_kernels

        for _, call, _ in CALLS:  # known from here on
            from gpu import scope

            names["flags"] = scope(**{"cuda.sdp_priority": ("flash",)})
            exec(call, names)
        for name, library in libraries.items():
            if name != "exchange":
                ctypes.c_int.in_dll(library, "double_idle").value = 1
        rows = []
        for what, call, memory in CALLS:
            took = side_by_side({"ours": call, "memory": memory or "pass"}, names, rounds=rounds)
            rows.append(
                Row(
                    what,
                    nanoseconds(took["ours"]),
                    f"PyTorch's {nanoseconds(took['memory'])}",
                    nanoseconds(took["ours"] - took["memory"]),
                    f"<= {nanoseconds(TARGET)}",
                    took["ours"] - took["memory"] <= TARGET,
                )
            )
        emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
