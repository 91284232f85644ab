"""Which programs attention without tensor cores is made of on a device, and that they compile."""

from __future__ import annotations

import ctypes
import re
from importlib import metadata
from pathlib import Path

import pytest

from backendcfg.gpu.attention.call import CODES, Attention, Matrix, summed_in
from backendcfg.gpu.attention.efficient import efficient
from backendcfg.gpu.attention.math import gather, multiplied_in, softmax
from backendcfg.gpu.kernels import sources
from backendcfg.gpu.kernels import sources as cuda_compiler
from backendcfg.records import replace

PAGE = Path(__file__).parents[3] / "docs/operations/device-attention-plain.md"
SHARED_ANYWHERE = 48 << 10
"""Bytes of shared memory that a block has on every device, without being told."""


def dense(address, heads, length, width):
    return Matrix(address, (heads * length * width, length * width, width, 1))


def call(
    *,
    batch=2,
    heads=8,
    key_heads=8,
    value_heads=None,
    queries=1000,
    keys=900,
    width=64,
    value_width=64,
    **rest,
):
    value_heads = value_heads or key_heads
    matrices = {
        "query": dense(4096, heads, queries, width),
        "key": dense(8192, key_heads, keys, width),
        "value": dense(12288, value_heads, keys, value_width),
        "out": dense(16384, heads, queries, value_width),
    }
    sizes = {
        "batch": batch,
        "heads": heads,
        "key_heads": key_heads,
        "value_heads": value_heads,
        "queries": queries,
        "value_width": value_width,
    }
    given = {"element": "float32", "scale": 0.125, **matrices, **rest}
    return Attention(**sizes, keys=keys, width=width, **given)


def test_a_block_of_efficient_has_64_queries_of_one_head():
    start = efficient(call())
    assert (start.kernel.name, start.kernel.threads) == ("attention_efficient", 128)
    assert (start.grid, start.kernel.shared_bytes) == (2 * 8 * 16, 37888)
    given = start.arguments
    assert (given.heads, given.group, given.pairs, given.blocks) == (8, 1, 16, 16)
    assert (given.queries, given.keys, given.width, given.value_width) == (1000, 900, 64, 64)
    assert list(given.query_strides) == [512000, 64000, 64, 1]
    assert given.scale == pytest.approx(0.125 / 0.6931471805599453, rel=1e-15)
    assert start.kernel.macros == {
        "ELEMENT": 0, "COLUMNS": 64, "RESIDENT": 3, "CAUSAL": 0, "MASK": 0, "DROPOUT": 0,
        "ALIGNED": 1,
    }  # fmt: skip


def test_a_block_of_float64_has_32_queries():
    start = efficient(call(element="float64"))
    assert (start.grid, start.kernel.shared_bytes) == (2 * 8 * 32, 44544)


@pytest.mark.parametrize("element", CODES)
def test_every_program_fits_the_shared_memory_of_every_device(element):
    for width in (1, 64, 65, 128, 192, 256):
        program = efficient(call(element=element, value_width=width)).kernel
        assert program.shared_bytes <= SHARED_ANYWHERE
        assert program.macros["COLUMNS"] == -(-width // 64) * 64


def test_width_of_query_and_lengths_make_no_program_of_their_own():
    programs = {
        efficient(call(width=width, queries=queries)).kernel
        for width in (4, 64, 300)
        for queries in (1, 70)
    }
    assert len(programs) == 1


@pytest.mark.parametrize(
    "matrix",
    [
        Matrix(4100, (512000, 64000, 64, 1)),
        Matrix(4096, (512000, 64000, 66, 1)),
        Matrix(4096, (512000, 64000, 64, 2)),
    ],
)
def test_rows_that_are_no_whole_chunks_are_read_by_numbers(matrix):
    assert efficient(replace(call(), query=matrix)).kernel.macros["ALIGNED"] == 0


def test_masks_and_dropout_are_macros():
    mask = Matrix(64, (0, 0, 900, 1))
    for mask_element, code in (("bool", 1), ("float32", 2), ("float16", 4), ("bfloat16", 5)):
        made = call(mask=mask, mask_element=mask_element, dropout=0.25, is_causal=True)
        macros = efficient(made).kernel.macros
        assert [macros[name] for name in ("CAUSAL", "MASK", "DROPOUT")] == [1, code, 1]
    given = efficient(call(dropout=0.25, seed=2**64 - 1)).arguments
    assert (given.threshold, given.seed, given.kept) == (2**30, 2**64 - 1, 4 / 3)
    given = efficient(call(dropout=1.0)).arguments
    assert (given.threshold, given.kept) == (2**32, 0.0)


def test_what_is_empty_is_not_started():
    for made in (call(queries=0), call(batch=0), call(heads=0)):
        assert efficient(made) is None
        assert softmax(made, 4096, "float32", scale=1.0) is None
    assert gather(Matrix(0, (0, 0, 0, 0)), 0, (1, 2, 0, 4), ("float32", "float32")) is None


def test_a_softmax_has_eight_rows_to_a_block():
    start = softmax(call(queries=3), 4096, "bfloat16", scale=0.5)
    assert (start.grid, start.kernel.threads, start.kernel.shared_bytes) == (6, 256, 0)
    assert (start.arguments.scores, start.arguments.rows, start.arguments.keys) == (4096, 48, 900)


def test_sixteen_bits_are_multiplied_in_float32_unless_it_may_be_otherwise():
    assert [multiplied_in(each, rounds=False) for each in CODES] == [
        "float32", "float64", "float32", "float32",
    ]  # fmt: skip
    assert [multiplied_in(each, rounds=True) for each in CODES] == list(CODES)
    assert [summed_in(each) for each in CODES] == ["float32", "float64", "float32", "float32"]


def test_the_arguments_have_no_gaps():
    starts = [
        efficient(call()),
        gather(dense(64, 1, 2, 3), 128, (1, 1, 2, 3), ("float32", "float16")),
        softmax(call(), 4096, "float32", scale=1.0),
    ]
    for start in starts:
        end, kind = 0, type(start.arguments)
        for name, field in kind._fields_:
            assert getattr(kind, name).offset == end
            end += ctypes.sizeof(field)
        assert ctypes.sizeof(kind) == end


@pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
def test_the_python_on_the_page_runs():
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})


# --- compiling ------------------------------------------------------------------------------------

WIDE = {"value_width": 256, "width": 256}
MASKED = {"mask": Matrix(0, (0, 0, 0, 1)), "is_causal": True, "dropout": 0.1}
PROGRAMS = {
    **{f"{each} 64": efficient(call(element=each)) for each in CODES},
    **{
        f"{each} {width}": efficient(call(element=each, value_width=width))
        for each in ("float32", "float64")
        for width in (128, 192, 256)
    },
    "float16 256": efficient(call(element="float16", **WIDE)),
    "float32 64, all at once": efficient(call(mask_element="float32", **MASKED)),
    "float32 256, all at once": efficient(call(mask_element="bool", **WIDE, **MASKED)),
    "bfloat16 64, all at once": efficient(call(element="bfloat16", mask_element="bfloat16", **MASKED)),
    "softmax float32": softmax(call(mask_element="float32", **MASKED), 0, "float32", scale=1.0),
    "softmax float64": softmax(call(is_causal=True), 0, "float64", scale=1.0),
    "softmax bfloat16": softmax(call(), 0, "bfloat16", scale=1.0),
    "gather": gather(dense(0, 1, 2, 3), 0, (1, 1, 2, 3), ("float16", "float32")),
    "gather back": gather(dense(0, 1, 2, 3), 0, (1, 1, 2, 3), ("float32", "bfloat16")),
}  # fmt: skip
SPILLS = 128
"""Bytes that a thread of the fullest programs may keep outside of its registers."""
PINNED = (13, 5)
"""The compiler of .ci/libraries.txt; others may spill elsewhere."""
CLEAN = {name for name in PROGRAMS if name.startswith("float") and "," not in name} - {
    "float16 256"
}


@pytest.fixture(name="real", scope="module")
def _real():
    try:
        metadata.files("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        pytest.skip("NVRTC is not installed")
    return cuda_compiler.compiler()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("architecture", [80, 100])
@pytest.mark.parametrize("name", ["float32 64", "float64 256", "softmax float32", "gather"])
def test_a_program_compiles_for_every_generation(real, name, architecture):
    assert compiled(real, name, architecture) <= SPILLS


@pytest.mark.slow
def test_a_program_compiles_for_devices_without_newer_instructions(real):
    oldest = min(real.architectures)
    for name in ("float32 64", "bfloat16 64", "gather back"):
        assert compiled(real, name, oldest) <= SPILLS


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_compiles_and_keeps_its_sums_in_registers(real, name):
    spilled = compiled(real, name, 90)
    assert spilled <= (0 if name in CLEAN and real.version == PINNED else SPILLS)


def compiled(real, name, architecture):
    """Bytes that a thread spills."""
    program = PROGRAMS[name].kernel
    options = sources.attention_options(program, architecture)
    headers = {each: sources.source(each) for each in sources.HEADERS}
    source = sources.source(f"{program.name}.cu")
    found = real.compile(program.name, source, headers, [*options, "--ptxas-options=-v"])
    assert found.code.startswith(b"\x7fELF")
    assert program.name.encode() in found.code
    used = re.search(r"Used (\d+) registers", found.log)
    spilled = re.search(r"(\d+) bytes spill stores", found.log)
    assert used, found.log
    assert spilled, found.log
    assert int(used[1]) <= 255
    return int(spilled[1])
