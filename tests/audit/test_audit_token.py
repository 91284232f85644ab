"""The token: equal where the arithmetic is, and different where it is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

WORK = """
import hashlib, json
import backendcfg, numpy as np
MODULES
rng = np.random.default_rng(7)
a = rng.standard_normal((700, 300)).astype(np.float32)
digest = hashlib.sha256()
digest.update((a.T @ a).tobytes())
digest.update(np.linalg.svd(a, compute_uv=False).tobytes())
if "scipy" in globals():
    digest.update(scipy.linalg.eigvalsh(a.T @ a).tobytes())
if "torch" in globals():
    torch.manual_seed(7)
    layer = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(16 * 62 * 62, 10))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.from_numpy(rng.standard_normal((8, 3, 64, 64)).astype(np.float32))
    for _ in range(3):
        optimizer.zero_grad()
        layer(x).square().sum().sqrt().backward()
        optimizer.step()
    digest.update(b"".join(p.detach().numpy().tobytes() for p in layer.parameters()))
    digest.update(torch.from_numpy(a).sum().numpy().tobytes())
token = backendcfg.numerics_token()
print(json.dumps([token, digest.hexdigest(), token.parts]))
"""


@pytest.fixture(name="work")
def _work(python):
    def work(modules="", **variables):
        token, bits, parts = json.loads(python(WORK.replace("MODULES", modules), **variables))
        return token, bits, parts

    return work


@pytest.mark.torch
def test_equal_tokens_are_equal_bits_under_reproducible_whatever_the_shell_presets(work):
    modules = "import torch, scipy.linalg, scipy"
    runs = [
        work(modules, BACKENDCFG_PROFILE="reproducible", PYTHONHASHSEED="0", OMP_NUM_THREADS=count)
        for count in ("1", "2")
    ]
    assert runs[0][2] == runs[1][2]
    assert runs[0][0] == runs[1][0]
    assert runs[0][1] == runs[1][1]
    # Without the profile the same two shells compute other bits, and the tokens say so.
    bare = [work(modules, PYTHONHASHSEED="0", OMP_NUM_THREADS=count) for count in ("1", "2")]
    assert bare[0][1] != bare[1][1]
    assert bare[0][0] != bare[1][0]
    assert runs[0][0] not in (bare[0][0], bare[1][0])


@pytest.mark.exhaustive
def test_another_kernel_set_is_another_token_and_other_bits(work):
    one, two = (work(OPENBLAS_CORETYPE=core) for core in ("Haswell", "Prescott"))
    assert one[0] != two[0]
    assert one[1] != two[1]
    assert work(OPENBLAS_CORETYPE="Haswell")[:2] == one[:2]


def test_it_follows_scopes_applies_and_whoever_else_writes(python):
    printed = python(
        """
import os
import backendcfg, numpy, threadpoolctl
first = backendcfg.numerics_token()
with backendcfg.profile("reproducible"):
    inside = backendcfg.numerics_token()
print(first == inside, first == backendcfg.numerics_token())
with threadpoolctl.threadpool_limits(1):
    limited = backendcfg.numerics_token()
print(limited.differences(first))
os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
print(backendcfg.numerics_token().differences(first))
del os.environ["NVIDIA_TF32_OVERRIDE"]
backendcfg.apply(settings={"cudnn.benchmark": True})
print(backendcfg.numerics_token().differences(first)["flags.cudnn.benchmark"])
backendcfg.undo()
print(backendcfg.numerics_token() == first)
backendcfg.apply(settings={"log.level": "error"})
print([name for name in backendcfg.numerics_token().differences(first) if name != "flags.order"])
"""
    )
    assert printed == (
        "False True\n"
        "{'switches.openblas[numpy].threads': (1, 2)}\n"
        "{'variables.NVIDIA_TF32_OVERRIDE': ([None, '1'], None)}\n"
        "(True, None)\n"
        "True\n"
        "[]\n"
    )


def test_it_is_a_short_text_that_says_what_it_stands_for(python):
    printed = python(
        """
import json, pickle, re
import backendcfg, numpy
token = backendcfg.numerics_token()
assert re.fullmatch("[0-9a-f]{16}", token), token
assert json.loads(json.dumps({"key": token})) == {"key": str(token)} and {token: 1}[str(token)]
assert pickle.loads(pickle.dumps(token)) == token
print(sorted(token.parts), token.parts["versions"]["numpy"] == numpy.__version__)
"""
    )
    assert printed == (
        "['devices', 'facts', 'flags', 'libraries', 'processor', 'switches', 'variables', 'versions']"
        " True\n"
    )


def test_libraries_are_told_apart_by_content_and_not_by_place(tmp_path):
    from backendcfg.audit import token

    numpy = pytest.importorskip("numpy")
    real = next((Path(numpy.__file__).parent / "_core").glob("_multiarray_umath*.so"))
    copy = tmp_path / "elsewhere.so"
    shutil.copyfile(real, copy)

    def identity(path):
        return token._identity(str(path), *token._stat(str(path)))

    assert identity(copy) == identity(real)
    with copy.open("r+b") as file:
        file.seek(0, 2)
        file.seek(file.tell() - 5)
        file.write(b"other")
    assert identity(copy) != identity(real)
    assert token._identity("/nowhere.so", 0, 0) == "unreadable: No such file or directory"


def test_it_tells_the_file_that_a_profile_names_by_its_content_also_before_it_is_opened(
    python, tmp_path
):
    printed = python(
        """
import os, backendcfg
named = os.path.abspath("mine.so")
backendcfg.apply(settings={"blas.path": named})
def token():
    made = backendcfg.numerics_token()
    return str(made), made.parts["libraries"]["mine.so"]
seen = [token()]
for content in (b"one", b"other"):
    with open(named, "wb") as file:
        file.write(content)
    seen.append(token())
print(len({digest for digest, _ in seen}), seen[0][1])
"""
    )
    assert printed == "3 unreadable: No such file or directory\n"


def test_the_second_token_is_cheap(python):
    printed = python(
        """
import time
import backendcfg, numpy
backendcfg.numerics_token()
times = []
for _ in range(200):
    start = time.perf_counter()
    backendcfg.numerics_token()
    times.append(time.perf_counter() - start)
print(sorted(times)[100] < 0.005)
"""
    )
    assert printed == "True\n"


@pytest.mark.torch
def test_it_changes_with_what_has_no_flag_and_back(python):
    printed = python(
        """
import json, os, threading
import backendcfg, torch, torch._inductor.config, torch._dynamo.config
first = backendcfg.numerics_token()
def differs():
    return backendcfg.numerics_token().differences(first)
def told(what):
    print(json.dumps([what, differs()]))
torch.set_default_dtype(torch.float64)
told("dtype")
torch.set_default_dtype(torch.float32)
torch.set_default_device("meta")
told("device")
torch.set_default_device(None)
assert torch.set_flush_denormal(True)
told("denormals")
torch.set_flush_denormal(False)
with torch.autocast("cpu", dtype=torch.float16):
    told("autocast")
torch._inductor.config.max_autotune = True
torch._dynamo.config.specialize_float = not torch._dynamo.config.specialize_float
told("compile")
torch._inductor.config.max_autotune = False
torch._dynamo.config.specialize_float = not torch._dynamo.config.specialize_float
told("back")
print(first == backendcfg.numerics_token())
"""
    )
    *told, back = printed.splitlines()
    assert dict(map(json.loads, told)) == {
        "dtype": {"facts.torch.default_dtype": ["float64", "float32"]},
        "device": {"facts.torch.default_device": ["meta", None]},
        "denormals": {"facts.thread.flush_denormal": [True, False]},
        "autocast": {
            "facts.torch.autocast[cpu].dtype": ["float16", "bfloat16"],
            "facts.torch.autocast[cpu].enabled": [True, False],
        },
        "compile": {
            "facts.torch._dynamo.config.specialize_float": [True, None],
            "facts.torch._inductor.config.max_autotune": [True, None],
        },
        "back": {},
    }
    assert back == "True"


@pytest.mark.jax
def test_it_changes_with_jaxs_options_that_have_no_flag(python):
    printed = python(
        """
import backendcfg, jax, jax.numpy
first = backendcfg.numerics_token()
with jax.disable_jit(), jax.numpy_dtype_promotion("strict"):
    inside = backendcfg.numerics_token()
print(inside.differences(first))
jax.config.update("jax_compilation_cache_dir", "/elsewhere")
jax.config.update("jax_log_compiles", True)
print(first == backendcfg.numerics_token())
"""
    )
    assert printed == (
        "{'facts.jax.config.jax_disable_jit': (True, False), "
        "'facts.jax.config.jax_numpy_dtype_promotion': ('strict', 'standard')}\nTrue\n"
    )


@pytest.mark.exhaustive
def test_it_changes_with_the_variables_of_frameworks_and_not_with_where_files_lie(work):
    first = work()
    assert (
        work(TORCH_HOME="/a", TF_VAR_x="1", TORCHINDUCTOR_CACHE_DIR="/b", NCCL_DEBUG="INFO")[0]
        == first[0]
    )
    names = ("CUPY_ACCELERATORS", "TF_USE_CUBLASLT", "TORCH_CUDNN_SDPA_DEPRIORITIZED")
    more = ("NCCL_ALGO", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHDYNAMO_DISABLE", "CUDNN_X", "JAX_X")
    _, _, parts = work(**dict.fromkeys((*names, *more), "1"))
    added = {name for name in parts["variables"] if name not in first[2]["variables"]}
    assert added == {*names, *more}
