"""Shift a history buffer by one step, then average it with fading weights."""
import sys
import torch


def shift(history, fade):
    weight = torch.softmax(fade * 3.0, dim=0)
    history[1:] = history[:-1].clone()
    mean = (history * weight.unsqueeze(1)).sum(dim=0)
    return mean - mean.mean(), weight


torch.manual_seed(0)
history, fade = torch.randn(6, 8), torch.randn(6)
plain, traced = history.clone(), history.clone()
want = shift(plain, fade)
got = torch.compile(shift)(traced, fade)
print("eager history    column 0:", [round(v, 3) for v in plain[:, 0].tolist()])
print("compiled history column 0:", [round(v, 3) for v in traced[:, 0].tolist()])
sys.exit(0 if torch.allclose(plain, traced, atol=1e-5) else 1)
