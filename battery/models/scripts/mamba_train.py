"""One training step of a small Mamba."""

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
config = MambaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=200, state_size=4)
model = MambaForCausalLM(config)
compiled = torch.compile(model)
ids = torch.randint(0, 200, (2, 8))
loss = compiled(input_ids=ids, labels=ids).loss
loss.backward()
print(loss.item())
