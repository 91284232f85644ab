"""Every shipped profile on the real PyTorch: applied, used, undone, in any order."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from packaging.version import Version

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

PRELUDE = """
import json, logging, random, sys, warnings
sys.modules["tqdm"] = None  # where it is installed, PyTorch starts its thread, which keeps switches
import torch
from torch.backends import cuda, cudnn, mha, miopen, mkldnn, opt_einsum, quantized
import torch._inductor.config as inductor
import backendcfg
logging.getLogger("backendcfg").addHandler(logging.NullHandler())
C = torch._C
native = getattr(torch.backends, "python_native", None)
PRECISION = [(b, o) for b in ("generic", "cuda", "mkldnn")
             for o in (("all",) if b == "generic" else ("all", "matmul", "conv", "rnn"))]
def state():
    return {
        "older": [cuda.matmul.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision()],
        **{"/".join(key): C._get_fp32_precision_getter(*key) for key in PRECISION},
        "cudnn": [cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic,
                  getattr(cudnn, "depthwise_kernel", None), cudnn.fp32_precision],
        "oneDNN": [mkldnn.enabled, mkldnn.deterministic, mkldnn.allow_tf32, mkldnn.fp32_precision],
        "16 bits": [getattr(cuda.matmul, f"allow_{name}", None) for name in (
            "fp16_reduced_precision_reduction", "fp16_reduced_precision_reduction_split_k",
            "bf16_reduced_precision_reduction", "bf16_reduced_precision_reduction_split_k",
            "fp16_accumulation")],
        "attention": [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(),
                      cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled(),
                      cuda.fp16_bf16_reduction_math_sdp_allowed(), C._get_sdp_priority_order(),
                      C._get_overrideable_sdp_enabled()],
        "libraries": [str(cuda.preferred_blas_library()), str(cuda.preferred_linalg_library()),
                      str(cuda.preferred_rocm_fa_library()), quantized.engine],
        "others": [mha.get_fastpath_enabled(), miopen.immediate, C._get_nnpack_enabled(),
                   opt_einsum.enabled, opt_einsum.strategy, torch.backends.fp32_precision],
        "kernels": native and [native.triton.enabled, native.cutedsl.enabled],
        "determinism": [torch.get_deterministic_debug_mode(), getattr(inductor, "deterministic", None),
                        torch.utils.deterministic.fill_uninitialized_memory],
        "threads": torch.get_num_threads(),
    }
def say(*what):
    print("\\n" + json.dumps(what))
"""
SINCE_2_13 = find_spec("torch") is None or Version(version("torch")) >= Version("2.13")
NAMES = ("fast", "max-throughput", "reproducible", "reproducible-anywhere", "tf32-off", "debug")


@pytest.fixture(name="said")
def said_fixture(child):
    """`said(code)`: what the last line says, after whatever MKL and oneDNN print under `debug`."""

    def said(code: str, **variables: str):
        done = child(code, BACKENDCFG_DISABLE="0", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return said


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_under_a_profile_everything_reads_exports_and_compiles_and_undo_leaves_no_trace(said, name):
    code = (
        PRELUDE
        + f"""
before = state()
report = backendcfg.apply({name!r})
during = state()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3); self.linear = torch.nn.Linear(4, 2)
    def forward(self, x):
        y = self.conv(x).mean((2, 3))
        return self.linear(torch.nn.functional.scaled_dot_product_attention(y[None], y[None], y[None]))[0]
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(2, 3, 8, 8)
with torch.no_grad():
    eager = net(x)
    exported = torch.export.export(net, (x,)).module()(x)
    same = [torch.allclose(eager, other, rtol=0.02, atol=0.02) for other in (
        exported, torch.compile(net, backend="eager")(x), torch.compile(net, backend="aot_eager")(x))]
after_use = state()
wrong = [[r.switch, r.state, r.because, r.by] for r in backendcfg.verify().readings
         if r.flag.startswith(("cuda.", "cudnn.", "mkldnn.", "mha.", "determinism.", "nnpack."))
         and r.state not in ("ok", "dormant", "unsupported", "irreversible")]
left = backendcfg.undo()
lost = [o.switch for o in report.outcomes if o.state == "irreversible"]
assert ([o.switch for o in left.outcomes] if left else []) == lost, (left, lost)
after = state()
changed = sorted(key for key in before if before[key] != after[key])
say([o.state for o in report.outcomes if o.switch.startswith("torch.")], during["older"],
    sorted(key for key in during if during[key] != before[key]), same, wrong, changed)
"""
    )
    states, older, differ, same, wrong, changed = said(code)
    expected = {"fast": [True, True, "high"], "max-throughput": [True, True, "medium"]}
    assert older == expected.get(name, [False, False, "highest"])
    assert "set" in states
    assert same == [True, True, True]
    assert changed == []
    drifts = [f"torch.backends.cudnn.{part}.fp32_precision" for part in ("conv", "rnn")]
    if name in expected:
        assert wrong == []
        assert "cuda/matmul" in differ
    else:
        # torch.export writes these two since 2.13, and the verification says so.
        assert [reading[0] for reading in wrong] == (drifts if SINCE_2_13 else [])
        assert all(reading[1] == "differs" for reading in wrong)
        assert all("torch.export" in " ".join(reading[2:]) for reading in wrong)
        assert {"cuda/conv", "cuda/rnn", "mkldnn/matmul", "older"} <= set(differ)


def test_profiles_applied_and_undone_in_random_order_leave_the_state_of_a_process_without(said):
    code = (
        PRELUDE
        + f"""
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "the tier")  # what this process is too late for
choose = random.Random(20260304)
names = [name for name in {NAMES!r} if name != "debug"]
before, seen, wrong, depth = state(), {{}}, [], 0
for step in range(100):
    if depth and choose.random() < 0.5:
        backendcfg.undo(); depth -= 1
    else:
        backendcfg.apply(choose.choice(names)); depth += 1
    active = backendcfg.active()
    name = active.name if active else ""
    if seen.setdefault(name, state()) != state():
        wrong.append([step, name, state(), seen[name]])
while depth:
    backendcfg.undo(); depth -= 1
say(wrong, before == state(), sorted(seen))
"""
    )
    wrong, restored, seen = said(code)
    assert wrong == []
    assert restored
    assert seen == sorted({"", *NAMES} - {"debug"})


def test_scopes_nest_and_put_back_what_was_there_before_each(said):
    code = (
        PRELUDE
        + f"""
import itertools
before, wrong, alone = state(), [], {{}}
names = [name for name in {NAMES!r} if name != "debug"]
for name in names:
    with backendcfg.profile(name): alone[name] = state()
    if state() != before: wrong.append(name)
for outer, inner in itertools.permutations(names, 2):
    with backendcfg.profile(outer):
        with backendcfg.profile(inner):
            older = state()["older"]
        if state() != alone[outer]: wrong.append([outer, inner])
    if state() != before: wrong.append([outer, inner, "left"])
say(wrong, [alone["fast"]["older"], alone["reproducible"]["older"]])
"""
    )
    assert said(code) == [[], [[True, True, "high"], [False, False, "highest"]]]


def test_pytorch_imported_under_a_profile_is_as_if_the_profile_came_later(said):
    late = PRELUDE + "backendcfg.apply('reproducible')\nsay(state())"
    early = "import backendcfg\nbackendcfg.apply('reproducible')\n" + PRELUDE + "say(state())"
    assert said(early) == said(late)


def test_the_compiler_of_c_code_works_under_reproducible_and_gives_the_same_bits_twice(said):
    code = (
        PRELUDE
        + """
backendcfg.apply("reproducible")
torch.manual_seed(0)
x = torch.randn(64, 64)
def work(x):
    return (x @ x).softmax(-1).sum(0)
results = []
for _ in range(2):
    torch._dynamo.reset()
    results.append(torch.compile(work, backend="inductor")(x))
say(torch.equal(*results), torch.allclose(results[0], work(x), atol=1e-5),
    getattr(inductor, "deterministic", True))
"""
    )
    assert said(code) == [True, True, True]


def test_a_model_that_trains_with_dropout_has_the_losses_that_it_has_without_fast(said):
    code = """
import json, sys, torch
from torch.nn import TransformerEncoder, TransformerEncoderLayer

torch.manual_seed(0)
model = TransformerEncoder(TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(4):
    loss = model(torch.randn(8, 40, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
served = []
if "backendcfg" in sys.modules:
    from backendcfg.ops.serving import counted
    readings = {one.flag: one.found for one in backendcfg.verify().readings}
    served = [len(list(counted())), readings["route.torch.dropout"]]
print(json.dumps([losses, served]))
"""
    theirs, alone = said(code)
    ours, served = said("import backendcfg\n" + code, BACKENDCFG_PROFILE="fast")
    assert (alone, served) == ([], [2, "native"])  # attention forward and backward
    assert ours == pytest.approx(theirs, rel=1e-6)
