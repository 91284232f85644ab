"""Whiten batches by NumPy and train on them by PyTorch, in turn, as an input pipeline does."""

import numpy as np
import torch
import turns

torch.manual_seed(0)
random = np.random.default_rng(0)
batch = random.standard_normal((128, 128), dtype=np.float32)
whitening = random.standard_normal((128, 128), dtype=np.float32)
model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def step() -> float:
    for _ in range(20):
        inputs = torch.from_numpy(batch @ whitening)
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


turns.report(step)
