"""A small U-Net whose encoder alone is compiled; the decoder stays eager."""

import torch
from torch import nn
from torch.nn import functional as F


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.high, self.low = block(3, 8), block(8, 16)

    def forward(self, x):
        high = self.high(x)
        return high, self.low(F.max_pool2d(high, 2))


torch.manual_seed(0)
encoder, decoder = Encoder(), block(24, 4)
compiled = torch.compile(encoder)
high, low = compiled(torch.randn(2, 3, 24, 24))
wide = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
loss = decoder(torch.cat([high, wide], dim=1)).square().mean()
loss.backward()
print(loss.item(), sum(p.grad.norm() for p in encoder.parameters()).item())
