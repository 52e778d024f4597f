"""A small Llama generates eight tokens with a static cache; the decoding step is one graph."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=500,
)
model = LlamaForCausalLM(config).eval()
prompt = torch.randint(0, 500, (1, 6))
cache = StaticCache(config=config, max_cache_len=32)


def decode(token, position):
    logits = model(
        input_ids=token, position_ids=position, past_key_values=cache, use_cache=True
    ).logits
    return logits[:, -1:].argmax(dim=-1)


step = torch.compile(decode, fullgraph=True)
with torch.no_grad():
    token = decode(prompt, torch.arange(6)[None])
    tokens = [token]
    for place in range(6, 13):
        token = step(token, torch.tensor([[place]]))
        tokens.append(token)
print(torch.cat(tokens, dim=1).tolist())
