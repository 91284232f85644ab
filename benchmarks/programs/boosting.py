"""Train scikit-learn's gradient boosting beside products of NumPy, 20,000 x 30 numbers."""

import numpy as np
import turns
from sklearn.ensemble import HistGradientBoostingRegressor

random = np.random.default_rng(0)
x = random.standard_normal((20000, 30))
mix = random.standard_normal((30, 30))
y = np.sin(x @ mix).sum(1)


def step() -> float:
    model = HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(x @ mix, y)
    return float(model.score(x @ mix, y))


turns.report(step)
