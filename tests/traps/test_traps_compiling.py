"""Traps of torch.compile: switches that it copies, forgets, or does not look at again."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

PRELOADED = ("torch", "torch._inductor.config", "torch._dynamo")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

DETERMINISTIC = {"determinism.algorithms": "deterministic"}


def in_a_thread(function):
    """What a function returns in a thread that starts now."""
    import threading

    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def inductor():
    import torch._inductor.config

    return torch._inductor.config.deterministic


# --- T7, T8, T14 ------------------------------------------------------------------------------


def _compile():
    import torch

    torch.compile(lambda x: x + 1, backend="inductor")(torch.ones(3))


def bare_t07():
    import torch._inductor.config

    torch._inductor.config.deterministic = True
    before = inductor()
    _compile()
    return [before, inductor()]


def held_t07():
    import backendcfg

    backendcfg.apply(settings=DETERMINISTIC)
    before = inductor()
    _compile()
    return [before, inductor()]


def test_t07_the_first_compilation_keeps_the_compilers_determinism(bare, held):
    assert bare("t07") == [True, False]
    assert held("t07") == [True, True]


def bare_t08():
    import torch

    torch.use_deterministic_algorithms(True)
    return [inductor(), in_a_thread(inductor)]


def held_t08():
    import backendcfg

    backendcfg.apply(settings=DETERMINISTIC)
    return [inductor(), in_a_thread(inductor)]


def test_t08_a_thread_that_starts_later_compiles_deterministically_too(bare, held):
    assert bare("t08") == [True, False]
    assert held("t08") == [True, True]


def bare_t14():
    import torch

    torch.set_deterministic_debug_mode("error")
    return [torch.are_deterministic_algorithms_enabled(), inductor()]


def held_t14():
    import torch

    import backendcfg

    backendcfg.apply(settings=DETERMINISTIC)
    return [torch.are_deterministic_algorithms_enabled(), inductor()]


def test_t14_kernels_and_compiler_are_deterministic_together(bare, held):
    assert bare("t14") == [True, False]
    assert held("t14") == [True, True]


# --- T17 --------------------------------------------------------------------------------------


def _counting():
    """A compiled function, and the list that grows whenever it is compiled."""
    import torch

    compilations = []

    def backend(graph, inputs):
        compilations.append(graph)
        return graph.forward

    function = torch.compile(lambda x: x @ x, backend=backend)
    function(torch.ones(4, 4))
    return function, compilations


def bare_t17():
    import torch

    function, compilations = _counting()
    torch.backends.mkldnn.enabled = False
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.enable_math_sdp(False)
    function(torch.ones(4, 4))
    return len(compilations)


def held_t17():
    import logging

    import torch

    import backendcfg

    said = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("backendcfg").addHandler(listener)
    function, compilations = _counting()
    backendcfg.apply(settings={"determinism.algorithms": "deterministic"})
    function(torch.ones(4, 4))
    seen = [len(compilations), [*said]]
    backendcfg.apply(settings={"mkldnn.enabled": False, "cudnn.benchmark": True})
    function(torch.ones(4, 4))
    return [*seen, len(compilations), said]


def test_t17_what_code_compiled_before_apply_does_not_see_is_named(bare, held):
    assert bare("t17") == 1
    # PyTorch compiles again where it looks; where it does not look, it is said.
    assert held("t17") == [
        2,
        [],
        2,
        [
            (
                "functions that torch.compile compiled before keep what they were compiled with: "
                "cudnn.benchmark, mkldnn.enabled; torch._dynamo.reset() makes it compile them anew"
            )
        ],
    ]


# --- T21 --------------------------------------------------------------------------------------

NAME, WRITER = "CUBLAS_WORKSPACE_CONFIG", "torch._inductor.fx_passes.numeric_utils"


def bare_t21():
    import os

    before = os.environ.get(NAME)
    importlib.import_module(WRITER)
    return [before, os.environ.get(NAME)]


def held_t21():
    import backendcfg

    with pytest.raises(backendcfg.errors.BackendCfgError) as caught, backendcfg.guard():
        importlib.import_module(WRITER)
    return caught.value.render()


def test_t21_an_import_that_writes_a_variable_is_named(bare, held):
    assert bare("t21") == [None, ":4096:8"]
    assert held("t21") == (
        "error[switch-left-changed]: the block left `CUBLAS_WORKSPACE_CONFIG` changed\n"
        "  note: `CUBLAS_WORKSPACE_CONFIG` was unset and is :4096:8\n"
        "  state: the switches are as they were left\n"
        "  help: set it for a block only, `with backendcfg.profile(...)`, or put it back after use"
    )


# --- T43 --------------------------------------------------------------------------------------


def bare_t43():
    import torch

    def function(x):
        torch.use_deterministic_algorithms(True)
        return x.clone() + 1

    plain = function(torch.ones(2)), torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    torch.compile(function, backend="aot_eager")(torch.ones(2))
    return [plain[1], torch.are_deterministic_algorithms_enabled()]


def held_t43():
    import torch

    import backendcfg

    seen = []

    def function(x):
        with backendcfg.profile("reproducible"):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return x.clone() + 1

    function(torch.ones(2))
    torch.compile(function, backend="aot_eager")(torch.ones(2))
    return [seen, torch.are_deterministic_algorithms_enabled()]


def test_t43_a_profile_inside_a_compiled_function_is_in_force_there(bare, held):
    # The compiled function forgets to set the switch.
    assert bare("t43") == [True, False]
    assert held("t43") == [[True, True], False]
