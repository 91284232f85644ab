"""The tables of what attention kernels need of arrays of a GPU, on facts that are written down here.

PyTorch's rules about GPUs are tried with constructed devices: they were read in its sources, not run.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from backendcfg.dispatch import attention
from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.dispatch.attention_facts import AttentionFlags, Call, Device
from backendcfg.gpu.attention import rules
from backendcfg.gpu.attention.rules import ON_DEVICES
from backendcfg.gpu.attention.torch_rules import ON_CUDA
from backendcfg.records import replace

ALL = frozenset((*attention.KERNELS, "math"))
H200 = Device("nvidia", (9, 0), cudnn=91600, kernels=ALL)
ON = AttentionFlags()


def array(*shape, dtype="float16", device="cuda", strides=None, **more):
    if strides is None:
        strides = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    return ArrayFacts(shape, tuple(strides), dtype, device, **more)


def call(width=64, *, lengths=(32, 32), batch=2, heads=(4, 4, 4), dtype="float16", **more):
    """Query, key and value of usual shapes; keyword arguments of `Call` over them."""
    queries, keys = lengths
    given = {
        "query": array(batch, heads[0], queries, width, dtype=dtype),
        "key": array(batch, heads[1], keys, width, dtype=dtype),
        "value": array(batch, heads[2], keys, width, dtype=dtype),
    }
    return Call(**{**given, **more})


def reasons(kernel, made, device, flags, table=ON_CUDA):
    """Why a kernel cannot serve a call; PyTorch's, unless another table is given."""
    return attention.reasons(kernel, made, device, flags, table)


def broken(kernel, made, device=H200, flags=ON, table=ON_CUDA):
    """The names of the requirements that do not hold."""
    return [each.name for each, _ in attention.unmet(kernel, made, device, flags, table)]


@pytest.mark.parametrize("kernel", attention.KERNELS)
def test_a_usual_call_on_a_new_gpu_can_use_every_kernel(kernel):
    assert reasons(kernel, call(), H200, ON) == ()


@pytest.mark.parametrize("kernel", ["flash", "efficient", "math"])
def test_what_our_kernels_on_a_gpu_count_is_what_broadcasting_makes(kernel):
    ours = Device("nvidia", (9, 0))
    query, key = (array(*lead, 4, 64) for lead in ((65536, 1), (1, 32768)))
    told = reasons(kernel, Call(query, key, key), ours, ON, ON_DEVICES)
    assert told == ("It counts in 32 bits, and 4 rows of 2147483648 heads are more.",)
    assert reasons(kernel, Call(query, query, query), ours, ON, ON_DEVICES) == ()


@pytest.mark.parametrize("kernel", ["efficient", "math"])
def test_the_blocks_of_gradients_are_counted_too(kernel):
    ours = Device("nvidia", (9, 0))
    wide, value = array(1024, 1024, 32, 64000), array(1024, 1024, 32, 64)
    assert reasons(kernel, Call(wide, wide, value), ours, ON, ON_DEVICES) == ()
    told = ("It counts in 32 bits, and 32 rows of 1048576 heads are more.",)
    trained = value._replace(requires_grad=True)
    assert reasons(kernel, Call(wide, wide, trained), ours, ON, ON_DEVICES) == told
    long, mask = array(1, 2**25, 64), array(2**25, 2**25, dtype="float32", requires_grad=True)
    assert "countable" in broken(kernel, Call(long, long, long, mask), ours, table=ON_DEVICES)
    assert (
        broken(
            kernel,
            Call(long, long, long, mask._replace(requires_grad=False)),
            ours,
            table=ON_DEVICES,
        )
        == []
    )


def test_our_kernels_on_a_gpu_give_gradients_and_two_that_of_a_mask():
    ours = Device("nvidia", (9, 0))
    query = array(2, 4, 32, 64)
    needs, mask = query._replace(requires_grad=True), array(32, 32, requires_grad=True)
    for kernel in ("flash", "efficient", "math"):
        assert broken(kernel, Call(needs, query, query), ours, table=ON_DEVICES) == []
    asked = Call(query, query, query, mask)
    found = [
        broken(kernel, asked, ours, table=ON_DEVICES) for kernel in ("flash", "efficient", "math")
    ]
    assert found == [["mask-gradient"], [], []]


@pytest.mark.parametrize("kernel", attention.KERNELS)
def test_every_reason_is_told_and_not_the_first_alone(kernel):
    made = call(dtype="float64", lengths=(0, 32), heads=(4, 2, 2))
    off = AttentionFlags(enabled=ALL - {kernel})
    assert broken(kernel, made, H200, off) == ["enabled", "dtype", "batches-and-heads", "not-empty"]


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("flash", "Flash attention has been runtime disabled."),
        ("efficient", "Memory Efficient attention has been runtime disabled."),
        ("cudnn", "cuDNN attention has been runtime disabled."),
    ],
)
def test_a_switch_that_is_off(kernel, text):
    assert reasons(kernel, call(), H200, AttentionFlags(enabled=ALL - {kernel})) == (text,)


def test_arrays_of_the_cpu_are_on_the_wrong_device_for_cudnn():
    here = array(2, 4, 32, 64, device="cpu")
    [why] = reasons("cudnn", Call(here, here, here), H200, ON)
    assert why == (
        "All tensors need to be on cuda device. Got query on device: cpu, key on device: cpu, "
        "value on device: cpu"
    )


def test_one_array_on_the_cpu_is_enough():
    assert broken("flash", call(key=array(2, 4, 32, 64, device="cpu"))) == ["on-cuda"]


@pytest.mark.parametrize("kernel", attention.KERNELS)
def test_without_a_gpu_nothing_is_said_about_its_architecture(kernel):
    assert broken(kernel, call(), Device(kernels=ALL, cudnn=91600)) == ["gpu"]


@pytest.mark.parametrize(
    ("kernel", "capability", "can"),
    [
        ("flash", (7, 5), False),
        ("flash", (8, 0), True),
        ("flash", (12, 1), True),
        ("flash", (12, 2), False),
        ("efficient", (4, 9), False),
        ("efficient", (5, 0), True),
        ("efficient", (12, 1), True),
        ("cudnn", (7, 5), False),
        ("cudnn", (8, 0), True),
        ("cudnn", (13, 0), False),
    ],
)
def test_the_architectures_of_each_kernel(kernel, capability, can):
    assert (
        "architecture" not in broken(kernel, call(), replace(H200, capability=capability))
    ) is can


def test_the_text_names_the_range_and_the_gpu():
    [why] = reasons("efficient", call(), replace(H200, capability=(12, 2)), ON)
    assert why == (
        "Mem Efficient Attention only supports gpu architectures in the range [sm50, sm121]. "
        "Attempting to run on a sm 12.2 gpu."
    )


@pytest.mark.parametrize(
    ("kernel", "capability", "dtype", "can"),
    [
        ("flash", (9, 0), "bfloat16", True),
        ("flash", (7, 5), "bfloat16", False),
        ("flash", (9, 0), "float32", False),
        ("efficient", (9, 0), "float32", True),
        ("efficient", (7, 5), "float32", True),
        ("efficient", (7, 5), "bfloat16", False),
        ("efficient", (8, 0), "bfloat16", True),
        ("efficient", (9, 0), "float64", False),
        ("cudnn", (9, 0), "bfloat16", True),
        ("cudnn", (9, 0), "float32", False),
        ("cudnn", (9, 0), "float8_e4m3fn", False),
    ],
)
def test_the_dtypes_of_each_kernel(kernel, capability, dtype, can):
    device = replace(H200, capability=capability)
    assert ("dtype" not in broken(kernel, call(dtype=dtype), device)) is can


def test_flash_attention_3_takes_float8_from_sm90():
    made = call(dtype="float8_e4m3fn")
    third = replace(H200, flash_3=True)
    assert broken("flash", made, third) == []
    assert broken("flash", made, replace(third, capability=(8, 9))) == ["dtype"]
    assert broken("flash", made) == ["dtype"]


def test_mixed_dtypes_are_named():
    made = call(key=array(2, 4, 32, 64, dtype="bfloat16"))
    [why] = reasons("flash", made, H200, ON)
    assert why == (
        "Expected query, key and value to all be of dtype: {float16, bfloat16}. Got Query dtype: "
        "float16, Key dtype: bfloat16, and Value dtype: float16 instead."
    )


@pytest.mark.parametrize(
    ("width", "can"), [(256, True), (257, False), (320, False)], ids=["at", "over", "far"]
)
def test_flash_takes_widths_up_to_256(width, can):
    assert (broken("flash", call(width)) == []) is can


def test_flash_takes_512_on_rocm_and_256_on_gfx11():
    amd = Device("amd", architecture="gfx942", kernels=ALL)
    assert broken("flash", call(512), amd) == []
    assert broken("flash", call(513), amd) == ["equal-widths"]
    assert broken("flash", call(512), replace(amd, architecture="gfx1100")) == ["equal-widths"]


def test_cudnn_is_not_in_pytorch_for_rocm():
    amd = Device("amd", architecture="gfx942", kernels=ALL)
    assert "Torch was not compiled with cuDNN attention." in reasons("cudnn", call(), amd, ON)


def test_flash_needs_equal_widths():
    made = call(value=array(2, 4, 32, 32))
    [why] = reasons("flash", made, H200, ON)
    assert why == (
        "Flash attention requires q,k,v to have the same last dimension and to be less than or "
        "equal to 256. Got Query.size(-1): 64, Key.size(-1): 64, Value.size(-1): 32 instead."
    )


@pytest.mark.parametrize(
    ("capability", "dtype", "width", "can"),
    [
        ((9, 0), "float16", 8, True),
        ((9, 0), "float16", 12, False),
        ((9, 0), "float32", 12, True),
        ((9, 0), "float32", 6, False),
        ((7, 5), "float16", 12, False),
        ((7, 5), "float32", 5, True),
        ((6, 1), "float16", 5, True),
    ],
)
def test_the_widths_of_the_efficient_kernel(capability, dtype, width, can):
    device = replace(H200, capability=capability)
    assert ("aligned-widths" not in broken("efficient", call(width, dtype=dtype), device)) is can


@pytest.mark.parametrize(
    ("capability", "cudnn", "widths", "can"),
    [
        ((8, 0), 91600, (128, 128), True),
        ((8, 0), 91600, (136, 136), False),
        ((9, 0), 91000, (256, 256), True),
        ((9, 0), 90900, (256, 256), False),
        ((10, 0), 91100, (192, 128), True),
        ((10, 0), 91000, (192, 128), False),
        ((10, 0), 91100, (192, 192), False),
        ((9, 0), 91600, (68, 68), False),
    ],
)
def test_the_widths_of_cudnn(capability, cudnn, widths, can):
    device = replace(H200, capability=capability, cudnn=cudnn)
    made = call(widths[0], value=array(2, 4, 32, widths[1]))
    assert (broken("cudnn", made, device) == []) is can


@pytest.mark.parametrize(
    ("width", "dropout", "capability", "can"),
    [
        (192, 0.0, (8, 6), True),
        (200, 0.0, (8, 6), False),
        (224, 0.0, (8, 9), False),
        (232, 0.0, (8, 9), True),
        (232, 0.1, (8, 9), False),
        (232, 0.1, (12, 0), False),
        (232, 0.1, (9, 0), True),
    ],
)
def test_training_wide_heads_on_small_gpus(width, dropout, capability, can):
    query = array(2, 4, 32, width, requires_grad=True)
    device = replace(H200, capability=capability)
    made = call(width, query=query, dropout=dropout)
    assert (broken("flash", made, device) == []) is can
    assert broken("flash", call(width, dropout=dropout), device) == []


def test_causal_flash_is_square():
    made = call(lengths=(16, 32), is_causal=True)
    assert broken("flash", made) == ["square-causal"]
    assert broken("efficient", made) == []
    assert broken("flash", call(lengths=(16, 32))) == []


def test_flash_takes_no_mask_and_the_others_do():
    made = call(mask=array(32, 32))
    [why] = reasons("flash", made, H200, ON)
    assert why == ("Flash Attention does not support non-null attn_mask.")
    assert (broken("efficient", made), broken("cudnn", made)) == ([], [])


@pytest.mark.parametrize(
    ("shape", "can"),
    [
        ((32, 32), True),
        ((1, 32), True),
        ((2, 4, 32, 32), True),
        ((1, 1, 32, 1), True),
        ((3, 4, 32, 32), False),
        ((16, 32), False),
        ((4, 32, 32), False),
    ],
)
def test_the_masks_of_cudnn(shape, can):
    assert (broken("cudnn", call(mask=array(*shape))) == []) is can


def test_cudnn_gives_a_mask_no_gradient():
    assert broken("cudnn", call(mask=array(32, 32, requires_grad=True))) == ["mask-shape"]


@pytest.mark.parametrize(
    ("kernel", "heads", "grouped", "can"),
    [
        ("flash", (8, 2, 2), True, True),
        ("flash", (8, 2, 2), False, False),
        ("flash", (8, 3, 3), True, False),
        ("flash", (8, 2, 4), True, False),
        ("flash", (8, 0, 0), True, False),
        ("efficient", (8, 2, 2), True, False),
        ("cudnn", (8, 2, 2), True, True),
        ("cudnn", (8, 2, 4), True, True),
        ("cudnn", (8, 2, 3), True, False),
    ],
)
def test_groups_of_heads(kernel, heads, grouped, can):
    made = call(heads=heads, enable_gqa=grouped)
    assert (broken(kernel, made) == []) is can


@pytest.mark.parametrize("kernel", attention.KERNELS)
def test_batches_are_equal(kernel):
    assert broken(kernel, call(key=array(3, 4, 32, 64))) == ["batches-and-heads"]


@pytest.mark.parametrize("lengths", [(0, 32), (32, 0)])
def test_there_is_something_to_attend_to(lengths):
    [why] = reasons("flash", call(lengths=lengths), H200, ON)
    assert why == ("All fused kernels do not support zero seq_len_q or seq_len_kv.")


def test_the_last_dimension_is_contiguous():
    bent = array(2, 4, 32, 64, strides=(8192, 2048, 1, 32))
    [why] = reasons("flash", call(key=bent), H200, ON)
    assert why == (
        "All fused kernels require the last dimension of the input to have stride 1. Got "
        "Query.stride(-1): 1, Key.stride(-1): 32, Value.stride(-1): 1"
    )


def test_a_single_number_has_no_stride_except_for_the_efficient_kernel():
    bent = array(2, 4, 32, 1, strides=(256, 64, 2, 2))
    made = Call(bent, bent, bent)
    assert "last-stride" not in broken("flash", made)
    assert "last-stride" in broken("efficient", made)


def test_the_stride_of_a_mask_counts_on_a_gpu():
    made = call(mask=array(32, 32, strides=(1, 32)))
    [why] = reasons("efficient", made, H200, ON)
    assert why.endswith(
        "Attn_mask.stride(-1): 32 (GPU backends require attn_mask's last dimension to have "
        "stride 1 while the CPU does not)."
    )


def test_cudnn_needs_more_than_one_key_and_with_dropout_more_than_one_query():
    assert broken("cudnn", call(lengths=(8, 1))) == ["cudnn-lengths"]
    assert broken("cudnn", call(lengths=(1, 8))) == []
    assert broken("cudnn", call(lengths=(1, 8), dropout=0.5)) == ["cudnn-lengths"]


@pytest.mark.parametrize(
    ("version", "dropout", "can"),
    [
        (89999, 0.0, False),
        (90000, 0.5, True),
        (91100, 0.5, True),
        (91200, 0.5, False),
        (91200, 0.0, True),
        (91399, 0.5, False),
        (91400, 0.5, True),
    ],
)
def test_the_versions_of_cudnn(version, dropout, can):
    device = replace(H200, capability=(8, 0), cudnn=version)
    assert ("cudnn-version" not in broken("cudnn", call(dropout=dropout), device)) is can


def test_without_the_kernel_its_version_is_no_reason():
    device = replace(H200, kernels=frozenset(), cudnn=0)
    [why] = reasons("cudnn", call(), device, ON)
    assert why == ("Nothing in this process brings cuDNN attention.")


def test_cudnn_is_out_when_what_is_not_deterministic_is_forbidden():
    strict = AttentionFlags(deterministic=True)
    assert reasons("cudnn", call(), H200, strict) == ("cuDNN SDPA is not deterministic.",)
    assert (broken("flash", call(), H200, strict), broken("efficient", call(), H200, strict)) == (
        [],
        [],
    )


def test_the_shape_of_three_dimensions_is_the_only_thing_said_about_shapes():
    flat = array(4, 32, 64, dtype="float64")
    assert broken("flash", Call(flat, flat, flat, is_causal=True)) == ["four-dimensional", "dtype"]


def test_ragged_tensors():
    ragged = ArrayFacts((4,), (), "float16", "cuda", nested=True)
    made = Call(ragged, ragged, ragged)
    trained = Call(ragged._replace(requires_grad=True), ragged, ragged)
    assert (broken("flash", made), broken("efficient", made)) == ([], [])
    assert broken("efficient", trained) == ["dense"]
    assert broken("cudnn", made) == ["dense"]
    asked_for = replace(H200, nested_cudnn=True)
    assert broken("cudnn", made, asked_for) == []
    assert broken("cudnn", made, replace(asked_for, capability=(8, 0))) == ["dense"]


@pytest.mark.parametrize("table", [attention.ON_CPU, ON_CUDA, ON_DEVICES])
def test_names_are_unique_and_what_a_rule_rests_on_comes_before_it(table):
    names = [requirement.name for requirement in table]
    assert len(set(names)) == len(names) > 8
    for at, requirement in enumerate(table):
        assert set(requirement.after) <= set(names[:at])
        assert set(requirement.kernels) <= ALL


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_texts_are_those_that_pytorch_warns_of():
    """PyTorch's CPU kernel shares these rules and texts; each call breaks one of them."""
    code = """
import json, warnings, torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from backendcfg.dispatch.attention import reasons
from backendcfg.gpu.attention.torch_rules import ON_CUDA
from backendcfg.dispatch.array_facts import array_facts
from backendcfg.dispatch.attention_facts import Call, Device, AttentionFlags
from backendcfg.records import replace
zeros = torch.zeros
query = zeros(2, 4, 8, 16)
bent = query.transpose(-1, -2).contiguous().transpose(-1, -2)
calls = {
    "dimensions": ([zeros(4, 8, 16)] * 3, {}),
    "batches": ([query, zeros(3, 4, 8, 16), zeros(3, 4, 8, 16)], {}),
    "heads": ([query, zeros(2, 2, 8, 16), zeros(2, 2, 8, 16)], {}),
    "groups": ([query, zeros(2, 3, 8, 16), zeros(2, 3, 8, 16)], {"enable_gqa": True}),
    "strides": ([query, bent, query], {}),
}
found = {}
for name, (arrays, options) in calls.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                torch.nn.functional.scaled_dot_product_attention(*arrays, **options)
        except RuntimeError:
            pass
    told = [str(each.message).partition(" (Triggered")[0].strip() for each in caught]
    # The same on a GPU, for which these rules are.
    facts = [array_facts(array, "query")._replace(device="cuda") for array in arrays]
    call = Call(*facts, **options)
    found[name] = [told[1:], reasons("flash", call, Device(), AttentionFlags(), ON_CUDA)]
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 5
    for name, (told, ours) in found.items():
        assert len(told) == 1, name
        assert told[0] in ours, name


def test_the_page_has_the_table():
    page = (Path(__file__).parents[3] / "docs" / "attention.md").read_text()
    gpu, _, cpu = page.partition("## The table for arrays of the CPU")
    rows = [line for line in gpu.splitlines() if line.endswith(("| run |", "| read |"))]
    assert rows == [
        f"{_row(each, attention.KERNELS)}{'read |' if _is_read(each) else 'run |'}"
        for each in ON_CUDA
    ]
    rows = [line for line in cpu.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert rows == [_row(each, attention.OURS).rstrip() for each in attention.ON_CPU]
    device = page.partition("## The table for our kernel on a GPU")[2].partition("\n## ")[0]
    assert [line for line in device.splitlines() if line.startswith("| `")] == [
        _row(each, rules.KERNELS).rstrip() for each in ON_DEVICES
    ]


RUN = {"kernel", "gpu"}
"""Rules that look at whether there is a GPU, and so were run without one."""


def _is_read(requirement):
    """Whether a rule depends on the GPU, so that it was read in PyTorch's sources, and not run."""
    return "case.device" in inspect.getsource(requirement.broken) and requirement.name not in RUN


def _row(requirement, kernels):
    marks = ["x | " if kernel in requirement.kernels else "| " for kernel in kernels]
    return f"| `{requirement.name}` | {requirement.text} | {''.join(marks)}"
