"""CuPy's compute type, against a stand-in written after CuPy's sources: no GPU is at hand.

`cupy/_core/_routines_linalg.pyx` keeps a list for the process; an entry starts undecided, and the
first look decides it by CUPY_TF32.
"""

from __future__ import annotations

import pytest

PACKAGE = {
    "cupy/__init__.py": """
from cupy._core import _routines_linalg
__version__ = "14.2.0"
class cuda:
    class Device:
        compute_capability = "90"
""",
    "cupy/_core/__init__.py": "from cupy._core._routines_linalg import set_compute_type",
    "cupy/_core/_routines_linalg.py": """
import os, warnings
COMPUTE_TYPE_TBD, COMPUTE_TYPE_DEFAULT, COMPUTE_TYPE_PEDANTIC, COMPUTE_TYPE_FP16 = range(4)
COMPUTE_TYPE_FP32, COMPUTE_TYPE_FP64, COMPUTE_TYPE_BF16, COMPUTE_TYPE_TF32 = range(4, 8)
types = {"e": COMPUTE_TYPE_TBD, "f": COMPUTE_TYPE_TBD, "d": COMPUTE_TYPE_TBD}
def set_compute_type(dtype, compute_type):
    import cupy
    if compute_type == COMPUTE_TYPE_TF32 and int(cupy.cuda.Device().compute_capability) < 80:
        warnings.warn("only available on GPUs with compute capability 8.0 or higher")
        compute_type = COMPUTE_TYPE_DEFAULT
    types[dtype] = compute_type
def get_compute_type(dtype):
    if types[dtype] == COMPUTE_TYPE_TBD:
        tf32 = dtype == "f" and int(os.getenv("CUPY_TF32", "0")) > 0
        set_compute_type(dtype, COMPUTE_TYPE_TF32 if tf32 else COMPUTE_TYPE_DEFAULT)
    return types[dtype]
""",
}
PRELUDE = """
import json, os, sys
sys.path.insert(0, os.environ["STANDIN"])
from backendcfg.bridges import cupy as bridge, imports
from backendcfg.registry import base
def settings(value): return bridge.settings({"cupy.compute_type": value}, ["cupy.compute_type"])
def states(value): return [[o.state, o.before, o.because] for o in base.set_base(None, settings(value))]
"""


@pytest.fixture(name="says")
def _says(answer, tmp_path):
    for name, text in PACKAGE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return lambda code, **variables: answer(PRELUDE + code, STANDIN=str(tmp_path), **variables)


@pytest.mark.parametrize(
    ("value", "number"), [("default", 1), ("pedantic", 2), ("fp32", 4), ("tf32", 7)]
)
def test_every_type_is_set_for_float32_alone_and_put_back(says, value, number):
    code = f"""
import cupy
from cupy._core._routines_linalg import types
set_ = states({value!r}); during = dict(types)
base.set_base(None, [])
print(json.dumps([set_, during, types]))
"""
    state = "unchanged" if value == "default" else "set"
    assert says(code) == [
        [[state, "default", ""]],
        {"e": 0, "f": number, "d": 0},
        {"e": 0, "f": 1, "d": 0},
    ]


def test_a_type_that_the_flag_does_not_name_is_put_back_as_it_was(says):
    code = """
import cupy
cupy._core.set_compute_type("f", 3)
before = states("pedantic"); base.set_base(None, [])
print(json.dumps([before, cupy._core._routines_linalg.types["f"]]))
"""
    assert says(code) == [[["set", 3, ""]], 3]


def test_the_profile_wins_over_cupy_tf32(says):
    code = """
import cupy
before = states("pedantic")
print(json.dumps([before, cupy._core._routines_linalg.get_compute_type("f")]))
"""
    assert says(code, CUPY_TF32="1") == [[["set", "tf32", ""]], 2]


def test_tf32_that_the_gpu_lacks_is_unsupported_and_nothing_is_written(says):
    code = """
import cupy
cupy.cuda.Device.compute_capability = "75"
older = states("tf32")
def none(): raise OSError("no CUDA-capable device is detected")
cupy.cuda.Device = none
nothing = states("tf32")
print(json.dumps([older, nothing, cupy._core._routines_linalg.types["f"]]))
"""
    assert says(code) == [
        [["unsupported", "default", "TF32 needs a GPU of compute capability 8.0"]],
        [["unsupported", "default", "CuPy finds no GPU: no CUDA-capable device is detected"]],
        1,
    ]


def test_a_cupy_without_the_type_is_named(says):
    code = """
import cupy
del cupy._core._routines_linalg.COMPUTE_TYPE_PEDANTIC
print(json.dumps(states("pedantic")))
"""
    because = "CuPy 14.2.0 has no COMPUTE_TYPE_PEDANTIC"
    assert says(code) == [["unsupported", "default", because]]


def test_cupy_is_told_the_moment_that_it_is_imported(says):
    code = """
seen = []
imports.watch(lambda name: name == "cupy" and seen.append(states("fp32")))
import cupy
print(json.dumps([seen, cupy._core._routines_linalg.types["f"]]))
"""
    assert says(code) == [[[["set", "default", ""]]], 4]
