"""Brighten every third pixel of an image through a strided window."""
import sys
import torch


def brighten(image, gain):
    level = torch.sigmoid(image).mean()
    image.view(-1).as_strided((4,), (3,), 1).add_(level * gain)
    return torch.relu(image).sum(dim=1)


torch.manual_seed(0)
image = torch.randn(3, 4)
want = brighten(image.clone(), 2.0)
print("eager ok", want.tolist(), flush=True)
got = torch.compile(brighten)(image.clone(), 2.0)
print("compiled ok", got.tolist())
sys.exit(0 if torch.allclose(want, got, atol=1e-5) else 1)
