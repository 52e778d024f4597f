"""A training step of a small VGG network: convolutions, pooling and dropout."""

import torch
from torch.nn import functional as F
from torchvision.models.vgg import VGG, make_layers

torch.manual_seed(0)
model = VGG(make_layers([16, "M", 32, "M", 32, "M"], batch_norm=True), num_classes=10)
model.classifier = torch.nn.Sequential(
    torch.nn.Linear(32 * 49, 64), torch.nn.ReLU(True), torch.nn.Dropout(), torch.nn.Linear(64, 10)
)
compiled = torch.compile(model)
loss = F.cross_entropy(compiled(torch.randn(4, 3, 56, 56)), torch.randint(0, 10, (4,)))
loss.backward()
print(loss.item() > 0)
