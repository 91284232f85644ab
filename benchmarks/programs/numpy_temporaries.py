"""Evaluate an expression of NumPy on arrays of 2000 x 2000 float64."""

import numpy as np
import turns

x = np.random.default_rng(0).standard_normal((2000, 2000))
y = x.T.copy()


def step() -> float:
    return float((x * y + 2.0 * x - y / (1.0 + x * x)).mean())


turns.report(step)
