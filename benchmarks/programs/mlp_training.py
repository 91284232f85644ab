"""Train a perceptron of PyTorch, 1024-2048-1024, on batches of 512, by Adam."""

import torch
import turns

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)
)
optimizer = torch.optim.Adam(model.parameters())
inputs, wanted = torch.randn(512, 1024), torch.randn(512, 1024)


def step() -> float:
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


turns.report(step)
