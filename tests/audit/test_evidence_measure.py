"""`verify --measure`: the precision that libraries compute with, beside the one that is granted."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from backendcfg.audit.evidence import measure
from backendcfg.audit.evidence.operations import Operation, granted, operations
from backendcfg.audit.evidence.probes import Precision
from backendcfg.defaults import DEFAULTS

PRODUCT = Operation("mm", "cuda:0", "float32", "product", None, ("cuda.matmul.fp32_precision",))
WHOLE = Precision("float32", 23, 23, emulated=False, subnormals=True)
SUMS = "cuda.matmul.allow_fp16_reduced_precision_reduction"
HALF = Operation("mm", "cuda:0", "float16", "product", None, (), (SUMS,))
OF_HALF = replace(WHOLE, dtype="float16", operands=10)


def judged(operation, found, monkeypatch, **flags):
    """The state of an operation that is found to compute so, under these flags."""
    monkeypatch.setattr(measure, "operations", lambda: [operation])
    monkeypatch.setattr(measure, "probe_precision", lambda *_, **__: found)
    asked = {name.replace("__", "."): value for name, value in flags.items()}
    [one] = measure.measure({**DEFAULTS, **asked}, tuple(asked))
    return one.state, one.granted, one.because


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        ("ieee", 23, ("ok", 23, "")),
        ("ieee", 10, ("differs", 23, "its operands keep 10 bits, 23 are granted")),
        ("tf32", 10, ("ok", 10, "")),
        ("tf32", 7, ("differs", 10, "its operands keep 7 bits, 10 are granted")),
        ("tf32", 11, ("ok", 10, "")),
        (
            "tf32",
            23,
            ("granted, not taken", 10, "`cuda.matmul.fp32_precision` grants 10 bits"),
        ),
    ],
)
def test_operands_are_held_against_the_flag_that_governs_them(value, bits, expected, monkeypatch):
    found = replace(WHOLE, operands=bits)
    assert judged(PRODUCT, found, monkeypatch, cuda__matmul__fp32_precision=value) == expected


def test_a_parent_of_the_precision_tree_grants_what_its_leaves_do_not_say(monkeypatch):
    found = replace(WHOLE, operands=10)
    assert judged(PRODUCT, found, monkeypatch, fp32_precision="tf32")[:2] == ("ok", 10)
    flags = {"fp32_precision": "tf32", "cuda__matmul__fp32_precision": "ieee"}
    assert judged(PRODUCT, found, monkeypatch, **flags)[0] == "differs"


def test_what_nobody_set_is_held_against_the_library_as_it_starts(monkeypatch):
    assert judged(PRODUCT, replace(WHOLE, operands=10), monkeypatch)[0] == "differs"
    convolution = replace(PRODUCT, flags=("cudnn.conv.fp32_precision",))
    assert judged(convolution, replace(WHOLE, operands=10), monkeypatch)[:2] == ("ok", 10)


def test_products_of_parts_need_a_flag_that_grants_less(monkeypatch):
    found = replace(WHOLE, emulated=True)
    assert judged(PRODUCT, found, monkeypatch) == (
        "differs",
        23,
        "its operands are split in parts, and not all parts are multiplied",
    )
    flags = {"cuda__matmul__fp32_precision": "tf32"}
    assert judged(PRODUCT, found, monkeypatch, **flags)[0] == "granted, not taken"


@pytest.mark.parametrize(
    ("allowed", "bits", "expected"),
    [
        (False, 23, ("ok", 10, "")),
        (False, 10, ("differs", 10, "its sums keep 10 bits, 23 are granted")),
        (True, 10, ("ok", 10, "")),
        (True, 7, ("differs", 10, "its sums keep 7 bits, 10 are granted")),
        (True, 23, ("granted, not taken", 10, f"`{SUMS}` grants sums of 10 bits")),
    ],
)
def test_sums_of_sixteen_bits_are_held_against_their_own_flags(
    allowed, bits, expected, monkeypatch
):
    found = replace(OF_HALF, accumulator=bits)
    flags = {SUMS.replace(".", "__"): allowed}
    assert judged(HALF, found, monkeypatch, **flags) == expected


def test_a_library_that_raises_is_named_and_the_others_are_measured(monkeypatch):
    def broken(*_):
        raise RuntimeError("no kernel for this device\nand a trace of many lines")

    mine = operations()[0]
    monkeypatch.setattr(measure, "operations", lambda: [replace(PRODUCT, call=broken), mine])
    first, second = measure.measure(DEFAULTS, ())
    assert (first.state, first.because) == (
        "not measured",
        "RuntimeError: no kernel for this device",
    )
    assert (second.state, str(second)) == ("ok", "numpy.matmul of float32 on cpu")


def test_every_flag_that_grants_is_one_of_ours():
    for operation in operations():
        assert granted(operation, DEFAULTS, ())[0] in (10, 23, 52)


@pytest.mark.slow
def test_verify_measures_where_it_is_asked_to(python):
    printed = python(
        """
        import backendcfg, numpy
        backendcfg.apply(settings={"threads.count": 1})
        assert backendcfg.verify().measured == ()
        found = backendcfg.verify(measure=True)
        assert found.ok
        for one in found.measured:
            print(one, one.state, one.precision.operands)
        """
    )
    assert printed.splitlines()[:3] == [
        "numpy.matmul of float32 on cpu ok 23",
        "numpy.matmul of float64 on cpu ok 52",
        "numpy.linalg.solve of float32 on cpu ok 23",
    ]


@pytest.mark.slow
def test_the_shell_measures_without_a_profile(backendcfg):
    found = json.loads(backendcfg("--json", "verify", "--measure"))
    assert found["profile"] == ""
    assert {one["state"] for one in found["measured"]} == {"ok"}
    who = found["measured"][0].pop("served")
    if sys.platform == "linux":
        assert (set(who), who["library"][:8]) == ({"library", "kernel", "part"}, "numpy's ")
    assert found["measured"][0] == {
        "operation": "numpy.matmul",
        "device": "cpu",
        "dtype": "float32",
        "precision": {
            "dtype": "float32",
            "operands": 23,
            "accumulator": 23,
            "emulated": False,
            "subnormals": True,
        },
        "granted": 23,
        "state": "ok",
        "because": "",
    }


@pytest.mark.torch
def test_a_program_that_lowers_the_precision_itself_is_told(python):
    printed = python(
        """
        import backendcfg, torch
        backendcfg.apply("tf32-off")
        assert backendcfg.verify(measure=True).ok
        with torch.autocast("cpu"):
            found = backendcfg.verify(measure=True)
        assert not found.ok
        for one in found.measured:
            if one.state == "differs" and one.operation == "torch.mm":
                print(one, "-", one.because)
        """
    )
    assert printed.splitlines() == [
        "torch.mm of float32 on cpu - its operands keep 7 bits, 23 are granted",
        "torch.mm of float16 on cpu - its operands keep 7 bits, 10 are granted",
    ]
