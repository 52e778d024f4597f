"""Weights at the prime positions of a sequence; the primes are found in plain Python."""
import sys
import torch


def primes(limit):
    found = []
    for candidate in range(2, limit):
        is_prime = True
        for p in found:
            if p * p > candidate:
                break
            if candidate % p == 0:
                is_prime = False
                break
        if is_prime:
            found.append(candidate)
    return found


def weights(x, limit):
    positions = torch.tensor(primes(limit)[:50])
    y = torch.tanh(x) * 2
    return y[positions].cumsum(dim=0), y.mean()


torch.manual_seed(0)
x = torch.randn(400)
want = weights(x, 60000)
print("eager   :", want[0][:3].tolist(), flush=True)
got = torch.compile(weights)(x, 60000)
print("compiled:", got[0][:3].tolist())
sys.exit(0 if torch.allclose(want[0], got[0]) else 1)
