"""What attention looks at, told of flags and of the arrays of any library."""

from __future__ import annotations

import numpy as np
import pytest

from backendcfg.dispatch.array_facts import ArrayFacts, array_facts
from backendcfg.dispatch.attention_facts import AttentionFlags, flags_of
from backendcfg.errors import InvalidArgumentError
from backendcfg.schema.profile import defaults

ALL = frozenset({"flash", "efficient", "math", "cudnn"})
ON = AttentionFlags()


def test_the_flags_that_attention_obeys():
    values = defaults()
    assert flags_of(values) == ON
    off = {**values, "cuda.enable_flash_sdp": False, "determinism.algorithms": "deterministic"}
    assert flags_of(off) == AttentionFlags(ALL - {"flash"}, deterministic=True)
    assert flags_of({**values, "determinism.algorithms": "warn"}) == ON
    ordered = flags_of({**values, "cuda.sdp_priority": ("math", "cudnn")}, "openblas")
    assert ordered.order == ("math", "cudnn", "flash", "efficient", "overrideable")
    assert ordered.library == "openblas"
    assert flags_of({**values, "determinism.tier": "restart"}).tier == "restart"


def test_the_facts_of_a_numpy_array_count_strides_in_elements():
    made = np.zeros((2, 3, 4, 8), np.float32).transpose(0, 2, 1, 3)
    assert array_facts(made, "query") == ArrayFacts((2, 4, 3, 8), (96, 8, 32, 1), "float32", "cpu")


class OnDevice:
    """An array of another library."""

    shape, dtype, itemsize = (2, 3), "bfloat16", 2

    def __init__(self, device, **attributes):
        self.device = device
        vars(self).update(attributes)


class Place:
    def __init__(self, **attributes):
        vars(self).update(attributes)


@pytest.mark.parametrize(
    ("made", "device", "index"),
    [
        (OnDevice(None), "cpu", 0),
        (OnDevice("cuda:1"), "cuda", 1),
        (OnDevice(Place(type="cuda", index=2)), "cuda", 2),
        (OnDevice(Place(type="mps", index=None)), "mps", 0),
        (OnDevice(Place(id=3), __cuda_array_interface__={}), "cuda", 3),
        (OnDevice(Place(platform="gpu", id=1)), "cuda", 1),
        (OnDevice(lambda: Place(platform="cpu", id=0)), "cpu", 0),
    ],
    ids=["none", "text", "pytorch", "pytorch-mps", "cupy", "jax", "old-jax"],
)
def test_where_an_array_of_another_library_is(made, device, index):
    facts = array_facts(made, "query")
    assert (facts.device, facts.ordinal, facts.strides) == (device, index, (3, 1))


@pytest.mark.parametrize("wrong", [3, None, "text", np.ndarray, [1.0]])
def test_what_is_no_array_is_named(wrong):
    with pytest.raises(InvalidArgumentError, match="`mask` must be an array, not"):
        array_facts(wrong, "mask")
