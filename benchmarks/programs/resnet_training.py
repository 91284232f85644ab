"""Train Transformers' ResNet, random weights, on 16 images of 96 x 96."""

import torch
import turns
from transformers import ResNetConfig, ResNetForImageClassification

torch.manual_seed(0)
model = ResNetForImageClassification(
    ResNetConfig(depths=[2, 2, 2, 2], layer_type="basic", hidden_sizes=[64, 128, 256, 512])
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
images, labels = torch.randn(16, 3, 96, 96), torch.randint(0, 2, (16,))


def step() -> float:
    loss = model(images, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


turns.report(step)
