"""A hand-tuned process becomes a profile that gives a fresh process the same state."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tomllib

import pytest

STATE = """
import json
import numpy, scipy.linalg, threadpoolctl, torch
def state():
    backends = torch.backends
    def legacy(read):
        try:
            return read()
        except RuntimeError:
            return "mixed"
    return {
        "pools": sorted(
            (pool["prefix"], pool["num_threads"], pool.get("architecture"))
            for pool in threadpoolctl.threadpool_info()
        ),
        "threads": torch.get_num_threads(),
        "interop": torch.get_num_interop_threads(),
        "matmul": legacy(torch.get_float32_matmul_precision),
        "tf32": [legacy(lambda: backends.cuda.matmul.allow_tf32),
                 legacy(lambda: backends.cudnn.allow_tf32)],
        "leaves": [part.fp32_precision for part in (
            backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn,
            backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn)],
        "cudnn": [backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic],
        "mkldnn": [backends.mkldnn.enabled, backends.mkldnn.deterministic],
        "nnpack": torch._C._get_nnpack_enabled(),
        "fastpath": backends.mha.get_fastpath_enabled(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "sdp": [backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(),
                backends.cuda.math_sdp_enabled(), backends.cuda.cudnn_sdp_enabled(),
                backends.cuda.fp16_bf16_reduction_math_sdp_allowed()],
        "half": [backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
                 backends.cuda.matmul.allow_fp16_reduced_precision_reduction_split_k,
                 backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
                 backends.cuda.matmul.allow_fp16_accumulation],
        "engine": backends.quantized.engine,
        "einsum": [backends.opt_einsum.enabled, backends.opt_einsum.strategy],
        "linalg": str(backends.cuda.preferred_linalg_library()),
    }
"""

TUNINGS = (
    "torch.set_float32_matmul_precision({!r})",
    "torch.backends.cudnn.allow_tf32 = {}",
    "torch.backends.cudnn.benchmark = {}",
    "torch.backends.cudnn.enabled = {}",
    "torch.backends.mkldnn.enabled = {}",
    "torch.backends.mkldnn.deterministic = {}",
    "torch.backends.nnpack.set_flags({})",
    "torch.backends.mha.set_fastpath_enabled({})",
    "torch.use_deterministic_algorithms(True, warn_only={})",
    "torch.utils.deterministic.fill_uninitialized_memory = {}",
    "torch.backends.cuda.enable_flash_sdp({})",
    "torch.backends.cuda.enable_cudnn_sdp({})",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = {}",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = (False, {})",
    "torch.backends.cuda.matmul.allow_fp16_accumulation = {}",
    "torch.backends.quantized.engine = {!r}",
    "torch.backends.opt_einsum.set_flags(True, {!r})",
    "torch.set_num_interop_threads({})",
    "torch.set_num_threads({0}); limits = threadpoolctl.threadpool_limits({0})",
)
VALUES = {
    "set_float32_matmul_precision": ("highest", "high", "medium"),
    "quantized.engine": ("onednn", "fbgemm", "x86"),
    "opt_einsum": ("greedy", "optimal"),
    "interop": (1, 3),
    "num_threads": (1, 2),
}


def tuned(seed):
    """Some statements that a person might write."""
    chance = random.Random(seed)
    lines = []
    for statement in chance.sample(TUNINGS, 14):
        values = next((v for part, v in VALUES.items() if part in statement), (True, False))
        lines.append(statement.format(chance.choice(values)))
    return lines


@pytest.mark.torch
@pytest.mark.parametrize(("seed", "core"), [(0, None), (1, "Prescott")])
def test_random_tuning_comes_back_in_a_fresh_process(python, backendcfg, tmp_path, seed, core):
    lines = tuned(seed)
    by_hand = "\n".join(
        [
            "import os",
            f"os.environ['OPENBLAS_CORETYPE'] = {core!r}" if core else "",
            STATE,
            *lines,
            "print(json.dumps(state()))",
            "import backendcfg",
            "captured = backendcfg.capture()",
            "captured.write('captured.toml')",
            "print(json.dumps(captured.notes))",
            "assert len(captured.flags) >= 3, captured",
        ]
    )
    wanted, notes = map(json.loads, python(by_hand).splitlines())
    assert [note for note in notes if "was set in the environment" not in note] == [], lines
    fresh = subprocess.run(
        [
            sys.executable,
            "-m",
            "backendcfg",
            "run",
            "./captured.toml",
            "--",
            sys.executable,
            "-c",
            STATE + "print(json.dumps(state()))",
        ],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert fresh.returncode == 0, fresh.stderr
    assert json.loads(fresh.stdout.splitlines()[-1]) == wanted, lines


def captured_by(python, program):
    """What `capture()` makes of a program: flags, notes, and what else the program prints."""
    printed = python(
        program
        + """
import json, backendcfg
found = backendcfg.capture()
print(json.dumps([found.flags, [n for n in found.notes if "NVPL" not in n], found.to_toml()]))
"""
    )
    flags, notes, text = json.loads(printed.splitlines()[-1])
    document = tomllib.loads(text)
    assert document.pop("schema") == 1
    return flags, notes, text


@pytest.mark.slow
def test_what_nobody_tuned_is_not_written(python):
    flags, notes, text = captured_by(python, "import numpy, scipy.linalg")
    assert (flags, notes) == ({}, [])
    assert text.splitlines()[-2:] == [
        "schema = 1",
        'description = "Captured from ' + text.splitlines()[-1].partition("from ")[2],
    ]


@pytest.mark.exhaustive
def test_one_count_cannot_say_that_two_libraries_have_two(python):
    flags, notes, text = captured_by(
        python,
        """
import numpy, scipy.linalg, threadpoolctl
from threadpoolctl import ThreadpoolController
numpys = ThreadpoolController().select(filepath=[
    pool["filepath"] for pool in threadpoolctl.threadpool_info() if "numpy" in pool["filepath"]
])
limit = numpys.limit(limits=1)
""",
    )
    assert flags == {"threads.count": 1}
    note = "`openblas[scipy].threads` is 2 and would be 1: `threads.count` is one for all"
    assert notes == [note]
    assert f"# Not expressed:\n#   - {note}\n" in text


def test_variables_that_no_switch_tells_are_taken_from_the_environment(python):
    flags, notes, _ = captured_by(
        python,
        """
import os
os.environ.update(
    MKL_CBWR="COMPATIBLE",
    ATEN_CPU_CAPABILITY="avx2",
    ONEDNN_MAX_CPU_ISA="SOMETHING",
    XLA_PYTHON="0",
    NVIDIA_TF32_OVERRIDE="0",
    TF_ENABLE_ONEDNN_OPTS="0",
)
""",
    )
    assert flags == {
        "blas.mkl.cbwr": "compatible",
        "torch.cpu_capability": "avx2",
        "tensorflow.onednn_opts": False,
    }
    assert sorted(notes) == [
        "`NVIDIA_TF32_OVERRIDE=0` was set in the environment, and no flag stands for it",
        "`ONEDNN_MAX_CPU_ISA=SOMETHING` is nothing that `onednn.max_cpu_isa` can be",
    ]


@pytest.mark.exhaustive
def test_a_profile_in_force_is_captured_with_what_was_changed_by_hand(python):
    flags, notes, _ = captured_by(
        python,
        """
import backendcfg, numpy, threadpoolctl
backendcfg.apply(settings={"ops.check_finite": True, "cudnn.benchmark": True, "threads.count": 1})
limits = threadpoolctl.threadpool_limits(2)
""",
    )
    assert flags["ops.check_finite"] is True
    assert flags["cudnn.benchmark"] is True
    assert flags.get("threads.count", 2) == 2
    assert notes == []


@pytest.mark.exhaustive
def test_what_the_process_has_and_this_machine_refuses_is_said(python):
    _, notes, _ = captured_by(
        python,
        """
import os
os.environ["OPENBLAS_CORETYPE"] = "Sandybridge"
import numpy
import backendcfg.audit.capture as captured
captured.plan = None
from backendcfg import errors
from backendcfg.session import planning
def refuse(path):
    raise errors.UnsupportedHardwareError("it needs another processor")
planning.plan = refuse
""",
    )
    assert notes == ["this machine refuses it: it needs another processor"]


def test_everything_is_written_on_request_and_needs_no_other_process(python):
    printed = python(
        """
import json, numpy, backendcfg
from backendcfg import childprocess
childprocess.ask = None
print(json.dumps(backendcfg.capture(everything=True).flags))
"""
    )
    flags = json.loads(printed)
    assert flags["threads.count"] == 2
    assert flags["blas.openblas.core_type"] not in ("", "auto")


def test_a_file_that_is_there_is_not_overwritten_unasked(python, tmp_path):
    (tmp_path / "mine.toml").write_text("precious")
    printed = python(
        """
import backendcfg
found = backendcfg.capture(everything=True)
try:
    found.write("mine.toml")
except backendcfg.errors.InvalidArgumentError as error:
    print(error.message)
print(open("mine.toml").read())
found.write("mine.toml", overwrite=True)
print(open("mine.toml").read() == found.to_toml())
"""
    )
    assert printed == "mine.toml is there already\nprecious\nTrue\n"


@pytest.mark.torch
def test_what_has_no_flag_is_said_to_be_lost(python):
    _, notes, text = captured_by(
        python,
        """
import os, torch, torch._inductor.config
torch.set_default_dtype(torch.float64)
torch.set_flush_denormal(True)
torch._inductor.config.max_autotune = True
os.environ["TORCHDYNAMO_DISABLE"] = "1"
""",
    )
    assert [note.removesuffix(", and no flag stands for it") for note in notes] == [
        "`TORCHDYNAMO_DISABLE=1` was set in the environment",
        "`thread.flush_denormal` is true",
        "`torch.default_dtype` is float64",
        "`torch._inductor.config.max_autotune` is true",
    ]
    assert all(f"#   - {note}\n" in text for note in notes)
