"""JAX's configuration, each test in a child process that has the real JAX."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from bridge_programs import APPLY_AND_UNDO

from backendcfg.bridges import jax as bridge

ASKED = {
    "jax.default_matmul_precision": "highest",
    "jax.threefry_partitionable": False,
    "jax.default_prng_impl": "rbg",
    "jax.enable_x64": True,
}
PRELUDE = """
import json, sys, threading
from backendcfg.bridges import all as bridges
def settings(values, scoped=False, asked=None):
    found = bridges.settings(values, asked or values, "p", bridges=["jax"], scoped=scoped)
    return {s.switch.name: s for s in found}
"""
PRELUDE += APPLY_AND_UNDO
PRELUDE += """
def says():
    return [getattr(jax.config, name) for name in (
        "jax_default_matmul_precision", "jax_threefry_partitionable", "jax_default_prng_impl",
        "jax_enable_x64")]
"""

pytestmark = pytest.mark.jax
real = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


def test_a_jax_that_keeps_its_options_otherwise_is_told_nothing(monkeypatch):
    old = SimpleNamespace(__version__="0.2.1", __spec__=None)
    monkeypatch.setitem(sys.modules, "jax", old)
    monkeypatch.delitem(sys.modules, "jax._src.config", raising=False)
    found = bridge.settings({"jax.enable_x64": True}, ["jax.enable_x64"])
    assert [each.switch.unsupported() for each in found] == [
        "JAX 0.2.1 has no `jax_enable_x64`"
    ] * 2
    options = SimpleNamespace(config_states={"jax_enable_x64": object()})
    monkeypatch.setitem(sys.modules, "jax._src.config", options)
    assert {each.switch.unsupported() for each in found} == {
        "JAX 0.2.1 keeps `jax_enable_x64` in another way than the releases that were measured"
    }


@real
def test_what_is_set_for_the_process_is_read_back_from_jax_and_restored(answer):
    code = (
        PRELUDE
        + f"""
import jax
first = says()
mine = settings({ASKED!r})
unsupported = [each.switch.unsupported() for each in mine.values()]
before = apply(mine)
elsewhere = []
thread = threading.Thread(target=lambda: elsewhere.append(says())); thread.start(); thread.join()
during, after = says(), undo(mine, before)
print(json.dumps([unsupported, before, during, elsewhere, after == before, says() == first]))
"""
    )
    unsupported, before, during, elsewhere, restored, as_first = answer(code)
    assert unsupported == [""] * 4
    assert before == {
        "jax.default_matmul_precision": "default",
        "jax.threefry_partitionable": True,
        "jax.default_prng_impl": "threefry2x32",
        "jax.enable_x64": False,
    }
    assert during == ["highest", False, "rbg", True]
    assert elsewhere == [during]
    assert (restored, as_first) == (True, True)


@real
def test_a_scope_is_the_threads_own_and_leaves_no_trace(answer):
    code = (
        PRELUDE
        + f"""
import jax
mine = settings({ASKED!r}, scoped=True)
before = apply(mine)
elsewhere = []
thread = threading.Thread(target=lambda: elsewhere.append(says())); thread.start(); thread.join()
during, after = says(), undo(mine, before)
jax.config.update("jax_default_matmul_precision", "high")
print(json.dumps([list(mine), before, during, elsewhere, after == before, says()[0]]))
"""
    )
    names, before, during, elsewhere, restored, then = answer(code)
    assert names == [
        "jax.default_matmul_precision.thread",
        "jax.threefry_partitionable.thread",
        "jax.default_prng_impl.thread",
        "jax.enable_x64.thread",
    ]
    assert set(before.values()) == {None}
    assert during == ["highest", False, "rbg", True]
    assert elsewhere == [[None, True, "threefry2x32", False]]
    assert restored is True
    # A value left behind in the thread would hide what the program sets for the process.
    assert then == "high"


@real
def test_a_scope_wins_inside_jaxs_own_context_and_jaxs_own_wins_inside_a_scope(answer):
    code = (
        PRELUDE
        + """
import jax
mine = settings({"jax.default_matmul_precision": "highest"}, scoped=True)
seen = []
with jax.default_matmul_precision("bfloat16"):
    before = apply(mine); seen.append(says()[0])
    with jax.default_matmul_precision("high"): seen.append(says()[0])
    seen.append(says()[0]); undo(mine, before); seen.append(says()[0])
seen.append(says()[0])
print(json.dumps(seen))
"""
    )
    assert answer(code) == ["highest", "high", "highest", "bfloat16", None]


@real
def test_a_scope_can_ask_for_the_default_inside_a_profile_that_asks_for_more(answer):
    code = (
        PRELUDE
        + """
import jax
apply(settings({"jax.default_matmul_precision": "highest"}))
mine = settings({"jax.default_matmul_precision": "default"}, scoped=True)
before = apply(mine); during = says()[0]; undo(mine, before)
print(json.dumps([before, during, says()[0]]))
"""
    )
    assert answer(code) == [{"jax.default_matmul_precision.thread": None}, None, "highest"]


@real
def test_a_value_that_no_flag_names_is_put_back_as_it_was(answer):
    code = (
        PRELUDE
        + """
import jax
jax.config.update("jax_default_matmul_precision", "TF32_TF32_F32")
mine = settings({"jax.default_matmul_precision": "highest"})
before = apply(mine); undo(mine, before)
print(json.dumps([before, says()[0]]))
"""
    )
    assert answer(code) == [{"jax.default_matmul_precision": "TF32_TF32_F32"}, "TF32_TF32_F32"]


@real
def test_a_compiled_function_is_compiled_again_and_one_compiled_ahead_is_not(answer):
    """Why the latch is "anytime": JAX's cache of compiled functions has the options in its key."""
    code = (
        PRELUDE
        + """
import jax, jax.numpy as jnp
product = jax.jit(lambda a, b: a @ b)
x = jnp.ones((4, 4))
ahead = product.lower(x, x)
product(x, x); counts = [product._cache_size()]
mine = settings({"jax.default_matmul_precision": "highest"}); before = apply(mine)
product(x, x); counts.append(product._cache_size())
now = product.lower(x, x)
undo(mine, before); product(x, x); counts.append(product._cache_size())
print(json.dumps([counts, "HIGHEST" in ahead.as_text(), "HIGHEST" in now.as_text()]))
"""
    )
    assert answer(code) == [[1, 2, 2], False, True]


@real
def test_the_streams_and_types_are_those_of_the_profile(answer):
    code = (
        PRELUDE
        + """
import jax, jax.numpy as jnp
def draw(): return [float(x) for x in jax.random.uniform(jax.random.key(0), (4,))]
first, dtype = draw(), str(jnp.arange(2.0).dtype)
mine = settings({"jax.threefry_partitionable": False, "jax.enable_x64": True})
before = apply(mine); wide = str(jnp.arange(2.0).dtype)
undo(mine, before); apply(settings({"jax.threefry_partitionable": False})); other = draw()
print(json.dumps([first == other, dtype, wide]))
"""
    )
    assert answer(code) == [False, "float32", "float64"]


@real
@pytest.mark.parametrize("imports", [("import jax", ""), ("", "import jax")])
def test_a_profile_of_the_process_reaches_jax_before_and_after_its_import(program, imports):
    code = f"""
import json, backendcfg
{imports[0]}
backendcfg.apply(settings={{"jax.default_matmul_precision": "highest"}})
{imports[1]}
seen = [jax.config.jax_default_matmul_precision]
states = [(r.switch, r.state) for r in backendcfg.verify().readings if r.flag.startswith("jax.")]
backendcfg.undo(); seen.append(jax.config.jax_default_matmul_precision)
print(json.dumps([seen, dict(states)]))
"""
    seen, states = program(code)
    assert seen == ["highest", None]
    assert states == {"jax.default_matmul_precision": "ok"}


@real
def test_scopes_of_two_threads_with_different_precisions_do_not_meet(program):
    code = """
import json, threading, jax, backendcfg, pathlib
pathlib.Path("profiles").mkdir(); pathlib.Path("backendcfg.toml").write_text("")
for name in ("high", "highest"):
    pathlib.Path(f"profiles/{name}.toml").write_text(
        f'schema = 1\\n[jax]\\ndefault_matmul_precision = "{name}"\\n')
seen, both = {}, threading.Barrier(2)
def work(name):
    with backendcfg.profile(name):
        both.wait(); seen[name] = jax.config.jax_default_matmul_precision
        held = [(r.switch, r.state) for r in backendcfg.verify().readings]
        seen[name + " held"] = held; both.wait()
    seen[name + " after"] = jax.config.jax_default_matmul_precision
threads = [threading.Thread(target=work, args=(name,)) for name in ("high", "highest")]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(seen))
"""
    held = [["jax.default_matmul_precision.thread", "ok"]]
    assert program(code) == {
        "high": "high",
        "highest": "highest",
        "high held": held,
        "highest held": held,
        "high after": None,
        "highest after": None,
    }


@real
def test_tasks_of_one_thread_that_disagree_are_refused_and_an_apply_shows_after_the_scope(program):
    code = """
import asyncio, contextvars, json, jax, backendcfg
from backendcfg.session.adjust import overlay
wish = "jax.default_matmul_precision"
def now(): return jax.config.jax_default_matmul_precision
seen = []
async def other():
    try:
        with overlay({wish: "high"}): seen.append("entered")
    except backendcfg.errors.ProfileBusyError: seen.append("busy")
async def main():
    with overlay({wish: "highest"}):
        # A task that took its parent's context along would nest.
        await asyncio.create_task(other(), context=contextvars.Context())
        seen.append(now())
    await asyncio.create_task(other(), context=contextvars.Context())
    seen.append(now())
asyncio.run(main())
with overlay({wish: "highest"}):
    backendcfg.apply(settings={wish: "high"}); seen.append(now())
seen.append(now()); backendcfg.undo(); seen.append(now())
print(json.dumps(seen))
"""
    assert program(code) == ["busy", "highest", "entered", None, "highest", "high", None]


CONTEXTS = {
    "jax.default_matmul_precision": 'jax.default_matmul_precision("bfloat16")',
    "jax.threefry_partitionable": "jax.threefry_partitionable(True)",
    "jax.default_prng_impl": 'jax.default_prng_impl("threefry2x32")',
    "jax.enable_x64": "config.enable_x64(False)",
}


@real
@pytest.mark.parametrize("flag", CONTEXTS)
def test_a_context_of_the_program_over_a_profile_is_seen(program, flag):
    code = f"""
import json, jax, backendcfg
from jax._src import config
backendcfg.apply(settings={ASKED!r})
def now():
    found = [each for each in backendcfg.verify().readings if each.switch == {flag!r}]
    token = backendcfg.numerics_token()
    return [[each.state, each.found, each.because] for each in found] + [token]
before = now()
with {CONTEXTS[flag]}:
    inside, value = now(), backendcfg.numerics_token().parts["switches"][{flag!r}]
print(json.dumps([before, inside, value, now()]))
"""
    before, inside, value, after = program(code)
    assert before[0] == ["ok", ASKED[flag], ""]
    assert inside[0] == ["overridden", value, "a context of JAX around this call outranks it"]
    assert value != ASKED[flag]
    assert inside[1] != before[1]
    assert after == before


@real
def test_a_guard_inside_a_context_sees_what_is_changed_beneath_it(program):
    code = """
import json, jax, backendcfg
seen = []
with jax.default_matmul_precision("high"):
    with backendcfg.guard() as watched:
        with jax.default_matmul_precision("bfloat16"): pass
        seen.append([str(change) for change in watched.changes()])
        jax.config.update("jax_default_matmul_precision", "highest")
        seen.append([str(change) for change in watched.changes()])
        jax.config.update("jax_default_matmul_precision", None)
print(json.dumps(seen))
"""
    assert program(code) == [[], ["`jax.default_matmul_precision` was default and is highest"]]


@real
def test_the_variables_of_a_child_give_jax_the_same_options(answer):
    from backendcfg.bridges import environment

    variables = environment.variables(ASKED, ASKED)
    code = PRELUDE + "import jax; print(json.dumps(says()))"
    assert answer(code, **variables) == ["highest", False, "rbg", True]


@real
def test_nproc_sizes_jaxs_pool(answer):
    """T44: JAX sums by the number of its threads, which no option of it sets."""
    code = """
import json, os, jax, jax.numpy as jnp
(jnp.ones((8, 8)) @ jnp.ones((8, 8))).block_until_ready()
print(json.dumps(len(os.listdir("/proc/self/task"))))
"""
    assert answer(code, NPROC="1") < answer(code, NPROC="4")


@real
def test_the_gpu_starts_from_tf32_unless_a_profile_says_otherwise(answer):
    """T25: JAX's own default is None, which lets a GPU take TF32; what it does there was read."""
    code = PRELUDE + "import jax; print(json.dumps([says()[0], list(settings({}))]))"
    assert answer(code) == [None, []]
