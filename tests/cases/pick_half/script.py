"""Smooth one half of a signal, which half depends on where its energy is."""
import sys
import torch


def front(signal):
    return torch.sin(signal)[:8].clone()


def back(signal):
    return torch.cos(signal)[8:].clone()


def smooth(signal, kernel):
    energy = signal.square()
    late = energy[8:].sum() > energy[:8].sum()
    half = torch.cond(late, back, front, (signal,))
    padded = torch.nn.functional.pad(half, (1, 1))
    return torch.nn.functional.conv1d(padded[None, None], kernel[None, None])[0, 0]


torch.manual_seed(0)
signal, kernel = torch.randn(16), torch.tensor([0.25, 0.5, 0.25])
want = smooth(signal, kernel)
print("eager   :", want[:4].tolist())
got = torch.compile(smooth)(signal, kernel)
print("compiled:", got[:4].tolist())
sys.exit(0 if torch.allclose(want, got, atol=1e-6) else 1)
