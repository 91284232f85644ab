"""What `verify()` says of each switch, and who wrote what it finds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FAKES = str(Path(__file__).parent)

SHOW = """
import json
from dataclasses import asdict
def shown(*states):
    return json.dumps([
        [one.switch, one.state, one.wanted, one.found, one.because, one.by]
        for one in backendcfg.verify().readings
        if one.state in states
    ])
"""


@pytest.fixture(name="fake")
def _fake(python, monkeypatch):
    """Run a program that has `fake_bridge` beside the real bridges."""
    path = os.pathsep.join(filter(None, [FAKES, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    return lambda program, **more: python(
        "import fake_bridge, backendcfg\n" + SHOW + program, **more
    )


def test_every_state_of_a_switch_has_its_name_and_its_reason(fake):
    printed = fake(
        """
from fake_bridge import SWITCHES, Switch
SWITCHES.update({
    "mha.fastpath_enabled": Switch("fine", True),
    "mkldnn.enabled": Switch("broken", True),
    "mkldnn.deterministic": Switch("written", False, writer=lambda: "`somelib` wrote it"),
    "nnpack.enabled": Switch("outranked", True, overridden=lambda: "SOME_VARIABLE=1"),
    "quantized.engine": Switch("one_way", "x86", reversible=False),
    "opt_einsum.strategy": Switch("late", "auto", late="it was used before"),
    "cuda.preferred_linalg_library": Switch("missing", "x", unsupported=lambda: "no MAGMA here"),
})
for switch in SWITCHES.values():
    for question in ("writer", "overridden", "unsupported"):
        if hasattr(switch, question):
            setattr(switch, question, getattr(switch, question)())
backendcfg.apply(settings={
    "mha.fastpath_enabled": False,
    "mkldnn.enabled": False,
    "mkldnn.deterministic": True,
    "nnpack.enabled": False,
    "quantized.engine": "fbgemm",
    "opt_einsum.strategy": "greedy",
    "cuda.preferred_linalg_library": "magma",
    "cuda.cublas_workspace_size": 7,
})
SWITCHES["mkldnn.enabled"].value = OSError("it is gone")
SWITCHES["mkldnn.deterministic"].value = False
found = backendcfg.verify()
print(json.dumps({one.switch: [one.state, one.found, one.because, one.by] for one in found.readings}))
print(found.ok, json.dumps(asdict(found)) != "")
"""
    )
    first, second = printed.splitlines()
    settings = (
        "--set cuda.cublas_workspace_size=7 --set 'cuda.preferred_linalg_library=\"magma\"'"
        " --set mha.fastpath_enabled=false --set mkldnn.deterministic=true --set mkldnn.enabled=false"
        " --set nnpack.enabled=false --set 'opt_einsum.strategy=\"greedy\"'"
        " --set 'quantized.engine=\"fbgemm\"'"
    )
    assert json.loads(first) == {
        "fine": ["ok", False, "", ""],
        "broken": ["unreadable", None, "OSError: it is gone", ""],
        "written": ["differs", False, "`somelib` wrote it", "`somelib` wrote it"],
        "outranked": ["overridden", False, "SOME_VARIABLE=1 outranks it", "SOME_VARIABLE=1"],
        "one_way": ["irreversible", "fbgemm", "the value it had cannot be written back", ""],
        "late": [
            "pending",
            "auto",
            f"it was used before; run `backendcfg run {settings} -- python ...`",
            "",
        ],
        "missing": ["unsupported", "x", "no MAGMA here", ""],
        "cuda.cublas_workspace_size": ["dormant", None, "no NVIDIA or AMD GPU is here", ""],
    }
    assert second == "False True"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("switch", "fails"),
    [
        ("Switch('a', True, unsupported='not in this build')", False),
        ("Switch('a', True, late='used before')", False),
        ("Switch('a', True, reversible=False)", False),
        ("Switch('a', True, overridden='A_VARIABLE=1')", True),
    ],
)
def test_only_what_could_be_otherwise_fails(fake, switch, fails):
    printed = fake(
        f"""
from fake_bridge import SWITCHES, Switch
SWITCHES["mha.fastpath_enabled"] = {switch}
backendcfg.apply(settings={{"mha.fastpath_enabled": False}})
print(backendcfg.verify().ok)
"""
    )
    assert printed == f"{not fails}\n"


def test_a_verification_is_not_ok_where_the_tier_is_not_in_force(python):
    printed = python(
        """
import warnings
import backendcfg, numpy

warnings.simplefilter("ignore")
backendcfg.apply("reproducible")
found = backendcfg.verify()
print(found.tier, found.in_force, found.ok)
print(sorted({one.state for one in found.readings} - {"dormant"}))
"""
    )
    assert printed == "run-to-run False False\n['ok', 'pending']\n"


def test_a_tier_is_in_force_when_what_it_cannot_have_is_dormant_only(fake):
    printed = fake(
        """
from fake_bridge import SWITCHES, Switch
SWITCHES["cudnn.rnn.fp32_precision"] = Switch(
    "dormant", "tf32", unsupported="no cuDNN in this build"
)
backendcfg.apply(settings={"cudnn.rnn.fp32_precision": "ieee", "threads.count": 1})
print(backendcfg.verify().in_force)
SWITCHES["threads.count"] = Switch("needed", 2, unsupported="another version")
print(backendcfg.verify().in_force)
"""
    )
    assert printed == "True\nFalse\n"


def test_variables_that_change_after_apply_differ_with_the_old_and_the_new_text(python):
    printed = python(
        SHOW
        + """
import os, sys, types, backendcfg
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
backendcfg.apply(settings={"threads.count": 1})
print(shown("differs"))
os.environ.update(OMP_NUM_THREADS="7", TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT="1", HOME="/elsewhere")
del os.environ["NVIDIA_TF32_OVERRIDE"]
print(shown("differs"))
sys.modules["iopaint"] = types.ModuleType("iopaint")
print(shown("differs"))
"""
    )
    first, second, third = map(json.loads, printed.splitlines())
    unknown = "something other than backendcfg wrote it"
    assert first == []
    assert second == [
        ["OMP_NUM_THREADS", "differs", "1", "7", unknown, ""],
        [
            "NVIDIA_TF32_OVERRIDE",
            "differs",
            "0",
            None,
            f"{unknown} since the profile was applied",
            "",
        ],
        [
            "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
            "differs",
            None,
            "1",
            f"{unknown} since the profile was applied",
            "",
        ],
    ]
    assert third[-1][-1] == "`iopaint`, which is imported here, is known to write it"


def test_a_variable_of_a_reader_that_has_started_differs_rather_than_being_too_late(python):
    printed = python(
        SHOW
        + """
import os, backendcfg
backendcfg.apply(settings={"blas.openblas.core_type": "Haswell"})
import numpy
os.environ["OPENBLAS_CORETYPE"] = "Prescott"
print(shown("differs"))
"""
    )
    unknown = "something other than backendcfg wrote it"
    assert ["OPENBLAS_CORETYPE", "differs", "Haswell", "Prescott", unknown, ""] in json.loads(
        printed
    )


@pytest.mark.torch
def test_the_module_of_pytorch_that_writes_a_variable_is_named(python):
    printed = python(
        SHOW
        + """
import backendcfg, torch
backendcfg.apply(settings={"mkldnn.enabled": True})
import torch._inductor.fx_passes.numeric_utils
print(shown("differs"))
"""
    )
    (found,) = json.loads(printed)
    assert found[:4] == ["CUBLAS_WORKSPACE_CONFIG", "differs", None, ":4096:8"]
    assert found[5] == (
        "`torch._inductor.fx_passes.numeric_utils`, which is imported here, is known to write it"
    )


@pytest.mark.torch
def test_pytorchs_own_call_and_a_limit_that_is_alive_are_named(python):
    printed = python(
        SHOW
        + """
import backendcfg, torch, numpy, threadpoolctl
backendcfg.apply(settings={"threads.count": 1})
with threadpoolctl.threadpool_limits(2, user_api="blas"):
    print(shown("differs"))
print(shown("differs"))
torch.set_num_threads(2)
print(shown("differs"))
"""
    )
    limited, after, by_torch = map(json.loads, printed.splitlines())
    assert ("openblas[numpy].threads", "a threadpoolctl limit of 2 is alive in this process") in [
        (one[0], one[5]) for one in limited
    ]
    assert after == []
    assert {one[0]: one[5] for one in by_torch if one[5]} == {
        "torch.num_threads": "as `torch.set_num_threads(2)` leaves it",
        "mkl[torch].local_threads": "as `torch.set_num_threads(2)` leaves it",
    }


@pytest.mark.torch
@pytest.mark.parametrize(
    ("call", "flag", "by"),
    [
        (
            'torch.set_float32_matmul_precision("medium")',
            "mkldnn.matmul.fp32_precision",
            'as `torch.set_float32_matmul_precision("medium")` leaves it',
        ),
        (
            "torch.backends.cuda.matmul.allow_tf32 = True",
            "cuda.matmul.fp32_precision",
            "as `torch.backends.cuda.matmul.allow_tf32 = True` leaves it",
        ),
        (
            "torch.backends.cudnn.allow_tf32 = True",
            "cudnn.conv.fp32_precision",
            "as `torch.backends.cudnn.allow_tf32 = True` leaves it",
        ),
    ],
)
def test_the_call_that_leaves_such_a_precision_is_named(python, call, flag, by):
    printed = python(
        f"""
import backendcfg, torch
leaves = ["cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"]
backendcfg.apply(settings={{leaf + ".fp32_precision": "ieee" for leaf in leaves}})
assert backendcfg.verify().ok
{call}
print(*[one.by for one in backendcfg.verify().readings if one.flag == {flag!r} and one.by])
"""
    )
    assert printed == f"{by}\n"


@pytest.mark.torch
def test_a_limit_that_no_call_lifts_overrides_the_count(python):
    program = (
        SHOW
        + """
import backendcfg, torch
backendcfg.apply(settings={"threads.count": 2})
print(shown("overridden"))
"""
    )
    found = json.loads(python(program, OMP_THREAD_LIMIT="1"))
    because = "OMP_THREAD_LIMIT=1 outranks it"
    assert [one[1:] for one in found] == [["overridden", 2, 2, because, "OMP_THREAD_LIMIT=1"]]
    assert json.loads(python(program)) == []


def test_the_scope_that_holds_a_switch_is_named(python):
    printed = python(
        SHOW
        + """
import threading, backendcfg, numpy
from pathlib import Path
Path("two.toml").write_text("schema = 1\\n[threads]\\ncount = 2\\n")
backendcfg.apply(settings={"threads.count": 1})
inside, leave = threading.Event(), threading.Event()
def work():
    with backendcfg.profile("./two.toml"):
        inside.set()
        leave.wait(60)
thread = threading.Thread(target=work, name="worker")
thread.start()
inside.wait(60)
print(shown("differs"))
leave.set()
thread.join()
print(shown("differs"))
"""
    )
    held, after = map(json.loads, printed.splitlines())
    by = "an open scope of profile `./two.toml` in thread `worker`"
    assert held == [["openblas[numpy].threads", "differs", 1, 2, f"{by} holds it", by]]
    assert after == []


def test_without_a_profile_there_is_nothing_to_verify(python):
    assert python("import backendcfg; print(backendcfg.verify())") == "no profile is in force\n"


LATE = """
import sys, types
sys.path.insert(0, "FOLDER")
from fake_bridge import SWITCHES, Switch
class Deaf(Switch):
    def write(self, value): pass
FLAGS = {"mha.fastpath_enabled": False, "mkldnn.enabled": False, "nnpack.enabled": False}
def come():
    SWITCHES["mha.fastpath_enabled"] = Switch("late.first", True)
    SWITCHES["mkldnn.enabled"] = Deaf("late.second", True)
    SWITCHES["nnpack.enabled"] = Switch("other.one", True)
    import mkl
    return mkl
"""


@pytest.fixture(name="late")
def _late(fake, tmp_path):
    """The same with a library that comes with an import, and of whose switches one is deaf."""
    (tmp_path / "mkl.py").write_text("")
    return lambda program, **more: fake(LATE.replace("FOLDER", str(tmp_path)) + program, **more)


def test_a_library_that_comes_later_and_refuses_is_left_alone_and_the_import_goes_on(late):
    first, readings, told = late(
        """
import logging
said = []
logging.getLogger("backendcfg").addFilter(lambda record: said.append(record.getMessage()))
backendcfg.apply(settings=FLAGS)
come()
print([switch.value for switch in SWITCHES.values()])
print(shown("undone", "ok"))
print(said[0].splitlines()[0], len(said), backendcfg.verify().ok)
"""
    ).splitlines()
    because = "late is left as it was: wrote false, read back true"
    assert first == "[True, True, False]"
    assert [one for one in json.loads(readings) if one[0][:5] in ("late.", "other")] == [
        ["late.first", "undone", False, True, because, ""],
        ["late.second", "undone", False, True, because, ""],
        ["other.one", "ok", False, False, "", ""],
    ]
    assert told == f"profile default: {because} 1 False"


@pytest.mark.slow
def test_under_strict_the_import_of_such_a_library_fails(late):
    printed = late(
        """
backendcfg.apply(settings=FLAGS, strict=True)
try:
    come()
except backendcfg.errors.RolledBackError as error:
    print(error.message, [switch.value for switch in SWITCHES.values()], "mkl" in sys.modules)
"""
    )
    told = "applying profile `default` failed at step 2 of 2; step 1 was undone"
    assert printed == f"{told} [True, True, True] False\n"


def test_a_scope_does_not_fail_an_import_either(late):
    printed = late(
        """
import fake_bridge
fake_bridge.LIBRARY.SCOPED_FLAGS = frozenset(FLAGS)
from backendcfg.session import wiring
wiring.SCOPED = (*wiring.SCOPED, "fake")
with open("deaf.toml", "w") as file:
    file.write("schema = 1\\n[mha]\\nfastpath_enabled = false\\n[mkldnn]\\nenabled = false\\n")
with backendcfg.profile("./deaf.toml"):
    print(come().__name__, [switch.value for switch in SWITCHES.values()])
"""
    )
    assert printed == "mkl [True, True, True]\n"


def test_a_switch_that_nothing_reads_does_not_break_a_tier(fake):
    printed = fake(
        """
from fake_bridge import SWITCHES, Switch
SWITCHES["opt_einsum.strategy"] = Switch("idle", "auto", dormant="no opt_einsum")
report = backendcfg.apply("reproducible")
told = backendcfg.verify()
print(SWITCHES["opt_einsum.strategy"].value, report.in_force, told.in_force, told.because)
print(shown("dormant").count("no opt_einsum"))
""",
        PYTHONHASHSEED="0",
    )
    assert printed == "auto True True ()\n1\n"


def test_why_a_tier_is_not_in_force_is_told(fake):
    printed = fake(
        """
from fake_bridge import SWITCHES, Switch
cannot = "this build has none"
SWITCHES["mkldnn.deterministic"] = Switch("here", False, unsupported=cannot)
report = backendcfg.apply("reproducible")
print(report.in_force, backendcfg.verify().because)
""",
        PYTHONHASHSEED="0",
    )
    assert printed == "False ('`here` is unsupported: this build has none',)\n"
