"""What NumPy says of the instruction sets that a profile leaves out."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from backendcfg.bridges import pools as bridge

CODE = """
import json, warnings
warnings.simplefilter("ignore")
import numpy
from backendcfg.bridges import pools as bridge
values = {"environment": {"NPY_DISABLE_CPU_FEATURES": "TEXT"}}
found = bridge.settings(values, values, "start it")
print(json.dumps([[s.switch.read(), s.wanted, s.switch.too_late(), s.remedy] for s in found]))
"""


def pretend(monkeypatch, used, dispatched, version="2.4.0"):
    """A NumPy with these instruction sets."""
    compiled = SimpleNamespace(__cpu_features__=used, __cpu_dispatch__=dispatched)
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__spec__=None, __version__=version))
    monkeypatch.setitem(sys.modules, "numpy._core._multiarray_umath", compiled)


def settings(text):
    values = {"environment": {"NPY_DISABLE_CPU_FEATURES": text}}
    return bridge.settings(values, values, "start it")


def test_a_profile_that_leaves_nothing_out_has_no_switch_here():
    assert bridge.settings({"environment": {"NPROC": "1"}}, ["environment"]) == []
    assert bridge.settings({"environment": {}}, ()) == []
    assert settings(" ") == []


def test_a_process_without_numpy_imports_nothing(answer):
    code = """
import json, sys
from backendcfg.bridges import pools as bridge
values = {"environment": {"NPY_DISABLE_CPU_FEATURES": "X86_V4"}}
print(json.dumps([bridge.settings(values, values), "numpy" in sys.modules]))
"""
    assert answer(code) == [[], False]


def test_every_name_is_compared_with_what_numpy_says(monkeypatch):
    used = {"X86_V3": True, "X86_V4": False, "AVX512_ICL": True, "AVX512F": True}
    pretend(monkeypatch, used, ["X86_V3", "X86_V4", "AVX512_ICL"])
    (setting,) = settings("X86_V4,AVX512_ICL AVX512F FOO")
    switch = setting.switch
    assert (switch.read(), setting.wanted) == (
        ("X86_V4",),
        ("AVX512F", "AVX512_ICL", "FOO", "X86_V4"),
    )
    assert switch.too_late() == (
        "NumPy 2.4.0 ignores AVX512F, FOO: it has no loops for that name; "
        "NumPy uses AVX512_ICL, as it read NPY_DISABLE_CPU_FEATURES when it was imported"
    )
    assert (switch.latch, switch.reversible) == ("before-import", False)
    with pytest.raises(RuntimeError, match="ignores AVX512F, FOO"):
        switch.write(setting.wanted)


def test_a_numpy_that_does_not_say_what_it_uses_has_no_switch(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__spec__=None, __version__="9"))
    monkeypatch.delitem(sys.modules, "numpy._core._multiarray_umath", raising=False)
    monkeypatch.delitem(sys.modules, "numpy.core._multiarray_umath", raising=False)
    assert settings("X86_V4") == []


def dispatched():
    """An instruction set that the NumPy here has loops for, uses and can leave out."""
    multiarray = pytest.importorskip("numpy._core._multiarray_umath")
    for name in reversed(multiarray.__cpu_dispatch__):
        if multiarray.__cpu_features__[name]:
            return name
    return pytest.skip("this processor runs NumPy's baseline")


def test_numpy_leaves_out_what_its_process_was_started_without(answer):
    name = dispatched()
    code = CODE.replace("TEXT", name)
    remedy = "start it"
    assert answer(code, NPY_DISABLE_CPU_FEATURES=name) == [[[name], [name], "", remedy]]
    late = f"NumPy uses {name}, as it read NPY_DISABLE_CPU_FEATURES when it was imported"
    assert answer(code) == [[[], [name], late, remedy]]


def test_a_name_that_numpy_ignores_is_no_success(answer):
    code = CODE.replace("TEXT", "AVX512_BOGUS")
    (found,) = answer(code, NPY_DISABLE_CPU_FEATURES="AVX512_BOGUS")
    assert found[:2] == [[], ["AVX512_BOGUS"]]
    assert "ignores AVX512_BOGUS: it has no loops for that name" in found[2]
