"""The operations of JAX, recorded in a program that does not know of it."""

from __future__ import annotations

import pytest

from backendcfg.audit.trace.reading import partings

pytestmark = pytest.mark.jax

PROGRAM = """
import numpy as np
import jax
import jax.numpy as jnp

@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)

x = jax.random.normal(jax.random.key({seed}), (32, 16))
w = np.array([1] * 16, np.float32)
for number in range(4):
    w = step(w, x)
w = w * 2
print(np.asarray(w).tobytes().hex(), step._cache_size())
"""


def test_each_call_of_what_is_compiled_is_an_operation_at_its_line(recorded, names, python):
    program = PROGRAM.format(seed=3)
    (found,), printed = recorded(program, windows={"0-0": (0, 100)})
    *before, one, two, three, four, product = names(found)
    assert {one, two, three, four} == {"jit(step) float32"}
    assert product == "jit(multiply) float32"
    assert before[-1] == "jit(_normal) float32"
    details = [each for _, each in sorted(found.details.items())]
    assert [each["place"] for each in details[-6:]] == [
        "script.py:10",
        *["script.py:13"] * 4,
        "script.py:14",
    ]
    assert [each["what"] for each in details[-2]["inputs"]] == [
        "float32[16]",
        "float32[32, 16]",
        "the compiled program",
    ]
    assert details[-2]["outputs"] == ["float32[16]"]
    assert printed == python(program)  # and it is compiled as often


def test_runs_part_at_the_call_that_computes_something_else(recorded):
    program = PROGRAM.replace("w = step(w, x)", "w = step(w, x + {more} * (number == 2))")
    one, _ = recorded(program.format(seed=3, more=0.0))
    same, _ = recorded(program.format(seed=3, more=0.0))
    other, _ = recorded(program.format(seed=3, more=1.0))
    assert partings(one, same) == []
    (found,) = partings(one, other)
    assert (found.name, found.other) == ("jit(add) float32",) * 2


def test_results_that_are_keys_tuples_or_given_away_are_as_without(recorded, names, python):
    program = """
import jax, jax.numpy as jnp
from functools import partial

@partial(jax.jit, donate_argnums=0)
def both(x, key):
    return x + 1, jax.random.split(key), {"n": x.astype(jnp.bfloat16)}

x, keys, more = both(jnp.arange(3.0), jax.random.key(1))
print(x, jax.random.key_data(keys), more, jax.jit(lambda: ())())
print(jax.vmap(lambda a: a * 2)(x), jax.jit(jax.pmap(lambda a: a))(x[:1]))
"""
    (found,), printed = recorded(program, windows={"0-0": (0, 100)})
    assert printed == python(program)
    assert "jit(both) float32" in names(found)
    assert "jit(<lambda>)" in names(found)


def test_what_numpy_computes_for_jax_itself_is_no_operation(recorded, names):
    (found,), _ = recorded("import jax\nimport numpy as np\njax.numpy.ones(3)\nnp.exp(1.0)\n")
    assert [name for name in names(found) if name.startswith("numpy")] == ["numpy.exp float64"]


def test_a_search_names_the_call_and_why_it_is_not_run_by_itself(searched):
    found = searched(
        """
        import jax, os
        key = jax.random.key(int.from_bytes(os.urandom(3), "little"))
        jax.jit(lambda key: jax.random.normal(key, (4,)))(key)
        """
    )
    (step,) = found.steps
    assert (step.operation, step.place, step.cause) == (
        "jit(stage) int32",
        "script.py:3",
        "outside",
    )
    assert step.obstacle == "what JAX compiled is not kept"
