"""Rotate a signal by a phase that is kept within one turn."""
import sys
import torch


def rotate(signal, drift):
    phase = drift % 6.283185307179586
    window = torch.hann_window(signal.shape[0])
    centred = signal - signal.mean()
    return centred * window * phase + signal.abs().sqrt()


torch.manual_seed(0)
signal = torch.randn(64)
compiled = torch.compile(rotate)
worst = 0.0
for step in range(4):
    drift = 1.5 + 2.7 * step
    want = rotate(signal, drift)
    got = compiled(signal, drift)
    worst = max(worst, (want - got).abs().max().item())
    print("step", step, "drift", drift, "worst", worst, flush=True)
sys.exit(0 if worst < 1e-4 else 1)
