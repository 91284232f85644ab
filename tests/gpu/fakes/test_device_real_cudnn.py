"""What NVIDIA's own cuDNN says of our graphs without a device, where its wheel is installed."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compiling import FAKES, FLAGS, NATIVE

from backendcfg.gpu.cudnn.graph import NOTES
from backendcfg.gpu.libraries.files import World, find
from backendcfg.gpu.libraries.opening import OpenLibrary, open_device
from backendcfg.gpu.libraries.signatures import CUDNN

PROGRAM = Path(__file__).with_name("real_cudnn.py")
COMPILES = "libcudnn_engines_runtime_compiled.so.9"


@pytest.fixture(scope="module")
def cudnn():
    world = World(root="/nowhere", prefix="/nowhere", environment={}, mapped=())
    files = [Path(file.path) for file in find("cudnn", world)]
    if not files or not (files[0].parent / COMPILES).is_file():
        pytest.skip("NVIDIA's wheel of cuDNN is 0.7 GB, too large for every run")
    assert isinstance(open_device("cudnn", world), OpenLibrary)
    return files[0]


@pytest.fixture(scope="module")
def driver(cudnn, tmp_path_factory):
    """A folder with a driver that has every function that cuDNN's own libraries link to."""
    folder = tmp_path_factory.mktemp("driver")
    missing = []
    for _ in range(32):
        more = folder / "more.c"
        exported = '__attribute__((visibility("default"))) int {}(void) {{ return 801; }}\n'
        more.write_text("".join(exported.format(name) for name in missing))
        target = folder / "libcuda.so.1"
        subprocess.run(
            [
                "cc",
                *FLAGS,
                f"-I{NATIVE / 'include'}",
                "-Wl,-soname,libcuda.so.1",
                str(FAKES / "cuda.c"),
                str(more),
                "-o",
                str(target),
                "-lm",
            ],
            check=True,
        )
        said = load(cudnn.parent / COMPILES, folder)
        if not (name := re.search(r"undefined symbol: (cu\w+)", said)):
            assert said == ""
            return folder
        missing.append(name.group(1))
    raise AssertionError(missing)


def load(path, folder):
    """What the loader says of a library, in a process that finds the driver."""
    program = f"import ctypes\ntry: ctypes.CDLL({str(path)!r})\nexcept OSError as e: print(e)"
    return run([sys.executable, "-c", program], folder).stdout.strip()


def run(command, folder):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
    )


@pytest.fixture(scope="module")
def answers(cudnn, driver):
    done = run([sys.executable, str(PROGRAM), str(cudnn)], driver)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def with_notes(answers, problem, *refused):
    """The plans that could be made for a problem, by engines without some notes."""
    numbers = {NOTES[name] for name in refused}
    return [
        workspace
        for mode in ("fastest", "fallback")
        for notes, status, workspace in answers[problem][mode]
        if status == 0 and not numbers & set(notes)
    ]


PROBLEMS = ("float32", "float64", "float16", "bfloat16", "channels last", "depthwise")


@pytest.mark.parametrize("problem", [*PROBLEMS, "an odd zero"])
def test_it_has_engines_that_the_flags_allow(answers, problem):
    assert with_notes(answers, problem, "DOWN_CONVERT_INPUTS")
    assert with_notes(answers, problem, "DOWN_CONVERT_INPUTS", "NONDETERMINISTIC")


@pytest.mark.parametrize("problem", ["float32", "depthwise", "an odd zero"])
def test_float32_without_tf32_has_engines_too(answers, problem):
    assert with_notes(answers, problem, "DOWN_CONVERT_INPUTS", "NONDETERMINISTIC", "TENSOR_CORE")


def test_the_first_engines_for_float32_use_tensor_cores(answers):
    notes, _, _ = answers["float32"]["fastest"][0]
    assert NOTES["TENSOR_CORE"] in notes


def test_the_fake_has_the_functions_of_the_library(cudnn, device_file):
    ours, theirs = ctypes.CDLL(device_file("libcudnn.so.9")), ctypes.CDLL(str(cudnn))
    assert len(CUDNN.functions) == 12
    assert all(hasattr(library, name) for library in (ours, theirs) for name in CUDNN.functions)
