"""A short training with AdamW, dropout and a common seed: must learn, compiled as in eager."""
import sys
import torch
from torch import nn


def train(compiled):
    torch.manual_seed(7)
    torch._inductor.config.fallback_random = True
    model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.2), nn.Linear(32, 3))
    x, y = torch.randn(48, 12), torch.randint(0, 3, (48,))
    run = torch.compile(model) if compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    losses = []
    for _ in range(6):
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(run(x), y, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


want, got = train(False), train(True)
print("eager   :", [round(v, 5) for v in want])
print("compiled:", [round(v, 5) for v in got])
sys.exit(0 if max(abs(a - b) for a, b in zip(want, got)) < 1e-3 else 1)
