"""Run as a program: what NVIDIA's own cuDNN says of our graphs of attention's gradients.

As `real_cudnn_attention.py`, whose devices and problems these are.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from real_cudnn_attention import answer, array, problem

from backendcfg.gpu.attention.cudnn import BackwardProblem, graph_backward


def backward(element="bfloat16", values=128, *, is_summed=True, is_turned=False, **more):
    turned = (100 * 8 * values, values, 8 * values, 1) if is_turned else None
    return BackwardProblem(
        problem(element, values=values, with_logsumexp=True, **more),
        array(2, 8, 100, values, element=element, strides=turned),
        is_summed,
    )


PROBLEMS = {
    "plain": backward(),
    "float16": backward("float16"),
    "repeatable": backward(is_summed=False),
    "causal, repeatable": backward(is_causal=True, is_summed=False),
    "turned": backward(is_turned=True),
    "narrow": backward(width=8, values=72),
    "everything": backward(
        key_heads=2, bias=array(2, 8, 1, 300), is_causal=True, is_turned=True, is_summed=False
    ),
    "mask of rows": backward(bias=array(2, 1, 100, 1, element="float32")),
    "of width 12": backward(width=12),
}


if __name__ == "__main__":
    answer({name: graph_backward(each) for name, each in PROBLEMS.items()})
