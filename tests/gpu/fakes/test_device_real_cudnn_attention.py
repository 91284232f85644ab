"""What NVIDIA's own cuDNN says of our graphs of attention, where the wheels that it needs are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compiling import FLAGS
from test_device_real_cudnn import COMPILES, cudnn, load  # noqa: F401 - one is a fixture

from backendcfg.gpu.cudnn.graph import NOTES

PROGRAM = Path(__file__).with_name("real_cudnn_attention.py")
NEEDED = {"libnvrtc.so.*": "its compiler", "libcublasLt.so.*": "cuBLASLt"}
# Plans are made of code that was loaded, so these must seem to give something.
GIVES = re.compile(r"cu(Library|Kernel|Module)(Load|Get)(Data|FromFile|Kernel|Function)$")
GIVING = "int {}(void **place) {{ static int made; *place = &made; return 0; }}"


@pytest.fixture(scope="module")
def folders():
    found = []
    for pattern, what in NEEDED.items():
        files = [each for path in sys.path for each in Path(path).glob(f"nvidia/*/lib/{pattern}")]
        if not files:
            pytest.skip(f"NVIDIA's wheel of {what}, too large for every run, is not here")
        found.append(str(files[0].parent))
    return found


def asked(program, cudnn, folders, folder):  # noqa: F811
    """What a program prints of cuDNN, which finds a driver there that has what it links to."""
    missing = set()
    for _ in range(64):
        functions = [
            GIVING.format(name) if GIVES.match(name) else f"int {name}(void) {{ return 0; }}"
            for name in sorted(missing)
        ]
        (folder / "more.c").write_text(
            "".join(f'__attribute__((visibility("default"))) {each}\n' for each in functions)
        )
        command = ["cc", *FLAGS, "-Wl,-soname,libcuda.so.1", str(folder / "more.c")]
        subprocess.run([*command, "-o", str(folder / "libcuda.so.1")], check=True)
        done = subprocess.run(
            [sys.executable, str(program), str(cudnn)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": ":".join([str(folder), str(cudnn.parent), *folders]),
            },
        )
        text = done.stdout + done.stderr + load(cudnn.parent / COMPILES, folder)
        more = set(re.findall(r"undefined symbol: (cu\w+)|Could not load symbol (cu\w+)", text))
        names = {name for pair in more for name in pair if name} - missing
        if not names:
            break
        missing |= names
    said = [line for line in done.stdout.splitlines() if line.startswith("answers: ")]
    assert said, text
    return json.loads(said[0].partition(": ")[2])


@pytest.fixture(scope="module")
def answers(cudnn, folders, tmp_path_factory):  # noqa: F811
    """By problem and device: (notes, status, workspace) of each engine's plan."""
    return asked(PROGRAM, cudnn, folders, tmp_path_factory.mktemp("driver"))


WELL = ["plain", "float16", "causal", "logsumexp", "groups", "narrow", "mask", "mask of rows"]


@pytest.mark.parametrize("capability", ["80", "90", "100", "120"])
@pytest.mark.parametrize("problem", [*WELL, "everything"])
def test_it_makes_plans_of_our_graphs(answers, problem, capability):
    found = answers[problem][capability]
    assert found
    assert [status for _, status, _ in found] == [0] * len(found)


def test_no_engine_for_attention_may_vary_from_run_to_run(answers):
    notes = [
        notes for devices in answers.values() for found in devices.values() for notes, _, _ in found
    ]
    assert notes
    assert not [each for each in notes if NOTES["NONDETERMINISTIC"] in each]


def test_it_has_no_engine_for_widths_that_are_no_multiples_of_8(answers):
    assert [*answers["of width 12"].values()] == [[]] * 4
