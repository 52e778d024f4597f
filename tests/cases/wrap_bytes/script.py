"""Phase counters wrap around in a byte, also when they run backwards."""
import sys
import torch


def counters(speed, start, steps):
    position = start + speed * steps
    position = position.floor()
    wrapped = position.to(torch.uint8)
    total = wrapped.to(torch.int64).sum(dim=1)
    return wrapped, total, position.abs().amax(dim=1)


torch.manual_seed(0)
speed = torch.randn(6, 40)
start = torch.zeros(6, 40)
want = counters(speed, start, 5)
got = torch.compile(counters)(speed, start, 5)
print("eager   :", want[0][0, :8].tolist())
print("compiled:", got[0][0, :8].tolist())
sys.exit(0 if all(torch.equal(a, b) for a, b in zip(want, got)) else 1)
