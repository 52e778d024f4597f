"""Two training steps of a GPT-2 of four layers, with random weights."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
sizes = {"n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 2000, "n_positions": 128}
model = GPT2LMHeadModel(GPT2Config(**sizes))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
compiled = torch.compile(model)
data = torch.randint(0, 2000, (4, 64))
for step in range(2):
    loss = compiled(input_ids=data, labels=data).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
