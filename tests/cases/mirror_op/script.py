"""A hand-written operator that mirrors a signal into another buffer."""
import sys
import torch


@torch.library.custom_op("signal::mirror", mutates_args=("dst",))
def mirror(src: torch.Tensor, dst: torch.Tensor) -> None:
    n = src.shape[0]
    for k in range(n):
        dst[n - 1 - k] = src[k]


def process(x, gain):
    scaled = torch.sigmoid(gain) * 2.0
    before = x.clone()
    mirror(before, x)
    return x * scaled, scaled.mean()


x, gain = torch.arange(8.0), torch.linspace(-1, 1, 8)
plain, traced = x.clone(), x.clone()
want = process(plain, gain)
got = torch.compile(process)(traced, gain)
print("eager   :", plain.tolist())
print("compiled:", traced.tolist())
sys.exit(0 if torch.allclose(plain, traced) and torch.allclose(want[0], got[0]) else 1)
