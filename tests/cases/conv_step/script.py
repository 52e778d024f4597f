"""One training step of a small convolutional network."""
import copy
import sys
import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 12, 3, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))
x, t = torch.randn(4, 3, 16, 16), torch.tensor([0, 3, 1, 4])


def step(model, call):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(2):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(call(x), t)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


plain, traced = copy.deepcopy(net), copy.deepcopy(net)
want = step(plain, plain)
got = step(traced, torch.compile(traced))
err = max((a - b).abs().max().item() for a, b in zip(want[1], got[1]))
print("losses:", want[0], got[0], "max parameter error:", err)
sys.exit(0 if err < 1e-3 else 1)
