"""Rapidity of particles from their energy over a very small mass."""
import sys
import torch


def rapidity(energy, mass, weight):
    ratio = torch.clamp(energy / mass, min=1.0)
    eta = torch.acosh(ratio)
    share = torch.softmax(weight, dim=0)
    return eta, (eta * share).sum(), torch.log1p(energy).mean()


energy = torch.tensor([1.0, 5.0, 20.0, 300.0, 4.0, 8.0, 15.0, 1.0e3])
mass = torch.tensor([0.5, 1.0, 3.0, 1.0e-25, 0.1, 2.0, 1.0e-20, 10.0])
weight = torch.linspace(-1.0, 1.0, 8)
want = rapidity(energy, mass, weight)
got = torch.compile(rapidity)(energy, mass, weight)
print("eager   :", [round(v, 3) for v in want[0].tolist()])
print("compiled:", [round(v, 3) for v in got[0].tolist()])
sys.exit(0 if torch.allclose(want[0], got[0], rtol=1e-3) else 1)
