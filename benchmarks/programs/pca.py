"""Fit scikit-learn's PCA with 20 components to 20,000 x 200 numbers."""

import numpy as np
import turns
from sklearn.decomposition import PCA

x = np.random.default_rng(0).standard_normal((20000, 200))


def step() -> float:
    return float(PCA(20, random_state=0).fit(x).explained_variance_.sum())


turns.report(step)
