"""What `test_jax_arrays.py` tries in a process of its own: JAX in the tests' would warn at every fork."""

import json
import sys
import traceback

import jax
import numpy as np
import pytest

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import arrays

attend = ops.scaled_dot_product_attention
attend_backward = ops.scaled_dot_product_attention_backward
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}


def take(value):
    return arrays.take(value, "a", "matmul")


def shared_memory(element):
    array = jax.numpy.ones((64, 3), element)
    taken = take(array)
    assert (taken.element, taken.framework) == (element, "jax")
    assert taken.array.ctypes.data == array.unsafe_buffer_pointer()
    given = arrays.give(taken.array, taken)
    assert isinstance(given, jax.Array)
    assert given.dtype == array.dtype
    assert given.devices() == array.devices()
    assert given.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()


def unaligned_result():
    taken = take(jax.numpy.ones(3))
    memory = np.arange(64, dtype=np.float32)
    start = 1 if memory.ctypes.data % 64 == 0 else 0
    while memory[start:].ctypes.data % 64 == 0:
        start += 1
    given = arrays.give(memory[start : start + 3], taken)
    assert given.tolist() == memory[start : start + 3].tolist()
    assert given.unsafe_buffer_pointer() != memory[start:].ctypes.data


def traced():
    with pytest.raises(InvalidArgumentError) as caught:
        jax.jit(take)(jax.numpy.ones(3))
    assert caught.value.render() == (
        "error[invalid-argument]: matmul: `a` must be an array, not a value that JAX traces\n"
        "  state: nothing was computed\n"
        "  help: call it outside `jax.jit` and `jax.grad`, or by `jax.pure_callback`"
    )


def deleted():
    array = jax.numpy.ones(3)
    array.delete()
    with pytest.raises(InvalidArgumentError, match="matmul: `a` cannot be read: Array has been"):
        take(array)


def attention(element):
    numbers = np.random.default_rng(0).standard_normal((1, 2, 50, 8)).astype(np.float32)
    query = jax.numpy.asarray(numbers).astype(element)
    out, total = attend(query, query, query, is_causal=True, return_logsumexp=True)
    assert isinstance(out, jax.Array)
    assert (out.dtype, total.dtype) == (query.dtype, np.float32)
    wide = np.asarray(query).astype(np.float32)
    wanted = attend(wide, wide, wide, is_causal=True)
    np.testing.assert_allclose(np.asarray(out).astype(np.float32), wanted, atol=TOLERANCE[element])
    gradients = attend_backward(out, query, query, query, out, total, is_causal=True)
    assert all(isinstance(each, jax.Array) for each in gradients)


def outcomes(cases):
    """What came of each case, a function's name and its arguments: "", or the traceback."""
    found = {}
    for name, *arguments in cases:
        try:
            globals()[name](*arguments)
            found["-".join((name, *arguments))] = ""
        except BaseException:
            found["-".join((name, *arguments))] = traceback.format_exc()
    return found


if __name__ == "__main__":
    print(json.dumps(outcomes(json.loads(sys.argv[1]))))
