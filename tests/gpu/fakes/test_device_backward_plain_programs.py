"""Which programs give the gradients of attention without tensor cores, and that they compile."""

from __future__ import annotations

import ctypes
import re

import pytest
from test_device_attention_programs import PINNED, SHARED_ANYWHERE, SPILLS, call, dense

# The compiler, as the programs of the forward pass have it.
from test_device_attention_programs import _real as _real  # noqa: PLC0414 - a fixture

from backendcfg.gpu.attention.call import CODES, LOG2_OF_E, Gradients, Matrix
from backendcfg.gpu.attention.efficient import (
    OF,
    DeltaArguments,
    EfficientBackwardArguments,
    delta,
    gradient,
)
from backendcfg.gpu.kernels import sources
from backendcfg.records import replace

MASK = Matrix(64, (0, 900000, 900, 1))
SIZES = (1, 8, 1000, 900)


def passed(made, into=None, mask_sizes=SIZES):
    grad_out = dense(32768, made.heads, made.queries, made.value_width)
    into = into or dense(131072, 8, 1000, 64)
    return Gradients(grad_out, 65536, dict.fromkeys(OF, into), mask_sizes)


def start(of, made=None, **rest):
    made = made or call()
    return gradient(of, made, passed(made, **rest))


def test_each_gradient_is_a_kernel_of_its_own():
    assert [start(of).kernel.macros["OF"] for of in OF] == [0, 1, 2, 3]
    grids = [start(of).grid for of in OF]
    assert grids == [2 * 8 * 16, 2 * 8 * 15, 2 * 8 * 15, 8 * 16 * 15]
    assert {(start(of).kernel.threads, start(of).kernel.shared_bytes) for of in OF} == {
        (128, 37888)
    }


def test_heads_that_share_keys_or_values_have_one_gradient():
    made = call(key_heads=2, value_heads=4)
    key, value = start("key", made), start("value", made)
    assert (key.grid, value.grid) == (2 * 2 * 15, 2 * 4 * 15)
    assert (key.arguments.key_group, value.arguments.value_group) == (4, 2)


def test_a_block_has_128_columns_of_a_wide_gradient():
    made = call(width=300)
    of_query, of_value = start("query", made), start("value", made)
    assert (of_query.grid, of_query.arguments.panels) == (2 * 8 * 16 * 3, 3)
    assert (of_query.kernel.macros["COLUMNS"], of_query.arguments.columns) == (128, 300)
    assert (of_value.arguments.panels, of_value.kernel.macros["COLUMNS"]) == (1, 64)


def test_a_mask_has_blocks_where_it_is_not_broadcast():
    for sizes, grid in (
        ((2, 8, 1000, 900), 2 * 8 * 16 * 15),
        ((1, 1, 1, 900), 15),
        ((2, 1, 1000, 1), 32),
        ((1, 1, 1, 1), 1),
    ):
        assert start("mask", mask_sizes=sizes).grid == grid


def test_the_scale_is_a_factor_of_two_gradients():
    given = [start(of, call(scale=-0.25)).arguments for of in OF]
    assert [each.factor for each in given] == [-0.25, -0.25, 1.0, 1.0]
    assert {each.scale for each in given} == {-0.25 * LOG2_OF_E}


@pytest.mark.parametrize("element", CODES)
def test_every_program_fits_the_shared_memory_of_every_device(element):
    for of in OF:
        for width in (1, 64, 65, 300):
            program = start(of, call(element=element, width=width)).kernel
            assert program.shared_bytes <= SHARED_ANYWHERE
            assert program.macros["ELEMENT"] == CODES[element]


@pytest.mark.parametrize("which", ["query", "grad_out", "into"])
def test_rows_that_are_no_whole_chunks_are_read_by_numbers(which):
    odd = Matrix(4100, (512000, 64000, 64, 1))
    made = call(**({"query": odd} if which == "query" else {}))
    given = passed(made, odd if which == "into" else None)
    if which == "grad_out":
        given = replace(given, grad_out=odd)
    assert gradient("query", made, given).kernel.macros["ALIGNED"] == 0
    assert start("query").kernel.macros["ALIGNED"] == 1


def test_what_is_empty_is_not_started():
    assert [start(of, call(batch=0)) for of in OF[:3]] == [None] * 3
    assert start("query", call(queries=0)) is None
    assert start("key", call(queries=0)).grid == 2 * 8 * 15  # zeros are written
    assert start("value", call(keys=0)) is None
    assert start("mask", mask_sizes=(1, 8, 0, 900)) is None
    assert delta(call(queries=0), passed(call())) is None


def test_sums_of_rows_have_eight_to_a_block():
    found = delta(call(queries=3, value_width=20), passed(call()))
    assert (found.grid, found.kernel.threads) == (6, 256)
    assert (found.arguments.rows, found.arguments.value_width) == (48, 20)


def test_the_arguments_have_no_gaps_and_can_be_kept():
    for kind in (EfficientBackwardArguments, DeltaArguments):
        end = 0
        for name, field in kind._fields_:
            assert getattr(kind, name).offset == end
            end += ctypes.sizeof(field)
        assert ctypes.sizeof(kind) == end <= 512


# --- compiling ------------------------------------------------------------------------------------

ALL = {"mask": MASK, "mask_element": "float32", "is_causal": True, "dropout": 0.1}
ADDED = {"mask": MASK, "mask_element": "float32"}
KINDS = {
    "float32": {},
    "float32 128": {"width": 128},
    "float32, all at once": ALL,
    "float32 128, all at once": {"width": 128, **ALL},
    "float64 128, all at once": {"element": "float64", "width": 128, **ALL, "mask_element": "float64"},
    "float16 128": {"element": "float16", "width": 128},
    "bfloat16": {"element": "bfloat16", "is_causal": True},
}  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("name", KINDS)
def test_every_program_compiles_and_keeps_its_sums_in_registers(real, name, of):
    spilled = compiled(real, name, of, 90)
    assert spilled <= (0 if "," not in name and real.version == PINNED else SPILLS)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("architecture", [80, 100])
@pytest.mark.parametrize("of", OF)
def test_a_program_compiles_for_every_generation(real, of, architecture):
    assert compiled(real, "float32", of, architecture) <= SPILLS


@pytest.mark.sweep(2)
@pytest.mark.parametrize("of", OF)
def test_a_program_compiles_for_devices_without_newer_instructions(real, of):
    assert compiled(real, "bfloat16", of, min(real.architectures)) <= SPILLS


def test_the_sums_of_rows_compile(real):
    assert compiled_program(real, delta(call(), passed(call())).kernel, 90) == 0


def compiled(real, name, of, architecture):
    """Bytes that a thread spills."""
    given = {**(ADDED if of == "mask" else {}), **KINDS[name]}
    width = given.get("width", 64)
    made = call(**given, value_width=width)
    return compiled_program(real, start(of, made).kernel, architecture)


def compiled_program(real, program, architecture):
    options = sources.attention_options(program, architecture)
    headers = {each: sources.source(each) for each in sources.HEADERS}
    source = sources.source(f"{program.name}.cu")
    found = real.compile(program.name, source, headers, [*options, "--ptxas-options=-v"])
    assert found.code.startswith(b"\x7fELF")
    assert program.name.encode() in found.code
    used = re.search(r"Used (\d+) registers", found.log)
    spilled = re.search(r"(\d+) bytes spill stores", found.log)
    stack = re.search(r"(\d+) bytes stack frame", found.log)
    assert int(used[1]) <= 255
    assert int(stack[1]) < int(spilled[1]) + 16
    return int(spilled[1])
