"""Take a patched snapshot of a state and then clear the state."""
import sys
import torch


def snapshot(state, patch, gain):
    centre = torch.tanh(patch - patch.mean(dim=1, keepdim=True)) * gain
    snap = torch.slice_scatter(state, centre[1:3], dim=0, start=1, end=3)
    state.zero_()
    spread = centre.std(dim=1)
    return snap, spread / spread.sum()


torch.manual_seed(0)
state, patch = torch.randn(4, 6), torch.randn(4, 6)
want = snapshot(state.clone(), patch, 2.0)
got = torch.compile(snapshot)(state.clone(), patch, 2.0)
print("eager snapshot norm   :", want[0].norm().item())
print("compiled snapshot norm:", got[0].norm().item())
sys.exit(0 if torch.allclose(want[0], got[0], atol=1e-5) else 1)
