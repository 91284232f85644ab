"""The verbosity of MKL and oneDNN, seen in what the real libraries print, and in fakes."""

from __future__ import annotations

import ctypes
import sys
from importlib import metadata
from importlib.util import find_spec

import pytest

from backendcfg.bridges import verbose
from backendcfg.bridges.pool_calls import Inventory
from backendcfg.bridges.verbose import take_levels
from backendcfg.transact.journal import foresee
from backendcfg.transact.protocol import Switch

NO_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


def with_torch(test):
    """Mark a test that needs PyTorch."""
    return pytest.mark.torch(NO_TORCH(test))


LEVELS = {"mkl.verbose": 1, "mkldnn.verbose": 1}

PRELUDE = """
import os, sys
from backendcfg.bridges import verbose
def switch(name, flag="mkl.verbose"):
    offered = {each.switch.name: each.switch for each in verbose.settings({flag: 1}, [flag])}
    return offered[name]
def say(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
"""
TORCH = f"""{PRELUDE}
import torch
square = torch.ones(8, 8)
image, weights = torch.ones(2, 3, 64, 64), torch.ones(8, 3, 3, 3)
def multiply():
    square @ square
def convolve():
    torch.conv2d(image, weights)
"""
WHEEL = f"""{PRELUDE}
import ctypes, numpy
mkl = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL | os.RTLD_LAZY)
a, c = numpy.ones((8, 8)), numpy.ones((8, 8))
def multiply():
    at = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    one, zero = ctypes.c_double(1), ctypes.c_double(0)
    mkl.cblas_dgemm(101, 111, 111, 8, 8, 8, one, at(a), 8, at(a), 8, zero, at(c), 8)
def layers():
    return sum("libmkl_core" in line for line in open("/proc/self/maps")) > 0
"""


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch):
    """Leave out the PyTorch that another test has imported here: it has an MKL and a oneDNN, too."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def said(done):
    """What a child printed, with each line of a library reduced to the call that it tells of."""
    assert (done.returncode, done.stderr) == (0, "")
    lines = []
    for line in done.stdout.splitlines():
        if line.startswith("MKL_VERBOSE "):
            call = line.split()[1].partition("(")[0]
            lines += [] if call == "oneMKL" else [call]
        elif line.startswith("onednn_verbose,"):
            words = line.split(",")
            told = words[3].startswith(("create", "exec")) and words[5] != "reorder"
            lines += [f"{words[3]} {words[5]}"] if told else []
        else:
            lines.append(line)
    return lines


def mkl_rt():
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        pytest.skip("the mkl wheel is not installed")
    return str(next(f for f in files if f.name.startswith("libmkl_rt.so")).locate().resolve())


def mkl_fake(build, *macros):
    """The switches of an MKL compiled here, as the one inside PyTorch."""
    path = build("verbose_mkl", *macros, name="libtorch_cpu.so")
    ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    return take_levels(Inventory(files={"mkl[torch]": path}), [path])


@with_torch
def test_the_mkl_in_torch_prints_between_on_and_off_alone(child):
    code = f"""{TORCH}
one = switch("mkl[torch].verbose")
multiply()
say("on from", one.read()); one.write(1); say("is", one.read())
multiply()
say("off"); one.write(0); say("is", one.read())
multiply()
"""
    assert said(child(code)) == ["on from 0", "is 1", "SGEMM", "off", "is 0"]


@with_torch
@pytest.mark.parametrize("level", [1, 2])
def test_an_mkl_that_the_environment_made_talk_is_put_back(child, level):
    code = f"""{TORCH}
one = switch("mkl[torch].verbose")
before = one.read()
one.write(0); multiply(); say("quiet"); one.write(before)
multiply()
say("is", one.read())
"""
    lines = said(child(code, MKL_VERBOSE=str(level)))
    assert lines == ["quiet", "SGEMM", f"is {level}"]


@with_torch
def test_asking_a_library_for_its_level_prints_nothing(child):
    code = f"""{TORCH}
for name, flag in (("mkl[torch].verbose", "mkl.verbose"), ("onednn[torch].verbose", "mkldnn.verbose")):
    say(name, switch(name, flag).read())
"""
    lines = said(child(code, MKL_VERBOSE="1", ONEDNN_VERBOSE="2"))
    assert lines == ["mkl[torch].verbose 1", "onednn[torch].verbose 2"]


@with_torch
def test_the_onednn_in_torch_prints_what_each_level_says(child):
    code = f"""{TORCH}
one = switch("onednn[torch].verbose", "mkldnn.verbose")
convolve()
say("1 after", one.read()); one.write(1); convolve()
weights = torch.ones(9, 3, 3, 3)
say("2 after", one.read()); one.write(2); convolve()
say("0 after", one.read()); one.write(0); convolve()
say("is", one.read())
"""
    assert said(child(code)) == [
        "1 after 0",
        "exec convolution",
        "2 after 1",
        "create:cache_miss convolution",
        "exec convolution",
        "0 after 2",
        "is 0",
    ]


@with_torch
@pytest.mark.parametrize("variable", ["ONEDNN_VERBOSE", "DNNL_VERBOSE"])
def test_a_onednn_that_the_environment_made_talk_is_put_back(child, variable):
    code = f"""{TORCH}
one = switch("onednn[torch].verbose", "mkldnn.verbose")
before = one.read()
one.write(0); convolve(); say("quiet, was", before); one.write(before)
convolve()
"""
    lines = said(child(code, **{variable: "1"}))
    assert lines == ["quiet, was 1", "exec convolution"]


@with_torch
@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("text", "level"),
    [("none", 0), ("error", 0), ("nonsense", 0), ("3", 0), ("1,0", 0), ("0,1", 1), ("2,1", 2)],
)
def test_the_level_that_a_variable_means_is_the_one_that_onednn_takes(child, text, level):
    """Each text as PyTorch's oneDNN reads it, beside what we take it for."""
    code = f"""{TORCH}
convolve()
say("means", switch("onednn[torch].verbose", "mkldnn.verbose").read())
"""
    printed = said(child(code, ONEDNN_VERBOSE=text))
    created, executed = "create:cache_miss convolution", "exec convolution"
    expected = {0: [], 1: [executed], 2: [created, executed]}[level]
    assert printed == [*expected, f"means {level}"]


@with_torch
@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "text", ["dispatch", "profile_exec", "all", "1,filter=conv", "debuginfo=9"]
)
def test_a_onednn_told_more_than_a_level_is_left_as_it_is(answer, text):
    code = f"""{TORCH}
import json
from backendcfg.transact.journal import transact
[setting] = verbose.settings({{"mkldnn.verbose": 0}}, ["mkldnn.verbose"])
[outcome] = transact([setting], lambda: None)
print(json.dumps([outcome.before, outcome.state, outcome.because, setting.switch.reversible]))
"""
    assert answer(code, ONEDNN_VERBOSE=text) == [
        f"ONEDNN_VERBOSE={text}",
        "unsupported",
        f"it was started with ONEDNN_VERBOSE={text}, and no call of oneDNN could give that back",
        False,
    ]


@pytest.mark.mkl
def test_the_mkl_wheel_prints_between_on_and_off_alone(child):
    code = f"""{WHEEL.replace("sys.argv[1]", repr(mkl_rt()))}
multiply()
one = switch("mkl[mkl].verbose")
say("on from", one.read()); one.write(1); multiply()
say("off from", one.read()); one.write(0); multiply()
"""
    assert said(child(code)) == ["on from 0", "DGEMM", "off from 1"]


@pytest.mark.slow
@pytest.mark.mkl
def test_a_wheel_that_nobody_has_called_is_not_called_to_be_asked(child):
    code = f"""{WHEEL.replace("sys.argv[1]", repr(mkl_rt()))}
one = switch("mkl[mkl].verbose")
say("reads", one.read(), "layers", layers())
one.write(1); say("is started", layers())
one.write(0); say("is started", layers())
multiply()
one.write(1); multiply(); say("reads", one.read())
"""
    lines = said(child(code, MKL_VERBOSE="1"))
    assert lines == [
        *("reads 1 layers False", "is started False", "is started True"),
        *("DGEMM", "reads 1"),
    ]


@with_torch
@pytest.mark.mkl
def test_both_mkls_of_a_process_are_switched(child):
    code = f"""{TORCH}
{WHEEL.replace("sys.argv[1]", repr(mkl_rt())).removeprefix(PRELUDE)}
multiply()
both = verbose.settings({{"mkl.verbose": 1}}, ["mkl.verbose"])
say(sorted(each.switch.name for each in both))
for each in both:
    each.switch.write(1)
multiply(); square @ square
"""
    assert said(child(code)) == ["['mkl[mkl].verbose', 'mkl[torch].verbose']", "DGEMM", "SGEMM"]


def test_a_onednn_of_its_own_is_switched(build):
    path = build("onednn", name="libdnnl.so.3")
    library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    [setting] = verbose.settings(LEVELS, LEVELS, found=take_levels(Inventory(), [path]))
    assert (setting.switch.name, setting.flag) == ("onednn[system].verbose", "mkldnn.verbose")
    before = setting.switch.read()
    setting.switch.write(2)
    during = (setting.switch.read(), library.said())
    with pytest.raises(RuntimeError, match="oneDNN refused level 5"):
        setting.switch.write(5)
    after_refusal = setting.switch.read()
    setting.switch.write(before)
    assert (before, during, after_refusal, library.said()) == (0, (2, 2), 2, 0)


def test_two_onednns_of_one_owner_have_two_names(build):
    paths = [build("onednn", name="libdnnl.so.2"), build("onednn", name="libdnnl.so.3")]
    for path in paths:
        ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    offered = verbose.settings(LEVELS, LEVELS, found=take_levels(Inventory(), paths))
    names = [each.switch.name for each in offered]
    assert names == ["onednn[system].verbose", "onednn[system libdnnl.so.3].verbose"]


def test_a_library_without_the_call_is_named(build):
    path = build("verbose_mkl", name="libdnnl.so.1")
    ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    found = take_levels(Inventory(), [path])
    assert verbose.settings(LEVELS, LEVELS, found=found) == []
    assert verbose.missing(found) == {"onednn[system].verbose": "it has no dnnl_set_verbose"}


def test_a_level_that_mkl_refuses_is_an_error(build):
    [setting] = verbose.settings(LEVELS, LEVELS, found=mkl_fake(build))
    setting.switch.write(2)
    with pytest.raises(RuntimeError, match=r"MKL_Verbose\(7\) was refused"):
        setting.switch.write(7)
    assert setting.switch.read() == 2


@pytest.mark.parametrize(
    ("macro", "because"),
    [
        ("KIND=1", "its mkl_serv_verbose_mode does not lead to a level"),
        ("KIND=2", "its mkl_serv_verbose_mode does not lead to a level"),
        ("NO_GETTER", "libtorch_cpu.so has no mkl_serv_verbose_mode"),
    ],
)
def test_an_mkl_that_cannot_be_asked_is_not_switched(build, macro, because):
    found = mkl_fake(build, macro)
    assert (found.found, found.missing) == ((), {"mkl[torch].verbose": because})


def test_a_file_without_mkl_is_named(build):
    path = build("onednn", name="libtorch_cpu.so")
    ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    found = take_levels(Inventory(files={"mkl[torch]": path}), [])
    assert found.missing == {"mkl[torch].verbose": "it has no MKL_Verbose"}


def test_the_switch_keeps_the_protocol(build):
    [setting] = verbose.settings(LEVELS, LEVELS, found=mkl_fake(build))
    assert isinstance(setting.switch, Switch)
    assert (setting.switch.reach, setting.switch.latch) == ("process", "anytime")
    [outcome] = foresee([setting]).outcomes
    assert (outcome.state, outcome.before, outcome.wanted) == ("set", 0, 1)


def test_a_profile_that_says_nothing_about_it_leaves_it_alone(build):
    found = mkl_fake(build)
    assert verbose.settings(LEVELS, {"threads.count"}, found=found) == []
    assert verbose.settings(LEVELS, {"mkldnn.verbose"}, found=found) == []


@with_torch
def test_the_variables_are_not_too_late_where_a_call_does_the_same(answer):
    code = """
import json, torch
from backendcfg.bridges import environment
values = {"mkl.verbose": 1, "mkldnn.verbose": 1}
found = environment.settings(values, list(values))
print(json.dumps([[each.switch.name, each.switch.too_late()] for each in found]))
"""
    assert answer(code) == [["MKL_VERBOSE", ""], ["ONEDNN_VERBOSE", ""]]


def test_the_variable_is_too_late_for_a_onednn_that_cannot_be_reached(answer):
    code = """
import json, sys, types, numpy
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
from backendcfg.bridges import environment
[found] = environment.settings({"mkldnn.verbose": 1}, ["mkldnn.verbose"])
print(json.dumps(found.switch.too_late()))
"""
    assert answer(code) == (
        "onednn[tensorflow] read it when loaded, and no call replaces it: "
        "TensorFlow hides the calls of the oneDNN inside it"
    )
