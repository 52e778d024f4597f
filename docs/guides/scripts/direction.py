"""The gradient of a sign is zero everywhere; use it as one more feature."""

import torch


def features(gradient, wind):
    gust = torch.sigmoid(wind) * 2
    turned = gradient + gust.flip(0)
    return turned.cumsum(0), gust.mean()


wind = torch.linspace(-2, 2, 6, requires_grad=True)
(gradient,) = torch.autograd.grad(torch.sgn(wind).sum(), wind)
wind = wind.detach()
print("eager:   ", features(gradient, wind)[0][-1].item(), flush=True)
print("compiled:", torch.compile(features)(gradient, wind)[0][-1].item())
