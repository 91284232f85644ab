"""Attention of device arrays by cuDNN: its graph, run by the double, gives the right numbers."""

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu

from backendcfg import ops
from backendcfg.ops import device_attention

attention = ops.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _forgotten():
    device_attention.forget()
    yield
    device_attention.forget()


def three(queries=(2, 3, 40, 64), keys=(2, 3, 70, 64), element="bfloat16"):
    return normal(queries, element), normal(keys, element, 1), normal(keys, element, 2)


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_attention_is_right_in_both_element_types(devices, element):
    arrays = three(element=element)
    result, logsumexp = attention(*arrays, return_logsumexp=True)
    wanted, sums = on_the_cpu(*arrays, return_logsumexp=True)
    assert (result.element, result.place) == (element, (2, 0))
    assert_near(result, wanted)
    assert logsumexp.element == "float32"
    assert_near(logsumexp, sums)
    assert len(devices.cudnn.calls("cudnnBackendExecute")) == 1
