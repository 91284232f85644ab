"""Encode 8 texts of 256 tokens by Transformers' BERT, random weights, 4 layers."""

import torch
import turns
from transformers import BertConfig, BertModel

torch.manual_seed(0)
model = BertModel(BertConfig(num_hidden_layers=4)).eval()
tokens = torch.randint(0, 30522, (8, 256))


@torch.no_grad()
def step() -> float:
    return float(model(tokens).pooler_output.abs().mean())


turns.report(step)
