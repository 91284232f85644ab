"""`mkl.verbose` and `mkldnn.verbose`, seen in what the real libraries print."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

import pytest

from backendcfg.backends import mkl, mkldnn
from backendcfg.errors import InvalidValueError, WrongTypeError

NO_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


def with_torch(test):
    """Mark a test that needs PyTorch."""
    return pytest.mark.torch(NO_TORCH(test))


TORCH = """
import os, torch
from backendcfg.backends import mkl, mkldnn
square, image = torch.ones(8, 8), torch.ones(2, 3, 64, 64)
made = iter(range(8, 64))
def say(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
def multiply():
    square @ square
def convolve():
    torch.conv2d(image, torch.ones(next(made), 3, 3, 3))
"""


def said(printed):
    """What a child printed, with each line of a library reduced to the call that it tells of."""
    lines = []
    for line in printed.splitlines():
        if line.startswith("MKL_VERBOSE "):
            call = line.split()[1].partition("(")[0]
            lines += [] if call == "oneMKL" else [call]
        elif line.startswith("onednn_verbose,"):
            words = line.split(",")
            told = words[3].startswith(("create", "exec")) and words[5] == "convolution"
            lines += [words[3].partition(":")[0]] if told else []
        else:
            lines.append(line)
    return lines


def test_the_levels_are_pytorchs():
    assert (mkl.VERBOSE_OFF, mkl.VERBOSE_ON) == (0, 1)
    assert (mkldnn.VERBOSE_OFF, mkldnn.VERBOSE_ON, mkldnn.VERBOSE_ON_CREATION) == (0, 1, 2)
    assert (mkl.verbose(1).enable, mkldnn.verbose(2).level) == (1, 2)


@with_torch
def test_each_prints_inside_its_scope_and_they_nest(python):
    """On leaving an inner one PyTorch turns the outer one off (T41)."""
    code = f"""{TORCH}
multiply()
with mkl.verbose(mkl.VERBOSE_ON) as scope:
    say("outer", scope.enable); multiply()
    with mkl.verbose(mkl.VERBOSE_OFF):
        say("inner off"); multiply()
    say("outer again"); multiply()
    with mkl.verbose(mkl.VERBOSE_ON):
        say("inner on"); multiply()
    say("outer at last"); multiply()
say("left"); multiply()
"""
    assert said(python(code)) == [
        *("outer 1", "SGEMM", "inner off", "outer again", "SGEMM"),
        *("inner on", "SGEMM", "outer at last", "SGEMM", "left"),
    ]


@with_torch
def test_onednn_prints_at_each_level_and_nests(python):
    code = f"""{TORCH}
convolve()
with mkldnn.verbose(mkldnn.VERBOSE_ON):
    say("on"); convolve()
    with mkldnn.verbose(mkldnn.VERBOSE_ON_CREATION):
        say("creation"); convolve()
    say("on again"); convolve()
    with mkldnn.verbose(mkldnn.VERBOSE_OFF):
        say("off"); convolve()
say("left"); convolve()
"""
    assert said(python(code)) == [
        *("on", "exec", "creation", "create", "exec", "on again", "exec", "off", "left"),
    ]


@with_torch
@pytest.mark.parametrize("leaving", [0, 1])
def test_what_the_environment_turned_on_is_on_again_afterwards(python, leaving):
    """PyTorch's `verbose(0)` does nothing on entering and silences everything on leaving (T41)."""
    code = f"""{TORCH}
with mkl.verbose({leaving}), mkldnn.verbose({leaving}):
    say("inside"); multiply(); convolve()
say("after"); multiply(); convolve()
"""
    lines = said(python(code, MKL_VERBOSE="1", ONEDNN_VERBOSE="1"))
    inside = ["SGEMM", "exec"] if leaving else []
    assert lines == ["inside", *inside, "after", "SGEMM", "exec"]


@with_torch
def test_pytorchs_own_contexts_still_silence_what_the_environment_turned_on(python):
    """The trap itself, so that the test above is known to guard against something."""
    code = f"""{TORCH}
with torch.backends.mkl.verbose(0), torch.backends.mkldnn.verbose(0):
    say("inside"); multiply(); convolve()
say("after"); multiply(); convolve()
"""
    lines = said(python(code, MKL_VERBOSE="1", ONEDNN_VERBOSE="1"))
    assert lines == ["inside", "SGEMM", "exec", "after"]


@with_torch
def test_a_level_comes_back_after_an_error(python):
    code = f"""{TORCH}
try:
    with mkl.verbose(1):
        raise ValueError
except ValueError:
    say("left"); multiply()
"""
    assert said(python(code)) == ["left"]


@with_torch
def test_pytorch_may_be_imported_inside(python):
    head, _, rest = TORCH.partition("\nfrom")
    code = f"""
import os
from backendcfg.backends import mkl, mkldnn
with mkl.verbose(1):
    {head.strip()}
    from{rest.replace(chr(10), chr(10) + "    ")}
    say("inside"); multiply()
say("left"); multiply()
"""
    assert said(python(code)) == ["inside", "SGEMM", "left"]


@with_torch
def test_a_profile_of_the_process_talks_until_it_is_taken_back(python):
    code = f"""{TORCH}
import backendcfg
report = backendcfg.apply(settings={{"mkl.verbose": 1, "mkldnn.verbose": 1}})
states = {{each.switch: each.state for each in report.outcomes}}
say(states["mkl[torch].verbose"], states["onednn[torch].verbose"], states["MKL_VERBOSE"])
multiply(); convolve()
with mkl.verbose(0):
    say("quiet"); multiply()
multiply()
backendcfg.undo()
say("undone", os.environ.get("MKL_VERBOSE")); multiply(); convolve()
"""
    assert said(python(code)) == [
        *("set set set", "SGEMM", "exec", "quiet", "SGEMM", "undone None"),
    ]


WHEEL = """
import ctypes, os, numpy, sys
import backendcfg
from backendcfg.backends import mkl
library = ctypes.CDLL({path!r}, mode=os.RTLD_LOCAL | os.RTLD_LAZY)
a, c = numpy.ones((8, 8)), numpy.ones((8, 8))
def say(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())
def multiply():
    at = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    one, zero = ctypes.c_double(1), ctypes.c_double(0)
    library.cblas_dgemm(101, 111, 111, 8, 8, 8, one, at(a), 8, at(a), 8, zero, at(c), 8)
def layers():
    return sum("libmkl_core" in line for line in open("/proc/self/maps")) > 0
"""


@pytest.fixture(name="wheel")
def _wheel():
    """A program that has loaded the MKL of the wheel."""
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        pytest.skip("the mkl wheel is not installed")
    path = next(f for f in files if f.name.startswith("libmkl_rt.so")).locate().resolve()
    return WHEEL.format(path=str(path))


@pytest.mark.mkl
def test_the_mkl_wheel_prints_inside_the_scope(python, wheel):
    code = f"""{wheel}
say(mkl.is_available())
with mkl.verbose(1):
    multiply()
    with mkl.verbose(0):
        say("off"); multiply()
    multiply()
say("left"); multiply()
with mkl.verbose(1):
    multiply()
"""
    assert said(python(code)) == ["True", "DGEMM", "off", "DGEMM", "left", "DGEMM"]


@pytest.mark.slow
@pytest.mark.mkl
def test_a_profile_makes_a_wheel_talk_by_its_variable_without_starting_it(python, wheel):
    code = f"""{wheel}
backendcfg.apply(settings={{"mkl.verbose": 1}})
backendcfg.undo()
backendcfg.apply(settings={{"mkl.verbose": 1}})
say("started", layers()); multiply()
backendcfg.undo()
say("undone"); multiply()
"""
    assert said(python(code)) == ["started False", "DGEMM", "undone"]


@pytest.mark.parametrize(
    ("scope", "level", "error", "message"),
    [
        (mkl.verbose, 2, InvalidValueError, "`mkl.verbose` must be 0 or 1, not 2"),
        (mkl.verbose, True, WrongTypeError, "`mkl.verbose` must be 0 or 1, not true"),
        (
            mkldnn.verbose,
            3,
            InvalidValueError,
            "`mkldnn.verbose` must be an integer from 0 to 2, not 3",
        ),
        (
            mkldnn.verbose,
            "1",
            WrongTypeError,
            '`mkldnn.verbose` must be an integer from 0 to 2, not the string "1"',
        ),
    ],
)
def test_other_levels_are_refused_on_entering(scope, level, error, message):
    with pytest.raises(error) as caught, scope(level):
        pytest.fail("the scope was entered")
    assert caught.value.message == message
