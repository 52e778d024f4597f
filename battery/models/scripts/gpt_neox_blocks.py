"""Fine-tunes a small GPT-NeoX whose blocks are compiled one by one."""

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

torch.manual_seed(0)
config = GPTNeoXConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=300,
    hidden_dropout=0.0,
)
model = GPTNeoXForCausalLM(config)
for layer in model.gpt_neox.layers:
    layer.compile()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
ids = torch.randint(0, 300, (2, 16))
for _ in range(2):
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
