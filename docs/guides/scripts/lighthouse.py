"""How bright is each lamp? A lamp with an endless period never turns, and always shines."""

import torch


def brightness(time, period, power):
    phase = torch.remainder(time * 1.5, period)
    glow = torch.exp(-phase) * power
    return glow / glow.sum()


time = torch.linspace(0.0, 3.0, 16)
period = torch.full((16,), 2.0)
period[5] = float("inf")
power = torch.ones(16)
print("eager:   ", brightness(time, period, power).sum().item())
print("compiled:", torch.compile(brightness)(time, period, power).sum().item())
