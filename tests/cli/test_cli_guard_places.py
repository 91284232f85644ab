"""`run --guard` says which line set a switch, and which drew what no seed governs."""

from __future__ import annotations

import json
import sys

import pytest

NOTHING = "guard: the program changed no switch\n"
UNSEEDED = "guard: the program drew what no seed governs\n"
SECRETS = "guard: the program drew secrets, which no profile seeds\n"


@pytest.fixture(name="guarded")
def _guarded(process, project):
    """Run the lines of a program as train.py under a profile and guard; what it is told."""

    def guarded(*lines, profile="base", modules=(), settings=()):
        for name, text in dict(modules).items():
            (project / name).write_text(text)
        (project / "train.py").write_text("\n".join(lines) + "\n")
        overs = [word for setting in settings for word in ("--set", setting)]
        words = ("run", "--guard", *overs, profile, "--", sys.executable, "train.py")
        result = process(*words, variables={"PYTHONSAFEPATH": ""})
        assert result.code == 0, result.err
        return result.err

    return guarded


def changed(*lines):
    count = "1 switch" if len(lines) == 1 else f"{len(lines)} switches"
    return f"guard: the program changed {count}\n" + "".join(f"  {line}\n" for line in lines)


def test_the_line_that_set_a_variable_last_is_named(guarded):
    told = guarded(
        "import os",
        "os.environ['MKL_CBWR'] = 'AVX2'",
        "os.environ['MKL_CBWR'] = 'COMPATIBLE'",
        "os.environ['NVIDIA_TF32_OVERRIDE'] = '1'",
    )
    assert told == changed(
        "`MKL_CBWR` was unset and is COMPATIBLE, set at train.py:3",
        "`NVIDIA_TF32_OVERRIDE` was unset and is 1, set at train.py:4",
    )


@pytest.mark.exhaustive
def test_the_line_of_a_module_is_named_that_set_it_for_the_program(guarded):
    told = guarded(
        "import helper",
        "helper.prepare()",
        modules={"helper.py": "import os\ndef prepare():\n    os.environ['MKL_CBWR'] = 'AVX2'\n"},
    )
    assert told == changed("`MKL_CBWR` was unset and is AVX2, set at helper.py:3")


@pytest.mark.exhaustive
def test_what_a_library_set_names_its_line_and_the_programs(guarded, project):
    (project / "site-packages" / "trainer").mkdir(parents=True)
    (project / "site-packages" / "trainer" / "__init__.py").write_text(
        "import os\ndef fit():\n    os.environ['MKL_CBWR'] = 'AVX2'\n"
    )
    told = guarded(
        "import sys; sys.path.insert(0, 'site-packages')",
        "import trainer",
        "trainer.fit()",
    )
    where = "trainer/__init__.py:3 for train.py:3"
    assert told == changed(f"`MKL_CBWR` was unset and is AVX2, set at {where}")


LINES = {
    "torch.backends.cudnn.benchmark = True": "torch.backends.cudnn.benchmark",
    "torch.use_deterministic_algorithms(True)": "torch.deterministic_algorithms",
    "torch.set_num_threads(2)": "torch.num_threads",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'": "cudnn.conv.fp32_precision",
    "torch.backends.cuda.matmul.allow_tf32 = True": "cuda.matmul.fp32_precision",
    "torch.backends.opt_einsum.enabled = False": "opt_einsum.enabled",
    "torch.backends.cuda.enable_flash_sdp(False)": "cuda.enable_flash_sdp",
    "torch.backends.mha.set_fastpath_enabled(False)": "mha.fastpath_enabled",
    "torch.utils.deterministic.fill_uninitialized_memory = False": "fill_uninitialized_memory",
    "torch.set_default_dtype(torch.float64)": "torch.default_dtype",
    "torch.set_default_device('meta')": "torch.default_device",
}


@pytest.mark.torch
def test_the_line_that_set_a_switch_of_pytorch_is_named(process, project):
    (project / "train.py").write_text("\n".join(["import torch", *LINES]))
    result = process("run", "--guard", "--json", "base", "--", sys.executable, "train.py")
    found = {
        one["what"]["switch"]: one["what"]["place"] for one in json.loads(result.out)["changes"]
    }
    named = [
        next((place for switch, place in found.items() if part in switch), part)
        for part in LINES.values()
    ]
    assert named == [f"train.py:{number}" for number in range(2, 2 + len(LINES))]


@pytest.mark.jax
def test_the_line_that_set_an_option_of_jax_is_named(guarded):
    # While it is imported, JAX draws from NumPy's generator.
    told = guarded(
        "import jax", "jax.config.update('jax_enable_x64', True)", settings=["seed.value=1"]
    )
    assert told == changed("`jax.enable_x64` was false and is true, set at train.py:2")


@pytest.mark.exhaustive
def test_the_line_that_limits_the_threads_of_a_pool_is_named(guarded):
    pytest.importorskip("numpy")
    told = guarded(
        "import numpy, threadpoolctl",
        "limits = threadpoolctl.threadpool_limits(1)",
        settings=["threads.count=2"],
    )
    assert told == changed("`openblas[numpy].threads` was 2 and is 1, set at train.py:2")


@pytest.mark.torch
def test_a_switch_that_is_put_back_is_no_change(guarded):
    told = guarded(
        "import torch",
        "for _ in range(300):",
        "    with torch.backends.cudnn.flags(enabled=True, benchmark=True): pass",
    )
    assert "benchmark" not in told


@pytest.mark.torch
def test_a_flag_that_the_program_sets_by_us_is_its_change_and_names_its_line(guarded):
    told = guarded(
        "import torch",
        "from backendcfg import backends",
        "backends.cudnn.benchmark = True",
    )
    assert told == changed(
        "`torch.backends.cudnn.benchmark` was false and is true, set at train.py:3"
    )


@pytest.mark.torch
def test_compiled_code_that_calls_what_is_watched_is_compiled_as_without(process, project):
    (project / "train.py").write_text(
        "import torch\n"
        "def step(x):\n"
        "    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):\n"
        "        torch.use_deterministic_algorithms(True)\n"
        "        torch.set_float32_matmul_precision('high')\n"
        "        return x.sin()\n"
        "print(torch.compile(step, backend='eager', fullgraph=True)(torch.zeros(1)).item())\n"
    )
    result = process("run", "--guard", "base", "--", sys.executable, "train.py")
    assert (result.code, result.out) == (0, "0.0\n")


def test_verify_in_the_program_names_the_line_and_what_was_drawn(process, project):
    pytest.importorskip("numpy")
    (project / "train.py").write_text(
        "import os, numpy, backendcfg\n"
        "os.environ['OMP_NUM_THREADS'] = '7'\n"
        "numpy.random.default_rng()\n"
        "found = backendcfg.verify()\n"
        "print([one.by for one in found.readings if one.switch == 'OMP_NUM_THREADS'])\n"
        "print(found.draws)\n"
        "print(repr(found).splitlines()[-1])\n"
    )
    result = process("run", "--guard", "base", "--", sys.executable, "train.py")
    draw = "numpy.random.default_rng() without a seed at train.py:3"
    assert result.out.splitlines() == [
        "['the program set it at train.py:2']",
        f"('{draw}',)",
        f"  drawn {draw}",
    ]
    assert process("run", "base", "--", sys.executable, "train.py").out.splitlines()[1] == "()"


@pytest.mark.slow
def test_generators_that_are_made_without_a_seed_are_named_with_their_lines(guarded):
    pytest.importorskip("numpy")
    told = guarded(
        "import random, numpy as np",
        "np.random.default_rng()",
        "np.random.RandomState()",
        "np.random.Generator(np.random.PCG64())",
        "random.Random()",
        "for _ in range(1000): np.random.default_rng()",
    )
    assert told == NOTHING + UNSEEDED + (
        "  numpy.random.default_rng() without a seed at train.py:2\n"
        "  numpy.random.RandomState() without a seed at train.py:3\n"
        "  numpy.random.PCG64() without a seed at train.py:4\n"
        "  random.Random() without a seed at train.py:5\n"
        "  numpy.random.default_rng() without a seed at train.py:6\n"
    )


@pytest.mark.torch
def test_functions_that_draw_without_a_seed_are_named(guarded):
    told = guarded(
        "import random, numpy, torch",
        "random.random(); numpy.random.rand(); torch.rand(1)",
    )
    assert told == NOTHING + UNSEEDED + (
        "  the functions of `random` without a seed\n"
        "  the functions of `numpy.random` without a seed\n"
        "  the functions of `torch` without a seed\n"
    )


@pytest.mark.torch
def test_a_programs_own_seeds_are_seeds(guarded):
    told = guarded(
        "import random, numpy as np, torch",
        "random.seed(1); np.random.seed(1); torch.manual_seed(1)",
        "random.random(); np.random.rand(); torch.rand(1)",
        "random.Random(3).random()",
        "np.random.default_rng(3), np.random.RandomState(4), np.random.RandomState(seed=4)",
    )
    assert told == NOTHING


@pytest.mark.torch
def test_what_a_profile_seeds_is_governed(guarded):
    told = guarded(
        "import random, numpy as np, torch",
        "random.random(); np.random.rand(); torch.rand(1)",
        "random.Random(), np.random.default_rng(), np.random.RandomState()",
        settings=["seed.value=1"],
    )
    assert told == NOTHING
    told = guarded(
        "import numpy as np",
        "np.random.default_rng()",
        settings=["seed.value=1", "seed.numpy=false"],
    )
    assert (
        told == NOTHING + UNSEEDED + "  numpy.random.default_rng() without a seed at train.py:2\n"
    )


DRAWS_SECRETS = (
    "import os, random, secrets, uuid, tempfile, multiprocessing",
    "print(uuid.uuid4())",
    "print(secrets.token_hex())",
    "print(secrets.choice(range(10**18)))",
    "print(random.SystemRandom().random())",
    "print(os.urandom(16))",
    "print(tempfile.mktemp())",
)
NAMES_OF_SECRETS = SECRETS + (
    "  uuid.uuid4() at train.py:2\n"
    "  secrets.token_hex() at train.py:3\n"
    "  random.SystemRandom.choice() at train.py:4\n"
    "  random.SystemRandom.random() at train.py:5\n"
    "  os.urandom() at train.py:6\n"
)


@pytest.mark.exhaustive
def test_secrets_are_named_and_stay_unpredictable_under_the_profile_that_seeds_all(
    process, project
):
    (project / "train.py").write_text("\n".join(DRAWS_SECRETS))
    words = ("run", "--guard=error", "reproducible", "--", sys.executable, "train.py")
    first, second = process(*words), process(*words)
    assert (first.code, first.err) == (second.code, second.err) == (0, NOTHING + NAMES_OF_SECRETS)
    drawn = [*first.out.splitlines(), *second.out.splitlines()]
    assert len(set(drawn)) == len(drawn) == 12


@pytest.mark.exhaustive
def test_what_python_and_numpy_draw_for_themselves_is_not_named(guarded):
    pytest.importorskip("numpy")
    told = guarded(
        "import tempfile, multiprocessing, ssl, numpy.random, email.generator, asyncio",
        "tempfile.mkdtemp()",
    )
    assert told == NOTHING


@pytest.mark.sweep(1)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_workers_draw_is_named_also_when_a_signal_ends_them(method, guarded):
    told = guarded(
        "import multiprocessing, os, random",
        "def work(number):",
        "    random.Random(); return number",
        "if __name__ == '__main__':",
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:",
        "        pool.map(work, [1, 2])",
    )
    assert told == NOTHING + UNSEEDED + "  random.Random() without a seed at train.py:3\n"


@pytest.mark.exhaustive
def test_a_forked_child_that_draws_nothing_is_not_said_to_draw(guarded):
    told = guarded(
        "import os, random",
        "if not os.fork(): raise SystemExit",
        "os.wait()",
    )
    assert told == NOTHING
