"""torch.backends.opt_einsum, in child processes that have the real PyTorch."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest
from bridge_programs import APPLY_AND_UNDO

from backendcfg.bridges.torch import opt_einsum as bridge

ASKED = {"opt_einsum.enabled": True, "opt_einsum.strategy": "greedy"}
PRELUDE = """
import json, sys
from backendcfg.bridges.torch import opt_einsum as bridge
def settings(values): return {s.switch.attribute: s for s in bridge.collect(None, values, values)}
"""
PRELUDE += APPLY_AND_UNDO

pytestmark = pytest.mark.torch
real = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("opt_einsum") is None,
    reason="PyTorch or opt_einsum is not installed",
)


def test_without_the_package_torch_looks_at_neither_switch(monkeypatch):
    module = ModuleType("torch.backends.opt_einsum")
    module.is_available = lambda: False
    module.enabled, module.strategy = False, None
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__spec__=None))
    monkeypatch.setitem(sys.modules, "torch.backends.opt_einsum", module)
    found = bridge.collect(None, ASKED, ASKED)
    because = "PyTorch found no opt_einsum when it was imported, and contracts from left to right"
    assert [each.switch.dormant() for each in found] == [because] * 2
    (off,) = bridge.collect(None, {"opt_einsum.enabled": False}, ["opt_einsum.enabled"])
    assert (off.switch.dormant(), off.switch.read()) == (because, False)


@real
def test_einsum_follows_the_profile_and_torchs_own_functions_still_work(answer):
    code = (
        PRELUDE
        + """
import torch, opt_einsum
o = torch.backends.opt_einsum
asked = []
real = opt_einsum.contract_path
def contract_path(*operands, **how): asked.append(how["optimize"]); return real(*operands, **how)
opt_einsum.contract_path = contract_path
a = torch.ones(2, 2)
def einsum(): asked.clear(); torch.einsum("ij,jk,kl->il", a, a, a); return list(asked)
seen = [einsum()]
mine = settings({"opt_einsum.enabled": True, "opt_einsum.strategy": "greedy"})
before = apply(mine); seen.append(einsum())
with o.flags(enabled=True, strategy="optimal"): seen.append(einsum())
seen.append(einsum())
with o.flags(enabled=False): seen.append(einsum())
seen.append([o.enabled, o.strategy])
after = undo(mine, before); seen.append(einsum())
off = settings({"opt_einsum.enabled": False}); apply(off); seen.append(einsum())
print(json.dumps([seen, before == after, sorted(vars(o).keys() & {"enabled", "strategy"})]))
"""
    )
    seen, restored, shadows = answer(code)
    assert seen == [
        ["auto"],
        ["greedy"],
        ["optimal"],
        ["greedy"],
        [],
        [True, "greedy"],
        ["auto"],
        [],
    ]
    assert (restored, shadows) == (True, [])


@real
def test_bare_torch_loses_flags_after_an_assignment_and_has_them_again_under_a_profile(answer):
    """T9: an assigned value is neither checked nor reached by `flags()` and `set_flags()`."""
    code = (
        PRELUDE
        + """
import torch
o = torch.backends.opt_einsum
o.strategy = "bogus"
def inside():
    with o.flags(strategy="optimal"): return o.strategy
bare = [o.strategy, inside()]
mine = settings({"opt_einsum.strategy": "greedy"}); before = apply(mine)
under = [o.strategy, inside(), o.strategy]
undo(mine, before)
print(json.dumps([bare, under, o.strategy]))
"""
    )
    assert answer(code) == [["bogus", "bogus"], ["greedy", "optimal", "greedy"], "bogus"]


def test_a_strategy_that_torch_would_run_into_is_refused_before_torch_sees_it():
    from backendcfg.errors import InvalidValueError, WrongTypeError
    from backendcfg.load.assignments import from_arguments

    with pytest.raises(InvalidValueError, match="must be one of"):
        from_arguments({"opt_einsum.strategy": '"dp"'})
    with pytest.raises(WrongTypeError):
        from_arguments({"opt_einsum.enabled": '"false"'})


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_tier_of_reproducible_is_in_force_without_the_package(python, tmp_path):
    """As after a plain `pip install torch`; the module hides what is installed here."""
    (tmp_path / "opt_einsum.py").write_text("raise ImportError('hidden')")
    printed = python(
        """
import sys; sys.path.insert(0, "")
import backendcfg, torch
told = backendcfg.verify()
idle = [one.because for one in told.readings if one.switch.endswith("opt_einsum.strategy")]
print(told.in_force, told.because, idle, torch.backends.opt_einsum.is_available())
""",
        BACKENDCFG_PROFILE="reproducible",
        PYTHONHASHSEED="0",
        MKL_CBWR="AUTO",
    )
    because = "PyTorch found no opt_einsum when it was imported, and contracts from left to right"
    assert printed == f"True () ['{because}'] False\n"
