"""Cluster 20,000 points of 50 numbers into 20 by scikit-learn's k-means."""

import numpy as np
import turns
from sklearn.cluster import KMeans

x = np.random.default_rng(0).standard_normal((20000, 50))


def step() -> float:
    return float(KMeans(20, n_init=1, max_iter=20, random_state=0).fit(x).inertia_)


turns.report(step)
