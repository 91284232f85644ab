"""Decompose a matrix of 600 x 600 by SciPy and solve a system of 1500 equations."""

import numpy as np
import turns
from scipy import linalg

random = np.random.default_rng(0)
a, b, c = (random.standard_normal(shape) for shape in ((600, 600), (1500, 1500), (1500, 10)))


def step() -> float:
    return float(linalg.svd(a, compute_uv=False)[0] + np.abs(linalg.solve(b, c)).sum())


turns.report(step)
