"""Train Transformers' GPT-2, random weights: 4 layers, 8 heads, 256 wide, 4 x 512 tokens, AdamW."""

import torch
import turns
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=8, n_embd=256, n_positions=512))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 50257, (4, 512))


def step() -> float:
    loss = model(tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


turns.report(step)
