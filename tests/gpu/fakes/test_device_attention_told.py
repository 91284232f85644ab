"""`explain`, `stats` and `trace` say of attention on devices what its calls do."""

import subprocess
import sys
from pathlib import Path

import pytest
from attention_on_device import normal
from products import under

from backendcfg import ops
from backendcfg.gpu.libraries import opening
from backendcfg.schema.profile import defaults

NAME = "scaled_dot_product_attention"
SHAPES = ((2, 3, 40, 64), (2, 3, 70, 64), (2, 3, 70, 64))
FIRST = "on a device; first in the order flash, efficient, math, cudnn"


def call(kernels):
    arrays = [normal(shape) for shape in SHAPES]
    kernels.reads(*arrays)
    ops.scaled_dot_product_attention(*arrays)


def test_a_call_is_counted_and_traced_with_who_served_it_and_why(kernels):
    with ops.trace() as calls:
        call(kernels)
        call(kernels)
    assert list(calls) == [ops.Call(NAME, (2, 3, 40, 70, 64), "bfloat16", "flash", FIRST)] * 2
    (record,) = [one for one in ops.stats().operations if one.operation == NAME]
    assert (record.provider, record.because, record.calls) == ("flash", FIRST, 2)


@pytest.mark.parametrize("order", [("flash",), ("cudnn", "flash")])
def test_explain_says_what_a_call_does(kernels, order):
    with under(**{**defaults(), "cuda.sdp_priority": order}), ops.trace() as calls:
        call(kernels)
        said = ops.explain(NAME, SHAPES, "bfloat16", device="cuda:0")
    (done,) = calls
    assert (said.provider, said.because, said.sizes) == ("flash", done.because, done.sizes)
    assert said.flags["cuda.sdp_priority"] == order
    assert {each.provider for each in said.reasons} == {"efficient", "math", "cudnn"}


def test_explain_prints_who_serves_and_what_stands_against_the_others(kernels):
    opening._capability.cache_clear()
    call(kernels)
    with under(**{**defaults(), "cuda.enable_cudnn_sdp": False}):
        text = str(ops.explain(NAME, SHAPES, "bfloat16", device="cuda:0"))
    assert text.splitlines()[:5] == [
        (
            f"{NAME} of (2, 3, 40, 64), (2, 3, 70, 64), (2, 3, 70, 64) bfloat16 on cuda:0 "
            "under profile `test`"
        ),
        f"  flash      serves: {FIRST}",
        "  efficient  behind `flash` in the order",
        "  math       behind `flash` in the order",
        "  cudnn      cuDNN attention has been runtime disabled.; cuDNN is left out.",
    ]


def test_explain_of_what_nothing_serves_gives_every_reason(kernels):
    said = ops.explain(NAME, [(1, 2, 40, 20)] * 3, "float32", device="rocm:0")
    assert said.provider == ""
    assert said.reasons[0].why == (
        "It is for NVIDIA devices alone.; It computes bfloat16 and float16, not float32.; "
        "It needs heads that are 32 to 256 wide, a multiple of 8, not 20."
    )


def test_the_backward_pass_is_explained_too(kernels):
    said = ops.explain(f"{NAME}_backward", SHAPES, "bfloat16", device="cuda:0")
    assert (said.provider, said.because) == ("flash", FIRST)
    said = ops.explain(f"{NAME}_backward", SHAPES, "float32", device="cuda:0")
    assert said.provider == "efficient"
    assert said.reasons[0].why == "It computes bfloat16 and float16, not float32."


PROGRAM = Path(__file__).with_name("torch_attention_on_device.py")
HELD = """\
torch.bfloat16
torch.float16
torch.float32
torch.float64
a mask
groups of heads
projected
without gradients
all three ['forward', 'backward', 'backward']
a mask ['forward', 'backward', 'backward']
query alone ['forward', 'backward']
value alone ['forward', 'backward', 'backward']
groups ['forward', 'backward', 'backward']
broadcast ['forward', 'backward', 'backward']
two dimensions ['forward', 'backward', 'backward']
saved with columns side by side ['forward', 'backward', 'backward']
a sum of itself
dropout as on the CPU
scaled_dot_product_attention_backward: on a device it has no gradients of its own
torch.float32 ['efficient', 'delta', 'query', 'key', 'value']
torch.float64 ['efficient', 'delta', 'query', 'key', 'value']
torch.float16 ['efficient', 'delta', 'query', 'key', 'value']
causal ['efficient', 'delta', 'query', 'key', 'value']
key alone ['efficient', 'delta', 'key']
value alone ['efficient', 'value']
other widths ['efficient', 'delta', 'query', 'key', 'value']
groups ['efficient', 'delta', 'query', 'key', 'value']
broadcast ['efficient', 'delta', 'query', 'key', 'value']
two dimensions ['efficient', 'delta', 'query', 'key', 'value']
a mask (20, 20) ['efficient', 'delta', 'query', 'key', 'value', 'mask']
a mask (2, 1, 20, 20) ['efficient', 'delta', 'query', 'key', 'value', 'mask']
a mask (4, 1, 20) ['efficient', 'delta', 'query', 'key', 'value', 'mask']
a mask (2, 4, 20, 1) ['efficient', 'delta', 'query', 'key', 'value', 'mask']
a mask (1, 1) ['efficient', 'delta', 'query', 'key', 'value', 'mask']
a mask (20,) ['efficient', 'delta', 'query', 'key', 'value', 'mask']
a mask alone ['efficient', 'delta', 'mask']
a mask of 16 bits' arrays ['efficient', 'delta', 'query', 'key', 'value', 'mask']
math ['gather', 'gather', 'gather', 'softmax', 'delta', 'query', 'key', 'value']
math with a mask ['gather', 'gather', 'gather', 'softmax', 'delta', 'query', 'key', 'value', 'mask']
math of 16 bits ['gather', 'gather', 'gather', 'softmax', 'gather', 'delta', 'query', 'key', 'value']
scaled_dot_product_attention_backward: on a device it has no gradients of its own
scaled_dot_product_attention: `key` carries a tangent of PyTorch's forward mode, which is not followed
call PyTorch's own function where tangents are wanted
pass its primal: `torch.autograd.forward_ad.unpack_dual(key).primal`
scaled_dot_product_attention_backward: `grad_out` carries a tangent of PyTorch's forward mode, which is not followed
"""


@pytest.mark.torch
def test_tensors_of_pytorch_attend_through_their_own_table(device_file):
    exchange = device_file("libexchange.so")
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", str(PROGRAM)),
            *(exchange, device_file("libcuda.so.1"), device_file("libcublas.so.13")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == HELD
