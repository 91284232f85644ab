"""`ops.conv2d`, `ops.einsum` and `ops.fft` against PyTorch, NumPy and SciPy.

    python benchmarks/transforms.py [--quick] [--threads N]

All in one process with PyTorch, on one thread unless told: its pool and OpenBLAS's would wake each
other at every turn, which is nobody's speed.
"""

from __future__ import annotations

import sys
from typing import Any

from measure import Row, emit, nanoseconds, options, side_by_side

CONVOLUTIONS = (
    # batch, channels, size, outputs, kernel, stride, padding, groups
    (1, 64, 56, 64, 3, 1, 1, 1),
    (8, 128, 28, 128, 3, 1, 1, 1),
    (8, 128, 28, 128, 3, 2, 1, 1),
    (1, 3, 224, 64, 7, 2, 3, 1),
    (1, 512, 7, 512, 3, 1, 1, 1),
    (1, 64, 56, 256, 1, 1, 0, 1),
    (1, 144, 56, 144, 3, 1, 1, 144),
    (4, 144, 28, 144, 3, 2, 1, 144),
    (1, 1, 28, 8, 3, 1, 0, 1),
)
EINSUMS = (
    ("ij,jk->ik", (256, 256), (256, 256)),
    ("bij,bjk->bik", (64, 32, 32), (64, 32, 32)),
    ("bhid,bhjd->bhij", (4, 8, 128, 64), (4, 8, 128, 64)),
    ("ij,jk,kl->il", (300, 8), (8, 300), (300, 8)),
    ("bi,bi->b", (1000, 64), (1000, 64)),
    ("i,j->ij", (500,), (500,)),
)
TRANSFORMS = (("fft", (1024,)), ("fft", (64, 1024)), ("rfft", (64, 1000)), ("fft2", (8, 128, 128)))


def row(what: str, took: dict[str, float]) -> Row:
    """Ours beside the fastest peer; the others in words."""
    ours = took.pop("ours")
    best = min(took, key=lambda name: took[name])
    theirs = ", ".join(f"{nanoseconds(seconds)} by {name}" for name, seconds in took.items())
    return Row(what, nanoseconds(ours), theirs, f"{took[best] / ours:.2f} of {best}'s speed")


def convolutions(torch: Any, rounds: int) -> list[Row]:
    """float32, with a bias."""
    import numpy as np

    from backendcfg import ops

    random, rows = np.random.default_rng(0), []
    for batch, channels, size, outputs, kernel, stride, padding, groups in CONVOLUTIONS:
        x = random.standard_normal((batch, channels, size, size), np.float32)
        w = random.standard_normal((outputs, channels // groups, kernel, kernel), np.float32)
        b = random.standard_normal(outputs, np.float32)
        names = {"ours": ops.conv2d, "x": x, "w": w, "b": b, "how": (stride, padding, 1, groups)}
        names.update(torch=torch.nn.functional.conv2d, X=torch.from_numpy(x))
        names.update(W=torch.from_numpy(w), B=torch.from_numpy(b))
        statements = {"ours": "ours(x, w, b, *how)", "torch": "torch(X, W, B, *how)"}
        with torch.inference_mode():
            took = side_by_side(statements, names, rounds=rounds)
        depthwise = ", depthwise" if groups > 1 else ""
        what = f"conv2d {x.shape} by {outputs} of {kernel} x {kernel}, stride {stride}{depthwise}"
        rows.append(row(what, took))
    return rows


def einsums(torch: Any, rounds: int) -> list[Row]:
    """float32."""
    import numpy as np

    from backendcfg import ops

    random, rows = np.random.default_rng(0), []
    for equation, *shapes in EINSUMS:
        arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
        names = {"e": equation, "a": arrays, "t": [torch.from_numpy(x) for x in arrays]}
        names.update(ours=ops.einsum, torch=torch.einsum, numpy=np.einsum)
        statements = {
            "ours": "ours(e, *a)",
            "torch": "torch(e, *t)",
            "numpy": "numpy(e, *a, optimize=True)",
        }
        with torch.inference_mode():
            took = side_by_side(statements, names, rounds=rounds)
        rows.append(row(f"einsum {equation} of {', '.join(map(str, shapes))}", took))
    return rows


def transforms(torch: Any, rounds: int) -> list[Row]:
    """float32 or complex64."""
    import numpy as np
    import scipy.fft

    from backendcfg import ops

    random, rows = np.random.default_rng(0), []
    for name, shape in TRANSFORMS:
        x = random.standard_normal(shape, np.float32)
        if not name.startswith("r"):
            x = x.astype(np.complex64)
        names = {"x": x, "t": torch.from_numpy(x), "ours": getattr(ops.fft, name)}
        names.update(torch=getattr(torch.fft, name), scipy=getattr(scipy.fft, name))
        statements = {"ours": "ours(x)", "torch": "torch(t)", "scipy": "scipy(x)"}
        with torch.inference_mode():
            took = side_by_side(statements, names, rounds=rounds)
        rows.append(row(f"{name} of {x.dtype} {shape}", took))
    return rows


def main() -> int:
    """All rows."""
    parser = options(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    import threadpoolctl
    import torch

    torch.set_num_threads(asked.threads)
    rounds = 5 if asked.quick else 15
    with threadpoolctl.threadpool_limits(asked.threads):
        rows = convolutions(torch, rounds) + einsums(torch, rounds) + transforms(torch, rounds)
    emit(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
