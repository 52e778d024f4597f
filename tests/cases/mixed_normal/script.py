"""Sample from a normal whose mean is half precision and whose spread is not."""
import sys
import torch


def sample(loc, scale):
    spread = torch.nn.functional.softplus(scale) + 0.1
    centre = loc - loc.mean()
    noise = torch.distributions.Normal(centre, spread).sample()
    return noise, (noise > 0).sum()


loc, scale = torch.linspace(-1, 1, 8).half(), torch.ones(8)
torch.manual_seed(0)
want = sample(loc, scale)
torch.manual_seed(0)
got = torch.compile(sample)(loc, scale)
print("eager dtype   :", want[0].dtype)
print("compiled dtype:", got[0].dtype)
sys.exit(0 if want[0].dtype == got[0].dtype else 1)
