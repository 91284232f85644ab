"""Traps of PyTorch's other switches: values that nobody checks, and setters that half succeed."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec

import pytest

PRELOADED = ("torch",)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


def refusal(settings):
    """The whole message with which backendcfg refuses settings."""
    import backendcfg

    try:
        backendcfg.apply(settings=settings)
    except backendcfg.errors.BackendCfgError as error:
        return error.render()
    return "accepted"


def attention():
    """Which attention kernels PyTorch says are allowed."""
    import torch

    cuda = torch.backends.cuda
    kernels = ("flash", "mem_efficient", "math", "cudnn")
    return {kernel: getattr(cuda, f"{kernel}_sdp_enabled")() for kernel in kernels}


# --- T1 ---------------------------------------------------------------------------------------


def bare_t01():
    import torch

    try:
        torch.backends.cuda.preferred_linalg_library("magma")
    except RuntimeError as error:
        return [str(error), torch.backends.cuda.preferred_linalg_library().name]


def held_t01():
    import torch

    import backendcfg

    settings = {"cuda.preferred_linalg_library": "magma"}
    [entry] = [
        one
        for one in backendcfg.plan(settings=settings).entries
        if one.flag == "cuda.preferred_linalg_library"
    ]
    backendcfg.apply(settings=settings)
    return [entry.value, torch.backends.cuda.preferred_linalg_library().name]


def test_t01_a_library_that_pytorch_refuses_is_not_left_as_the_preferred_one(bare, held):
    if bare("t01") is None:
        pytest.skip("hardware: this PyTorch was built with MAGMA")
    assert bare("t01") == [
        "Cannot set preferred backend to MAGMA if PyTorch has not been compiled with MAGMA.",
        "Magma",
    ]
    assert held("t01") == ["default", "Default"]


# --- T9 ---------------------------------------------------------------------------------------


def bare_t09():
    import torch

    x = torch.ones(2, 2)
    flags = torch.backends.opt_einsum
    flags.strategy = "bogus"
    try:
        torch.einsum("ij,jk,kl->il", x, x, x)
    except KeyError:
        ended = "KeyError in einsum"
    flags.strategy = "auto"
    flags.enabled = "false"
    return [ended, bool(flags.enabled)]


def held_t09():
    import torch

    refused = [
        refusal({"opt_einsum.strategy": "bogus"}),
        refusal({"opt_einsum.enabled": "false"}),
    ]
    return [refused, torch.backends.opt_einsum.strategy, torch.backends.opt_einsum.enabled]


def test_t09_a_wrong_strategy_of_einsum_is_refused_when_it_is_set(bare, held):
    assert bare("t09") == ["KeyError in einsum", True]
    assert held("t09") == [
        [
            (
                "error[invalid-value]: argument `opt_einsum.strategy` must be one of "
                '"auto", "greedy", "optimal", not the string "bogus"\n'
                "  state: nothing was changed"
            ),
            (
                "error[wrong-type]: argument `opt_einsum.enabled` must be true or false, "
                'not the string "false"\n'
                "  state: nothing was changed\n"
                "  help: write `--set opt_einsum.enabled=false`"
            ),
        ],
        "auto",
        True,
    ]


# --- T11, T12 ---------------------------------------------------------------------------------


def bare_t11():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.ERROR, SDPBackend.MATH], set_priority=True):
        return attention()


def held_t11():
    import torch

    import backendcfg

    refused = refusal({"cuda.sdp_priority": ["error", "math"]})
    backendcfg.apply(settings={"cuda.sdp_priority": ["math", "math"]})
    return [refused, attention(), torch._C._get_sdp_priority_order()]


def test_t11_what_pytorch_gets_is_an_order_of_all_its_attention_kernels(bare, held):
    # Asked for the math kernel alone: PyTorch wrote six entries into an array of five.
    assert bare("t11")["flash"] is True
    assert bare("t11")["math"] is False
    refused, allowed, order = held("t11")
    assert refused == (
        "error[invalid-value]: argument `cuda.sdp_priority` must be an array of "
        '"flash", "efficient", "math", "cudnn" and "overrideable", not the array '
        '["error", "math"]\n'
        "  state: nothing was changed"
    )
    assert set(allowed.values()) == {True}
    assert order == [0, 1, 2, 3, 4]


def bare_t12():
    """The kernel that computes when the math kernel is to be tried first."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    called = []

    class Listen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function.__name__)
            return function(*args, **(kwargs or {}))

    query = torch.ones(1, 1, 8, 8)
    order = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    with sdpa_kernel(order, set_priority=True), Listen():
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    return [name for name in called if "attention" in name]


def held_t12():
    import numpy as np

    import backendcfg
    from backendcfg import ops
    from backendcfg.ops import serving

    served = []
    query = np.ones((1, 1, 8, 8), np.float32)
    for order in (["math", "flash"], ["efficient"], ["flash"]):
        backendcfg.apply(settings={"cuda.sdp_priority": order})
        before = serving.counted()
        ops.scaled_dot_product_attention(query, query, query)
        served += [key[1] for key, n in serving.counted().items() if n != before.get(key)]
    return served


def test_t12_an_order_of_attention_kernels_that_a_cpu_ignores_is_obeyed_by_ours(bare, held):
    assert bare("t12") == ["_scaled_dot_product_flash_attention_for_cpu.default"]
    assert held("t12") == ["math", "efficient", "flash"]


# --- T16 --------------------------------------------------------------------------------------


def bare_t16():
    import torch

    with torch.backends.cudnn.flags(deterministic=True):
        return torch.backends.cudnn.enabled


def held_t16():
    import torch

    import backendcfg
    from backendcfg.backends import cudnn

    with cudnn.flags(deterministic=True):
        ours = [torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic]
    backendcfg.apply(settings={"cudnn.deterministic": True})
    return [ours, [torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic]]


def test_t16_asking_cudnn_for_determinism_does_not_switch_it_off(bare, held):
    assert bare("t16") is False
    assert held("t16") == [[True, True], [True, True]]


# --- T40 --------------------------------------------------------------------------------------


def bare_t40():
    import torch
    from torch.nn.attention import sdpa_kernel

    backends = torch.backends
    backends.cudnn.benchmrk = True
    backends.cudnn.benchmark_limit = "many"
    backends.cuda.preferred_blas_library("ck")
    backends.mha.set_fastpath_enabled("no")
    with sdpa_kernel(["flash"]):
        allowed = attention()
    return {
        "typo": backends.cudnn.benchmrk,
        "limit": backends.cudnn.benchmark_limit,
        "library": backends.cuda.preferred_blas_library().name,
        "fast path": backends.mha.get_fastpath_enabled(),
        "attention": allowed,
    }


def held_t40():
    import backendcfg
    from backendcfg.backends import cudnn

    refused = [
        refusal({"cudnn.benchmrk": True}),
        refusal({"cudnn.benchmark_limit": "many"}),
        refusal({"cudnn.benchmark_limit": -1}),
        refusal({"mha.fastpath_enabled": "no"}),
        refusal({"cuda.sdp_priority": [1]}),
    ]
    try:
        cudnn.benchmrk = True
    except AttributeError as error:
        refused.append(str(error))
    # The Composable Kernel library is AMD's.
    plan = backendcfg.plan(settings={"cuda.preferred_blas_library": "ck"})
    values = {entry.flag: entry.value for entry in plan.entries}
    return [*refused, values["cuda.preferred_blas_library"]]


def test_t40_names_and_values_that_do_not_exist_are_refused(bare, held):
    assert bare("t40") == {
        "typo": True,
        "limit": "many",
        "library": "Ck",
        "fast path": "no",
        "attention": {"flash": False, "mem_efficient": False, "math": False, "cudnn": False},
    }
    assert held("t40") == [
        (
            "error[unknown-flag]: there is no flag `cudnn.benchmrk`\n"
            "  state: nothing was changed\n"
            "  help: did you mean `cudnn.benchmark`?"
        ),
        (
            "error[wrong-type]: argument `cudnn.benchmark_limit` must be an integer of at least "
            '0, not the string "many"\n'
            "  state: nothing was changed"
        ),
        (
            "error[invalid-value]: argument `cudnn.benchmark_limit` must be an integer of at "
            "least 0, not the integer -1\n"
            "  state: nothing was changed"
        ),
        (
            "error[wrong-type]: argument `mha.fastpath_enabled` must be true or false, not the "
            'string "no"\n'
            "  state: nothing was changed\n"
            "  help: write `--set mha.fastpath_enabled=false`"
        ),
        (
            "error[invalid-value]: argument `cuda.sdp_priority` must be an array of "
            '"flash", "efficient", "math", "cudnn" and "overrideable", not the array [1]\n'
            "  state: nothing was changed"
        ),
        "`backendcfg.backends.cudnn` has no attribute `benchmrk`",
        "default",
    ]


# --- T42 --------------------------------------------------------------------------------------


def bare_t42():
    import torch

    torch.use_deterministic_algorithms(True)
    return bool(torch.empty(1000).isnan().all())


def held_t42():
    import torch

    import backendcfg

    filled = {}
    for fill in (True, False):
        settings = {
            "determinism.algorithms": "deterministic",
            "determinism.fill_uninitialized_memory": fill,
        }
        backendcfg.apply(settings=settings)
        # Memory that was used before and does not hold NaN.
        used = torch.ones(1000)
        del used
        filled[str(fill)] = bool(torch.empty(1000).isnan().all())
    return filled


def test_t42_whether_memory_is_filled_with_nan_is_a_switch_of_its_own(bare, held):
    assert bare("t42") is True
    assert held("t42") == {"True": True, "False": False}


# --- T45 --------------------------------------------------------------------------------------

ROW = """
import ctypes, torch
from backendcfg.catalogue.cpu import is_torch
from backendcfg.probe.loaded import mapped_files
# Which row of its tables MKL takes; -1 while it does not know. Its function begins by loading that number.
library = ctypes.CDLL(next(filter(is_torch, mapped_files())))
function = ctypes.cast(library.mkl_vml_serv_cpu_detect, ctypes.c_void_p).value
code = ctypes.string_at(function, 6)
assert code[:2] == bytes([0x8B, 0x05]), code
place = function + 6 + int.from_bytes(code[2:], "little", signed=True)
row = ctypes.c_int.from_address(place)
"""
MKL_INSIDE = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform == "darwin",
    reason="PyTorch has MKL inside on x86-64 alone",
)


@MKL_INSIDE
def test_t45_mkl_knows_the_processor_before_threads_can_ask_at_once(python, backendcfg):
    status, out, err = python(f"{ROW}print(row.value); torch.ones(1).sqrt(); print(row.value)")
    assert status == 0, err
    before, after = map(int, out.split())
    assert (before, after >= 0) == (-1, True)
    shipped = (
        "reproducible",
        "reproducible-anywhere",
        "debug",
        "tf32-off",
        "fast",
        "max-throughput",
    )
    for profile in shipped:
        words = ("run", profile, "--", sys.executable, "-c", f"{ROW}print(row.value)")
        status, out, err = backendcfg(*words)
        row = 0 if profile == "reproducible-anywhere" else after  # that of every CPU
        assert (status, out.splitlines()[-1:]) == (0, [f"{row}"]), (profile, err)


@MKL_INSIDE
def test_t45_a_scope_lets_mkl_find_out_as_it_is_entered(python):
    program = f"""{ROW}
import backendcfg
print(row.value)
for again in range(2):
    with backendcfg.profile("tf32-off"):
        [read] = [one for one in backendcfg.verify().readings if one.switch == "torch.mkl_detection"]
        print(row.value >= 0, read.state, read.found)
print(backendcfg.apply(settings={{"torch.mkl_detection": "at-load"}}).outcomes[0].state)
"""
    status, out, err = python(program)
    assert (status, out) == (0, "-1\nTrue ok at-load\nTrue ok at-load\nunchanged\n"), err


@MKL_INSIDE
def test_t45_pytorch_imported_inside_a_scope_lets_mkl_find_out_too(python):
    program = f"""
import backendcfg
with backendcfg.profile("tf32-off"):
    {ROW.strip().replace(chr(10), chr(10) + "    ")}
    print(row.value >= 0)
"""
    status, out, err = python(program)
    assert (status, out) == (0, "True\n"), err
