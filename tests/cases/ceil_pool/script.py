"""Downsample feature maps with ceil mode pooling and train one step."""
import copy
import torch
from torch import nn
torch.manual_seed(3)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.pool = nn.AvgPool2d(3, 2, ceil_mode=True)
        self.head = nn.Linear(6 * 4 * 4, 5)
    def forward(self, x):
        return self.head(self.pool(torch.tanh(self.conv(x))).flatten(1))
model = Net()
twin = copy.deepcopy(model)
x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
nn.functional.cross_entropy(twin(x), y).backward()
nn.functional.cross_entropy(torch.compile(model)(x), y).backward()
worst = (model.conv.weight.grad - twin.conv.weight.grad).abs().max().item()
print("gradient difference", worst)
assert worst < 1e-4
