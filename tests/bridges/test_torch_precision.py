"""PyTorch's float32 precision: six leaves, and three older switches that must stay readable."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

import pytest
from packaging.version import Version

from backendcfg.bridges.torch import precision
from backendcfg.schema.profile import defaults

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

since_2_13 = pytest.mark.skipif(
    find_spec("torch") is None or Version(version("torch")) < Version("2.13"),
    reason="PyTorch has had this since 2.13",
)

PRELUDE = """
import json, random
import torch
from backendcfg.bridges import torch as bridge
from backendcfg.bridges.torch.precision import LEAVES
from backendcfg.bridges.torch.precision_tree import tree_of
from backendcfg.schema.profile import defaults
C = torch._C
KEYS = list(LEAVES.values())
def leaves():
    return {".".join(key): C._get_fp32_precision_getter(*key) for key in KEYS}
def older():
    found = []
    for read in (lambda: torch.backends.cuda.matmul.allow_tf32,
                 lambda: torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision):
        try:
            found.append(read())
        except RuntimeError:
            found.append("raises")
    return found
def settings(values, asked=None):
    return bridge.settings({**defaults(), **values}, asked or values)
def apply(found):
    before = [s.switch.read() for s in found]
    for s in found:
        s.switch.write(s.wanted)
        assert s.switch.read() == s.wanted, s.switch.name
    return before
def undo(found, before):
    for s, value in reversed(list(zip(found, before))):
        if s.switch.reversible:
            s.switch.write(value)
            assert s.switch.read() == value, s.switch.name
"""
FRESH = [False, True, "highest"]


def test_bare_pytorch_cannot_be_read_after_a_write_of_one_leaf(answer):
    """Why a leaf has to be written together with an older switch."""
    code = (
        PRELUDE
        + """
seen = []
torch.backends.cuda.matmul.fp32_precision = "tf32"; seen.append(older())
torch.backends.cuda.matmul.fp32_precision = "none"; torch.backends.cudnn.conv.fp32_precision = "ieee"
seen.append(older())
print(json.dumps(seen))
"""
    )
    assert answer(code) == [["raises", True, "raises"], [False, "raises", "highest"]]


def test_every_leaf_reads_as_written_and_the_older_switches_follow_in_any_order(answer):
    code = (
        PRELUDE
        + """
choose = random.Random(20260101)
tree, unnamed, apart = tree_of(torch), 0, 0
for _ in range(20_000):
    key = choose.choice(KEYS)
    value = choose.choice(("none", "ieee", "tf32", "bf16")[: 3 if key[0] == "cuda" else 4])
    tree.write(key, value)
    now = leaves()
    assert tree.read(key) == now[".".join(key)] == value
    matmul, cudnn, products = older()
    assert matmul is (now["cuda.matmul"] == "tf32"), now
    if (now["cuda.conv"] == "tf32") == (now["cuda.rnn"] == "tf32"):
        assert cudnn is (now["cuda.conv"] == "tf32"), now
    else:
        apart += 1
        assert cudnn == "raises", now
    if now["cuda.matmul"] == "tf32":
        assert products == ("medium" if now["mkldnn.matmul"] == "bf16" else "high"), now
    elif now["mkldnn.matmul"] in ("none", "ieee"):
        assert products == "highest", now
    else:
        unnamed += 1
        assert products == "raises", now
print(json.dumps([unnamed > 1000, apart > 1000]))
"""
    )
    # Both kinds of state that no older switch has a name for were met.
    assert answer(code) == [True, True]


def test_no_plan_leaves_an_older_switch_that_cannot_be_read(answer):
    """All values of both leaves for products, and of both for cuDNN, from three states before."""
    code = (
        PRELUDE
        + """
import itertools
states = {
    "fresh": lambda: None,
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "off": lambda: (torch.set_float32_matmul_precision("highest"),
                    setattr(torch.backends.cudnn, "allow_tf32", False)),
}
wrong, undone, unnamed = [], [], 0
for name, prepare in states.items():
    for cuda, cpu, conv, rnn in itertools.product(
        ("none", "ieee", "tf32"), ("none", "ieee", "tf32", "bf16"), *[("none", "ieee", "tf32")] * 2
    ):
        torch.set_float32_matmul_precision("highest")
        for key in KEYS:
            C._set_fp32_precision_setter(*key, "none")
        torch.backends.cudnn.allow_tf32 = True
        prepare()
        first = (leaves(), older())
        found = settings({
            "cuda.matmul.fp32_precision": cuda, "mkldnn.matmul.fp32_precision": cpu,
            "cudnn.conv.fp32_precision": conv, "cudnn.rnn.fp32_precision": rnn,
        })
        can = [s for s in found if not getattr(s.switch, "unsupported", str)()]
        assert (len(can) < len(found)) is ((conv == "tf32") != (rnn == "tf32"))
        before = apply(can)
        if cuda != "tf32" and cpu in ("tf32", "bf16"):
            unnamed += older() == [False, older()[1], "raises"] and older()[1] != "raises"
        elif "raises" in older():
            wrong.append([name, cuda, cpu, conv, rnn, older()])
        undo(can, before)
        if (leaves(), older()) != first:
            undone.append([name, cuda, cpu, conv, rnn, first, leaves(), older()])
print(json.dumps([wrong, undone, unnamed]))
"""
    )
    silence = "import logging; logging.getLogger('backendcfg').setLevel('ERROR')\n"
    assert answer(silence + code) == [[], [], 3 * 2 * 2 * 9]


def test_what_the_older_switches_have_no_name_for_is_said_once(child):
    code = (
        PRELUDE
        + """
torch.backends.cuda.matmul.allow_tf32 = False
values = {"mkldnn.matmul.fp32_precision": "bf16", "cuda.matmul.fp32_precision": "ieee"}
for _ in range(3):
    apply(settings(values))
"""
    )
    assert child(code).stderr == (
        "torch.get_float32_matmul_precision() raises where `mkldnn.matmul.fp32_precision` is"
        ' "bf16" and `cuda.matmul.fp32_precision` is "ieee": PyTorch has no older name for that\n'
    )


@pytest.mark.skipif(find_spec("triton") is not None, reason="needs a build without CUDA")
def test_bfloat16_in_onednn_alone_takes_cudas_leaf_along_where_there_is_no_cuda(answer):
    code = (
        PRELUDE
        + """
found = settings({"mkldnn.matmul.fp32_precision": "bf16"})
before = apply(found); during = older(); undo(found, before)
print(json.dumps([[[s.switch.name, s.wanted, s.flag] for s in found], during, older()]))
"""
    )
    assert answer(code) == [
        [
            ["torch.backends.cuda.matmul.fp32_precision", "tf32", "mkldnn.matmul.fp32_precision"],
            ["torch.backends.mkldnn.matmul.fp32_precision", "bf16", "mkldnn.matmul.fp32_precision"],
        ],
        [True, True, "medium"],
        FRESH,
    ]


def test_convolutions_and_recurrent_layers_apart_are_refused_by_name_and_nothing_is_written(answer):
    code = (
        PRELUDE
        + """
found = settings({"cudnn.conv.fp32_precision": "ieee"})
print(json.dumps([[[s.switch.name, s.switch.unsupported()] for s in found], older()]))
"""
    )
    why = (
        'convolutions would be "ieee" and recurrent layers "tf32", but'
        " `torch.backends.cudnn.allow_tf32` is one switch for both: reading it and torch.export"
        " would raise; give both one value"
    )
    names = [f"torch.backends.cudnn.{part}.fp32_precision" for part in ("conv", "rnn")]
    assert answer(code) == [[[name, why] for name in names], FRESH]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "none"),
        ({"fp32_precision": "ieee"}, "ieee"),
        ({"fp32_precision": "ieee", "cudnn.fp32_precision": "tf32"}, "tf32"),
        ({"fp32_precision": "bf16"}, "none"),
        ({"fp32_precision": "tf32", "cuda.matmul.fp32_precision": "ieee"}, "ieee"),
        ({"fp32_precision": "tf32", "cuda.matmul.fp32_precision": "none"}, "tf32"),
        ({"mkldnn.fp32_precision": "bf16"}, "none"),
    ],
)
def test_a_leaf_follows_the_nearest_parent_that_somebody_set(values, expected):
    value, flag = precision.precision(
        "cuda.matmul.fp32_precision", {**defaults(), **values}, values
    )
    assert value == expected
    assert flag in {*values, "cuda.matmul.fp32_precision"}


def test_parents_of_a_profile_are_written_into_leaves_and_never_into_pytorchs_parents(answer):
    code = (
        PRELUDE
        + """
parents = lambda: [C._get_fp32_precision_getter(*key, "all") for key in (("generic",), ("cuda",), ("mkldnn",))]
seen = []
for values in ({"fp32_precision": "ieee"}, {"cudnn.fp32_precision": "tf32"},
               {"mkldnn.fp32_precision": "bf16", "fp32_precision": "tf32"}):
    found = settings(values); before = apply(found)
    seen.append([list(leaves().values()), older(), parents()])
    undo(found, before)
print(json.dumps([seen, leaves(), older()]))
"""
    )
    seen, after, readable = answer(code)
    none = ["none", "none", "none"]
    assert seen == [
        [["ieee"] * 6, [False, False, "highest"], none],
        [["tf32"] * 3 + none, [True, True, "high"], none],
        [["tf32"] * 3 + ["bf16"] * 3, [True, True, "medium"], none],
    ]
    assert list(after.values()) == ["none", "tf32", "tf32", "none", "none", "none"]
    assert readable == FRESH


@since_2_13
def test_a_parent_that_the_program_set_decides_again_after_undo(answer):
    code = (
        PRELUDE
        + """
torch.backends.fp32_precision = "ieee"
first = leaves()
found = [s for s in settings({flag: "tf32" for flag in LEAVES}) if s.switch.reversible]
before = apply(found)
during = [leaves(), older()]
undo(found, before)
after = leaves()
torch.backends.fp32_precision = "tf32"
print(json.dumps([first == after, before, during, leaves()]))
"""
    )
    same, before, during, later = answer(code)
    assert same
    assert before == ["none"] * 6
    assert list(during[0].values()) == ["tf32"] * 6
    assert during[1] == [True, True, "high"]
    # Each leaf holds nothing of its own again, so that it follows.
    assert list(later.values()) == ["tf32"] * 6


@since_2_13
def test_the_state_that_cannot_be_put_back_is_named_and_differs_only_for_who_writes_a_parent(
    answer,
):
    code = (
        PRELUDE
        + """
found = settings({"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"})
[unset] = [s for s in found if not s.switch.reversible]
before = apply(found)
undo(found, before)
visible = [leaves(), older()]
torch.backends.fp32_precision = "ieee"
again = settings({"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"})
print(json.dumps([unset.switch.name, before[-1], unset.wanted, unset.switch.read(), visible[1],
                  leaves()["cuda.conv"]]))
"""
    )
    assert answer(code) == [
        "torch.backends.cudnn.fp32_precision_unset",
        True,
        False,
        False,
        FRESH,
        "tf32",
    ]


def test_where_cuda_is_in_use_nobody_probes_what_cannot_be_put_back(answer):
    code = (
        PRELUDE
        + """
values = {"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"}
[unset] = [s.switch for s in settings(values) if not s.switch.reversible]
torch.cuda.is_initialized = lambda: True
try:
    said = unset.read()
except RuntimeError as error:
    said = str(error)
print(json.dumps([said, leaves()["cuda.conv"], C._get_fp32_precision_getter("cuda", "all")]))
"""
    )
    assert answer(code) == [
        "CUDA is in use, and asking changes the precision for a moment",
        "tf32",
        "none",
    ]


def test_older_switches_that_the_program_had_made_unreadable_can_be_read_under_a_profile(answer):
    code = (
        PRELUDE
        + """
torch.backends.cudnn.conv.fp32_precision = "ieee"
torch.backends.cudnn.rnn.fp32_precision = "ieee"
first = older()
found = settings({"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"})
changed = [s.switch.name for s in found if s.switch.read() != s.wanted]
apply([s for s in found if s.switch.name in changed])
print(json.dumps([first, changed, older(), leaves()["cuda.conv"]]))
"""
    )
    assert answer(code) == [
        [False, "raises", "highest"],
        ["torch.backends.older_precision_switches_readable"],
        [False, False, "highest"],
        "ieee",
    ]


@since_2_13
def test_what_export_writes_over_a_leaf_is_named(answer):
    code = (
        PRELUDE
        + """
found = settings({"cudnn.conv.fp32_precision": "ieee", "cudnn.rnn.fp32_precision": "ieee"})
apply(found)
torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
conv = found[0].switch
print(json.dumps([conv.read(), conv.writer(), older()]))
"""
    )
    assert answer(code) == [
        "none",
        "torch.export or torch.backends.cudnn.flags(), which put `allow_tf32` back",
        [False, False, "highest"],
    ]
