"""Two training steps of a narrow ResNet-18 with batch norm."""

import torch
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, ResNet

torch.manual_seed(0)
model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
pictures, labels = torch.randn(4, 3, 48, 48), torch.randint(0, 10, (4,))
for step in range(2):
    loss = F.cross_entropy(compiled(pictures), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
