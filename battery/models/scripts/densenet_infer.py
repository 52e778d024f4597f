"""A small DenseNet, which concatenates all earlier features."""

import torch
from torchvision.models import DenseNet

torch.manual_seed(0)
model = DenseNet(growth_rate=8, block_config=(3, 3), num_init_features=16, num_classes=10).eval()
compiled = torch.compile(model, fullgraph=True)
with torch.no_grad():
    print(compiled(torch.randn(2, 3, 64, 64)).tolist())
