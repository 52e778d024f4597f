"""Double buffering: keep the previous frame, then advance the current one."""
import sys
import torch


def advance(previous, current, drive):
    force = torch.tanh(drive) * 0.5
    previous[0:, :] = current[0:, :]
    current.add_(force)
    return force.norm(), current.amax(dim=1)


torch.manual_seed(0)
previous, current, drive = torch.zeros(3, 8), torch.randn(3, 8), torch.randn(3, 8)
p0, c0 = previous.clone(), current.clone()
p1, c1 = previous.clone(), current.clone()
advance(p0, c0, drive)
torch.compile(advance)(p1, c1, drive)
print("eager previous   :", [round(v, 3) for v in p0[0].tolist()])
print("compiled previous:", [round(v, 3) for v in p1[0].tolist()])
sys.exit(0 if torch.allclose(p0, p1) and torch.allclose(c0, c1) else 1)
