"""Who probably wrote an unwanted value to a switch, and what outranks a wanted one.

Nothing is guessed: named are a call that is known to leave such a value, a library that is loaded
and known to write it, and a limit that is in force. Measured with PyTorch 2.13 on the CPU, except
where a line says that it was read.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.bridges.environment import started_with
from backendcfg.probe import variables as table
from backendcfg.transact.switch import told

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.transact.switch import Setting

_MATMUL = "cuda.matmul.fp32_precision"
_MKLDNN = "mkldnn.matmul.fp32_precision"
_LEVELS: dict[tuple[Any, Any], str] = {
    ("ieee", "ieee"): "highest",
    ("tf32", "tf32"): "high",
    ("tf32", "bf16"): "medium",
}

# Module, what it writes, the value. All were read in the sources of the libraries, not run, except
# PyTorch's own.
_LIBRARIES = (
    ("torch._inductor.fx_passes.numeric_utils", "CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("torch.distributed.distributed_c10d", "NCCL_ALGO", "^NVLS"),
    ("pytorch_lightning", "CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("lightning.pytorch", "CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("accelerate.state", _MATMUL, "tf32"),
    ("iopaint", "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "1"),
)


def writer(setting: Setting, found: Any, by_flag: Mapping[str, Any]) -> str:
    """Who probably wrote a value, in words, or "".

    Args:
        setting: the switch and what it should hold.
        found: what it holds.
        by_flag: what every switch of the profile holds, by the flag that drives it.
    """
    return (
        told(setting.switch, "writer")
        or _limiter(setting.switch.name, found)
        or _call(setting, found, by_flag)
        or library(setting.flag, found)
    )


def library(what: str, found: Any) -> str:
    """A library of this process that is known to write this value to a flag or a variable."""
    for module, target, value in _LIBRARIES:
        if target == what and value == found and module in sys.modules:
            return f"`{module}`, which is imported here, is known to write it"
    return ""


def outranked(setting: Setting, found: Any, dormant: Collection[str]) -> str:
    """The variable, as `NAME=text`, that makes a switch's reader not do what it says, or "".

    Args:
        setting: the switch.
        found: what it reads.
        dormant: flags that no hardware here reads; nothing outranks those.
    """
    if variable := told(setting.switch, "overridden"):
        return variable
    if setting.flag in dormant:
        return ""
    # Limits are read once, when a library is loaded; what came later into this process's
    # environment may have come too late, so both are looked at.
    seen = {**environ.current(), **started_with()}
    if need := table.PRECISIONS.get(setting.flag, {}).get(found):
        # Read in NVIDIA's documentation, not run.
        said = seen.get(table.TF32_OVERRIDE, "")
        if said in ("0", "1") and said != need:
            return f"{table.TF32_OVERRIDE}={said}"
    name = setting.switch.name
    if name.startswith("openmp[") and name.endswith(".threads"):
        limit = seen.get("OMP_THREAD_LIMIT", "")
        if limit.isdecimal() and type(found) is int and int(limit) < found:
            return f"OMP_THREAD_LIMIT={limit}"
    if name.startswith("mkl[") and name.endswith("].threads"):
        domains = seen.get("MKL_DOMAIN_NUM_THREADS", "")
        return f"MKL_DOMAIN_NUM_THREADS={domains}" if domains else ""
    return ""


def _limiter(name: str, found: Any) -> str:
    """A threadpoolctl limit that is in force and set this count."""
    module = sys.modules.get("threadpoolctl")
    limiter: Any = getattr(module, "_ThreadpoolLimiter", None)
    if limiter is None or not name.endswith(".threads"):
        return ""
    import gc

    for one in gc.get_objects():
        try:
            limits = one._limits if isinstance(one, limiter) else None
        except Exception:  # objects may answer `isinstance` with anything
            continue
        if isinstance(limits, dict) and found in limits.values():
            return f"a threadpoolctl limit of {found} is alive in this process"
    return ""


def _call(setting: Setting, found: Any, by_flag: Mapping[str, Any]) -> str:
    """The PyTorch call that is known to leave this value."""
    flag, name = setting.flag, setting.switch.name
    if flag in (_MATMUL, _MKLDNN):
        pair = (by_flag.get(_MATMUL), by_flag.get(_MKLDNN))
        if (level := _LEVELS.get(pair)) is not None:
            return f'as `torch.set_float32_matmul_precision("{level}")` leaves it'
        if flag == _MATMUL and found in ("ieee", "tf32"):
            on = found == "tf32"
            return f"as `torch.backends.cuda.matmul.allow_tf32 = {on}` leaves it"
    if flag in ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision") and found == "tf32":
        return "as `torch.backends.cudnn.allow_tf32 = True` leaves it"
    if name == "torch.num_threads" or (
        name.startswith("mkl[torch") and name.endswith("local_threads")
    ):
        return f"as `torch.set_num_threads({found})` leaves it" if found else ""
    return ""
