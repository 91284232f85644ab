"""What entering and leaving a scope costs, against the context managers that people use now.

    python benchmarks/scopes.py shipped|bare|jax|torch [--quick]

`shipped`: NumPy, SciPy, PyTorch and JAX are in the process, and the profiles that ship are entered
and left, beside code that sets the same switches by hand. `bare`: the same with nothing loaded.
`jax`: NumPy, JAX and threadpoolctl are in the process, and our profile sets what only our own
operations read. `torch`: PyTorch is in the process, and our profile changes its switches.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from pathlib import Path

from measure import Row, emit, nanoseconds, options, side_by_side

NATIVE = "schema = 1\n[ops]\ncheck_finite = true\n"
ONE_THREAD = "schema = 1\n[threads]\ncount = 1\n"
DETERMINISTIC = 'schema = 1\n[determinism]\nalgorithms = "deterministic"\n'
TF32_OFF = """
before = products.fp32_precision
with (
    cudnn.flags(enabled=True, allow_tf32=False),
    mkldnn.flags(enabled=True, allow_tf32=False, fp32_precision="none"),
):
    products.fp32_precision = "ieee"
products.fp32_precision = before
"""
"""What `tf32-off` sets of PyTorch, with what PyTorch has for it: it does nothing for exceptions."""


SHIPPED = ("fast", "tf32-off", "reproducible", "max-throughput", "debug")


def rows_shipped(*, quick: bool) -> list[Row]:
    """Each shipped profile against the same by hand, and where all that it wants is so already."""
    import jax
    import scipy.linalg  # noqa: F401 - brings its OpenBLAS
    from by_hand import by_hand
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import backendcfg
    from backendcfg.registry.entering import holdings

    jax.numpy.zeros(1)
    warnings.simplefilter("ignore")
    rows = []
    for name in SHIPPED:
        ours = backendcfg.profile(name)
        settings = ours.prepared.switches()
        before = {each.switch.name: each.switch.read() for each in settings}
        with ours:
            wanted = {each.switch: each.now for each in holdings()}
        hand = by_hand(wanted)
        names = {"ours": ours, "hand": hand, "sdpa_kernel": sdpa_kernel, "MATH": SDPBackend.MATH}
        statements = {
            "ours": "with ours: pass",
            "hand": "with hand: pass",
            "sdpa": "with sdpa_kernel(MATH): pass",
        }
        rounds = 9 if quick else 41
        took = side_by_side(statements, names, rounds=rounds, timer=time.thread_time)
        for setting in settings:
            setting.switch.write(setting.wanted)
        held = side_by_side(
            {"ours": "with ours: pass"}, names, rounds=rounds, timer=time.thread_time
        )["ours"]
        for setting in reversed(settings):
            setting.switch.write(before[setting.switch.name])
        title = f"`{name}`, {len(wanted)} switches"
        rows += [
            _against(title, took["ours"], "the same by hand", took["hand"], 1.0),
            _against(f"{title}", took["ours"], "`sdpa_kernel`, 4 switches", took["sdpa"]),
            Row(
                f"{title}, which all hold what it wants",
                nanoseconds(held),
                target="<= 10 us",
                met=held <= 10e-6,
            ),
        ]
    return rows


def rows_bare(*, quick: bool) -> list[Row]:
    """Each shipped profile where no library is loaded."""
    import backendcfg

    names = {name: backendcfg.profile(name) for name in SHIPPED}
    took = side_by_side(
        {name: f"with scopes[{name!r}]: pass" for name in SHIPPED},
        {"scopes": names},
        rounds=9 if quick else 41,
        timer=time.thread_time,
    )
    return [
        Row(
            f"`{name}`, nothing loaded",
            nanoseconds(took[name]),
            target="<= 1 us",
            met=took[name] <= 1e-6,
        )
        for name in SHIPPED
    ]


def rows_jax(*, quick: bool) -> list[Row]:
    """Scopes that set nothing in anybody's library, and thread limits."""
    import jax
    import numpy as np
    import threadpoolctl

    import backendcfg

    names = {
        "profile": backendcfg.profile,
        "reused": backendcfg.profile("native"),
        "default_matmul_precision": jax.default_matmul_precision,
        "errstate": np.errstate,
        "threadpool_limits": threadpoolctl.threadpool_limits,
        "controller": threadpoolctl.ThreadpoolController(),
    }
    statements = {
        "ours": 'with profile("native"): pass',
        "reused": "with reused: pass",
        "jax": 'with default_matmul_precision("float32"): pass',
        "errstate": 'with errstate(all="ignore"): pass',
        "threads": 'with profile("one-thread"): pass',
        "limits": "with threadpool_limits(1): pass",
        "controller": "with controller.limit(limits=1): pass",
    }
    took = side_by_side(statements, names, rounds=9 if quick else 41)
    ours, threads = took["ours"], took["threads"]
    return [
        Row(
            "`with profile(...)`, no foreign switch to set",
            nanoseconds(ours),
            target="<= 270 ns",
            met=ours <= 270e-9,
        ),
        Row("the same, one scope object entered again", nanoseconds(took["reused"])),
        _against("the same", ours, "`jax.default_matmul_precision`", took["jax"], 0.6),
        _against("the same", ours, "`np.errstate`", took["errstate"]),
        _against(
            "`with profile(...)`, other thread count",
            threads,
            "`threadpool_limits(1)`",
            took["limits"],
        ),
        _against("the same", threads, "`ThreadpoolController.limit`, kept", took["controller"]),
    ]


def rows_torch(*, quick: bool) -> list[Row]:
    """Scopes that change switches of PyTorch: one, and groups of them that PyTorch has scopes for.

    PyTorch's own are told the same values for the same switches.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import backendcfg

    # It warns of TF32 in oneDNN on any machine without Intel's GPUs, whichever value it is told.
    warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN", UserWarning)
    backends = backendcfg.backends
    names = {
        "profile": backendcfg.profile,
        "sdpa_kernel": sdpa_kernel,
        "MATH": SDPBackend.MATH,
        "our_sdpa_kernel": backends.cuda.sdpa_kernel,
        "OUR_MATH": backends.cuda.SDPBackend.MATH,
        "cudnn": torch.backends.cudnn,
        "our_cudnn": backends.cudnn,
        "mkldnn": torch.backends.mkldnn,
        "products": torch.backends.cuda.matmul,
        "no_grad": torch.no_grad,
    }
    flags = "flags(enabled=True, benchmark=True, benchmark_limit=5, deterministic=True)"
    statements = {
        "native": 'with profile("native"): pass',
        "ours": 'with profile("deterministic"): pass',
        "sdpa": "with sdpa_kernel(MATH): pass",
        "our sdpa": "with our_sdpa_kernel(OUR_MATH): pass",
        "cudnn": f"with cudnn.{flags}: pass",
        "our cudnn": f"with our_cudnn.{flags}: pass",
        "tf32": TF32_OFF,
        "our tf32": 'with profile("tf32-off"): pass',
        "no_grad": "with no_grad(): pass",
    }
    took = side_by_side(statements, names, rounds=9 if quick else 41)
    what = "`with profile(...)`, PyTorch loaded and its switch differs"
    sdpa, cudnn = "`torch.nn.attention.sdpa_kernel`", "`torch.backends.cudnn.flags`"
    return [
        _against(what, took["ours"], sdpa, took["sdpa"], 0.5),
        _against("the same", took["ours"], cudnn, took["cudnn"]),
        _against(
            "`backendcfg.backends.cuda.sdpa_kernel`, 4 switches",
            took["our sdpa"],
            sdpa,
            took["sdpa"],
            0.5,
        ),
        _against(
            "`backendcfg.backends.cudnn.flags`, 4 switches",
            took["our cudnn"],
            sdpa,
            took["sdpa"],
            0.5,
        ),
        _against("the same", took["our cudnn"], cudnn, took["cudnn"]),
        _against(
            '`with profile("tf32-off")`, 6 switches; for each of their 3 groups',
            took["our tf32"] / 3,
            sdpa,
            took["sdpa"],
            0.5,
        ),
        _against(
            "the same, all groups",
            took["our tf32"],
            "`cudnn.flags`, `mkldnn.flags` and `cuda.matmul` by hand",
            took["tf32"],
        ),
        _against(
            "`with profile(...)`, PyTorch loaded, nothing differs",
            took["native"],
            "`torch.no_grad`",
            took["no_grad"],
        ),
    ]


def _against(what: str, ours: float, peer: str, theirs: float, limit: float | None = None) -> Row:
    return Row(
        what,
        nanoseconds(ours),
        f"{peer} {nanoseconds(theirs)}",
        f"{ours / theirs:.2f}",
        f"<= {limit}" if limit else "",
        ours <= limit * theirs if limit else None,
    )


def main(group: str, *, quick: bool) -> None:
    """Measure one group, with three small profiles of our own."""
    with tempfile.TemporaryDirectory() as scratch:
        profiles = Path(scratch) / "config" / "profiles"
        profiles.mkdir(parents=True)
        (profiles / "native.toml").write_text(NATIVE)
        (profiles / "one-thread.toml").write_text(ONE_THREAD)
        (profiles / "deterministic.toml").write_text(DETERMINISTIC)
        for kind in ("config", "system", "state", "cache"):
            os.environ[f"BACKENDCFG_{kind.upper()}_DIR"] = str(Path(scratch) / kind)
        emit(GROUPS[group](quick=quick))


GROUPS = {"shipped": rows_shipped, "bare": rows_bare, "jax": rows_jax, "torch": rows_torch}


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("group", choices=GROUPS)
    asked = parser.parse_args()
    main(asked.group, quick=asked.quick)
