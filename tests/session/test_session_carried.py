"""Which flags this release can really set is declared with the flags, and is the truth."""

from __future__ import annotations

import ast
from pathlib import Path

import backendcfg
from backendcfg.catalogue.variables import VARIABLES
from backendcfg.catalogue.xla_text import SWITCHES
from backendcfg.defaults import TORCH_CALLS
from backendcfg.schema.profile import flags

ELSEWHERE = {
    # Decided by the resolver and by the order of providers in a compiled plan.
    "determinism.tier",
    "environment",
    "blas.library",
    "blas.path",
    # Read where a compiled plan becomes a snapshot.
    "ops.calibration",
    # Read by the compiled part.
    "ops.check_finite",
    # Read where there is something to say.
    "log.level",
    # Read where one plan is made for several hosts.
    "fleet.unlike",
    # Read where a recipe for a device is made.
    "ops.float32_emulation",
}


def test_a_flag_is_declared_as_carried_exactly_when_a_bridge_has_a_switch_for_it():
    bridges = Path(backendcfg.__file__).parent / "bridges"
    named = {
        node.value
        for file in bridges.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    } | {row.flag for row in VARIABLES}
    named |= SWITCHES.keys() | TORCH_CALLS.keys()
    own = {name: found.flag for name, found in flags().items() if not found.flag.spells}
    carried = {name for name, flag in own.items() if flag.carried}
    assert {name for name in own if name in named} | ELSEWHERE == carried


def test_a_legacy_spelling_is_carried_as_what_it_stands_for():
    spellings = {name: found.flag for name, found in flags().items() if found.flag.spells}
    assert spellings
    for flag in spellings.values():
        targets = {target for writes in flag.spells.values() for target in writes}
        assert flag.carried is all(flags()[target].flag.carried for target in targets)


def test_what_the_compiled_part_reads_is_declared_as_carried():
    sources = list((Path(__file__).parents[2] / "native" / "src").rglob("*.c"))
    assert sources
    text = "".join(file.read_text() for file in sources)
    read = {name for name in flags() if f"FLAG_{name.upper().replace('.', '_')}" in text}
    assert read == {"determinism.tier", "ops.check_finite", "threads.count"}
    assert all(flags()[name].flag.carried for name in read)
