"""What a call on a device costs the host, over libraries that do nothing.

    python benchmarks/device_calls.py [--quick]

Needs a C compiler and PyTorch, and no GPU: PyTorch's own tensors on the CPU are said to be on a
device, and the fakes of native/fakes/gpu stand for NVIDIA's libraries. Each call is made once, so
that its plan is cached; then the fakes are told to do nothing, and what is left is ours and
PyTorch's. Only products have a target: C makes those alone, Python makes all other calls.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

from gpu_calls import OVERHEAD_TARGET, scope
from measure import Row, emit, nanoseconds, options

NATIVE = Path(__file__).parents[1] / "native"
FLAGS = ("-shared", "-fPIC", "-fvisibility=hidden", "-O2", "-pthread")
FAKES = {
    "exchange": "libexchange.so",
    "cuda": "libcuda.so.1",
    "cublas": "libcublas.so.13",
    "cublaslt": "libcublasLt.so.13",
    "cufft": "libcufft.so.12",
    "cudnn": "libcudnn.so.9",
    "cusolver": "libcusolver.so.12",
}
# By what is measured: the call; what PyTorch itself does in it, which is to make memory for the
# result and to work in, to copy, and to add or scale in place; and the kernel of attention.
CALLS = {
    "matmul": ("ops.matmul(a, a)", "empty(16, 16)", ""),
    "matmul into `out`": ("ops.matmul(a, a, out=out)", "", ""),
    "attention by our kernel": (
        "ops.scaled_dot_product_attention(q, q, q)",
        "empty_like(q)",
        "flash",
    ),
    "attention by cuDNN": ("ops.scaled_dot_product_attention(q, q, q)", "empty_like(q)", "cudnn"),
    "fft": ("fft.fft(z)", "empty(8, 64, dtype=c64); empty(4096, dtype=u8)", ""),
    "fft2": ("fft.fft2(z)", "empty(8, 64, dtype=c64); empty(4096, dtype=u8)", ""),
    "rfft": ("fft.rfft(x)", "empty(8, 33, dtype=c64); empty(4096, dtype=u8)", ""),
    "ifft": ("fft.ifft(z)", "empty(8, 64, dtype=c64).mul_(0.1); empty(4096, dtype=u8)", ""),
    "irfft": (
        "fft.irfft(h)",
        "empty(8, 33, dtype=c64).copy_(h.detach()); empty(8, 64).mul_(0.1); empty(4096, dtype=u8)",
        "",
    ),
    "solve": (
        "linalg.solve(m, m)",
        "empty(16, 16).copy_(m); empty(16, 16).copy_(m); empty(1, dtype=i32).tolist()",
        "",
    ),
    "svd": (
        "linalg.svd(m)",
        "empty(16, 16).copy_(m); empty(3, 16, 16); empty(16); empty(1, dtype=i32).tolist()",
        "",
    ),
    "conv2d": ("ops.conv2d(i, w)", "empty(2, 4, 6, 6); empty(4096, dtype=u8)", ""),
    "conv2d with a bias": (
        "ops.conv2d(i, w, b)",
        "empty(2, 4, 6, 6).add_(b.detach().reshape((-1, 1, 1))); empty(4096, dtype=u8)",
        "",
    ),
}


def compiled(folder: Path) -> dict[str, ctypes.CDLL]:
    """The fakes, in this process under the names of what they stand for."""
    libraries = {}
    subprocess.run([sys.executable, NATIVE / "abi/check.py", "--declare", folder], check=True)
    for source, name in FAKES.items():
        target = folder / name
        file = NATIVE / "fakes" / "gpu" / f"{source}.c"
        command = [
            "cc",
            *FLAGS,
            f"-I{NATIVE / 'include'}",
            f"-I{folder}",
            f"-Wl,-soname,{name}",
            str(file),
        ]
        subprocess.run([*command, "-o", str(target), "-lm"], check=True)
        libraries[source] = ctypes.CDLL(str(target))
    return libraries


_kept: list[bytes] = []


def put_on_a_device(exchange: ctypes.CDLL) -> None:
    """Let PyTorch's table of functions say that its tensors are on a device."""
    import torch

    python, name = ctypes.pythonapi, b"dlpack_exchange_api"
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    exchange.fake_exchange.restype = ctypes.c_void_p
    exchange.fake_exchange.argtypes = [ctypes.c_void_p]
    original = python.PyCapsule_GetPointer(torch.Tensor.__dlpack_c_exchange_api__, name)
    made = python.PyCapsule_New(exchange.fake_exchange(original), name, None)
    torch.Tensor.__dlpack_c_exchange_api__ = made
    _kept.append(name)  # the capsule has its address


def tensors() -> dict[str, Any]:
    """What the statements of `CALLS` refer to."""
    import torch

    from backendcfg import ops

    ones = torch.ones
    return {
        "ops": ops,
        "fft": ops.fft,
        "empty": torch.empty,
        "empty_like": torch.empty_like,
        "c64": torch.complex64,
        "u8": torch.uint8,
        "i32": torch.int32,
        "linalg": ops.linalg,
        "m": torch.eye(16),
        "a": ones(16, 16),
        "out": ones(16, 16),
        "x": ones(8, 64),
        "q": ones(1, 8, 64, 64, dtype=torch.bfloat16),
        "z": ones(8, 64, dtype=torch.complex64),
        "h": ones(8, 33, dtype=torch.complex64),
        "i": ones(2, 4, 8, 8),
        "w": ones(4, 4, 3, 3),
        "b": ones(4),
    }


def load_any_kernel() -> None:
    """Let our own kernels be code that nobody looks into."""
    from backendcfg import _native
    from backendcfg.gpu.kernels import loading

    def loaded(driver: Any, ordinal: int, capability: Any, chosen: Any) -> Any:
        del capability
        return _native.device_kernel(driver.handle, ordinal, b"no code", chosen.name, 0)

    loading.attention = loaded


def least(statements: dict[str, str], names: dict[str, object], rounds: int) -> dict[str, float]:
    """The least seconds per execution of each statement, of many short turns.

    A turn is so short that some are not interrupted; whatever else runs here only adds.
    """
    timers = {name: timeit.Timer(source, globals=names) for name, source in statements.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            samples[name].append(timer.timeit(20) / 20)
    return {name: min(values) for name, values in samples.items()}


def main() -> int:
    """A row for each call."""
    rounds = 500 if options(__doc__).parse_args().quick else 5000
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        libraries = compiled(Path(folder))
        put_on_a_device(libraries.pop("exchange"))
        names = tensors()
        load_any_kernel()
        idle = [ctypes.c_int.in_dll(each, "fake_idle") for each in libraries.values()]
        for what, (call, theirs, kernel) in CALLS.items():
            with scope(**({"cuda.sdp_priority": (kernel,)} if kernel else {})):
                exec(call, names)  # from here on its plan is cached
                for each in idle:
                    each.value = 1
                took = least({"ours": call, "theirs": theirs or "pass"}, names, rounds)
                for each in idle:
                    each.value = 0
            beyond = max(took["ours"] - took["theirs"], 0.0)
            is_product = what.startswith("matmul")
            rows.append(
                Row(
                    f"a call of {what}",
                    nanoseconds(took["ours"]),
                    f"{nanoseconds(took['theirs'])} by PyTorch in it" if theirs else "",
                    f"{nanoseconds(beyond)} beyond",
                    f"<= {nanoseconds(OVERHEAD_TARGET)}" if is_product else "",
                    beyond <= OVERHEAD_TARGET if is_product else None,
                )
            )
    emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
