"""Generate 32 tokens for 4 prompts by Transformers' GPT-2, random weights, greedily."""

import torch
import turns
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=8, n_embd=256, n_positions=512)).eval()
prompts = torch.randint(0, 50257, (4, 128))


def step() -> float:
    found = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=32,
        do_sample=False,
        pad_token_id=0,
    )
    return float(found.sum())


turns.report(step)
