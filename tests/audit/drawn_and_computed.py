"""A program that draws without a seed and computes with every framework that its environment has.

It prints a line for each framework: the digest of its results.
"""

from __future__ import annotations

import hashlib
import random
from importlib.util import find_spec

import numpy as np


def say(title: str, *arrays: object) -> None:
    """Print the digest of some arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    print(title, digest.hexdigest()[:16])


drawn = np.random.default_rng().standard_normal((300, 300)) + np.random.rand(300, 300)  # noqa: NPY002
order = [hash(word) % 7 for word in {"north", "east", "south", "west", str(random.random())}]
say("numpy", drawn @ drawn, np.linalg.svd(drawn)[1], order)

if find_spec("scipy"):
    import scipy.linalg

    say("scipy", *scipy.linalg.eigh(drawn @ drawn.T))
if find_spec("torch"):
    import torch

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.Linear(1568, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.einsum(
            "ij,jk,kl->", model(torch.randn(32, 3, 16, 16)), *torch.randn(2, 5, 5)
        ).backward()
        optimizer.step()
    say("torch", *(each.detach() for each in model.parameters()))
if find_spec("jax"):
    import jax

    key = jax.random.key(int(np.random.default_rng().integers(1000)))
    say("jax", jax.jit(lambda a: a @ a)(jax.random.normal(key, (300, 300))))
if find_spec("tensorflow"):
    import tensorflow as tf

    some = tf.random.normal((300, 300))
    say("tensorflow", tf.linalg.matmul(some, some))
