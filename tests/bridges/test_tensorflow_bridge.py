"""TensorFlow's switches, each test in a child process that has the real TensorFlow."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from backendcfg.bridges import tensorflow as bridge

ASKED = {
    "threads.count": 2,
    "threads.interop": 3,
    "tensorflow.onednn_opts": True,
    "tensorflow.tensor_float_32_execution": False,
    "tensorflow.op_determinism": True,
}
PRELUDE = """
import json, sys
from backendcfg.bridges import all as bridges, imports
from backendcfg.registry import base
def settings(values, asked=None):
    return bridges.settings(values, asked or values, "start it", bridges=["tensorflow"])
def outcomes(values):
    return {o.switch: [o.state, o.because] for o in base.set_base(None, settings(values))}
def read(values): return {s.switch.name: s.switch.read() for s in settings(values)}
"""

pytestmark = pytest.mark.tensorflow
real = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")


@pytest.fixture(name="says")
def _says(child):
    """What a child prints last as JSON; TensorFlow writes to standard error when imported.

    Whether it uses oneDNN unasked depends on the processor.
    """

    def says(code: str, **variables: str):
        done = child(code, TF_CPP_MIN_LOG_LEVEL="3", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return says


def test_what_cannot_be_undone_says_so_beforehand(monkeypatch):
    whole = SimpleNamespace(__spec__=None)
    monkeypatch.setitem(sys.modules, "tensorflow", whole)
    found = {each.switch.name: each.switch for each in bridge.settings(ASKED, ASKED)}
    assert {name: (switch.reversible, switch.latch) for name, switch in found.items()} == {
        "tensorflow.intra_op_threads": (False, "before-first-use"),
        "tensorflow.inter_op_threads": (False, "before-first-use"),
        "tensorflow.onednn_opts": (False, "before-import"),
        "tensorflow.tensor_float_32_execution": (True, "anytime"),
        "tensorflow.op_determinism": (False, "anytime"),
    }
    assert bridge.settings({"threads.interop": "auto"}, ["threads.interop"]) == []


def test_a_build_that_does_not_say_whether_it_uses_onednn_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(__spec__=None))
    monkeypatch.delitem(sys.modules, "tensorflow.python.util._pywrap_util_port", raising=False)
    (setting,) = bridge.settings(ASKED, ["tensorflow.onednn_opts"])
    because = "this build of TensorFlow does not say whether it uses oneDNN"
    assert setting.switch.unsupported() == because


@real
def test_everything_is_set_before_the_first_operation_and_read_back(says):
    code = (
        PRELUDE
        + f"""
import tensorflow as tf
first = read({ASKED!r})
states = outcomes({ASKED!r})
thread = tf.config.threading
says = [thread.get_intra_op_parallelism_threads(), thread.get_inter_op_parallelism_threads(),
        tf.config.experimental.tensor_float_32_execution_enabled()]
try: tf.random.normal((2,)); says.append("drew")
except RuntimeError as error: says.append(str(error))
tf.random.set_seed(1); tf.random.normal((2,))
base.set_base(None, [])
print(json.dumps([first, states, says, read({ASKED!r})]))
"""
    )
    first, states, says_so, after = says(code, TF_ENABLE_ONEDNN_OPTS="1")
    assert first == {
        "tensorflow.intra_op_threads": 0,
        "tensorflow.inter_op_threads": 0,
        "tensorflow.onednn_opts": True,
        "tensorflow.tensor_float_32_execution": True,
        "tensorflow.op_determinism": False,
    }
    one_way = ["irreversible", "the value it had cannot be written back"]
    assert states == {
        "tensorflow.intra_op_threads": one_way,
        "tensorflow.inter_op_threads": one_way,
        "tensorflow.onednn_opts": ["unchanged", ""],
        "tensorflow.tensor_float_32_execution": ["set", ""],
        "tensorflow.op_determinism": one_way,
    }
    assert says_so[:3] == [2, 3, False]
    # Under deterministic operations whoever draws must have given a seed.
    assert says_so[3].startswith("Random ops require a seed to be set when determinism is enabled.")
    assert after == {
        "tensorflow.intra_op_threads": 2,
        "tensorflow.inter_op_threads": 3,
        "tensorflow.onednn_opts": True,
        "tensorflow.tensor_float_32_execution": True,
        "tensorflow.op_determinism": True,
    }


@real
def test_after_the_first_operation_threads_are_pending_and_determinism_stays(says):
    code = (
        PRELUDE
        + """
import tensorflow as tf
tf.config.experimental.enable_op_determinism()
before = [s.switch.too_late() for s in settings({"threads.count": 2})]
tf.ones(1)
values = {"threads.count": 2, "threads.interop": 3, "tensorflow.op_determinism": False,
          "tensorflow.onednn_opts": False}
print(json.dumps([before, outcomes(values), settings(values)[0].remedy]))
"""
    )
    late = ["pending", "TensorFlow has begun to compute, and takes this only before"]
    assert says(code, TF_ENABLE_ONEDNN_OPTS="1") == [
        [""],
        {
            "tensorflow.intra_op_threads": late,
            "tensorflow.inter_op_threads": late,
            "tensorflow.onednn_opts": [
                "pending",
                "TensorFlow read TF_ENABLE_ONEDNN_OPTS when it was imported",
            ],
            "tensorflow.op_determinism": [
                "pending",
                "TensorFlow has no switch that turns it off",
            ],
        },
        "start it",
    ]


@real
def test_an_apply_that_fails_takes_determinism_and_threads_back(says):
    code = (
        PRELUDE
        + """
import tensorflow as tf
from backendcfg.errors import RolledBackError
from backendcfg.transact.switch import Setting
class Broken:
    name, reach, latch, reversible = "broken", "process", "anytime", False
    def read(self): return 0
    def write(self, value): raise OSError("no")
    def too_late(self): return ""
values = {"threads.count": 2, "tensorflow.op_determinism": True}
before = read(values)
try: base.set_base(None, [*settings(values), Setting(Broken(), 1, "broken")])
except RolledBackError: print(json.dumps(read(values) == before))
"""
    )
    assert says(code) is True


@real
def test_a_child_starts_with_the_variables_of_its_profile(says):
    from backendcfg.bridges import environment

    values = {"tensorflow.op_determinism": True, "tensorflow.onednn_opts": False}
    code = PRELUDE + f"import tensorflow; print(json.dumps(read({values!r})))"
    assert says(code, **environment.variables(values, values)) == values


@real
def test_tensorflow_is_told_the_moment_that_it_is_imported(says):
    code = (
        PRELUDE
        + f"""
seen = []
def callback(name):
    if name == "tensorflow": seen.append(outcomes({ASKED!r})["tensorflow.intra_op_threads"][0])
imports.watch(callback)
import tensorflow as tf
print(json.dumps([seen, tf.config.threading.get_intra_op_parallelism_threads()]))
"""
    )
    assert says(code) == [["irreversible"], 2]


@real
def test_bare_tensorflow_starts_from_tf32(says):
    """T25: the opposite of PyTorch's products; what it does on a GPU was read, not run."""
    code = """
import json, tensorflow as tf
print(json.dumps(tf.config.experimental.tensor_float_32_execution_enabled()))
"""
    assert says(code) is True
