"""Traps of PyTorch's float32 precision: two APIs, a tree of inherited values, a hidden default."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

PRELOADED = ("torch",)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

NODES = (
    "fp32_precision",
    "cudnn.fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
)


def tree():
    """What PyTorch's getters say of every node."""
    from operator import attrgetter

    import torch

    return {name: attrgetter(name)(torch.backends) for name in NODES}


def changed(before):
    return {name: value for name, value in tree().items() if value != before[name]}


def exported():
    """How torch.export of a convolution ends."""
    import torch

    try:
        torch.export.export(torch.nn.Conv2d(1, 1, 3), (torch.zeros(1, 1, 4, 4),))
    except RuntimeError as error:
        return str(error).partition(",")[0]
    return "exported"


def compiled():
    import torch

    torch.compile(lambda x: x @ x, backend="eager")(torch.ones(2, 2))


# --- T2 ---------------------------------------------------------------------------------------


def bare_t02():
    import torch

    before = tree()
    torch.backends.mkldnn.fp32_precision = "bf16"
    return changed(before)


def held_t02():
    import backendcfg

    before = tree()
    backendcfg.apply(settings={"mkldnn.fp32_precision": "bf16"})
    return changed(before)


def test_t02_the_precision_of_onednn_leaves_cudnn_alone(bare, held):
    of_onednn = {name: "bf16" for name in NODES if name.startswith("mkldnn")}
    assert bare("t02") == {
        **of_onednn,
        "fp32_precision": "bf16",
        "cudnn.conv.fp32_precision": "none",
        "cudnn.rnn.fp32_precision": "none",
    }
    assert held("t02") == {
        **{name: "bf16" for name in of_onednn if name.count(".") == 2},
        # Nothing reads this leaf without CUDA, and get_float32_matmul_precision() raises where
        # oneDNN's has bfloat16 and this one is not TF32.
        "cuda.matmul.fp32_precision": "tf32",
    }


# --- T3 ---------------------------------------------------------------------------------------


def _conv_under_ieee():
    import torch

    torch.backends.fp32_precision = "ieee"
    found = torch.backends.cudnn.conv.fp32_precision
    torch.backends.fp32_precision = "none"
    return found


def bare_t03():
    import torch

    fresh = _conv_under_ieee()
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        pass
    return [fresh, _conv_under_ieee()]


def held_t03():
    import backendcfg

    fresh = _conv_under_ieee()
    backendcfg.apply(settings={"cudnn.deterministic": True})
    during = _conv_under_ieee()
    backendcfg.undo()
    return [fresh, during, _conv_under_ieee()]


def test_t03_a_switch_of_cudnn_does_not_fix_the_precision_of_its_convolutions(bare, held):
    # The second time, torch.backends.fp32_precision no longer reaches the convolutions.
    assert bare("t03") == ["ieee", "tf32"]
    assert held("t03") == ["ieee", "ieee", "ieee"]


# --- T4 ---------------------------------------------------------------------------------------


def bare_t04():
    import torch

    torch.backends.cudnn.conv.fp32_precision = "ieee"
    return exported()


def held_t04():
    import backendcfg

    report = backendcfg.apply(settings={"cudnn.conv.fp32_precision": "ieee"})
    alone = [repr(report), exported()]
    both = {"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"}
    backendcfg.apply(settings=both)
    return [alone, exported()]


def test_t04_convolutions_in_full_precision_can_be_exported(bare, held):
    assert bare("t04") == (
        "PyTorch is checking whether allow_tf32 is enabled for cuDNN without a specific operator "
        "name"
    )
    alone, both = held("t04")
    assert alone == [
        (
            "default (no tier): 1 unsupported, 1 unchanged, 1 dormant\n"
            "  unsupported torch.backends.cudnn.conv.fp32_precision: convolutions would be "
            '"ieee" and recurrent layers "tf32", but `torch.backends.cudnn.allow_tf32` is one '
            "switch for both: reading it and torch.export would raise; give both one value"
        ),
        "exported",
    ]
    assert both == "exported"


# --- T5 ---------------------------------------------------------------------------------------


def bare_t05():
    import torch

    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    before = tree()
    exported()
    return changed(before)


def held_t05():
    import backendcfg

    backendcfg.apply("tf32-off")
    before = tree()
    ended = exported()
    found = {
        one.switch: [one.wanted, one.found, one.because]
        for one in backendcfg.verify().readings
        if one.state == "differs"
    }
    backendcfg.apply("tf32-off")
    return [ended, changed(before), found]


def test_t05_what_export_drops_is_named_and_apply_puts_it_back(bare, held):
    assert bare("t05") == {
        "cudnn.conv.fp32_precision": "none",
        "cudnn.rnn.fp32_precision": "none",
    }
    ended, afterwards, found = held("t05")
    assert ended == "exported"
    dropped = [
        "ieee",
        "none",
        "torch.export or torch.backends.cudnn.flags(), which put `allow_tf32` back",
    ]
    assert found == {
        "torch.backends.cudnn.conv.fp32_precision": dropped,
        "torch.backends.cudnn.rnn.fp32_precision": dropped,
    }
    assert afterwards == {}


# --- T6 ---------------------------------------------------------------------------------------


def bare_t06():
    import torch

    torch.backends.fp32_precision = "tf32"
    compiled()
    torch.backends.fp32_precision = "ieee"
    return torch.backends.cuda.matmul.fp32_precision


def held_t06():
    import torch

    import backendcfg

    backendcfg.apply(settings={"fp32_precision": "tf32"})
    compiled()
    backendcfg.apply(settings={"fp32_precision": "ieee"})
    return torch.backends.cuda.matmul.fp32_precision


def test_t06_a_compilation_does_not_pin_the_precision_of_products(bare, held):
    assert bare("t06") == "tf32"
    assert held("t06") == "ieee"


# --- T10 --------------------------------------------------------------------------------------


def bare_t10():
    import warnings

    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_float32_matmul_precision("HIGH")
    return [torch.get_float32_matmul_precision(), len(caught)]


def held_t10():
    import backendcfg

    before = tree()
    try:
        backendcfg.apply(settings={"cuda.matmul.fp32_precision": "TF32"})
    except backendcfg.errors.InvalidValueError as error:
        return [error.render(), changed(before)]


def test_t10_a_precision_in_capitals_is_refused(bare, held):
    # A warning, and the old value.
    assert bare("t10") == ["highest", 1]
    assert held("t10") == [
        (
            "error[invalid-value]: argument `cuda.matmul.fp32_precision` must be one of "
            '"none", "ieee", "tf32", not the string "TF32"\n'
            "  state: nothing was changed\n"
            "  help: write `--set cuda.matmul.fp32_precision=tf32`"
        ),
        {},
    ]


# --- T24 --------------------------------------------------------------------------------------


def bare_t24():
    import torch

    return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]


def held_t24():
    import torch

    import backendcfg

    flags = [
        [backendcfg.flags.cuda.matmul.allow_tf32, backendcfg.flags.cudnn.allow_tf32],
    ]
    backendcfg.apply("tf32-off")
    flags.append([backendcfg.flags.cuda.matmul.allow_tf32, backendcfg.flags.cudnn.allow_tf32])
    return [*flags, [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]]


def test_t24_tf32_of_products_and_of_convolutions_are_shown_and_switched_off_together(bare, held):
    assert bare("t24") == [False, True]
    assert held("t24") == [[False, True], [False, False], [False, False]]
